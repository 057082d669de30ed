"""Quantile of the predictive ratio of means: an optimistic rate of a NIW posterior.

A batch of n predictive pairs (r_i, y_i) has the ratio mean(r) / mean(d) with d = exp(y)
(or d = y); the rate estimate of the paper is an upper quantile of that ratio.
``ratio_quantile_sampled`` draws batches, ``ratio_quantile`` computes the same number
without randomness, for about what the fit to 128 slots costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Real

from rpg_jax import checks
from rpg_jax.arrays import concrete, tiny
from rpg_jax.statistics import NIW, checked_niw
from rpg_jax.student import (
    StudentT,
    predictive,
    predictive_moments,
    sample_predictive,
)

__all__ = [
    "StudentT",
    "predictive",
    "predictive_moments",
    "ratio_quantile",
    "ratio_quantile_sampled",
    "sample_predictive",
    "slot_rate",
]

# Share of batches whose longest duration is cut off, and the lower end of the nodes.
CUT = 0.025
BOTTOM = 4.5
LEGENDRE = np.polynomial.legendre.leggauss(12)
NEWTON_STEPS = 4

# Share of the cut batches above q -> normal score of the level among the others.
Score = Callable[[float | Float[Array, "*batch"]], Any]


def checked_count(
    count: Real[Array, "*batch"], batch: tuple[int, ...]
) -> Real[Array, "*batch"]:
    """A number of pairs for each of a batch, from one for each or one for all."""
    known = concrete(count)
    if known is not None:
        checks.within("count", checks.real("count", known), (0.0, checks.MAX_VALUE))
    count = jnp.asarray(checks.real("count", count))
    if count.shape not in ((), batch):
        raise ValueError(f"count must be a number or {batch}, got {count.shape}")
    return jnp.broadcast_to(count, batch)


def checked_level(level: float, *, least: float, closed: bool) -> None:
    if np.shape(checks.real("level", level)) != ():
        raise TypeError("level must be a single number")
    if not (least <= level < 1.0 if closed else least < level < 1.0):
        bracket = "[" if closed else "("
        raise ValueError(f"level must be in {bracket}{least:g}, 1), got {level}")


def ratio_quantile_sampled(
    key: PRNGKeyArray,
    niw: NIW,
    count: Real[Array, ""],
    *,
    level: float = 0.95,
    num_batches: int = 1000,
    max_count: int = 128,
    log_duration: bool = True,
) -> Float[Array, ""]:
    """Quantile of the ratio of means over simulated predictive batches.

    Args:
      key: PRNG key.
      niw: unbatched posterior over (reward, log duration) or (reward, duration).
      count: n, pairs in a batch, 1 <= n <= max_count; may be traced, and is then taken
        as max_count where it is larger.
      level: quantile level in (0, 1).
      num_batches: simulated batches.
      max_count: static bound on n; the cost is num_batches * max_count draws.
      log_duration: second coordinate is the log of the duration.

    Returns:
      The quantile (reward per second), not floored.

    Raises:
      TypeError: no key, no NIW, or no numbers.
      ValueError: level or a size out of range, or a known count above max_count.
    """
    checks.key(key)
    niw = checked_niw(niw, dim=2)
    checked_level(level, least=0.0, closed=False)
    num_batches = checks.count("num_batches", num_batches)
    max_count = checks.count("max_count", max_count)
    if num_batches * max_count > 10**8:
        raise ValueError(f"{num_batches} batches of {max_count} are too many")
    count = checked_count(count, ())
    known = concrete(count)
    if known is not None and (known > max_count).any():
        raise ValueError(f"count {count} is above max_count={max_count}: raise that")
    draws = sample_predictive(key, niw, (num_batches, max_count))
    n = jnp.maximum(jnp.asarray(count, draws.dtype), 1)
    live = jnp.arange(max_count, dtype=draws.dtype) < n
    reward = jnp.where(live[None, :], draws[..., 0], 0).sum(-1) / n
    second = draws[..., 1]
    if log_duration:
        # The location is taken out: a ratio scales with it and exp stays in range.
        duration = jnp.exp(jnp.clip(second - niw.mean[1], -80, 80))
        scale = jnp.exp(jnp.clip(-niw.mean[1], -80, 80))
    else:
        duration, scale = second, jnp.ones((), draws.dtype)
    duration = jnp.where(live[None, :], duration, 0).sum(-1) / n
    # Between an infinite value and a finite one a quantile would be NaN.
    ratio = jnp.clip(reward / jnp.maximum(duration, tiny(draws)), -1e25, 1e25)
    return jnp.clip(jnp.quantile(ratio, level) * scale, -1e30, 1e30)


def ratio_quantile(
    niw: NIW,
    count: Real[Array, "*batch"],
    *,
    level: float = 0.95,
    log_duration: bool = True,
) -> Float[Array, "*batch"]:
    """Deterministic quantile of the ratio of means; see ``ratio_quantile_sampled``.

    The quantile q solves P(mean(r) - q mean(d) > 0) = 1 - level, a statement about the
    mean of n independent r - q d. With log durations it cannot use the moments of
    d = exp(y): exp of a Student-t has none. The batches with the most extreme duration
    (2.5%) are cut off, which leaves finite moments, and counted as below q or above it
    by what a pair at the cut does to the mean: mostly below, but with rewards that grow
    with time and few pairs they are the best batches. The cut moments come from
    Gauss-Legendre nodes through a normal score; the mean of n is taken as a Pearson III
    variable with the right mean, variance and skewness.

    Args:
      niw: posterior over (reward, log duration) or (reward, duration), [...] batch.
        With log durations a df = nu - 1 below 2 has the tail of 2: lighter than its
        own, but a finite quantile. A slot fit has df >= 5.
      count: [...] pairs in a batch, n >= 1.
      level: quantile level in [0.5, 1).
      log_duration: second coordinate is the log of the duration.

    Returns:
      [...] reward per second, not floored. On slots recorded in the bandit study the
      error is within 0.3 standard errors of the 1,000-batch estimate from n = 4 on, and
      within 3% of the rate at n = 2 and 3. It grows with the spread of log durations:
      below 0.5 standard errors for a deviation of 1 and n >= 32, 1 for 1.5 and n = 128.

    Raises:
      TypeError: no NIW, or no numbers.
      ValueError: level out of range, a posterior that is not one of pairs, or shapes
        that do not fit; outside of jit also values out of range.
    """
    checked_level(level, least=0.5, closed=True)
    niw = checked_niw(niw, dim=2)
    t = predictive(niw)
    count = checked_count(count, niw.kappa.shape)
    n = jnp.maximum(count.astype(niw.scale.dtype), 1)
    if not log_duration:
        return _linear_quantile(t, n, level)
    m_r, m_d = t.loc[..., 0], t.loc[..., 1]
    var_r, cov, var_d = t.shape[..., 0, 0], t.shape[..., 0, 1], t.shape[..., 1, 1]
    # In units of the reward's own size; a rate scales with them.
    unit = jnp.maximum(jnp.abs(m_r) + jnp.sqrt(jnp.maximum(var_r, tiny(var_r))), 1e-18)
    m_r, var_r, cov = m_r / unit, var_r / unit / unit, cov / unit
    moments = _cut_moments(t.df, n, var_r, cov, var_d)
    root = _root(m_r, moments, n, _score_of_cut(level))
    return jnp.clip(root * unit * jnp.exp(jnp.clip(-m_d, -60, 60)), -1e30, 1e30)


def _root(
    m_r: Float[Array, "*batch"],
    m: _CutMoments,
    n: Float[Array, "*batch"],
    normal_score: Score,
) -> Float[Array, "*batch"]:
    """The q at which the level-quantile of mean(r) - q mean(d) is 0, by Newton steps.

    Args:
      m_r: location of the reward.
      m: moments of the pairs that were not cut off.
      n: pairs in a batch.
      normal_score: from ``_score_of_cut``.
    """
    least = tiny(m.rr)
    root = jnp.sqrt(n)

    def excess(q: Array) -> tuple[Array, Array]:
        """The level-quantile of mean(r) - q mean(d), and its slope in q (roughly)."""
        mean = m_r + m.r - q * m.d
        second = m.rr - q * (2 * m.rd - q * m.dd)
        second = jnp.maximum(second, 1e-12 * (m.rr + q * q * m.dd) + least)
        third = m.rrr - q * (3 * m.rrd - q * (3 * m.rdd - q * m.ddd))
        sd = jnp.sqrt(second)
        # Are the batches that were cut off above q? Judged by one at the cut.
        total = (n - 1) * mean + m_r + m.edge_r - q * m.edge_d
        above = (1 + jnp.tanh(0.8 * total / (sd * root))) / 2  # nearly Phi
        z = normal_score(above)
        w = _pearson_quantile(z, third / second / sd / root)
        slope = w * (q * m.dd - m.rd) / (sd * root) - m.d
        return mean + sd * w / root, slope

    # Start from the delta method. Slopes ignore how skewness moves with q, so steps are
    # quasi-Newton; a step may not leave [q / 4, 4 q] (or cross 0) at once.
    centre = (m_r + m.r) / m.d
    var = (m.rr - centre * (2 * m.rd - centre * m.dd)) / n
    spread = jnp.sqrt(jnp.maximum(var, 1e-12 * m.rr + least)) / m.d
    q: Array = centre + normal_score(0.0) * spread
    reach = 0.75 * (jnp.abs(q) + spread)
    for _ in range(NEWTON_STEPS):
        value, slope = excess(q)
        step = -value / jnp.minimum(slope, -0.25 * m.d)
        q = q + jnp.clip(step, -reach, reach)
    return q


def _linear_quantile(
    t: StudentT, n: Float[Array, "*batch"], level: float
) -> Float[Array, "*batch"]:
    """Fieller's root for (reward, duration) modelled on their own scales."""
    m_r, m_d = t.loc[..., 0], t.loc[..., 1]
    var_r, cov, var_d = t.shape[..., 0, 0], t.shape[..., 0, 1], t.shape[..., 1, 1]
    z = NormalDist().inv_cdf(level)
    # In units of their own sizes; a rate scales with them.
    size_r, size_d = (
        jnp.maximum(jnp.abs(m) + jnp.sqrt(jnp.maximum(var, tiny(var))), 1e-18)
        for m, var in ((m_r, var_r), (m_d, var_d))
    )
    m_r, var_r, cov = m_r / size_r, var_r / size_r / size_r, cov / size_r / size_d
    m_d, var_d = m_d / size_d, var_d / size_d / size_d
    unit = z * z * t.df / jnp.maximum(t.df - 2, 0.5) / n
    a = m_d * m_d - unit * var_d
    # Below this the duration's mean is not distinguishable from 0: no finite root.
    a = jnp.maximum(a, 1e-3 * m_d * m_d + 1e-12)
    b = m_r * m_d - unit * cov
    # b^2 - (m_d^2 - unit var_d)(m_r^2 - unit var_r), with what cancels left out.
    spread = m_d * m_d * var_r - m_r * (2 * m_d * cov - m_r * var_d)
    inside = unit * (spread - unit * (var_r * var_d - cov * cov))
    root = (b + jnp.sqrt(jnp.maximum(inside, tiny(a)))) / a
    return jnp.clip(root * (size_r / size_d), -1e30, 1e30)


class _CutMoments(NamedTuple):
    """Means (m_r and exp(m_d) taken out) and central moments of (r, exp(y))."""

    r: Float[Array, "*batch"]
    d: Float[Array, "*batch"]
    rr: Float[Array, "*batch"]
    rd: Float[Array, "*batch"]
    dd: Float[Array, "*batch"]
    rrr: Float[Array, "*batch"]
    rrd: Float[Array, "*batch"]
    rdd: Float[Array, "*batch"]
    ddd: Float[Array, "*batch"]
    edge_r: Float[Array, "*batch"]  # mean reward and duration of a pair at the cut
    edge_d: Float[Array, "*batch"]


def _cut_moments(
    df: Float[Array, "*batch"],
    n: Float[Array, "*batch"],
    var_r: Float[Array, "*batch"],
    cov: Float[Array, "*batch"],
    var_d: Float[Array, "*batch"],
) -> _CutMoments:
    """Moments of (r - m_r, exp(y - m_d)) given that y is no extreme one of n."""
    least = tiny(var_d)
    # Normal score of the cut, P(Z > top) = CUT / n (Abramowitz and Stegun 26.2.22).
    s = jnp.sqrt(-2 * jnp.log(CUT / n))
    top = s - (2.30753 + 0.27061 * s) / (1 + s * (0.99229 + 0.04481 * s))
    nodes, weights = (
        jnp.asarray(v, var_d.dtype).reshape((-1,) + (1,) * top.ndim) for v in LEGENDRE
    )
    half = (top + BOTTOM)[None] / 2
    score = half * nodes + ((top - BOTTOM) / 2)[None]
    weight = weights * jnp.exp(-score * score / 2)
    weight = weight / jnp.sum(weight, axis=0, keepdims=True)
    df, var_r, cov, var_d = (v[None] for v in (df, var_r, cov, var_d))
    # Below 2 the score's closed form turns back; below 1.5 it has no real value.
    df = jnp.maximum(df, 2)
    # Student-t value of a normal score: x^2 = df (exp(g z^2) - 1). The square root is
    # taken of a ratio that tends to 1, so its slope at 0 is finite.
    g = (df - 1.5) / jnp.square(df - 1)

    def student(score: Array) -> Array:
        u = jnp.maximum(g * score * score, 1e-6)
        return score * jnp.sqrt(df * g * jnp.expm1(u) / u)

    x = student(score)
    edge = student(top[None])[0]
    sd = jnp.sqrt(jnp.maximum(var_d, least))
    duration = jnp.exp(jnp.clip(sd * x, -28, 28))  # third powers stay in float32
    slope = cov / sd  # of r in x
    # Variance of r given x: Student-t residuals widen with |x|.
    residual = jnp.maximum(var_r - slope * slope, 0) * (df + x * x) / (df - 1)

    def average(v: Array) -> Array:
        return jnp.sum(weight * v, axis=0)

    mean_r, mean_d = average(slope * x), average(duration)
    a = slope * x - mean_r[None]
    b = duration - mean_d[None]
    ab, bb = a * b, b * b
    aa = a * a + residual
    return _CutMoments(
        r=mean_r,
        d=mean_d,
        rr=average(aa),
        rd=average(ab),
        dd=average(bb),
        rrr=average(a * (aa + 2 * residual)),
        rrd=average(aa * b),
        rdd=average(a * bb),
        ddd=average(b * bb),
        edge_r=slope[0] * edge,
        edge_d=jnp.exp(jnp.clip(sd[0] * edge, -28, 28)),
    )


def _score_of_cut(level: float) -> Score:
    """Normal score z of the level among the batches that were not cut off.

    P(above q) = 1 - level = (1 - cut) (1 - Phi(z)) + cut * above, where ``above`` is
    the share of the cut batches that lie above q: a parabola through its three values
    at 0, 1/2 and 1.
    """
    cut = 1 - math.exp(-CUT)
    # Where the level itself is beyond the cut (> 97.5%), the rest has hardly any above.
    low, half, high = (
        NormalDist().inv_cdf(
            1 - max((1 - level - cut * above) / (1 - cut), 0.1 * (1 - level))
        )
        for above in (0.0, 0.5, 1.0)
    )
    linear, square = 4 * half - 3 * low - high, 2 * (low + high - 2 * half)
    return lambda above: low + above * (linear + square * above)


def _pearson_quantile(
    z: float | Float[Array, "*batch"], skew: Float[Array, "*batch"]
) -> Float[Array, "*batch"]:
    """Quantile of a standardised Pearson III variable (Wilson and Hilferty 1931).

    (2 / g)((1 + g z / 6 - g^2 / 36)^3 - 1), multiplied out: g = 0 is no exception.
    """
    h = z / 6 - skew / 36
    bent = skew * h
    body = h * (6 + bent * (6 + 2 * bent))
    # Past the end of the support the cube would turn back.
    ended = bent < -1
    return jnp.where(ended, -2 / jnp.where(ended, skew, -1), body)


def slot_rate(
    niw: NIW,
    count: Real[Array, "*batch"],
    *,
    level: float = 0.95,
    log_duration: bool = True,
) -> Float[Array, "*batch"]:
    """Rate estimate from a slot fit: the quantile floored at 0; 0 below two slots.

    Raises:
      TypeError: no NIW, or no numbers.
      ValueError: as ``ratio_quantile``.
    """
    q = ratio_quantile(niw, count, level=level, log_duration=log_duration)
    count = checked_count(count, q.shape)
    return jnp.where(count >= 2, jnp.maximum(q, 0), 0)
