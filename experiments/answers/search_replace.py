"""Edits as SEARCH/REPLACE blocks: lines of the parent, and lines in their place.

    <<<<<<< SEARCH
    model = LogisticRegression(C=1.0)
    =======
    model = LogisticRegression(C=0.1)
    >>>>>>> REPLACE

Without a parent there is nothing to edit: the answer is a whole script.
"""

from __future__ import annotations

from experiments.answers.base import AnswerForm
from experiments.answers.edits import EditError, Replacement, apply, find, lines_of
from rpg_tasks.prompts import extract_script

SEARCH, DIVIDER, REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"


def read(answer: str, parent: str | None) -> str:
    """The parent with every block of the answer applied, or nothing of them.

    Args:
        answer: what the policy wrote.
        parent: the script that the prompt showed; None reads a whole script.

    Raises:
        NoScript: without a parent, no script.
        EditError: a block is malformed, cut off, not in the parent exactly once,
            elided, on protected lines, or changes nothing.
    """
    if parent is None:
        return extract_script(answer)
    lines = lines_of(parent)
    replacements = []
    for old, new in blocks(answer):
        start = find(lines, old, f"a SEARCH of {len(old)} line(s)")
        replacements.append(Replacement(start, tuple(old), tuple(new)))
    return apply(parent, replacements)


def blocks(answer: str) -> list[tuple[list[str], list[str]]]:
    """(searched lines, new lines) of each block.

    Raises:
        EditError: there is no block, or one is malformed or cut off.
    """
    found: list[tuple[list[str], list[str]]] = []
    old: list[str] | None = None
    new: list[str] | None = None
    for line in lines_of(answer):
        mark = line.rstrip()
        if mark == SEARCH:
            if old is not None:
                raise EditError("malformed", "a SEARCH begins inside another one")
            old = []
        elif mark == DIVIDER and old is not None and new is None:
            new = []
        elif mark == REPLACE:
            if old is None or new is None:
                raise EditError("malformed", f"{REPLACE!r} without {SEARCH!r}")
            if not any(text.strip() for text in old):
                raise EditError("malformed", "a SEARCH without lines has no place")
            found.append((old, new))
            old = new = None
        elif new is not None:
            new.append(line)
        elif old is not None:
            old.append(line)
    if old is not None:
        raise EditError("truncated", f"the last block does not end with {REPLACE!r}")
    if not found:
        raise EditError("malformed", f"the answer has no block of {SEARCH!r}")
    return found


HOW = f"""Change the script above; do not write it again. First a plan of one sentence, then a block for each change, its SEARCH copied from the script line by line:
{SEARCH}
lines as they stand in the script
{DIVIDER}
lines that take their place
{REPLACE}"""  # noqa: E501

FORM = AnswerForm("search-replace", read, HOW)
