"""Which form of the ratio's quantile to take: analytic in its range, else sampled.

``ratio_quantile`` cuts off extreme durations and works with moments; that holds while
log durations spread little for the number of pairs. Beyond, a batch's mean duration is
its longest one, and only simulated batches tell its distribution.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Real

from rpg_jax import ratio
from rpg_jax.arrays import concrete, tiny
from rpg_jax.statistics import NIW, checked_niw

Method = Literal["auto", "analytic", "sampled"]
METHODS: tuple[Method, ...] = ("auto", "analytic", "sampled")

# Largest deviation of log durations for two pairs, and what every doubling adds.
WIDTH_OF_TWO = 0.4
WIDTH_PER_DOUBLING = 0.18


def in_analytic_range(
    niw: NIW, count: Real[Array, "*batch"], *, log_duration: bool = True
) -> Bool[Array, "*batch"]:
    """Whether ``ratio_quantile`` is as good as 1,000 simulated batches.

    sd <= 0.4 + 0.18 log2(n / 2), sd the predictive deviation (Student-t scale) of log
    seconds: 0.4 for n = 2, 0.94 for n = 16, 1.48 for n = 128. Inside, the error is at
    most 1.5 standard errors of the 1,000-batch estimate, or 2% of the rate; beyond it
    grows fast: n = 16 is off by 8% at a deviation of 1.5, by 98% at 5.

    Args:
      niw: posterior over (reward, log duration), [...] batch.
      count: [...] pairs in a batch.
      log_duration: false for seconds on their own scale, where the sampled form has no
        use (simulated durations may be negative): always in range.

    Raises:
      TypeError: no NIW, or no numbers.
      ValueError: shapes do not fit; outside of jit also values out of range.
    """
    niw = checked_niw(niw, dim=2)
    count = ratio.checked_count(count, niw.kappa.shape)
    n = jnp.maximum(count.astype(niw.scale.dtype), 1)
    if not log_duration:
        return jnp.ones(n.shape, bool)
    variance = ratio.predictive(niw).shape[..., 1, 1]
    deviation = jnp.sqrt(jnp.maximum(variance, tiny(variance)))
    return deviation <= WIDTH_OF_TWO + WIDTH_PER_DOUBLING * jnp.log2(n / 2)


def ratio_quantile_auto(
    key: PRNGKeyArray,
    niw: NIW,
    count: Real[Array, ""],
    *,
    level: float = 0.95,
    num_batches: int = 1000,
    max_count: int = 128,
    log_duration: bool = True,
) -> Float[Array, ""]:
    """``ratio_quantile`` in its range, ``ratio_quantile_sampled`` beyond.

    Under vmap both are computed for every element: a branch becomes a choice.

    Args:
      key: PRNG key, used where batches are simulated.
      niw: unbatched posterior over (reward, log duration) or (reward, duration).
      count: n, pairs in a batch, 1 <= n <= max_count.
      level: quantile level in [0.5, 1).
      num_batches: simulated batches.
      max_count: static bound on n.
      log_duration: second coordinate is the log of the duration.

    Returns:
      The quantile (reward per second), not floored.

    Raises:
      TypeError: no key, no NIW, or no numbers.
      ValueError: level or a size out of range, or a known count above max_count.
    """
    ratio.checked_level(level, least=0.5, closed=True)
    n = ratio.checked_count(count, ())
    known = concrete(n)
    if known is not None and known > max_count:
        raise ValueError(f"count {known} is above max_count={max_count}: raise that")

    def analytic() -> Array:
        return ratio.ratio_quantile(niw, n, level=level, log_duration=log_duration)

    def sampled() -> Array:
        return ratio.ratio_quantile_sampled(
            key,
            niw,
            n,
            level=level,
            num_batches=num_batches,
            max_count=max_count,
            log_duration=log_duration,
        )

    inside = in_analytic_range(niw, n, log_duration=log_duration)
    value: Array = jax.lax.cond(inside, analytic, sampled)
    return value


def slot_rate_by(
    method: Method,
    key: PRNGKeyArray,
    niw: NIW,
    count: Real[Array, ""],
    *,
    level: float,
    max_count: int,
    log_duration: bool,
) -> Float[Array, ""]:
    """``slot_rate`` by any method: the quantile floored at 0; 0 below two slots."""
    if method == "analytic":
        return ratio.slot_rate(niw, count, level=level, log_duration=log_duration)
    quantile = ratio_quantile_auto
    if method == "sampled":
        quantile = ratio.ratio_quantile_sampled
    value = quantile(
        key,
        niw,
        count,
        level=level,
        max_count=max_count,
        log_duration=log_duration,
    )
    return jnp.where(count >= 2, jnp.maximum(value, 0), 0)
