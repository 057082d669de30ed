"""The study's figures, drawn from result.csv and curves.csv alone."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bandit.analysis import read_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colour and marker of the agents that figures emphasise; the others are thin, dashed
#: and take their colours in turn.
STYLE = {
    "npg-niw": ("#1b5e9b", "o"),
    "spg-niw": ("#d1852c", "s"),
    "cucb-tuned": ("#2e8b57", "^"),
    "cucb-theory": ("#7f7f7f", "v"),
    "cucb-plugin": ("#8e4fa8", "D"),
    "imed": ("#c0392b", "*"),
}
OTHERS = (
    "#8c6d31", "#5ab4ac", "#e377c2", "#aec7e8", "#98df8a", "#c5b0d5", "#bcbd22",
    "#c49c94", "#ff9896", "#17becf", "#dbdb8d", "#393b79", "#637939",
)  # fmt: skip
TICKS = [digit * 10**power for power in range(7) for digit in (1, 2, 3, 5)]
TITLES = {
    "E1": "E1: independent",
    "E2": "E2: correlation +0.8",
    "E3": "E3: correlation −0.8",
    "E4": "E4: lognormal, +0.5",
}


def _select(rows: list[dict], selection: str) -> list[dict]:
    """Rows of one way of tuning; an agent that was not tuned has only 'default'.

    The oracle is left out: its regret is noise around 0, which a log axis cannot show.
    """
    return [
        row
        for row in rows
        if row["selection"] in (selection, "default") and row["agent"] != "oracle"
    ]


def _style(agent: str, order: list[str]) -> dict:
    if agent in STYLE:
        colour, marker = STYLE[agent]
        return {"color": colour, "marker": marker, "linewidth": 1.8}
    rest = [name for name in order if name not in STYLE]
    colour = OTHERS[rest.index(agent) % len(OTHERS)]
    return {"color": colour, "marker": ".", "linewidth": 1.0, "linestyle": "--"}


def _figure(columns: int, *, height: float = 3.4) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    width = 6.4 if columns == 1 else 3.3 * columns + 0.6
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(True, axis="y", alpha=0.25, linewidth=0.6)
    return figure, list(axes)


def _ordered(rows: list[dict]) -> list[str]:
    agents = list(dict.fromkeys(row["agent"] for row in rows))
    # Emphasised agents are drawn last, on top of the others.
    return sorted(agents, key=lambda a: list(STYLE).index(a) if a in STYLE else -1)


def regret_against_arms(result_csv: Path, *, selection: str = "median") -> "Figure":
    """Final regret against K, one panel per environment: the paper's figure.

    With a single K the panels become ranked dot charts, one line per agent.

    Args:
      result_csv: a run's result.csv.
      selection: tuned by 'median' (the paper) or 'mean' final regret.
    """
    rows = _select(read_csv(result_csv), selection)
    names = list(dict.fromkeys(row["env"] for row in rows))
    sizes = sorted({row["num_arms"] for row in rows})
    labels = {row["agent"]: row["label"] for row in rows}
    if len(sizes) == 1:
        return _ranking(rows, names, labels)
    figure, axes = _figure(len(names))
    order = _ordered(rows)
    for axis, env in zip(axes, names, strict=True):
        for agent in order:
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
                **_style(agent, order),
            )
        axis.set(yscale="log", xlabel="number of arms K", title=TITLES[env])
        axis.set_xticks(sizes)
    axes[0].set_ylabel("regret at the last step (mean ± s.e.)")
    handles, texts = axes[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside lower center", ncols=6, frameon=False)
    return figure


def _ranking(rows: list[dict], names: list[str], labels: dict[str, str]) -> "Figure":
    from matplotlib.ticker import FixedLocator, NullFormatter, StrMethodFormatter

    order = sorted(
        labels,
        key=lambda a: -np.mean([r["regret_mean"] for r in rows if r["agent"] == a]),
    )
    figure, axes = _figure(len(names), height=0.3 * len(order) + 1.2)
    for axis, env in zip(axes, names, strict=True):
        for place, agent in enumerate(order):
            for row in rows:
                if row["env"] == env and row["agent"] == agent:
                    style = _style(agent, order)
                    axis.errorbar(
                        max(row["regret_mean"], 1.0),
                        place,
                        xerr=np.nan_to_num(row["regret_se"]),
                        capsize=2,
                        **{**style, "linestyle": "none"},
                    )
        arms = rows[0]["num_arms"]
        axis.set(
            xscale="log",
            xlabel="regret at the last step (mean ± s.e.)",
            title=f"{TITLES[env]}, K = {arms}",
        )
        # Plain numbers, few enough for a span of less than a decade.
        axis.xaxis.set_major_locator(FixedLocator(TICKS))
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.grid(True, axis="x", alpha=0.25, linewidth=0.6)
        axis.set_yticks(range(len(order)))
        axis.set_yticklabels([labels[a] for a in order] if axis is axes[0] else [])
    return figure


def regret_against_time(
    result_csv: Path, curves_csv: Path, *, num_arms: int, selection: str = "median"
) -> "Figure":
    """Mean regret against the environment's seconds for one K, a panel per env.

    Args:
      result_csv: a run's result.csv (for labels).
      curves_csv: a run's curves.csv.
      num_arms: K to draw.
      selection: tuned by 'median' (the paper) or 'mean' final regret.
    """
    labels = {row["agent"]: row["label"] for row in read_csv(result_csv)}
    rows = [
        row
        for row in _select(read_csv(curves_csv), selection)
        if row["num_arms"] == num_arms
    ]
    names = list(dict.fromkeys(row["env"] for row in rows))
    figure, axes = _figure(len(names), height=4.2)
    order = _ordered(rows)
    for axis, env in zip(axes, names, strict=True):
        for agent in order:
            line = [r for r in rows if r["env"] == env and r["agent"] == agent]
            if not line:
                continue
            time = np.array([r["elapsed_mean"] for r in line], float)
            mean = np.array([r["regret_mean"] for r in line], float)
            se = np.nan_to_num(np.array([r["regret_se"] for r in line], float))
            style = {**_style(agent, order), "marker": ""}
            colour = style["color"]
            axis.plot(time, mean, label=labels[agent], **style)
            axis.fill_between(
                time,
                np.maximum(mean - se, 1.0),
                mean + se,
                color=colour,
                alpha=0.2,
                linewidth=0,
            )
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="environment time (s)",
            title=f"{TITLES[env]}, K = {num_arms}",
        )
    axes[0].set_ylabel("mean regret (± s.e.)")
    handles, texts = axes[0].get_legend_handles_labels()
    figure.legend(
        handles[::-1],
        texts[::-1],
        loc="outside right upper",
        frameon=False,
        fontsize="small",
    )
    return figure


def save(figure: "Figure", path: Path) -> list[Path]:
    """Saves a figure as PNG and PDF next to each other; returns both paths."""
    paths = [path.with_suffix(suffix) for suffix in (".png", ".pdf")]
    for target in paths:
        figure.savefig(target, dpi=160)
    return paths
