"""What a log says: its facts, off-policy rates of policies, replays of agents.

``run`` writes log_rates.csv and log_agents.csv; ``terminal`` shows them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from bandit import off_policy, replay
from bandit.agents import AGENTS
from bandit.analysis import Row, write_csv
from bandit.logged import Log

if TYPE_CHECKING:
    from rich.table import Table

RATE_FIELDS = ("policy", "rate", "low", "high", "effective", "rows", "refused")
AGENT_FIELDS = ("agent", "label", "setting", "decisions", "rate", "low", "high")
RATES, AGENTS_CSV = "log_rates.csv", "log_agents.csv"


def facts(log: Log) -> str:
    """One line: what is in the log."""
    counts = log.counts
    return (
        f"{len(log.context):,} decisions, {len(log.contexts)} contexts, "
        f"{len(log.arms)} arms, {counts.min()} to {counts.max()} rows a cell, "
        f"propensities {log.propensity.min():.3g} to {log.propensity.max():.3g}"
    )


def rate_rows(log: Log, *, seed: int = 0) -> Iterator[Row]:
    """Off-policy rates: a row per policy."""
    for found in off_policy.evaluate(log, seed=seed):
        yield {
            "policy": found.name,
            "rate": found.rate,
            "low": found.low,
            "high": found.high,
            "effective": found.effective,
            "rows": len(log.context),
            "refused": found.refused,
        }


def agent_rows(
    log: Log, agents: Sequence[str], *, trials: int, seed: int = 0
) -> Iterator[Row]:
    """Replays at documented settings: a row per agent; the oracle is left out.

    Args:
      log: the log.
      agents: names.
      trials: resamples of the log.
      seed: of the resamples.

    Raises:
      ValueError: the log cannot replay an agent.
    """
    env = replay.table_env(log)
    for name in agents:
        if name == "oracle":
            continue  # it would know the log
        spec = AGENTS[name]
        setting = spec.setting(env)
        found = replay.replay(
            log,
            spec.builder(len(log.contexts)),
            setting,
            trials=trials,
            key=jax.random.key(seed),
        )
        rates = found.rate[found.decisions > 0]
        low, high = np.quantile(rates, [0.025, 0.975])
        yield {
            "agent": name,
            "label": spec.title("default"),
            "setting": " ".join(f"{k}={v:.4g}" for k, v in setting.items()),
            "decisions": float(found.decisions.mean()),
            "rate": float(rates.mean()),
            "low": float(low),
            "high": float(high),
        }


def run(
    log: Log, folder: Path, agents: Sequence[str], *, trials: int, seed: int = 0
) -> tuple[list[Row], list[Row]]:
    """Writes both tables; the second is empty where the log cannot replay an agent."""
    folder.mkdir(parents=True, exist_ok=True)
    rates = list(rate_rows(log, seed=seed))
    write_csv(folder / RATES, RATE_FIELDS, rates)
    replays: list[Row] = []
    if not replay.refusal(log):
        replays = list(agent_rows(log, agents, trials=trials, seed=seed))
        write_csv(folder / AGENTS_CSV, AGENT_FIELDS, replays)
    return rates, replays


def _interval(row: Row) -> list[str]:
    return [f"{row['rate']:.4g}", f"[{row['low']:.4g}, {row['high']:.4g}]"]


def terminal(rates: Sequence[Row], replays: Sequence[Row]) -> "list[Table]":
    """Both tables for a terminal."""
    from rich.table import Table

    first = Table(
        title="off-policy rates, inverse propensities, self-normalised",
        title_justify="left",
    )
    for name in ("policy", "reward per second", "95% interval", "effective rows"):
        first.add_column(name, justify="left" if name == "policy" else "right")
    for row in rates:
        if row["refused"]:
            shown = ["", f"no estimate: {row['refused']}"]
        else:
            shown = _interval(row)
        first.add_row(row["policy"], *shown, f"{row['effective']:.0f}")
    if not replays:
        return [first]
    second = Table(
        title="learning agents, replayed on resamples of the log",
        title_justify="left",
    )
    for name in ("agent", "reward per second", "95% of replays", "decisions"):
        second.add_column(name, justify="left" if name == "agent" else "right")
    for row in sorted(replays, key=lambda row: -row["rate"]):
        second.add_row(row["label"], *_interval(row), f"{row['decisions']:.0f}")
    return [first, second]
