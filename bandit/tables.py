"""Tables of final regret from rows of result.csv: Markdown, and for a terminal.

A setting that was picked at an end of its tuning grid is marked †: a wider grid might
have given a better one.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bandit.agents import AGENTS
from bandit.analysis import REFERENCE, Row
from bandit.registry import Tune

if TYPE_CHECKING:
    from rich.table import Table

EDGE = "†"
EDGE_NOTE = (
    f"{EDGE} a hyper-parameter was picked at an end of its grid: a wider grid might "
    "have given a lower regret."
)


def at_edge(row: Row, *, tune: Tune = "paper") -> list[str]:
    """Hyper-parameters of a row that were picked at an end of their grid.

    Args:
      row: of result.csv.
      tune: the grid of a row that does not say it itself (older files).
    """
    if "at_edge" in row:
        return str(row["at_edge"]).split()
    spec = AGENTS.get(row["agent"])
    if spec is None or row["selection"] == "default":
        return []
    return spec.at_edge(
        json.loads(row["hyper"]),
        num_contexts=row["num_contexts"],
        num_steps=row["steps"],
        tune=tune,
    )


def _place(row: Row) -> tuple[str, int, int]:
    return row["env"], row["num_arms"], row["num_contexts"]


def _regret(row: Row) -> str:
    mark = EDGE if at_edge(row) else ""
    mean, error = row["regret_mean"], row["regret_se"]
    return f"{mean:.0f} ± {error:.0f}{mark}"


def markdown(rows: Sequence[Row], *, selection: str = "median") -> str:
    """Final regret, mean ± standard error: a line per place, a column per agent.

    Args:
      rows: of result.csv.
      selection: tuned by 'median' or 'mean'; agents that were not tuned have one value.

    Raises:
      ValueError: there is no row of that selection.
    """
    rows = [row for row in rows if row["selection"] in (selection, "default")]
    if not rows:
        raise ValueError(f"no rows with selection {selection!r}")
    agents = list(dict.fromkeys(row["agent"] for row in rows))
    several = len({row["num_contexts"] for row in rows}) > 1
    head = "env, K, X" if several else "env, K"
    lines = [
        f"| {head} | {' | '.join(agents)} |",
        "|---" * (len(agents) + 1) + "|",
    ]
    found = {(*_place(row), row["agent"]): row for row in rows}
    for place in sorted(dict.fromkeys(key[:-1] for key in found)):
        cells = (found.get((*place, agent)) for agent in agents)
        shown = [_regret(row) if row is not None else "" for row in cells]
        where = ", ".join(map(str, place if several else place[:2]))
        lines.append(f"| {where} | {' | '.join(shown)} |")
    text = "\n".join(lines) + "\n"
    return text + (f"\n{EDGE_NOTE}\n" if EDGE in text else "")


def _line(row: Row) -> list[str]:
    chosen = row["selection"]
    compared = row["diff_low"] == row["diff_low"] and row["agent"] != REFERENCE
    mark = EDGE if at_edge(row) else ""
    return [
        row["label"],
        chosen if chosen == "default" else f"tuned, {chosen}{mark}",
        f"{row['regret_mean']:,.0f} ± {row['regret_se']:,.0f}",
        f"{row['diff_mean']:+,.0f} [{row['diff_low']:+,.0f}, {row['diff_high']:+,.0f}]"
        if compared
        else "",
        f"{row['pseudo_regret_mean']:,.0f}",
        f"{row['last_rate']:.3f}",
        f"{row['tune_seconds'] + row['eval_seconds']:.1f}",
    ]


def terminal(rows: Sequence[Row]) -> "list[Table]":
    """One table per environment, K and X for a terminal, best agent first."""
    from rich.table import Table

    tables: list[Table] = []
    for place in dict.fromkeys(_place(row) for row in rows):
        part = [row for row in rows if _place(row) == place]
        part.sort(key=lambda row: row["regret_mean"])
        first = part[0]
        marked = any(at_edge(row) for row in part)
        env, num_arms, num_contexts = place
        table = Table(
            title=f"{env}, K = {num_arms}, X = {num_contexts}: {first['trials']} "
            f"trials of {first['steps']:,} decisions, ρ* = {first['rho_star']:.4f}",
            title_justify="left",
            caption=EDGE_NOTE if marked else None,
            caption_justify="left",
        )
        table.add_column("agent", no_wrap=True)
        table.add_column("setting", no_wrap=True)
        reference = next((r for r in part if r["agent"] == REFERENCE), None)
        against = f"− {reference['label']}, 95%" if reference else "− C-UCB, 95%"
        for name in ("regret ± s.e.", against, "pseudo-regret", "last ρ̂", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in part:
            table.add_row(*_line(row))
        tables.append(table)
    return tables
