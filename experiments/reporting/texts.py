"""Untrusted text for a page: scripts, diffs and output, cut, cleaned and escaped.

Scripts are written by a policy that may learn to write anything. Nothing of them
reaches the page but escaped text inside an element.
"""

import difflib
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from pygments.formatters import HtmlFormatter
    from pygments.lexer import Lexer

SCRIPT_CHARS = 20_000
SCRIPT_LINES = 400
TAIL_CHARS = 1_200

#: Characters that are invisible, or that reorder what a reader sees.
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def clean(text: str) -> str:
    """Terminal colours dropped, line ends plain, odd characters as codes."""
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _ODD.sub(lambda m: f"\\u{ord(m.group()):04x}", text)


def cut(text: str) -> tuple[str, str]:
    """A script short enough for the page, and what was cut off, in words."""
    lines = text[:SCRIPT_CHARS].splitlines()
    short = "\n".join(lines[:SCRIPT_LINES])
    left = len(text) - len(short)
    if len(lines) <= SCRIPT_LINES and len(text) <= SCRIPT_CHARS:
        return short, ""
    return short, f"{left:,} further characters are in the file"


def tail(text: str | None) -> str:
    """The end of an output, cleaned."""
    text = clean(text or "").rstrip()
    return text if len(text) <= TAIL_CHARS else "…" + text[-TAIL_CHARS:]


def read_script(folder: Path, digest: str | None) -> str | None:
    """A script of a run; None where the answer held none or the file is gone.

    The digest is checked first: a record must not name another file.
    """
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        return None
    path = folder / "scripts" / f"{digest}.py"
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return clean(file.read(50 * SCRIPT_CHARS))
    except OSError:
        return None


@functools.cache
def _formatter() -> "HtmlFormatter":
    from pygments.formatters import HtmlFormatter

    return HtmlFormatter(nowrap=True)


@functools.cache
def _lexer(name: str) -> "Lexer":
    from pygments.lexers import DiffLexer, PythonLexer

    options = {"stripnl": False, "ensurenl": False}
    return {"python": PythonLexer, "diff": DiffLexer}[name](**options)


def highlighted(code: str, kind: str = "python") -> Markup:
    """Code with its tokens marked; escaped by pygments."""
    from pygments import highlight

    # pygments escapes all text; the only tags are its own spans.
    return Markup(highlight(code, _lexer(kind), _formatter()))


def difference(before: str, after: str) -> str:
    """A unified diff of two cut scripts, without file names; empty if they agree."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), lineterm="", n=2
    )
    return "".join(f"{line}\n" for line in list(lines)[2:])


def styles() -> str:
    """CSS of the tokens, for light and for dark pages."""
    from pygments.formatters import HtmlFormatter

    def of(style: str, prefix: str) -> str:
        rules = HtmlFormatter(style=style).get_style_defs(prefix).splitlines()
        # Token colours alone: the page itself styles line numbers and the added and
        # removed lines of a diff (gi, gd).
        others = ("linenos", f"{prefix} .gi ", f"{prefix} .gd ")
        rules = [
            rule
            for rule in rules
            if rule.startswith(f"{prefix} .") and not any(o in rule for o in others)
        ]
        return "\n".join(re.sub(r"\s*/\*.*?\*/", "", rule) for rule in rules)

    dark = of("github-dark", ".code")
    return (
        f"{of('xcode', '.code')}\n"
        f"@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"
    )
