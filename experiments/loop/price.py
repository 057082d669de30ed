"""The rate model: from recorded attempts to the price of a second.

``greedy`` data (default): the price is meant to be what the policy earns per second
when it acts as the ranking does, so it is fitted to the best attempts: the top k valid
ones by r - rho delta, with rho their own rate, a fixed point. An attempt may also fail,
which costs time and earns nothing: failures are a component of their own, with the
share and the seconds that they had recently. ``slots`` data: the paper's lifetime sums
per chain, whatever the policy was when it earned them.
"""

import collections
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rpg_jax
from experiments.config.rate import EstimatorFactory, RateOptions, get_estimator
from experiments.loop.estimators import loop_estimator
from rpg_jax.types import Batch

#: Values of attempts -> what they earn as of now, both [N].
Worth = Callable[[np.ndarray], np.ndarray]

# A subset that maximises a ratio is found in a handful of Dinkelbach steps.
_MAX_STEPS = 50
# Most failures per chosen attempt in an estimator without weights.
_REPEATS = 8


def top_k(reward: np.ndarray, seconds: np.ndarray, rho: float, k: int) -> np.ndarray:
    """Indices of the k largest r - rho delta, best first; earlier ones win ties."""
    order = np.argsort(-rpg_jax.relative_reward(reward, seconds, rho), kind="stable")
    return order[:k]


class RateModel:
    """Attempts in, a rate out; a pure function of what it was fed, in order.

    Args:
        options: estimator and data.
        chains: slots of the run; also the k of the greedy part, since k attempts are
            what the next states are made of.

    Raises:
        ValueError: there is no such estimator, or it does not go with the data.

    Attributes:
        rate: reward per second, >= 0; 0 before data.
        seen: attempts fed so far.
    """

    def __init__(self, options: RateOptions, *, chains: int):
        self.options = options
        self.chains = chains
        self.rate = 0.0
        self.seen = 0
        self._best: collections.deque[tuple[float, float]] = collections.deque(
            maxlen=options.window
        )
        # (attempts, seconds of those that failed) of recent batches
        self._recent: collections.deque[tuple[int, list[float]]] = collections.deque(
            maxlen=options.recent_batches
        )
        self._earned = False
        self._kind = loop_estimator(options, chains)
        self._state: Any = self._kind.build(None).init()
        factory = get_estimator(options.estimator)
        self._fit = _compiled(factory, options, chains)

    def observe(
        self,
        reward: np.ndarray,
        seconds: np.ndarray,
        valid: np.ndarray,
        known: np.ndarray,
        chain: np.ndarray,
        *,
        worth: Worth | None = None,
    ) -> float:
        """Feed one batch and fit again.

        Args:
            reward: reward without penalty or bonus, shape [B]; failures count as 0.
            seconds: measured, shape [B].
            valid: whether the attempt was graded, shape [B].
            known: false where the machinery failed: no data, shape [B].
            chain: slot of each attempt, shape [B].
            worth: what rewards earn as of now, where that is not the reward itself.
                The greedy part sees past attempts at what they are worth now.

        Returns:
            The new rate.
        """
        known = np.asarray(known, bool)
        valid = np.asarray(valid, bool) & known
        reward = np.where(valid, np.asarray(reward, np.float64), 0.0)
        seconds = np.where(known, np.asarray(seconds, np.float64), 1.0)
        if not (np.isfinite(reward).all() and np.isfinite(seconds).all()):
            raise ValueError("rewards and seconds of attempts must be finite")
        if not known.any():
            return self.rate
        self.seen += int(known.sum())
        if self.options.data == "slots":
            if worth is not None:
                reward = np.where(valid, worth(reward), 0.0)
            self._fit_all(reward, seconds, valid, known, np.asarray(chain))
        else:
            self._best.extend(zip(reward[valid], seconds[valid], strict=True))
            failed = known & ~valid
            self._recent.append((int(known.sum()), seconds[failed].tolist()))
            self._fit_greedy(worth)
        return self.rate

    def _accept(self, rate: Any) -> None:
        value = float(rate)
        if not np.isfinite(value):
            raise ValueError(f"the rate estimate is {value}")
        self.rate = max(value, 0.0)

    def _fit_all(self, reward, seconds, valid, known, chain) -> None:
        if self._kind.network and not self._earned:
            # Its first data fix its units: a batch without a reward has none to give.
            self._earned = bool((reward > 0).any())
            if not self._earned:
                return
        failure = ~valid
        share = np.array([1 - failure[known].mean(), failure[known].mean()])
        pad = -len(reward) % self.chains
        rows = [np.pad(v, (0, pad)) for v in (reward, seconds, failure, known, chain)]
        rows[1] = np.where(rows[3], rows[1], 1.0)
        self._state, rate = self._fit(self._state, self.rate, share, *rows)
        self._accept(rate)

    def _fit_greedy(self, worth: Worth | None = None) -> None:
        if not self._best:
            self._accept(0.0)  # nothing was earned in the time so far
            return
        reward, seconds = np.array(self._best).T
        if worth is not None:
            reward = worth(reward)
        attempts = sum(count for count, _ in self._recent)
        failed = np.array([s for _, batch in self._recent for s in batch])
        # Jeffreys' prior: neither 0 nor 1 after a few attempts.
        share = (len(failed) + 0.5) / (attempts + 1.0)
        k = min(self.chains, len(reward))
        weights = np.array([1 - share, share])
        carry = self._kind.running
        # A running estimator takes one step from its last rate; the others are fitted
        # afresh until the choice of attempts and their rate agree.
        rho = self.rate if carry else 0.0
        seen: set[bytes] = set()
        while len(seen) < (1 if carry else _MAX_STEPS):
            chosen = top_k(reward, seconds, rho, k)
            if chosen.tobytes() in seen:
                break
            seen.add(chosen.tobytes())
            rows = self._rows(reward[chosen], seconds[chosen], failed, share)
            state, rate = self._fit(self._state, rho, weights, *rows)
            rho = max(float(rate), 0.0)
        if carry:
            self._state = state
        self._accept(rate)

    def _rows(self, reward, seconds, failed, share) -> list[np.ndarray]:
        """Chosen attempts and failures, padded to one shape for all steps."""
        if not self._kind.weighted:
            # No weights there: as many failures as go with the chosen attempts.
            number = round(len(reward) * share / (1 - share)) if len(failed) else 0
            turn = np.arange(min(number, self.chains * _REPEATS)) % max(len(failed), 1)
            failed = failed[::-1][turn]
        size = self.chains * (1 + max(_REPEATS, self.options.recent_batches))
        count = len(reward) + len(failed)
        out_r, out_s = np.zeros(size), np.ones(size)
        failure, known = np.zeros(size, bool), np.zeros(size, bool)
        out_r[: len(reward)] = reward
        out_s[: len(reward)] = seconds
        out_s[len(reward) : count] = failed
        failure[len(reward) : count] = True
        known[:count] = True
        return [out_r, out_s, failure, known, np.zeros(size, int)]


@functools.cache
def _compiled(factory: EstimatorFactory, options: RateOptions, chains: int) -> Any:
    """Compiled: state, rho, share, rows -> state after the rows, rate.

    ``factory`` is the one that the options name: a key of the cache, so that a name
    which is registered anew is compiled anew.
    """
    del factory
    kind = loop_estimator(options, chains)

    @jax.jit
    def fit(state, rho, share, reward, seconds, failure, known, chain):
        dtype = jnp.zeros(()).dtype
        estimator = kind.build(share.astype(dtype))
        if kind.network:
            context = jax.nn.one_hot(failure.astype(jnp.int32), 2, dtype=dtype)
        elif options.data == "slots":
            context = chain.astype(jnp.int32)
        else:
            context = failure.astype(jnp.int32)
        batch = Batch(
            context=context,
            action=jnp.zeros(reward.shape, jnp.int32),
            reward=reward.astype(dtype),
            duration=seconds.astype(dtype),
            mask=known,
        )
        state = estimator.update(state, batch)
        return state, estimator.rate(state, jnp.asarray(rho, dtype))

    def call(state, rho, share, reward, seconds, failure, known, chain):
        return fit(
            state,
            np.float32(rho),
            share.astype(np.float32),
            reward.astype(np.float32),
            seconds.astype(np.float32),
            failure,
            known,
            chain.astype(np.int32),
        )

    return call
