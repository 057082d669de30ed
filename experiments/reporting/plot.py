"""The best score against wall time as text, for a terminal."""

from __future__ import annotations

import importlib.util

import numpy as np

from experiments.reporting.best import BestScores
from experiments.reporting.runs import Floats
from experiments.reporting.sheet import number

#: A line's letter: arms are told apart without colours.
MARKERS = {"rpg": "o", "vanilla": "x", "search-only": "."}
OTHERS = "+*#%@=~"
HEIGHT, LEAST_WIDTH, TIMES = 16, 40, 6
#: The vertical axis shows the scores after this share of the time.
EARLY = 0.1
_BOX = str.maketrans("┌┐└┘─│┤├┬┴┼", "++++-|||--+")


def available() -> bool:
    """Whether plotext is installed."""
    return importlib.util.find_spec("plotext") is not None


def marker(arms: list[str], arm: str) -> str:
    """An arm's letter."""
    others = [name for name in arms if name not in MARKERS]
    return MARKERS.get(arm) or OTHERS[others.index(arm) % len(OTHERS)]


def text(best: BestScores, *, width: int, unicode: bool = True) -> str:
    """The curve of a task, or a table where plotext is missing; no colours.

    Args:
        best: the task's best scores.
        width: columns of the terminal.
        unicode: whether the terminal shows more than ASCII.
    """
    drawn = _curve(best, max(width, LEAST_WIDTH)) if available() else table(best)
    if unicode:
        return drawn
    return drawn.translate(_BOX).encode("ascii", "replace").decode("ascii")


def _title(best: BestScores) -> str:
    way = "higher" if best.sign > 0 else "lower"
    return f"{best.task.short}: best score so far ({way} is better)"


def _steps(time: Floats, value: Floats) -> tuple[list[float], list[float]]:
    """A step function as corners."""
    x = np.repeat(time, 2)[1:]
    y = np.repeat(value, 2)[:-1]
    keep = np.isfinite(y)
    return x[keep].tolist(), y[keep].tolist()


def _curve(best: BestScores, width: int) -> str:
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.limit_size(False, False)  # else as wide as what plotext takes for it
    plotext.plotsize(width, HEIGHT)
    plotext.xlabel("wall seconds of a run; an ended run keeps its last score")
    arms, late, names = list(best.runs), [], []
    # The first arm is drawn last, so that it is seen where lines meet.
    for arm in reversed(arms):
        line = best.line(arm)
        x, y = _steps(line.time, line.value)
        plotext.plot(x, y, marker=marker(arms, arm))
        late += [v for t, v in zip(x, y, strict=True) if t >= EARLY * best.end]
        names.append(f"{marker(arms, arm)} {arm} {number(y[-1], 4) if y else ''}")
    early = ""
    if late and min(late) < max(late):
        room = 0.05 * (max(late) - min(late))
        plotext.ylim(min(late) - room, max(late) + room)
        early = f"; scores of the first {100 * EARLY:.0f}% may be off the picture"
    drawn = plotext.uncolorize(plotext.build())
    plotext.clear_figure()
    head = [f"{_title(best)}{early}", "   ".join(reversed(names))]
    return "\n".join([*head, *(line.rstrip() for line in drawn.splitlines())])


def table(best: BestScores) -> str:
    """The same as a table: each arm's best score at a few times."""
    times = np.linspace(0.0, best.end, TIMES)
    rows = [["seconds", *(number(float(t)) for t in times)]]
    for arm in best.runs:
        values = best.line(arm, times).value
        rows.append([arm, *(number(float(v), 4) for v in values)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(size) if at == 0 else cell.rjust(size)
            for at, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([_title(best), *lines])
