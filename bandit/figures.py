"""The study's figures, drawn from result.csv and curves.csv alone.

An agent has one colour in all of them, its registration's. Bars and bands are the mean
± one standard error over the evaluation trials.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

import numpy as np

from bandit.agents import AGENTS
from bandit.analysis import Row, read_csv
from bandit.registry import ENVS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: Agents that stand out, drawn last and thick; the others are thin and dashed.
EMPHASISED = (
    "npg-niw",
    "spg-niw",
    "cucb-tuned",
    "cucb-theory",
    "cucb-plugin",
    "imed",
)
#: Colours of agents whose registration names none.
SPARE = ("#dbdb8d", "#aec7e8", "#98df8a", "#c5b0d5", "#7b4173", "#9c9ede", "#e7969c")
#: First digits of ticks on a log axis, few before many.
DIGITS = ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5, 8))
INTERVAL = "mean ± standard error"


def _select(rows: Iterable[Row], selection: str, num_contexts: int | None) -> list[Row]:
    """Rows of one way of tuning; an agent that was not tuned has only 'default'.

    The oracle is left out: its regret is noise around 0, which a log axis cannot show.
    """
    chosen = [
        row
        for row in rows
        if row["selection"] in (selection, "default")
        and row["agent"] != "oracle"
        and num_contexts in (None, row["num_contexts"])
    ]
    if not chosen:
        raise ValueError(f"no rows with selection {selection!r} to draw")
    return chosen


def colour_of(agent: str) -> str:
    """An agent's colour, the same in every figure."""
    spec = AGENTS.get(agent)
    if spec is not None and spec.colour is not None:
        return spec.colour
    return SPARE[crc32(agent.encode()) % len(SPARE)]


def _style(agent: str) -> dict[str, Any]:
    marker = AGENTS[agent].marker if agent in AGENTS else "."
    style = {"color": colour_of(agent), "marker": marker}
    if agent in EMPHASISED:
        return style | {"linewidth": 1.8}
    return style | {"linewidth": 1.0, "linestyle": "--"}


def _title(env: str) -> str:
    return ENVS[env].title if env in ENVS else env


def _figure(columns: int, *, height: float = 3.6) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    width = 6.4 if columns == 1 else 3.3 * columns + 0.6
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.title.set_fontsize("medium")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(True, axis="y", alpha=0.25, linewidth=0.6)
    return figure, list(axes)


def _plain_ticks(axis: "Axis", low: float, high: float) -> None:
    """Ticks of a log axis as plain numbers, few enough to be read."""
    from matplotlib.ticker import (
        FixedLocator,
        NullFormatter,
        NullLocator,
        StrMethodFormatter,
    )

    inside: list[int] = []
    for digits in DIGITS:
        ticks = [digit * 10**power for power in range(8) for digit in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= 3:
            break
    axis.set_major_locator(FixedLocator(inside))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _ordered(rows: Iterable[Row]) -> list[str]:
    agents = list(dict.fromkeys(row["agent"] for row in rows))
    return sorted(agents, key=lambda a: EMPHASISED.index(a) if a in EMPHASISED else -1)


def _legend(
    figure: "Figure",
    axes: Sequence["Axes"],
    loc: Literal["outside lower center", "outside right upper"],
    columns: int,
) -> None:
    """One legend of all panels' curves, in the order in which they were drawn."""
    found: dict[str, Any] = {}
    for axis in axes:
        handles, texts = axis.get_legend_handles_labels()
        found |= dict(zip(texts, handles, strict=True))
    figure.legend(
        list(found.values())[::-1],
        list(found)[::-1],
        loc=loc,
        ncols=columns,
        frameon=False,
        fontsize="small",
    )


def regret_against_arms(
    result_csv: Path, *, selection: str = "median", num_contexts: int | None = None
) -> "Figure":
    """Final regret against K, one panel per environment: the paper's figure.

    With a single K the panels become ranked dot charts, one line per agent.

    Args:
      result_csv: a run's result.csv.
      selection: tuned by 'median' (the paper) or 'mean' final regret.
      num_contexts: X to draw; None where the run has one X only.

    Raises:
      ValueError: there is nothing to draw.
    """
    rows = _select(read_csv(result_csv), selection, num_contexts)
    names = list(dict.fromkeys(row["env"] for row in rows))
    sizes = sorted({row["num_arms"] for row in rows})
    labels = {row["agent"]: row["label"] for row in rows}
    if len(sizes) == 1:
        return _ranking(rows, names, labels)
    figure, axes = _figure(len(names))
    for axis, env in zip(axes, names, strict=True):
        for agent in _ordered(rows):
            line = sorted(
                (r["num_arms"], r["regret_mean"], r["regret_se"])
                for r in rows
                if r["env"] == env and r["agent"] == agent
            )
            if not line:
                continue
            arms, mean, se = np.array(line, float).T
            axis.errorbar(
                arms,
                mean,
                np.nan_to_num(se),
                label=labels[agent],
                capsize=2,
                markersize=5,
                **_style(agent),
            )
        axis.set(yscale="log", xlabel="number of arms K", title=_title(env))
        axis.set_xticks(sizes)
        _plain_ticks(axis.yaxis, *axis.get_ylim())
    axes[0].set_ylabel(f"regret at the last step\n({INTERVAL})")
    _legend(figure, axes, "outside lower center", 6)
    return figure


def _ranking(rows: list[Row], names: list[str], labels: dict[str, str]) -> "Figure":
    order = sorted(
        labels,
        key=lambda a: -np.mean([r["regret_mean"] for r in rows if r["agent"] == a]),
    )
    figure, axes = _figure(len(names), height=0.3 * len(order) + 1.2)
    for axis, env in zip(axes, names, strict=True):
        for row in rows:
            if row["env"] == env:
                axis.errorbar(
                    max(row["regret_mean"], 1.0),
                    order.index(row["agent"]),
                    xerr=np.nan_to_num(row["regret_se"]),
                    capsize=2,
                    **{**_style(row["agent"]), "linestyle": "none"},
                )
        axis.set(
            xscale="log",
            xlabel=f"regret at the last step\n({INTERVAL})",
            title=f"{_title(env)}, K = {rows[0]['num_arms']}",
        )
        _plain_ticks(axis.xaxis, *axis.get_xlim())
        axis.grid(True, axis="x", alpha=0.25, linewidth=0.6)
        axis.set_yticks(range(len(order)))
        axis.set_yticklabels([labels[a] for a in order] if axis is axes[0] else [])
    return figure


def regret_against_time(
    result_csv: Path,
    curves_csv: Path,
    *,
    num_arms: int,
    selection: str = "median",
    num_contexts: int | None = None,
) -> "Figure":
    """Mean regret against the environment's seconds for one K, a panel per env.

    Args:
      result_csv: a run's result.csv (for labels).
      curves_csv: a run's curves.csv.
      num_arms: K to draw.
      selection: tuned by 'median' (the paper) or 'mean' final regret.
      num_contexts: X to draw; None where the run has one X only.

    Raises:
      ValueError: there is nothing to draw.
    """
    labels = {row["agent"]: row["label"] for row in read_csv(result_csv)}
    chosen = _select(read_csv(curves_csv), selection, num_contexts)
    rows = [row for row in chosen if row["num_arms"] == num_arms]
    if not rows:
        raise ValueError(f"no rows with K = {num_arms} to draw")
    names = list(dict.fromkeys(row["env"] for row in rows))
    figure, axes = _figure(len(names), height=4.2)
    for axis, env in zip(axes, names, strict=True):
        for agent in _ordered(rows):
            line = [r for r in rows if r["env"] == env and r["agent"] == agent]
            if line:
                _draw_curve(axis, line, labels[agent], agent)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="environment time (s)",
            title=f"{_title(env)}, K = {num_arms}",
        )
        _plain_ticks(axis.xaxis, *axis.get_xlim())
        _plain_ticks(axis.yaxis, *axis.get_ylim())
    axes[0].set_ylabel(f"regret ({INTERVAL})")
    _legend(figure, axes, "outside right upper", 1)
    return figure


def _draw_curve(axis: "Axes", line: list[Row], label: str, agent: str) -> None:
    """One agent's curve; the part below a regret of 1 has no place on a log axis."""
    time = np.array([r["elapsed_mean"] for r in line], float)
    mean = np.array([r["regret_mean"] for r in line], float)
    se = np.nan_to_num(np.array([r["regret_se"] for r in line], float))
    shown = np.where(mean >= 1.0, mean, np.nan)
    axis.plot(time, shown, label=label, **{**_style(agent), "marker": ""})
    low, high = np.maximum(mean - se, 1.0), np.maximum(mean + se, 1.0)
    colour = colour_of(agent)
    axis.fill_between(time, low, high, color=colour, alpha=0.2, linewidth=0)


def save(figure: "Figure", path: Path) -> list[Path]:
    """Saves a figure as PNG and PDF next to each other; returns both paths."""
    paths = [path.with_name(path.name + suffix) for suffix in (".png", ".pdf")]
    for target in paths:
        figure.savefig(target, dpi=160)
    return paths
