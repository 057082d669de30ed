"""Smooth distributions of values, and the max@k reward under any distribution.

The empirical distribution has no mass above its largest value: what a policy could
still find is not in it. A kernel spreads each value; a generalised Pareto tail says how
fast what lies above a threshold thins out. Both are fitted to a sample and give F, a
function that ``max_at_k_of`` integrates.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from rpg_jax import checks
from rpg_jax.arrays import concrete

#: Values [N] -> the share of the distribution that is at most each, [N].
CDF = Callable[[Float[Array, " N"]], Float[Array, " N"]]


def max_at_k_of(
    value: Float[Array, " B"],
    cdf: CDF,
    *,
    k: float | Float[Array, ""],
    best: float | Float[Array, ""] = 0.0,
    nodes: int = 512,
) -> Float[Array, " B"]:
    r"""Max@k reward of each value under a distribution that is given as a function.

    .. math:: w(v) = \int_b^{\max(b, v)} F(t)^{k-1} \, dt

    By Simpson's rule, so for an F that is smooth between b and the largest value:
    ``max_at_k`` is exact for an F of steps.

    Args:
        value: [B] values in any unit.
        cdf: F, non-decreasing, from 0 to 1.
        k: attempts still to come; below 1 it is taken as 1.
        best: b, the best value so far, in the unit of ``value``.
        nodes: intervals of the rule, an even number.

    Returns:
        [B], in the unit of ``value``.

    Raises:
        ValueError: a value, k or b is not finite (on the host; NaN under a trace), or
            ``nodes`` is not even and positive.

    Source: docs/concepts/best-score.md, "Smooth distributions".
    """
    if checks.count("nodes", nodes, least=2) % 2:
        raise ValueError(f"nodes must be even and at least 2, got {nodes}")
    if not callable(cdf):
        raise TypeError(f"cdf must be a function, got {type(cdf).__name__}")
    value = _finite(value, "value")
    checks.rank("value", value, 1)
    k = jnp.maximum(_finite(k, "k").astype(value.dtype), 1)
    best = _finite(best, "best").astype(value.dtype)
    checks.rank("k", k, 0)
    checks.rank("best", best, 0)
    length = jnp.maximum(value - best, 0)
    at = jnp.linspace(0, 1, nodes + 1, dtype=value.dtype)
    inner = np.where(np.arange(1, nodes) % 2 == 1, 4.0, 2.0)
    rule = jnp.asarray(np.concatenate([[1.0], inner, [1.0]]) / (3 * nodes), value.dtype)
    points = best + length[:, None] * at[None, :]
    share = jnp.clip(cdf(points.reshape(-1)), 0, 1).reshape(points.shape)
    out = length * jnp.sum(rule[None, :] * share ** (k - 1), axis=-1)
    fine = jnp.isfinite(value) & jnp.isfinite(k) & jnp.isfinite(best)
    return jnp.where(fine, out, jnp.nan)


def kernel_cdf(
    sample: Float[Array, " N"], *, bandwidth: float | Float[Array, ""] | None = None
) -> CDF:
    r"""Gaussian kernel estimate of a distribution function.

    .. math:: F(t) = \frac{1}{N} \sum_j \Phi\left(\frac{t - x_j}{h}\right)

    Args:
        sample: [N] values.
        bandwidth: h, in the unit of the sample; None takes Silverman's
            0.9 min(s, IQR / 1.34) N^(-1/5), or of whichever of the two is not 0.

    Raises:
        ValueError: a value is not finite, there is none, or h is known and not
            positive (all values equal need a bandwidth by hand).

    Source: Silverman (1986), section 3.4.2.
    """
    sample = _finite(sample, "sample")
    checks.rank("sample", sample, 1)
    if sample.shape[0] == 0:
        raise ValueError("the sample has no row")
    if bandwidth is None:
        spread = jnp.std(sample)
        low, high = jnp.quantile(sample, jnp.asarray([0.25, 0.75], sample.dtype))
        robust = (high - low) / 1.34
        scale = jnp.where(robust > 0, jnp.minimum(spread, robust), spread)
        bandwidth = 0.9 * scale * sample.shape[0] ** -0.2
    h = _finite(bandwidth, "bandwidth").astype(sample.dtype)
    checks.rank("bandwidth", h, 0)
    known = concrete(h)
    if known is not None and not known > 0:
        raise ValueError(
            f"bandwidth must be positive, got {known}: give one where all values are "
            "equal"
        )

    def cdf(at: Float[Array, " N"]) -> Float[Array, " N"]:
        z = (at[:, None] - sample[None, :]) / h
        return jnp.mean(jax.scipy.stats.norm.cdf(z), axis=-1)

    return cdf


def pareto_tail_cdf(sample: Float[Array, " N"], *, tail: float = 0.2) -> CDF:
    r"""Empirical distribution function with a generalised Pareto tail.

    .. math:: 1 - F(t) = p \left(1 + \xi \frac{t - u}{\sigma}\right)_+^{-1/\xi},
        \quad t > u

    u is the largest value below the highest ``tail`` share of the sample, p the share
    that is above it. Shape and scale are those of the probability-weighted moments of
    the excesses, which exist for few values; a shape below 0 is an end of the tail.

    Args:
        sample: [N] values, at least 2 in the tail and 1 below.
        tail: share of the sample that makes the tail, in (0, 1).

    Raises:
        ValueError: a value is not finite, ``tail`` is out of range, or the tail has
            fewer than two values.

    Source: Hosking and Wallis (1987), Technometrics 29, 339-349.
    """
    if not 0 < float(checks.scalar("tail", tail)) < 1:
        raise ValueError(f"tail must be in (0, 1), got {tail}")
    sample = _finite(sample, "sample")
    checks.rank("sample", sample, 1)
    total = sample.shape[0]
    number = round(tail * total)
    if number < 2 or number >= total:
        raise ValueError(
            f"the tail has {number} of {total} values; it needs 2, and 1 below it"
        )
    ordered = jnp.sort(sample)
    threshold = ordered[total - number - 1]
    excess = ordered[total - number :] - threshold
    mean = jnp.mean(excess)
    at = (jnp.arange(number, dtype=sample.dtype) + 0.65) / number
    weighted = jnp.mean((1 - at) * excess)
    # Hosking's k = -shape; all excesses equal to 0 leave a step at the threshold.
    gap = jnp.where(mean > 2 * weighted, mean - 2 * weighted, mean)
    gap = jnp.where(gap > 0, gap, 1)
    shape = 2 - mean / gap
    scale = jnp.where(mean > 0, 2 * mean * weighted / gap, 1)
    share = number / total
    fine = jnp.all(jnp.isfinite(sample))  # a NaN would pass for a large value

    def cdf(t: Float[Array, " N"]) -> Float[Array, " N"]:
        below = jnp.mean((ordered[None, :] <= t[:, None]).astype(sample.dtype), axis=-1)
        z = jnp.maximum(t - threshold, 0) / scale
        left = jnp.maximum(1 + shape * z, 0)
        bent = jnp.abs(shape) > 1e-4
        power = -1 / jnp.where(bent, shape, 1)
        over = jnp.where(bent, left**power, jnp.exp(-z))
        over = jnp.where(left > 0, over, 0)
        over = jnp.where(mean > 0, over, 0)
        out = jnp.where(t > threshold, 1 - share * over, below)
        return jnp.where(fine, out, jnp.nan)

    return cdf


def _finite(x: ArrayLike, name: str) -> Array:
    """As floats; refused where it is known and not finite.

    Raises:
        ValueError: names what it is.
    """
    out = checks.numbers(name, x)
    checks.within(name, out)
    return out
