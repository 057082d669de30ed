"""Logs of modded-nanogpt runs: points of (step, validation loss, seconds), and flags.

    step:1750/3000 val_loss:3.4512 train_time:263012ms step_avg:151.16ms

A log begins with the source of its script, which may hold any text; a run's own lines
come after the last ruler of ``=``. Only whole lines count. What a log says is a claim:
the harness never pays for it, it is read to replay records and to audit.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(
    r"step:(\d+)/(\d+) val_loss:(\S+) train_time:(\S+?)(ms|s)(?: [a-z_]+:\S+)*"
)
_TRAINING = re.compile(r"step:\d+/\d+ (?!.*val_loss:).*")
_RULER = re.compile(r"={20,}")


class Point(NamedTuple):
    """One validation: step, loss in nats, seconds of training."""

    step: int
    loss: float
    seconds: float


class Log(NamedTuple):
    """What a log says.

    Attributes:
        points: validations in the order of their steps, one a step.
        steps: of the whole run; 0 where the log says nothing.
        flags: what is wrong with it, in words; empty for a clean log.
    """

    points: tuple[Point, ...]
    steps: int
    flags: tuple[str, ...]

    @property
    def final(self) -> Point | None:
        """The last validation with a finite loss."""
        return next((p for p in self.points[::-1] if math.isfinite(p.loss)), None)

    def reached(self, target: float) -> Point | None:
        """The first validation at or below a loss."""
        return next((p for p in self.points if p.loss <= target), None)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _own_part(text: str) -> tuple[list[str], bool, bool]:
    """Lines after the header; whether the last is torn; whether steps stand before."""
    lines = text.replace("\r\n", "\n").split("\n")
    torn = bool(lines and lines[-1])
    rulers = [at for at, line in enumerate(lines) if _RULER.fullmatch(line)]
    if not rulers:
        return lines, torn, False
    inside = lines[rulers[0] + 1 : rulers[-1]]
    early = any(_LINE.fullmatch(line) for line in inside)
    return lines[rulers[-1] + 1 :], torn, early


def read_log(text: str, *, wall_s: float | None = None) -> Log:
    """Read a log.

    Args:
        text: the whole file.
        wall_s: the harness's own wall time of the run, where it is known: no training
            takes longer.

    Returns:
        Its points and what is wrong with them. Of two values at one step the first is
        kept.
    """
    lines, torn, early = _own_part(text)
    flags: dict[str, None] = {}
    if early:
        flags["forged: validation lines before the header's end"] = None
    found: list[tuple[Point, int]] = []
    seen: set[str] = set()
    for at, line in enumerate(lines):
        if not line.startswith("step:") or line in seen:
            continue
        seen.add(line)
        match = _LINE.fullmatch(line)
        if match is None or (torn and at == len(lines) - 1):
            if not (match is None and _TRAINING.fullmatch(line)):
                flags["torn: a line that is not whole"] = None
            continue
        scale = 1e-3 if match[5] == "ms" else 1.0
        point = Point(int(match[1]), _number(match[3]), _number(match[4]) * scale)
        found.append((point, int(match[2])))
    flags |= dict.fromkeys(_odd(found, wall_s))
    points = {point.step: point for point, _ in reversed(found)}
    ordered = tuple(points[step] for step in sorted(points))
    return Log(ordered, found[0][1] if found else 0, tuple(flags))


def _odd(found: list[tuple[Point, int]], wall_s: float | None) -> Iterator[str]:
    """What is wrong with the points of a log."""
    if not found:
        yield "empty: no validation line"
        return
    values: dict[int, Point] = {}
    for (before, _), (after, _) in itertools.pairwise(found):
        if after.step < before.step:
            yield "non-monotone: a step goes back"
        if after.seconds < before.seconds:
            yield "non-monotone: time goes back"
    for point, _ in found:
        if values.setdefault(point.step, point) != point:
            yield "forged: two values at one step"
        if not math.isfinite(point.loss) or not math.isfinite(point.seconds):
            yield "non-finite: a loss or a time is no number"
    if len({steps for _, steps in found}) > 1:
        yield "forged: the number of steps changes"
    if found[-1][0].step < found[-1][1]:
        yield "unfinished: the last validation is not of the last step"
    longest = max((p.seconds for p, _ in found), default=0.0)
    if wall_s is not None and longest > wall_s:
        yield "forged: train_time is above the harness's wall time"
