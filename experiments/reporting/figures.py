"""The report's figures as panels: the same code draws files and the page."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.reporting import budget as budgets
from experiments.reporting import curves, learning, numbers, wording
from experiments.reporting.budget import BudgetUse
from experiments.reporting.curves import Curve
from experiments.reporting.runs import Experiment, RunRecords
from experiments.reporting.style import INK, Panel, look, name_lines
from rpg_tasks.goal import Goal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CURVE_TEXT = {"best": "best {} so far", "last": "last {}", "mean": "mean {}"}


def curve_text(task: Goal, curve: str) -> str:
    """What a curve shows."""
    return _CURVE_TEXT[curve].format(wording.score(task))


def score_label(task: Goal, curve: str = "best") -> str:
    """The y axis: what it is and which way is better."""
    way = "higher is better ↑" if task.higher_is_better else "lower is better ↓"
    return f"{curve_text(task, curve)} ({way})"


def small_print(task: Goal, curve: str) -> str:
    """What the dotted line is and how failures enter; below every budget curve."""
    return (
        "Thick dots: chains have ended and keep their last value. Thin dotted line: "
        f"{wording.start(task)}. Failures: {wording.failures(task, curve)}."
    )


def _line(axis: "Axes", arm: str, line: Curve, *, step: bool = False) -> None:
    colour, dash, marker = look(arm)
    x, mean, se = line
    axis.plot(
        x,
        mean,
        color=colour,
        linestyle=dash,
        linewidth=2.0,
        marker=marker,
        markersize=5,
        markevery=max(len(x) // 8, 1),
        drawstyle="steps-post" if step else "default",
    )
    if np.isfinite(se).any():
        axis.fill_between(
            x,
            mean - se,
            mean + se,
            step="post" if step else None,
            color=colour,
            alpha=0.18,
            linewidth=0,
        )


def _cut_ruins(axis: "Axes", budget: BudgetUse, ends: Sequence[float]) -> None:
    """Cut the y axis where scores are far worse than the sample submission's.

    One script that predicts nonsense would flatten everything that follows it.
    """
    worse = -1.0 if budget.task.higher_is_better else 1.0
    gains = [worse * (budget.baseline - mean) for mean in ends] or [0.0]
    edge = budget.baseline + worse * min(gains)
    worst = max(axis.get_ylim(), key=lambda y: worse * y)
    # All is shown where an arm ends no better than the sample, or in no number.
    if not (min(gains) > 0 and worse * (worst - edge) > min(gains)):
        return
    axis.set_ylim(*sorted((budget.baseline - worse * 1.2 * max(gains), edge)))
    axis.annotate(
        "worse scores are not shown",
        xy=(0.99, 0.02 if worse < 0 else 0.98),
        xycoords="axes fraction",
        ha="right",
        va="bottom" if worse < 0 else "top",
        fontsize=11,
    )


def budget_panel(budget: BudgetUse) -> Panel:
    """Best so far against seconds on one clock, one line an arm."""

    def panel(axis: "Axes") -> None:
        ends = []
        for arm in budget.chains:
            line = budgets.thin(budget.line(arm, budget.longest))
            own = line.time <= budget.ended(arm)
            _line(axis, arm, Curve(*(part[own] for part in line)), step=True)
            # What has ended keeps its last value to the end of the axis.
            axis.plot(line.time[~own], line.mean[~own], color=look(arm).colour,
                      linestyle=(0, (1, 2)), linewidth=2.0,
                      drawstyle="steps-post")  # fmt: skip
            ends.append((arm, line.time[-1], line.mean[-1], look(arm).colour))
        axis.axhline(budget.baseline, color=INK, linewidth=0.8, linestyle=":")
        axis.set_xlim(0, budget.longest or 1.0)
        _cut_ruins(axis, budget, [mean for _, _, mean, _ in ends])
        axis.set_ylabel(score_label(budget.task, budget.curve))
        axis.set_xlabel(f"{budget.clock} seconds per chain")
        axis.set_title(f"{budget.task.short}: {budget.clock} clock")
        if budget.until < 0.98 * budget.longest:
            axis.axvline(budget.until, color=INK, linewidth=0.8, linestyle="--")
            # Above or below the curves, where there is more room.
            near = [y for arm in budget.chains for y in budget.at(arm, budget.until)]
            top = np.mean(near) < np.mean(axis.get_ylim())
            axis.annotate(
                "reached by\nall chains",
                xy=(budget.until, 0.9 if top else 0.1),
                xycoords=axis.get_xaxis_transform(),
                xytext=(3, 0),
                textcoords="offset points",
                fontsize=11,
                va="top" if top else "bottom",
            )
        name_lines(axis, ends)

    return panel


def _rates_over_time(runs: Sequence[RunRecords], column: str) -> Curve | None:
    """Mean over seeds of a column of metrics.jsonl, as steps in total seconds."""
    chains = []
    for run in runs:
        time, value = run.metrics["total_s"], run.metrics[column]
        keep = np.isfinite(time) & np.isfinite(value)
        if keep.any():
            chains.append([curves.Chain(time[keep], value[keep])])
    if not chains:
        return None
    until = min(float(one[0].time[-1]) for one in chains)
    begin = max(float(one[0].time[0]) for one in chains)
    line = curves.over_seeds(chains, baseline=math.nan, until=until)
    keep = line.time >= begin
    return budgets.thin(Curve(*(part[keep] for part in line)))


def rho_panel(experiment: Experiment, task: Goal) -> Panel:
    """rho-hat over total time; beside it each batch's own rate."""

    def panel(axis: "Axes") -> None:
        ends = []
        for arm in experiment.arms(task):
            runs = experiment.of(task, arm)
            own = _rates_over_time(runs, "on_policy_rate")
            line = _rates_over_time(runs, "rho_next")
            if own is None or line is None or not len(line.time):
                continue
            axis.step(own.time, own.mean, where="post", color=look(arm).colour,
                      linewidth=0.8, alpha=0.6)  # fmt: skip
            _line(axis, arm, line, step=True)
            ends.append((arm, line.time[-1], line.mean[-1], look(arm).colour))
        axis.set_title(f"{task.short}: estimated reward rate (thin: of each step)")
        axis.set_ylabel("reward per second")
        axis.set_xlabel("total seconds of the run")
        axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
        name_lines(axis, ends)

    return panel


#: Lines over steps are means over one part in so many of the steps.
SMOOTH = 12
STEP_PANELS = {
    "relative": ("relative reward, fixed price", "reward − price · seconds"),
    "valid": ("share of valid attempts", "share of attempts"),
    "seconds": ("seconds per attempt", "seconds (protocol's clock)"),
}


def smoothing(experiment: Experiment, task: Goal) -> int:
    """Steps that a line over steps is a mean of."""
    runs = [run for arm in experiment.arms(task) for run in experiment.of(task, arm)]
    return max(max(run.steps for run in runs) // SMOOTH, 1)


def step_panel(
    experiment: Experiment, task: Goal, column: str, price: learning.Price
) -> Panel:
    """A mean over attempts against steps, one line an arm."""
    from matplotlib.ticker import MaxNLocator

    title, label = STEP_PANELS[column]

    def panel(axis: "Axes") -> None:
        ends, window = [], smoothing(experiment, task)
        for arm in experiment.arms(task):
            line = learning.by_step(
                experiment.of(task, arm), column, price.value, window=window
            )
            if not len(line.time):
                continue
            line = budgets.thin(line)
            _line(axis, arm, line)
            ends.append((arm, line.time[-1], line.mean[-1], look(arm).colour))
        axis.set_title(f"{task.short}: {title}")
        axis.set_ylabel(label)
        axis.xaxis.set_major_locator(
            MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True)
        )
        axis.set_xlabel("step" if window == 1 else f"step (mean of the last {window})")
        if column != "relative":
            axis.set_ylim(bottom=0)
        if column == "valid":
            axis.set_ylim(0, 1.03)
        name_lines(axis, ends)

    return panel


def rates_panel(experiment: Experiment) -> Panel:
    """Reward per second of each arm, the task's best arm at 1, with intervals."""

    def panel(axis: "Axes") -> None:
        tasks, arms = experiment.tasks, experiment.arms()
        for row, task in enumerate(tasks):
            kind = numbers.unit_kind(experiment, task)
            found = {
                arm: numbers.rate_interval(
                    numbers.units(experiment.of(task, arm), kind)
                )
                for arm in experiment.arms(task)
            }
            values = [i.value for i in found.values() if math.isfinite(i.value)]
            if not values or max(values) <= 0:
                continue
            best = max(values)
            for place, arm in enumerate(arms):
                if arm not in found or not math.isfinite(found[arm].value):
                    continue
                value, low, high = (x / best for x in found[arm])
                y = row + 0.7 * ((place + 0.5) / len(arms) - 0.5)
                colour, _, marker = look(arm)
                if math.isfinite(low):
                    axis.plot([low, high], [y, y], color=colour, linewidth=2)
                axis.plot([value], [y], color=colour, marker=marker, markersize=7,
                          linestyle="none", label=arm)  # fmt: skip
        axis.set_yticks(range(len(tasks)), [task.short for task in tasks])
        axis.set_ylim(len(tasks) - 0.5, -0.5)
        axis.set_xlim(left=0)
        axis.grid(False, axis="y")
        axis.grid(True, axis="x", linewidth=0.6, alpha=0.7)
        axis.set_xlabel("reward per second, best arm of the task = 1")
        handles, texts = axis.get_legend_handles_labels()
        once = dict(zip(texts, handles, strict=True))
        if not once:
            axis.set_title("no arm earned anything")
            return
        # The axis's own, not the figure's: a page cuts panels from their figure.
        legend = axis.legend(
            once.values(),
            once.keys(),
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            ncols=min(len(once), 2),
            frameon=False,
        )
        for text in legend.get_texts():
            text.set_color(look(text.get_text()).colour)

    return panel


def rates_size(experiment: Experiment) -> tuple[float, float]:
    """Inches for ``rates_panel``."""
    rows = len(experiment.tasks) * (0.25 + 0.16 * len(experiment.arms()))
    return (4.0, 1.6 + rows)


def has_steps(experiment: Experiment, task: Goal) -> bool:
    """Whether any step of a task is committed."""
    return any(
        run.steps for arm in experiment.arms(task) for run in experiment.of(task, arm)
    )
