"""Which training rows become the validation split: one rule per task.

Reward and feedback come from rows of the public training data that the harness keeps
back; the competition's own test split is read for the report alone. A rule says how
rows are drawn, so that the validation score predicts the test score:

* stratified: class shares are kept, and every class that can be in both parts is;
* grouped: rows that share a source (patient, recording, author, page) stay together;
* last: the latest part in time, for tasks whose test split lies in the future.
"""

import binascii
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Mask = NDArray[np.bool_]

SHARE = 0.1
"""Share of the training rows that is kept back, between the two limits below."""
AT_LEAST = 300
AT_MOST = 20_000
LARGEST_SHARE = 0.25


@dataclass(frozen=True)
class SplitRule:
    """How the validation rows of one task are drawn from its training rows.

    Attributes:
        stratify: columns whose joint values keep their shares.
        group: column whose equal values stay on one side.
        last: draw the last group in sorted order (time) in place of a random one.
        single: groups of several rows stay in training (the group is the row's id, and
            a submission cannot name one of two equal ids).
    """

    stratify: tuple[str, ...] = ()
    group: str | None = None
    last: bool = False
    single: bool = False


def validation_size(n: int) -> int:
    """Number of rows (groups where a rule groups) to keep back out of `n`.

    A tenth, but at least 300 (small sets give noisy rewards), at most 20,000 (grading
    stays cheap) and never more than a quarter.
    """
    wanted = min(max(round(SHARE * n), AT_LEAST), AT_MOST)
    return max(1, min(wanted, int(LARGEST_SHARE * n)))


def split_rng(short: str, seed: int) -> np.random.Generator:
    """The stream that draws a task's validation rows: depends on task and seed only."""
    return np.random.default_rng(
        [binascii.crc32(b"validation " + short.encode()), seed]
    )


def stratified_choice(rng: np.random.Generator, strata: pd.Series, n: int) -> Mask:
    """Draw `n` rows with the strata in their shares (largest remainders).

    A stratum of one row stays out of the draw, one of two or more rows gives at least
    one row and keeps at least one, as far as `n` allows.

    Args:
        rng: source of the draw.
        strata: one value per row.
        n: how many rows to draw, less than there are.

    Returns:
        Boolean mask [rows].
    """
    codes = pd.factorize(strata, sort=True)[0]
    sizes = np.bincount(codes)
    room = np.where(sizes > 1, sizes - 1, 0)
    if n > room.sum():
        raise ValueError(f"cannot draw {n} of {codes.size} rows from these strata")
    exact = n * sizes / sizes.sum()
    take = np.minimum(np.maximum(np.floor(exact), sizes > 1), room).astype(int)
    while take.sum() != n:
        step = 1 if take.sum() < n else -1
        gap = step * (exact - take)
        free = take < room if step > 0 else take > 1
        free = free if free.any() else take > 0
        take[np.argmax(np.where(free, gap, -np.inf))] += step
    mask = np.zeros(codes.size, dtype=bool)
    shuffled = rng.permutation(codes.size)
    by_stratum = shuffled[np.argsort(codes[shuffled], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    for start, count in zip(starts, take, strict=True):
        mask[by_stratum[start : start + count]] = True
    return mask


def validation_mask(
    rule: SplitRule, frame: pd.DataFrame, rng: np.random.Generator
) -> Mask:
    """Boolean mask of the rows of `frame` that the rule keeps back.

    Args:
        rule: the task's rule; its columns must be in `frame`.
        frame: the training rows.
        rng: from `split_rng`.
    """
    if rule.group is None:
        size = validation_size(len(frame))
        if not rule.stratify:
            return _any_rows(rng, len(frame), size)
        return stratified_choice(rng, _joint(frame, rule.stratify), size)
    if rule.last:
        last: Mask = (frame[rule.group] == frame[rule.group].max()).to_numpy()
        return last
    # A group's stratum is the largest of its rows': a patient with one positive image
    # is a positive patient.
    columns = {c: (c, "max") for c in rule.stratify} or {"n": (rule.group, "size")}
    groups = frame.groupby(rule.group, sort=True).agg(**columns)
    if rule.single:
        rows = frame.groupby(rule.group, sort=True).size()
        groups = groups[rows.to_numpy() == 1]
    size = validation_size(len(groups))
    if rule.stratify:
        chosen = stratified_choice(rng, _joint(groups, rule.stratify), size)
    else:
        chosen = _any_rows(rng, len(groups), size)
    mask: Mask = frame[rule.group].isin(groups.index[chosen]).to_numpy()
    return mask


def _any_rows(rng: np.random.Generator, rows: int, size: int) -> Mask:
    mask = np.zeros(rows, dtype=bool)
    mask[rng.choice(rows, size, replace=False)] = True
    return mask


def _joint(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.Series:
    if len(columns) == 1:
        return frame[columns[0]]
    return frame[list(columns)].astype(str).agg("|".join, axis=1)


class Draw:
    """The draw of one task's validation rows, which a carver asks for.

    Args:
        rule: how rows are drawn.
        rng: source of the draw (see `split_rng`); a carver may go on drawing from it.
    """

    def __init__(self, rule: SplitRule, rng: np.random.Generator) -> None:
        self.rule = rule
        self.rng = rng

    def mask(self, frame: pd.DataFrame) -> Mask:
        """True for the rows that are kept back; `frame` has the rule's columns."""
        return validation_mask(self.rule, frame, self.rng)


def whole_groups(
    rng: np.random.Generator, frame: pd.DataFrame, group: str, rare: str, n: int
) -> Mask:
    """Mask of about `n` rows in whole groups, with the column `rare` in its share."""
    groups = frame.groupby(group, sort=True)[rare].max()
    share = round(n / len(frame) * len(groups))
    chosen = groups.index[stratified_choice(rng, groups, share)]
    mask: Mask = frame[group].isin(chosen).to_numpy()
    return mask
