"""Menus: what a script may be made of, read from ``menus/*.toml``.

A recipe is an ordered list of slots (load, rows, features, model, ...), a slot is a
list of options, an option is a few lines of code with ``$parameters`` and the values
these may take. One draw picks an option per slot and a value per parameter; the script
is the code of the slots, one after the other.

Libraries that every script needs are imported at its top, the others right where they
are used, as in a notebook: what a small model writes at one place then depends on that
place, and an edit of one step touches that step alone.

Nothing in a menu says which choice scores well: options are drawn with weights that are
set for variety and for a spread of costs, and parameter values uniformly.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

MENUS = Path(__file__).with_name("data")


@dataclasses.dataclass(frozen=True)
class Option:
    """One way to fill a slot.

    Attributes:
        name: unique within its slot.
        code: lines of Python with ``$parameter`` and ``$variable`` of the task.
        words: how a plan names it, same placeholders; empty when not worth a word.
        domains: parameter -> values as they stand in the code.
        weight: relative frequency of a draw.
    """

    name: str
    code: str
    words: str
    domains: Mapping[str, tuple[str, ...]]
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Pick:
    """A drawn option and the values of its parameters."""

    option: str
    values: tuple[tuple[str, str], ...] = ()


Choices = Mapping[str, Pick]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """All scripts of one form for one task.

    Attributes:
        name: "model" (something is fitted), "constant" (nothing is), ...
        slots: slot -> options, in the order of the script.
        variables: placeholders that the task fixes.
        weight: relative frequency of this form.
    """

    name: str
    slots: Mapping[str, tuple[Option, ...]]
    variables: Mapping[str, str]
    weight: float

    def draw(self, rng: np.random.Generator) -> dict[str, Pick]:
        """One option per slot and one value per parameter."""
        return {slot: draw_option(rng, options) for slot, options in self.slots.items()}

    def option(self, slot: str, pick: Pick) -> Option:
        """The option that a pick names."""
        return next(o for o in self.slots[slot] if o.name == pick.option)

    def render(self, choices: Choices) -> str:
        """The script of these choices."""
        blocks = []
        for slot, pick in choices.items():
            code = self._fill(self.option(slot, pick).code, pick)
            if code.strip():
                blocks.append(code.strip("\n"))
        top = header()
        body = spaced("\n".join(with_imports(blocks)))
        return f"{top}\n\n{body}\n"

    def words(self, slot: str, pick: Pick) -> str:
        """How a plan names this pick; may be empty."""
        return self._fill(self.option(slot, pick).words, pick)

    def _fill(self, text: str, pick: Pick) -> str:
        # Values may name task variables themselves (paths, columns).
        values = dict(self.variables)
        for name, value in pick.values:
            fixed = "$" not in value
            values[name] = value if fixed else Template(value).substitute(values)
        return Template(text).substitute(values) if "$" in text else text


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
        elif lines and _imports(line) and not _imports(lines[-1]):
            lines.append("")
        inside = starts or (inside and not leaves)
        lines.append(line)
    return "\n".join(lines)


def _imports(line: str) -> bool:
    return line.startswith(("from ", "import "))


def draw_option(rng: np.random.Generator, options: Sequence[Option]) -> Pick:
    """An option by weight, its parameters uniformly."""
    weights = np.array([option.weight for option in options], float)
    option = options[int(rng.choice(len(options), p=weights / weights.sum()))]
    return Pick(
        option.name,
        tuple((k, v[int(rng.integers(len(v)))]) for k, v in option.domains.items()),
    )


# --- imports ------------------------------------------------------------------------


# What is called or has an attribute read; columns may bear the same names.
_USED = re.compile(r"(?<![.\w\"'])[A-Za-z_]\w*(?=[(.])")


def header() -> str:
    """Imports at the top of every script."""
    return "\n".join(_read("imports")["top"].values())


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


_GOES_ON = re.compile(r"[)\]}]|(else|elif|except|finally)\b")


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
    table = _read("imports")
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


# --- reading ------------------------------------------------------------------------


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((MENUS / f"{name}.toml").read_text("utf-8"))


@functools.cache
def menu(name: str) -> Mapping[str, tuple[Option, ...]]:
    """The slots of one menu file: ``[slot.option]`` tables, options named the same."""
    return {
        slot: tuple(_option(f"{slot}.{n}", row) for n, row in options.items())
        for slot, options in _read(name).items()
    }


def _option(name: str, row: Mapping[str, Any]) -> Option:
    unknown = set(row) - {"code", "words", "values", "weight"}
    if unknown:
        raise ValueError(f"option {name}: unknown keys {sorted(unknown)}")
    return Option(
        name=name,
        code=row.get("code", ""),
        words=row.get("words", ""),
        domains={k: tuple(map(str, v)) for k, v in row.get("values", {}).items()},
        weight=float(row.get("weight", 1.0)),
    )


@functools.cache
def recipes(task: str) -> tuple[Recipe, ...]:
    """The forms of script for one task, from its row in ``menus/tasks.toml``.

    Raises:
        KeyError: the task has no row.
    """
    row = _read("tasks")[task]
    found = []
    for form, parts in row["forms"].items():
        slots = {}
        for slot, source in parts.items():
            if slot == "weight":
                continue
            options: list[Option] = []
            for name in [source] if isinstance(source, str) else source:
                file, _, key = name.partition(".")
                options += menu(file)[key]
            slots[slot] = tuple(_adapted(row, options))
        found.append(
            Recipe(form, slots, row.get("variables", {}), parts.get("weight", 1.0))
        )
    return tuple(found)


def _adapted(row: Mapping[str, Any], options: list[Option]) -> Iterator[Option]:
    """The options that a task allows, with its own values where it has some."""
    for option in options:
        if option.name in row.get("drop", ()):
            continue
        own = row.get("values", {}).get(option.name, {})
        own = {k: tuple(map(str, v)) for k, v in own.items()}
        yield dataclasses.replace(option, domains={**option.domains, **own})
