"""From finished cells to result.csv and curves.csv; figures and tables read only these.

result.csv has one row per (cell, selection): final regret, its paired difference to
C-UCB (tuned where tuning ran) with a bootstrap interval, pseudo-regret, the last rate
and which hyper-parameters were picked at an end of their grid. curves.csv has one row
per checkpoint of it.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from bandit.registry import Tune
from bandit.sweep import Cell, CellResult

#: A row of a table: numbers and names by column.
Row = dict[str, Any]

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
    "at_edge",
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


def standard_error(
    values: Float[np.ndarray, "*rows trials"],
) -> Float[np.ndarray, "*rows"]:
    """Standard error of the mean along the last axis; nan for a single trial.

    Raises:
      ValueError: there is no trial.
    """
    values = np.asarray(values, np.float64)
    if values.ndim < 1 or values.shape[-1] < 1:
        raise ValueError("need at least one trial")
    if values.shape[-1] < 2:
        return np.full(values.shape[:-1], np.nan)
    deviation = np.std(values, axis=-1, ddof=1)
    return np.asarray(deviation / np.sqrt(values.shape[-1]))


def bootstrap_interval(
    differences: Float[np.ndarray, " trials"], *, level: float = 0.95
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean of paired differences.

    nan for fewer than two trials, or where a difference is not finite.

    Raises:
      ValueError: level is not in (0, 1), or the differences are no vector.
    """
    differences = np.asarray(differences, np.float64)
    if differences.ndim != 1 or not 0 < level < 1:
        raise ValueError("need a vector of differences and a level in (0, 1)")
    if len(differences) < 2 or not np.isfinite(differences).all():
        return float("nan"), float("nan")
    if np.ptp(differences) == 0:
        return float(differences[0]), float(differences[0])
    from scipy import stats  # half a second, and only finished runs need it

    interval = stats.bootstrap(
        (differences,),
        np.mean,
        confidence_level=level,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def _references(
    cells: Mapping[Cell, CellResult],
) -> dict[tuple[str, int, int], dict[str, Float[np.ndarray, " trials"]]]:
    """Final regret of C-UCB, by place and selection."""
    return {
        cell.place: dict(zip(result.selection, result.regret[-1], strict=True))
        for cell, result in cells.items()
        if cell.agent.name == REFERENCE
    }


def _difference(
    regret: Float[np.ndarray, " trials"],
    selection: str,
    reference: Mapping[str, Float[np.ndarray, " trials"]],
) -> tuple[float, float, float]:
    """Mean paired difference to C-UCB, and its interval; nan without C-UCB."""
    # An agent without a grid is compared with C-UCB as the paper selects it.
    other = reference.get(selection, reference.get("median"))
    if other is None and reference:
        other = next(iter(reference.values()))
    if other is None or len(other) != len(regret):
        return np.nan, np.nan, np.nan
    return float(np.mean(regret - other)), *bootstrap_interval(regret - other)


def result_rows(
    cells: Mapping[Cell, CellResult], *, tune: Tune = "paper"
) -> Iterator[Row]:
    """Rows of result.csv; numbers are floats, missing ones are nan.

    Args:
      cells: finished cells.
      tune: the grid that tuned cells searched.
    """
    references = _references(cells)
    for cell, result in cells.items():
        reference = references.get(cell.place, {})
        for g, selection in enumerate(result.selection):
            regret, pseudo = result.regret[-1, g], result.pseudo_regret[-1, g]
            diff, low, high = _difference(regret, selection, reference)
            steps = int(result.steps[-1])
            edge = cell.agent.at_edge(
                result.hyper[g],
                num_contexts=cell.num_contexts,
                num_steps=steps,
                tune="none" if selection == "default" else tune,
            )
            yield {
                "env": cell.env,
                "num_arms": cell.num_arms,
                "num_contexts": cell.num_contexts,
                "agent": cell.agent.name,
                "label": cell.agent.title(selection),
                "selection": selection,
                "hyper": json.dumps(result.hyper[g]),
                "at_edge": " ".join(edge),
                "steps": steps,
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


def curve_rows(cells: Mapping[Cell, CellResult]) -> Iterator[Row]:
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


def write_csv(path: Path, fields: Sequence[str], rows: Iterable[Row]) -> None:
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


def read_csv(path: Path) -> list[Row]:
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
