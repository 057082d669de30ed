"""The posterior predictive of a NIW: a multivariate Student-t, moments and draws."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from rpg_jax.arrays import tiny
from rpg_jax.statistics import NIW, checked_niw


class StudentT(NamedTuple):
    """Multivariate Student-t: df, location and shape matrix."""

    df: Float[Array, "*batch"]
    loc: Float[Array, "*batch d"]
    shape: Float[Array, "*batch d d"]


def predictive(niw: NIW) -> StudentT:
    """Posterior predictive of one observation: multivariate Student-t.

    df = nu - d + 1, shape = scale (kappa + 1) / (kappa df).

    Raises:
      TypeError: no NIW.
      ValueError: its shapes do not fit; outside of jit also values out of range.
    """
    niw = checked_niw(niw)
    df = niw.nu - (niw.mean.shape[-1] - 1)
    factor = (1 + 1 / niw.kappa) / df
    return StudentT(df=df, loc=niw.mean, shape=niw.scale * factor[..., None, None])


def predictive_moments(
    niw: NIW,
) -> tuple[Float[Array, "*batch d"], Float[Array, "*batch d d"]]:
    """Mean [..., d] and covariance [..., d, d] of the predictive; needs df > 2.

    The covariance is shape * df / (df - 2) and does not exist for df <= 2: it is then
    reported as inf, never as a negative or NaN matrix.

    Raises:
      TypeError: no NIW.
      ValueError: its shapes do not fit; outside of jit also values out of range.
    """
    t = predictive(niw)
    exists = t.df > 2
    factor = t.df / jnp.where(exists, t.df - 2, 1)
    cov = t.shape * factor[..., None, None]
    cov = jnp.where(exists[..., None, None], cov, jnp.inf)
    return t.loc, cov


def sample_predictive(
    key: PRNGKeyArray, niw: NIW, shape: tuple[int, ...]
) -> Float[Array, "*shape 2"]:
    """Draws [*shape, 2] from the Student-t predictive of an unbatched bivariate NIW."""
    if jnp.shape(niw.mean) != (2,):
        raise ValueError(f"want one NIW of pairs, got mean {jnp.shape(niw.mean)}")
    t = predictive(niw)
    dtype = niw.scale.dtype
    # A bivariate t is a uniform angle and P(R^2 > s) = (1 + s / df)^(-df / 2), which
    # has an inverse: exact, and far faster than drawing a chi-square for each pair.
    key_radius, key_angle = jax.random.split(key)
    uniform = jax.random.uniform(key_radius, shape, dtype)
    log_tail = jnp.log1p(-uniform)
    radius = jnp.sqrt(t.df * jnp.expm1(jnp.minimum(-2 / t.df * log_tail, 60)))
    angle = jax.random.uniform(key_angle, shape, dtype, maxval=2 * math.pi)
    z = radius[..., None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
    a = jnp.sqrt(jnp.maximum(t.shape[0, 0], tiny(t.shape)))
    b = t.shape[0, 1] / a
    c = jnp.sqrt(jnp.maximum(t.shape[1, 1] - b * b, 0))
    first = t.loc[0] + a * z[..., 0]
    second = t.loc[1] + b * z[..., 0] + c * z[..., 1]
    return jnp.stack([first, second], axis=-1)
