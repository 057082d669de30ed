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
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import rpg_jax
from experiments.config.rate import RateOptions
from rpg_jax.types import Batch, RateEstimator

# A subset that maximises a ratio is found in a handful of Dinkelbach steps.
_MAX_STEPS = 50
_HIDDEN = 8
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

    Attributes:
        rate: reward per second, >= 0; 0 before data.
        seen: attempts fed so far.
    """

    def __init__(self, options: RateOptions, *, chains: int):
        if options.data == "slots" and options.estimator == "niw" and chains < 2:
            raise ValueError("--rate-data=slots needs two chains or more")
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
        self._state: Any = _factory(options, chains)(None).init()

    def observe(
        self,
        reward: np.ndarray,
        seconds: np.ndarray,
        valid: np.ndarray,
        known: np.ndarray,
        chain: np.ndarray,
    ) -> float:
        """Feed one batch and fit again.

        Args:
            reward: reward without penalty or bonus, shape [B]; failures count as 0.
            seconds: measured, shape [B].
            valid: whether the attempt was graded, shape [B].
            known: false where the machinery failed: no data, shape [B].
            chain: slot of each attempt, shape [B].

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
            self._fit_all(reward, seconds, valid, known, np.asarray(chain))
        else:
            self._best.extend(zip(reward[valid], seconds[valid], strict=True))
            failed = known & ~valid
            self._recent.append((int(known.sum()), seconds[failed].tolist()))
            self._fit_greedy()
        return self.rate

    def _accept(self, rate: Any) -> None:
        value = float(rate)
        if not np.isfinite(value):
            raise ValueError(f"the rate estimate is {value}")
        self.rate = max(value, 0.0)

    def _fit_all(self, reward, seconds, valid, known, chain) -> None:
        if self.options.estimator == "neural" and not self._earned:
            # Its first data fix its units: a batch without a reward has none to give.
            self._earned = bool((reward > 0).any())
            if not self._earned:
                return
        failure = ~valid
        share = np.array([1 - failure[known].mean(), failure[known].mean()])
        pad = -len(reward) % self.chains
        rows = [np.pad(v, (0, pad)) for v in (reward, seconds, failure, known, chain)]
        rows[1] = np.where(rows[3], rows[1], 1.0)
        self._state, rate = _fit(self.options, self.chains)(
            self._state, self.rate, share, *rows
        )
        self._accept(rate)

    def _fit_greedy(self) -> None:
        if not self._best:
            self._accept(0.0)  # nothing was earned in the time so far
            return
        reward, seconds = np.array(self._best).T
        attempts = sum(count for count, _ in self._recent)
        failed = np.array([s for _, batch in self._recent for s in batch])
        # Jeffreys' prior: neither 0 nor 1 after a few attempts.
        share = (len(failed) + 0.5) / (attempts + 1.0)
        k = min(self.chains, len(reward))
        weights = np.array([1 - share, share])
        carry = self.options.estimator in ("robbins-monro", "neural")
        fit = _fit(self.options, self.chains)
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
            state, rate = fit(self._state, rho, weights, *rows)
            rho = max(float(rate), 0.0)
        if carry:
            self._state = state
        self._accept(rate)

    def _rows(self, reward, seconds, failed, share) -> list[np.ndarray]:
        """Chosen attempts and failures, padded to one shape for all steps."""
        if self.options.estimator not in ("niw", "neural"):
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


def _sampled(options: RateOptions, chains: int, state: Any) -> jax.Array:
    """The paper's percentile of 1,000 simulated batches, with a key of its own.

    The deterministic quantile of ``niw_slots`` is only close where log durations spread
    by less than about 1.2; crashes of 0.1 s beside long runs spread by more.
    """
    count = jnp.sum(state.filled, dtype=jnp.int32)
    rate = rpg_jax.ratio_quantile_sampled(
        jax.random.fold_in(jax.random.key(0), state.step),
        state.niw,
        count,
        level=options.quantile,
        max_count=chains,
    )
    return jnp.where(count >= 2, jnp.maximum(rate, 0), 0)


def _network(params: Any, context: jax.Array) -> jax.Array:
    hidden = jnp.tanh(context @ params["in"] + params["bias"][None, :])
    return (hidden @ params["out"])[:, None, :]


@functools.cache
def _factory(options: RateOptions, chains: int):
    """share of (valid, failed) -> RateEstimator; the state does not depend on it."""
    if options.estimator == "empirical":
        return lambda share: rpg_jax.empirical()
    if options.estimator == "robbins-monro":
        return lambda share: rpg_jax.robbins_monro(options.step_size)
    if options.estimator == "niw" and options.data == "slots":
        slots = rpg_jax.niw_slots(
            chains,
            forgetting=options.forgetting,
            quantile=options.quantile,
            by_context=True,
        )
        return lambda share: slots
    if options.estimator == "niw":
        return lambda share: rpg_jax.niw(2, 1, context_probs=share)
    keys = jax.random.split(jax.random.key(0), 2)
    params = {
        "in": jax.random.normal(keys[0], (2, _HIDDEN)),
        "bias": jnp.zeros(_HIDDEN),
        "out": jax.random.normal(keys[1], (_HIDDEN, 2)) / _HIDDEN,
    }
    optimizer = optax.adam(1e-2)

    def neural(share: Any) -> RateEstimator:
        return rpg_jax.neural(
            _network,
            params,
            optimizer,
            num_steps=options.num_steps,
            contexts=jnp.eye(2),
            context_probs=share,
        )

    return neural


@functools.cache
def _fit(options: RateOptions, chains: int):
    """Compiled: state, rho, share, rows -> state after the rows, rate."""
    factory = _factory(options, chains)

    @jax.jit
    def fit(state, rho, share, reward, seconds, failure, known, chain):
        dtype = jnp.zeros(()).dtype
        estimator = factory(share.astype(dtype))
        if options.estimator == "neural":
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
        if options.data == "slots" and options.estimator == "niw":
            return state, _sampled(options, chains, state)
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
