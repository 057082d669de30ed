"""Quantile of the predictive ratio of means: an optimistic rate of a NIW posterior.

A batch of n predictive pairs (r_i, y_i) has the ratio mean(r) / mean(d) with d = exp(y)
(or d = y); the rate estimate of the paper is an upper quantile of that ratio.
``ratio_quantile_sampled`` draws batches, ``ratio_quantile`` computes the same number
without randomness.
"""

from statistics import NormalDist

import jax
import jax.numpy as jnp

from rpg_jax.conjugate import NIW, Array, predictive


def sample_predictive(key: Array, niw: NIW, shape: tuple[int, ...]) -> Array:
    """Draws [*shape, 2] from the Student-t predictive of an unbatched bivariate NIW."""
    t = predictive(niw)
    dtype = niw.scale.dtype
    key_normal, key_mix = jax.random.split(key)
    z = jax.random.normal(key_normal, (*shape, 2), dtype)
    mix = jax.random.gamma(key_mix, t.df / 2, shape, dtype) / (t.df / 2)
    z = z / jnp.sqrt(mix)[..., None]
    a = jnp.sqrt(t.shape[0, 0])
    b = t.shape[0, 1] / a
    c = jnp.sqrt(jnp.maximum(t.shape[1, 1] - b * b, 0))
    first = t.loc[0] + a * z[..., 0]
    second = t.loc[1] + b * z[..., 0] + c * z[..., 1]
    return jnp.stack([first, second], axis=-1)


def ratio_quantile_sampled(
    key: Array,
    niw: NIW,
    count: Array,
    *,
    level: float = 0.95,
    num_batches: int = 1000,
    max_count: int = 128,
    log_duration: bool = True,
) -> Array:
    """Quantile of the ratio of means over simulated predictive batches.

    Args:
      key: PRNG key.
      niw: unbatched posterior over (reward, log duration) or (reward, duration).
      count: n, pairs in a batch; may be traced, 1 <= n <= max_count.
      level: quantile level in (0, 1).
      num_batches: simulated batches.
      max_count: static bound on n; the cost is num_batches * max_count draws.
      log_duration: second coordinate is the log of the duration.

    Returns:
      The quantile (reward per second), not floored.
    """
    draws = sample_predictive(key, niw, (num_batches, max_count))
    n = jnp.maximum(jnp.asarray(count, draws.dtype), 1)
    live = jnp.arange(max_count, dtype=draws.dtype) < n
    reward = jnp.where(live[None, :], draws[..., 0], 0).sum(-1) / n
    second = draws[..., 1]
    tiny = float(jnp.finfo(draws.dtype).tiny)
    if log_duration:
        # The location is taken out: a ratio scales with it and exp stays in range.
        duration = jnp.exp(second - niw.mean[1])
        scale = jnp.exp(-niw.mean[1])
    else:
        duration, scale = second, jnp.ones((), draws.dtype)
    duration = jnp.where(live[None, :], duration, 0).sum(-1) / n
    ratio = reward / jnp.maximum(duration, tiny)
    return jnp.quantile(ratio, level) * scale


def ratio_quantile(
    niw: NIW, count: Array, *, level: float = 0.95, log_duration: bool = True
) -> Array:
    """Deterministic quantile of the ratio of means; see ``ratio_quantile_sampled``.

    Args:
      niw: posterior over (reward, log duration) or (reward, duration), [...] batch.
      count: [...] pairs in a batch, n >= 1.
      level: quantile level in (0, 1).
      log_duration: second coordinate is the log of the duration.

    Returns:
      [...] reward per second, not floored.
    """
    z = NormalDist().inv_cdf(level)
    t = predictive(niw)
    n = jnp.maximum(jnp.asarray(count, niw.scale.dtype), 1)
    inflate = t.df / jnp.maximum(t.df - 2, 0.5)
    var_r = t.shape[..., 0, 0] * inflate
    cov = t.shape[..., 0, 1] * inflate
    var_d = t.shape[..., 1, 1] * inflate
    m_r, m_d = t.loc[..., 0], t.loc[..., 1]
    if not log_duration:
        centre = m_r / m_d
        var = (var_r - 2 * centre * cov + centre * centre * var_d) / n
        return centre + z * jnp.sqrt(jnp.maximum(var, 0)) / m_d
    # mean(exp(y)) is close to lognormal with matched mean and variance.
    var_l = jnp.log1p(jnp.expm1(jnp.minimum(var_d, 20)) / n)
    shift = cov / n
    # Moments of R exp(-L) for (R, L) bivariate normal.
    base = jnp.exp(-m_d - var_d / 2 + var_l)
    mean = m_r - shift
    second = jnp.exp(var_l) * (var_r / n + jnp.square(m_r - 2 * shift))
    sd = jnp.sqrt(jnp.maximum(second - mean * mean, 0))
    return base * (mean + z * sd)


def slot_rate(
    niw: NIW, count: Array, *, level: float = 0.95, log_duration: bool = True
) -> Array:
    """Rate estimate from a slot fit: the quantile floored at 0; 0 below two slots."""
    q = ratio_quantile(niw, count, level=level, log_duration=log_duration)
    return jnp.where(count >= 2, jnp.maximum(q, 0), 0)
