"""The baseline that knows the parent: it credits an edit and not what was edited.

Answers that build on their parents inherit value and seconds. Against the mean of the
others, a child of a good parent looks good whatever was changed. So the relative reward
is predicted from the parent's value and log seconds, and whether there was one, and
only what is beyond the prediction is an advantage:

    A_i = r_i - x_i . b_{-i}

Row i's prediction never uses row i. Slopes are fitted to the last few batches, at the
price of the moment; each batch has an intercept of its own, since the policy has
changed between them. Where nothing is known of the slopes the ridge leaves them at 0,
and the advantage is the leave-one-out one.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.config.errors import LoopError
from experiments.loop.select import Entry
from rpg_jax.baselines import regression_advantage

# Of each slope, with features of unit scale: as much as one attempt says of it.
_RIDGE = (0.0, 1.0, 1.0, 1.0)
_MIN_SCALE = 1e-9


class _Batch(NamedTuple):
    reward: np.ndarray  # [B]
    charged: np.ndarray  # seconds, [B]
    known: np.ndarray  # bool, [B]
    features: np.ndarray  # [B, 3], of mean 0 over the known rows


def parent_features(
    records: Sequence[Mapping[str, Any]], parents: Mapping[str, Entry]
) -> np.ndarray:
    """Whether there was a parent, its value and its log seconds, shape [B, 3].

    Without a parent the last two are the mean of the others', so that the first alone
    tells.

    Raises:
        LoopError: a parent is not among those that a step can have.
    """
    out = np.full((len(records), 3), np.nan)
    for row, record in enumerate(records):
        name = record["parent"]
        out[row, 0] = name is not None
        if name is None:
            continue
        if name not in parents:
            raise LoopError(
                f"the parent of {record['run_id']}, {name}, is not on record before "
                "it: restore the run's folder from a copy"
            )
        out[row, 1:] = parents[name].value, np.log(parents[name].seconds)
    some = out[:, 0] > 0
    if some.any():
        out[~some, 1:] = out[some, 1:].mean(axis=0)
    return np.nan_to_num(out)


class ParentBaseline:
    """Advantages over what parents predict; see the module.

    Args:
        batches: that the slopes are fitted to, the present one included.
        chains: rows of a batch.
    """

    def __init__(self, batches: int, chains: int):
        self._rows = batches * chains
        self._batches: collections.deque[_Batch] = collections.deque(maxlen=batches)
        self._fit = jax.jit(regression_advantage)

    def advantage(
        self,
        reward: np.ndarray,
        charged: np.ndarray,
        known: np.ndarray,
        features: np.ndarray,
        relative: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """Advantages of a batch, which is kept for the next ones.

        Args:
            reward: with penalty or bonus, shape [B].
            charged: seconds, shape [B].
            known: rows that take part, shape [B].
            features: from ``parent_features``.
            relative: rewards, seconds -> relative rewards at the present price.

        Returns:
            Shape [B]; 0 where ``known`` is false, and for a single row.
        """
        if known.any():
            features = features - features[known].mean(axis=0)
        self._batches.append(_Batch(reward, charged, known, features))
        if known.sum() < 2:
            return np.zeros(len(known))
        x, y = np.zeros((self._rows, 4)), np.zeros(self._rows)
        mask = np.zeros(self._rows, bool)
        x[: len(known), 0] = 1.0  # the present batch's intercept
        start = 0
        for batch in reversed(self._batches):
            kept = np.flatnonzero(batch.known)
            at = slice(start, start + len(batch.known))
            signal = np.zeros(len(batch.known))
            signal[kept] = relative(batch.reward[kept], batch.charged[kept])
            if start and len(kept):  # an earlier batch's own intercept is its mean
                signal[kept] -= signal[kept].mean()
            x[at, 1:], y[at], mask[at] = batch.features, signal, batch.known
            start = at.stop
        scale = np.sqrt(np.square(x[mask, 1:]).mean(axis=0))
        x[:, 1:] = np.where(scale > _MIN_SCALE, x[:, 1:] / np.maximum(scale, 1e-30), 0)
        out = self._fit(
            y.astype(np.float32),
            x.astype(np.float32),
            mask,
            ridge=np.array(_RIDGE, np.float32),
        )
        return np.asarray(out, np.float64)[: len(known)]
