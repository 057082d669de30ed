"""What forms that edit their parent share: places found strictly, errors that help.

All or nothing: every edit of an answer is checked before the script exists. A place is
a run of whole lines that stands in the parent exactly once. Line ends are the parent's.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from experiments.answers.base import NoScript

PROTECTED, END_PROTECTED = "# <protected>", "# </protected>"
KINDS = (
    *("malformed", "truncated", "missing", "ambiguous", "overlapping"),
    *("elided", "protected", "no-op"),
)
# "...", "# ...", "# ... rest of the code unchanged", "// existing code"
_ELISION = re.compile(
    r"^\s*(\.\.\.|(#|//)\s*(\.\.\.|(rest|remainder|remaining|existing|unchanged)\b))",
    re.IGNORECASE,
)


class EditError(NoScript):
    """An edit that cannot be made; nothing of its answer is applied.

    Attributes:
        kind: one of ``KINDS``.
    """

    def __init__(self, kind: str, message: str):
        super().__init__(f"{kind} edit: {message}")
        self.kind = kind


class Replacement(NamedTuple):
    """Lines of the parent and what takes their place.

    Attributes:
        start: index of the first line.
        old: the parent's lines.
        new: lines without line ends.
    """

    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def lines_of(text: str) -> list[str]:
    """Lines without their ends, whatever those are."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def find(
    parent: Sequence[str],
    wanted: Sequence[str],
    what: str,
    *,
    line: int | None = None,
) -> int:
    """Where a run of lines stands in the parent.

    Args:
        parent: its lines.
        wanted: the run.
        what: what is looked for, in the words of the form.
        line: index that decides between several places.

    Raises:
        EditError: nowhere (with the closest line), or at several places.
    """
    size = len(wanted)
    places = [
        at
        for at in range(len(parent) - size + 1)
        if list(parent[at : at + size]) == list(wanted)
    ]
    if len(places) == 1:
        return places[0]
    if line in places:
        return places[places.index(line)]
    if places:
        numbers = ", ".join(str(at + 1) for at in places[:5])
        raise EditError(
            "ambiguous",
            f"{what} stands in the script {len(places)} times (lines {numbers}): give "
            "more lines around it",
        )
    raise EditError(
        "missing", f"{what} is not in the script. {_closest(parent, wanted)}"
    )


def _closest(parent: Sequence[str], wanted: Sequence[str]) -> str:
    """The first line that is not there, and the one that is most like it."""
    present = set(parent)
    lost = next((line for line in wanted if line not in present), None)
    if lost is None:
        return "Each of its lines is there, but not in this order"
    stripped = [line for line in parent if line.strip() == lost.strip()]
    if stripped:
        return f"The indentation differs: the script has {stripped[0]!r}"
    near = difflib.get_close_matches(lost, parent, n=1, cutoff=0.5)
    if not near:
        return f"No line is like {lost!r}"
    return f"For {lost!r} the closest line is {near[0]!r}"


def check_elision(new: Sequence[str], parent: Sequence[str]) -> None:
    """Refuse a placeholder for code that was left out.

    Raises:
        EditError: a new line stands for others.
    """
    present = set(parent)
    for line in new:
        if _ELISION.match(line) and line not in present:
            raise EditError(
                "elided", f"{line.strip()!r} stands for code: write every line out"
            )


def apply(parent: str, replacements: Sequence[Replacement]) -> str:
    """The parent with all replacements made.

    Args:
        parent: a script.
        replacements: places in the parent as it is, in any order.

    Raises:
        EditError: two overlap, a protected line is touched, or nothing would change.
    """
    lines = lines_of(parent)
    ordered = sorted(replacements, key=lambda r: r.start)
    for before, after in itertools.pairwise(ordered):
        if before.start + len(before.old) > after.start:
            raise EditError(
                "overlapping", f"two edits change line {after.start + 1} of the script"
            )
    protected = _protected(lines)
    for replacement in ordered:
        check_elision(replacement.new, lines)
        _check_protected(replacement, protected)
    result = list(lines)
    for start, old, new in reversed(ordered):
        result[start : start + len(old)] = new
    if result == lines:
        raise EditError("no-op", "the script would stay as it is: change something")
    end = "\r\n" if "\r\n" in parent else "\n"
    return end.join(result)


def _protected(lines: Sequence[str]) -> set[int]:
    """Indices between the markers, markers included."""
    found: set[int] = set()
    inside = False
    for at, line in enumerate(lines):
        inside = inside or line.strip() == PROTECTED
        if inside:
            found.add(at)
        inside = inside and line.strip() != END_PROTECTED
    return found


def _check_protected(replacement: Replacement, protected: set[int]) -> None:
    start, old, new = replacement
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, low, high, _, _ in matcher.get_opcodes():
        # An insertion between two protected lines is inside them too.
        touched = set(range(start + low, start + high))
        if tag == "insert" and {start + low - 1, start + low} <= protected:
            touched = {start + low}
        if tag != "equal" and touched & protected:
            line = min(touched & protected) + 1
            raise EditError("protected", f"line {line} of the script must stay")
