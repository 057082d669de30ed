"""Edits as a unified diff: hunks of context, removed and added lines.

    @@ -3,2 +3,2 @@
     import numpy as np
    -model = LogisticRegression(C=1.0)
    +model = LogisticRegression(C=0.1)

Line numbers decide between equal places only: models count badly. Without a parent the
answer is a whole script.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from experiments.answers.base import AnswerForm
from experiments.answers.edits import EditError, Replacement, apply, find, lines_of
from rpg_tasks.prompts import extract_script

_HEADER = re.compile(r"^@@(?: -(\d+)(?:,\d+)? \+\d+(?:,\d+)?)? @@.*$")
_NO_NEWLINE = "\\ No newline at end of file"


class Hunk(NamedTuple):
    """One place of a diff.

    Attributes:
        line: index in the parent that its header names; None without numbers.
        old: context and removed lines.
        new: context and added lines.
    """

    line: int | None
    old: tuple[str, ...]
    new: tuple[str, ...]


def read(answer: str, parent: str | None) -> str:
    """The parent with every hunk applied, or nothing of them.

    Args:
        answer: what the policy wrote; text around the hunks is left out.
        parent: the script that the prompt showed; None reads a whole script.

    Raises:
        NoScript: without a parent, no script.
        EditError: a hunk is malformed, cut off, not in the parent, at several places,
            elided, on protected lines, or changes nothing.
    """
    if parent is None:
        return extract_script(answer)
    lines = lines_of(parent)
    replacements = []
    for number, hunk in enumerate(hunks(answer), start=1):
        if not hunk.old:
            raise EditError("malformed", f"hunk {number} has no line of the script")
        start = find(lines, hunk.old, f"hunk {number}", line=hunk.line)
        replacements.append(Replacement(start, hunk.old, hunk.new))
    return apply(parent, replacements)


def hunks(answer: str) -> list[Hunk]:
    """The hunks of an answer.

    Raises:
        EditError: there is none, a header or a line is malformed, or the code block
            that holds the diff does not end.
    """
    lines = lines_of(answer)
    fences = sum(line.startswith("```") for line in lines)
    if fences % 2:
        raise EditError("truncated", "the code block of the diff does not end")
    found: list[Hunk] = []
    at = 0
    while at < len(lines):
        if not lines[at].startswith("@@"):
            at += 1
            continue
        header = _HEADER.match(lines[at])
        if header is None:
            raise EditError("malformed", f"no hunk header: {lines[at]!r}")
        at += 1
        old, new, at = _body(lines, at)
        line = None if header[1] is None else int(header[1]) - 1
        found.append(Hunk(line, tuple(old), tuple(new)))
    if not found:
        raise EditError("malformed", "the answer has no hunk (@@ ... @@)")
    return found


def _body(lines: list[str], at: int) -> tuple[list[str], list[str], int]:
    """Old and new lines from ``at`` to the end of the hunk."""
    old: list[str] = []
    new: list[str] = []
    while at < len(lines):
        line = lines[at]
        if line.startswith(("@@", "```", "--- ")):
            break
        sign, text = line[:1], line[1:]
        if sign in ("", " "):
            old.append(text)
            new.append(text)
        elif sign == "-":
            old.append(text)
        elif sign == "+":
            new.append(text)
        elif line != _NO_NEWLINE:
            raise EditError(
                "malformed", f"a line of a hunk begins with {sign!r}: {line!r}"
            )
        at += 1
    # Blank lines between a bare diff and what follows it are no context.
    while old and new and old[-1] == new[-1] == "":
        old.pop()
        new.pop()
    return old, new, at


HOW = """Change the script above; do not write it again. First a plan of one sentence, then one fenced block (```diff) with a unified diff of the script, context lines copied exactly."""  # noqa: E501

FORM = AnswerForm("unified-diff", read, HOW)
