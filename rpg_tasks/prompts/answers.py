"""From a model's answer to a script."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n", re.MULTILINE)


class NoScript(ValueError):
    """The answer holds no script that can be run; the message says why."""


def extract_script(answer: str) -> str:
    """The script of an answer: its only fenced Python block.

    A block may be labelled ``python``, ``py`` or not at all; blocks in other languages
    do not count. A fence closes with at least as many marks as it opened with.

    Raises:
        NoScript: no block, several, an unfinished or an empty one.
    """
    blocks: list[str] = []
    position = 0
    while match := _FENCE.search(answer, position):
        mark, label = match[1], match[2].lower()
        close = re.compile(
            rf"^[ \t]*{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$", re.MULTILINE
        )
        end = close.search(answer, match.end())
        if end is None:
            raise NoScript("the code block is not finished")
        if label in ("", "python", "py", "python3"):
            blocks.append(answer[match.end() : end.start()])
        position = end.end()
    if not blocks:
        raise NoScript("the answer has no fenced Python block")
    if len(blocks) > 1:
        raise NoScript(f"the answer has {len(blocks)} Python blocks, not one")
    if not blocks[0].strip():
        raise NoScript("the Python block is empty")
    return blocks[0]
