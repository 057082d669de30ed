"""Logged decisions: a CSV of (context, arm, reward, seconds[, propensity]), checked.

A row is one decision of the policy that was logged: the context it saw, the arm it
chose, what came back, and the probability with which it chose that arm in that context.
Contexts and arms are names. An arm called SKIP, in any case, is put last. Other columns
are ignored.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

#: How the arms of a log were chosen: as its column says; each with equal probability;
#: or by the context alone, so that a cell's share of its context is the probability.
Propensity = Literal["column", "uniform", "frequency"]
COLUMNS = ("context", "arm", "reward", "seconds")
#: Standard errors by which 1/propensity may be off before the log contradicts itself.
BAND = 5.0
LARGEST = 1e12


class Log(NamedTuple):
    """A checked log.

    Attributes:
      context: x of each row, an index into ``contexts``.
      arm: a of each row, an index into ``arms``.
      reward: r, any unit.
      seconds: delta > 0.
      propensity: probability of the arm in the context, in (0, 1].
      contexts: names of contexts.
      arms: names of arms.
    """

    context: Int[np.ndarray, " rows"]
    arm: Int[np.ndarray, " rows"]
    reward: Float[np.ndarray, " rows"]
    seconds: Float[np.ndarray, " rows"]
    propensity: Float[np.ndarray, " rows"]
    contexts: tuple[str, ...]
    arms: tuple[str, ...]

    @property
    def cell(self) -> Int[np.ndarray, " rows"]:
        """The number of each row's cell, x A + a."""
        return self.context * len(self.arms) + self.arm

    @property
    def counts(self) -> Int[np.ndarray, "contexts arms"]:
        """Rows of each cell."""
        shape = len(self.contexts), len(self.arms)
        return np.bincount(self.cell, minlength=shape[0] * shape[1]).reshape(shape)

    def take(self, rows: Int[np.ndarray, " some"] | Bool[np.ndarray, " rows"]) -> "Log":
        """The log of some rows, names kept."""
        return self._replace(
            context=self.context[rows],
            arm=self.arm[rows],
            reward=self.reward[rows],
            seconds=self.seconds[rows],
            propensity=self.propensity[rows],
        )

    def means(
        self,
    ) -> tuple[Float[np.ndarray, "contexts arms"], Float[np.ndarray, "contexts arms"]]:
        """Mean reward and seconds of each cell, rows weighted by 1/propensity.

        Propensities that differ within a cell are those of a policy that looked at
        more than the context. nan where a cell has no row.
        """
        shape = len(self.contexts), len(self.arms)

        def summed(values: Float[np.ndarray, " rows"]) -> Float[np.ndarray, "..."]:
            size = shape[0] * shape[1]
            return np.bincount(self.cell, values, size).reshape(shape)

        weight = 1.0 / self.propensity
        with np.errstate(invalid="ignore"):
            total = summed(weight)
            return (
                summed(weight * self.reward) / total,
                summed(weight * self.seconds) / total,
            )


def read_log(path: Path, *, propensity: Propensity = "column") -> Log:
    """Reads a log, or says why it cannot be used.

    Args:
      path: CSV with a header; columns context, arm, reward, seconds and, unless
        ``propensity`` says how arms were chosen, propensity.
      propensity: 'column'; 'uniform': every arm with probability 1/A; 'frequency': by
        the context alone, at probabilities estimated by the log's own frequencies.

    Raises:
      ValueError: no such file, a column is missing, or ``make_log`` refuses.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            header = list(reader.fieldnames or [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"cannot read {path}: {error}") from None
    wanted = (*COLUMNS, *(("propensity",) if propensity == "column" else ()))
    missing = [name for name in wanted if name not in header]
    if missing == ["propensity"]:
        raise ValueError(
            f"{path} has no column 'propensity', the probability with which the logged "
            "policy chose each row's arm; without it a replay would be biased. If arms "
            "were drawn uniformly, say propensity=uniform; if they were drawn by the "
            "context alone, propensity=frequency"
        )
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}")
    return make_log(
        [row["context"] for row in rows],
        [row["arm"] for row in rows],
        *(_numbers(path, rows, name) for name in wanted[2:]),
        propensity=propensity,
    )


def _numbers(
    path: Path, rows: Sequence[dict[str, str]], name: str
) -> Float[np.ndarray, " rows"]:
    values = np.empty(len(rows))
    for k, row in enumerate(rows):
        try:
            values[k] = float(row[name])
        except (TypeError, ValueError):
            raise ValueError(
                f"{path}, line {k + 2}: {name} is no number: {row[name]!r}"
            ) from None
    return values


def make_log(
    context: Sequence[str],
    arm: Sequence[str],
    reward: Sequence[float] | Float[np.ndarray, " rows"],
    seconds: Sequence[float] | Float[np.ndarray, " rows"],
    chances: Sequence[float] | Float[np.ndarray, " rows"] | None = None,
    *,
    propensity: Propensity = "column",
) -> Log:
    """A log of columns, checked.

    Args:
      context: name of each row's context.
      arm: name of its arm.
      reward: r.
      seconds: delta.
      chances: probability of the arm in the context; for propensity='column' alone.
      propensity: see ``read_log``.

    Raises:
      ValueError: no row, columns of different lengths, an empty name, fewer than two
        arms, a number out of its range, or propensities that contradict the log.
    """
    if propensity not in get_args(Propensity):
        raise ValueError(f"propensity: choose from {get_args(Propensity)}")
    if (chances is None) == (propensity == "column"):
        raise ValueError("give propensities with propensity='column', and only then")
    columns = [context, arm, reward, seconds, *([] if chances is None else [chances])]
    if not len(context) or len({len(column) for column in columns}) > 1:
        raise ValueError("a log needs at least one row, and columns of one length")
    names = [[str(v or "").strip() for v in column] for column in (context, arm)]
    if not all(map(all, names)):
        raise ValueError("every row of a log needs a context and an arm")
    contexts, arms = _sorted(names[0]), _sorted(names[1])
    if len(arms) < 2:
        raise ValueError("a log with one arm has no choice in it")
    earned = _checked("reward", reward, (-LARGEST, LARGEST))
    spent = _checked("seconds", seconds, (1.0 / LARGEST, LARGEST))
    x, a = (
        np.array([known.index(v) for v in column])
        for known, column in zip((contexts, arms), names, strict=True)
    )
    log = Log(x, a, earned, spent, np.ones(len(x)), contexts, arms)
    if chances is not None:
        log = log._replace(
            propensity=_checked("propensity", chances, (1.0 / LARGEST, 1.0))
        )
    elif propensity == "uniform":
        log = log._replace(propensity=np.full(len(x), 1.0 / len(arms)))
    else:
        counts = log.counts
        log = log._replace(propensity=counts[x, a] / counts.sum(axis=1)[x])
    _check_propensity(log)
    return log


def _sorted(names: Sequence[str]) -> tuple[str, ...]:
    """Distinct names in order, SKIP last."""
    return tuple(sorted(set(names), key=lambda name: (name.lower() == "skip", name)))


def _checked(
    name: str,
    values: Sequence[float] | Float[np.ndarray, " rows"],
    bounds: tuple[float, float],
) -> Float[np.ndarray, " rows"]:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers") from None
    bad = ~((found >= bounds[0]) & (found <= bounds[1]))
    if found.ndim != 1 or bad.any():
        where = f" in row {int(np.flatnonzero(bad)[0]) + 1}" if found.ndim == 1 else ""
        raise ValueError(f"{name} must be {bounds[0]:g} to {bounds[1]:g}{where}")
    return found


def _check_propensity(log: Log) -> None:
    """Refuses propensities that cannot be those of the log.

    Within a context the mean of 1/propensity is the number of arms that can be chosen
    there, whatever the policy was: those that were seen, up to all.
    """
    for x, name in enumerate(log.contexts):
        inverse = 1.0 / log.propensity[log.context == x]
        seen = int((log.counts[x] > 0).sum())
        slack = BAND * inverse.std() / np.sqrt(len(inverse))
        low, high = 0.5 * seen - slack, 1.5 * len(log.arms) + slack
        if not low <= inverse.mean() <= high:
            raise ValueError(
                f"the propensities contradict the log: in context {name!r} the mean of "
                f"1/propensity is {inverse.mean():.3g} and should be the number of "
                f"arms, {seen} to {len(log.arms)}"
            )
