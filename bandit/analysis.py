"""From finished cells to result.csv and curves.csv; figures and tables read only these.

result.csv has one row per (cell, selection): final regret, its paired difference to
tuned C-UCB with a bootstrap interval, pseudo-regret and the last rate. curves.csv has
one row per checkpoint of it.
"""

import csv
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from scipy import stats

from bandit.sweep import Cell, CellResult

REFERENCE = "cucb-tuned"
RESAMPLES = 5_000
RESULT_FIELDS = (
    "env",
    "num_arms",
    "num_contexts",
    "agent",
    "label",
    "selection",
    "hyper",
    "steps",
    "trials",
    "regret_mean",
    "regret_se",
    "regret_median",
    "diff_mean",
    "diff_low",
    "diff_high",
    "pseudo_regret_mean",
    "pseudo_regret_se",
    "last_rate",
    "rho_star",
    "tune_seconds",
    "eval_seconds",
)
CURVE_FIELDS = (
    "env",
    "num_arms",
    "num_contexts",
    "agent",
    "selection",
    "step",
    "regret_mean",
    "regret_se",
    "pseudo_regret_mean",
    "pseudo_regret_se",
    "rate_mean",
    "elapsed_mean",
)


def standard_error(values: np.ndarray) -> np.ndarray:
    """Standard error of the mean along the last axis; nan for a single trial."""
    if values.shape[-1] < 2:
        return np.full(values.shape[:-1], np.nan)
    return stats.sem(values, axis=-1)


def bootstrap_interval(
    differences: np.ndarray, *, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean of paired differences, [S]."""
    if len(differences) < 2:
        return float("nan"), float("nan")
    if np.ptp(differences) == 0:
        return float(differences[0]), float(differences[0])
    interval = stats.bootstrap(
        (differences,),
        np.mean,
        confidence_level=level,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def _reference_regret(
    cells: dict[Cell, CellResult], cell: Cell
) -> dict[str, np.ndarray]:
    """Final regret [S] of tuned C-UCB on the cell's instance, by selection."""
    for other, result in cells.items():
        same = (other.env, other.num_arms, other.num_contexts) == (
            cell.env,
            cell.num_arms,
            cell.num_contexts,
        )
        if same and other.agent.name == REFERENCE:
            return dict(zip(result.selection, result.regret[-1], strict=True))
    return {}


def result_rows(cells: dict[Cell, CellResult]) -> Iterable[dict]:
    """Rows of result.csv; numbers are floats, missing ones are nan."""
    for cell, result in cells.items():
        reference = _reference_regret(cells, cell)
        for g, selection in enumerate(result.selection):
            regret, pseudo = result.regret[-1, g], result.pseudo_regret[-1, g]
            # An agent without a grid is compared with C-UCB as the paper selects it.
            other = reference.get(selection, reference.get("median"))
            if other is None and reference:
                other = next(iter(reference.values()))
            if other is None or len(other) != len(regret):
                diff, (low, high) = np.nan, (np.nan, np.nan)
            else:
                diff = float(np.mean(regret - other))
                low, high = bootstrap_interval(regret - other)
            yield {
                "env": cell.env,
                "num_arms": cell.num_arms,
                "num_contexts": cell.num_contexts,
                "agent": cell.agent.name,
                "label": cell.agent.label,
                "selection": selection,
                "hyper": json.dumps(result.hyper[g]),
                "steps": int(result.steps[-1]),
                "trials": len(regret),
                "regret_mean": float(regret.mean()),
                "regret_se": float(standard_error(regret)),
                "regret_median": float(np.median(regret)),
                "diff_mean": diff,
                "diff_low": low,
                "diff_high": high,
                "pseudo_regret_mean": float(pseudo.mean()),
                "pseudo_regret_se": float(standard_error(pseudo)),
                "last_rate": float(result.rate[-1, g].mean()),
                "rho_star": result.rho_star,
                "tune_seconds": round(result.seconds[0], 2),
                "eval_seconds": round(result.seconds[1], 2),
            }


def curve_rows(cells: dict[Cell, CellResult]) -> Iterable[dict]:
    """Rows of curves.csv."""
    for cell, result in cells.items():
        for g, selection in enumerate(result.selection):
            for c, step in enumerate(result.steps):
                regret, pseudo = result.regret[c, g], result.pseudo_regret[c, g]
                yield {
                    "env": cell.env,
                    "num_arms": cell.num_arms,
                    "num_contexts": cell.num_contexts,
                    "agent": cell.agent.name,
                    "selection": selection,
                    "step": int(step),
                    "regret_mean": float(regret.mean()),
                    "regret_se": float(standard_error(regret)),
                    "pseudo_regret_mean": float(pseudo.mean()),
                    "pseudo_regret_se": float(standard_error(pseudo)),
                    "rate_mean": float(result.rate[c, g].mean()),
                    "elapsed_mean": float(result.elapsed[c, g].mean()),
                }


def write_csv(path: Path, fields: list[str], rows: Iterable[dict]) -> None:
    """Writes rows under another name first, so that a reader never sees half a file."""
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
            )
    partial.replace(path)


def read_csv(path: Path) -> list[dict]:
    """Reads rows back, numbers as int or float.

    Raises:
      FileNotFoundError: there is no such file.
    """
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {name: _number(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
