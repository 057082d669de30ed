"""A script's source from the code of its slots: imports, blank lines.

Libraries that every script needs are imported at its top, the others right where they
are used, as in a notebook: what a small model writes at one place then depends on that
place, and an edit of one step touches that step alone.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

IMPORTS_FILE = Path(__file__).parent / "data" / "imports.toml"

# What is called or has an attribute read; columns may bear the same names.
_USED = re.compile(r"(?<![.\w\"'])[A-Za-z_]\w*(?=[(.])")
# A line at the margin that belongs to the statement above it.
_GOES_ON = re.compile(r"[)\]}]|(else|elif|except|finally)\b")


def source(blocks: Sequence[str]) -> str:
    """The script of these blocks of code, one after the other."""
    body = spaced("\n".join(with_imports(blocks)))
    return f"{header()}\n\n{body}\n"


def header() -> str:
    """Imports at the top of every script."""
    return "\n".join(_imports()["top"].values())


def spaced(body: str) -> str:
    """Two blank lines around top-level functions, one before a step's imports."""
    lines: list[str] = []
    inside = False
    for line in body.split("\n"):
        if not line:
            continue
        starts = line.startswith("def ")
        # A closing bracket at the margin belongs to the statement above it.
        leaves = inside and line[0] not in " #)]}"
        if lines and (starts or leaves):
            lines += ["", ""]
        elif lines and _is_import(line) and not _is_import(lines[-1]):
            lines.append("")
        inside = starts or (inside and not leaves)
        lines.append(line)
    return "\n".join(lines)


def _is_import(line: str) -> bool:
    return line.startswith(("from ", "import "))


def with_imports(blocks: Sequence[str]) -> list[str]:
    """Each statement under the imports that it is the first to need, as in a notebook.

    A block that begins with spaces goes on with a function; what is imported there is
    not known after the function.
    """
    known: set[str] = set()
    inside: set[str] = set()
    found = []
    for block in blocks:
        indent = block[: len(block) - len(block.lstrip(" "))]
        if not indent:
            inside = set()
        lines = []
        for statement in _statements(block, indent):
            names = set(_USED.findall(statement)) - known - inside
            (inside if indent else known).update(names)
            lines += [f"{indent}{line}" for line in _import_lines(names)]
            lines.append(statement)
        found.append("\n".join(lines))
    return found


def _statements(block: str, indent: str) -> list[str]:
    """The statements of a block with their bodies."""
    found: list[str] = []
    for line in block.split("\n"):
        text = line.removeprefix(indent)
        starts = text[:1] not in ("", " ") and not _GOES_ON.match(text)
        if starts or not found:
            found.append(line)
        else:
            found[-1] += "\n" + line
    return found


def _import_lines(names: Collection[str]) -> list[str]:
    table = _imports()
    lines = [line for name, line in table["plain"].items() if name in names]
    for module, members in sorted(table["from"].items()):
        if used := sorted(set(names) & set(members)):
            lines += _from_line(module, used).split("\n")
    return lines


def _from_line(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= 88:
        return line
    return f"from {module} import (\n" + "".join(f"    {n},\n" for n in names) + ")"


@functools.cache
def _imports() -> dict[str, dict[str, Any]]:
    return tomllib.loads(IMPORTS_FILE.read_text("utf-8"))
