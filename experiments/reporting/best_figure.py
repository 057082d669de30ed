"""The first figure: best score so far against wall time, one panel a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.reporting import wording
from experiments.reporting.best import BestScores
from experiments.reporting.style import INK, Panel, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inches: narrow, so that letters are large enough on a phone.
SIZE = (3.7, 3.4)


def best_panel(best: BestScores) -> Panel:
    """One line an arm to the end of the common axis, with its interval."""

    def panel(axis: Axes) -> None:
        for arm in best.runs:
            _arm(axis, best, arm)
        axis.axhline(best.baseline, color=INK, linewidth=0.8, linestyle=":")
        if any(best.until([arm]) < best.end for arm in best.runs):
            axis.plot([], [], color=INK, linestyle=(0, (1, 2)), linewidth=2.0,
                      label="dotted: run ended,\nlast score kept")  # fmt: skip
        axis.set_xlim(0, best.end or 1.0)
        _limits(axis, best)
        way = "higher is better ↑" if best.sign > 0 else "lower is better ↓"
        axis.set_ylabel(f"best {wording.score(best.task)} so far\n({way})")
        axis.set_xlabel("wall seconds of a run")
        # The axis's own, not the figure's: a page cuts panels from their figure.
        axis.legend(
            title=best.task.short,
            loc="lower center",
            bbox_to_anchor=(0.45, 1.0),
            ncols=2,
            frameon=False,
            handlelength=1.4,
            columnspacing=0.8,
        )

    return panel


def _arm(axis: Axes, best: BestScores, arm: str) -> None:
    line, colour = best.line(arm), look(arm).colour
    ended = best.until([arm])
    for part, dash, name in (
        (line.time <= ended, look(arm).dash, arm),
        (line.time >= ended, (0, (1, 2)), None),
    ):
        axis.plot(line.time[part], line.value[part], color=colour, linestyle=dash,
                  linewidth=2.0, drawstyle="steps-post", label=name)  # fmt: skip
    if np.isfinite(line.low).any():
        axis.fill_between(
            line.time,
            line.low,
            line.high,
            step="post",
            color=colour,
            alpha=0.16,
            linewidth=0,
        )


def _limits(axis: Axes, best: BestScores) -> None:
    """Leave out scores far worse than all the lines' ends and the sample's."""
    ends = [float(best.line(arm).value[-1]) for arm in best.runs]
    shown = [v for v in (*ends, best.baseline) if np.isfinite(v)]
    low, high = axis.get_ylim()
    room = max(max(shown) - min(shown), 1e-9) if shown else np.inf
    if best.sign > 0 and low < min(shown) - 2 * room:
        axis.set_ylim(bottom=min(shown) - 0.5 * room)
    elif best.sign < 0 and high > max(shown) + 2 * room:
        axis.set_ylim(top=max(shown) + 0.5 * room)
