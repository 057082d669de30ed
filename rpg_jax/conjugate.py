"""Normal-inverse-Wishart posterior over pairs such as (reward, duration).

Everything is centred: data enter as (count, mean, scatter about the mean), never as raw
second moments, whose difference loses every digit in float32 once the mean is large
beside the spread (durations of 600 +- 0.5 s). Leading dimensions are batch dimensions,
masks replace ragged shapes, and an observation that is not finite is left out of the
statistics and counted in ``rejected``.

Notation follows Murphy (2007), "Conjugate Bayesian analysis of the Gaussian
distribution": NIW(mean, kappa, nu, scale) with ``scale`` the inverse-Wishart's Psi.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rpg_jax.arrays import as_float, float_info, magnitude_limit, tiny

# Least variance that a discounted posterior keeps, in squared units of the data.
MIN_SCALE = 1e-30


class NIW(NamedTuple):
    """Normal-inverse-Wishart parameters; [...] are batch dimensions, d the width."""

    mean: Float[Array, "*batch d"]
    kappa: Float[Array, "*batch"]  # pseudo-observations behind the mean
    nu: Float[Array, "*batch"]  # degrees of freedom, > d - 1
    scale: Float[Array, "*batch d d"]  # positive definite
    residual: Float[Array, "*batch d"]  # what rounding took off the mean


class Moments(NamedTuple):
    """Centred sufficient statistics of a set of d-vectors."""

    number: Float[Array, "*batch"]  # of observations; exact up to 2**24 in float32
    mean: Float[Array, "*batch d"]
    scatter: Float[Array, "*batch d d"]  # sum of (x - mean)(x - mean)^T
    residual: Float[Array, "*batch d"]  # what rounding took off the mean
    rejected: Int[Array, "*batch"]  # masked-in observations that were not finite


def niw_prior(
    mean: float | Float[ArrayLike, " d"] = 0.0,
    kappa: float | Float[Array, ""] = 1e-3,
    nu: float | Float[Array, ""] = 3.0,
    scale: float | Float[ArrayLike, "d d"] = 1e-3,
    *,
    dim: int = 2,
    dtype: Any | None = None,
) -> NIW:
    """Build a prior; the defaults are the bandit study's vague one for pairs.

    Args:
      mean: location, scalar or [d], in the units of the data.
      kappa: strength of the mean in observations, > 0.
      nu: degrees of freedom, > d - 1 (> d + 1 for a finite mean of the covariance).
      scale: inverse-Wishart scale, a scalar multiple of the identity or [d, d].
      dim: d, the number of coordinates.
      dtype: float type; JAX's default float if None.

    Raises:
      ValueError: a parameter is not finite, out of range, or scale is not symmetric
        positive definite.
    """
    dtype = jnp.zeros((), dtype).dtype
    location = np.broadcast_to(np.asarray(mean, np.float64), (dim,))
    psi = np.asarray(scale, np.float64)
    if psi.ndim == 0:
        psi = psi * np.eye(dim)
    if psi.shape != (dim, dim):
        raise ValueError(f"scale must be a scalar or [{dim}, {dim}], got {psi.shape}")
    kappa, nu = float(kappa), float(nu)
    if not (np.isfinite(location).all() and np.isfinite(psi).all()):
        raise ValueError("mean and scale must be finite")
    if not (0.0 < kappa < np.inf and dim - 1 < nu < np.inf):
        raise ValueError(f"need kappa > 0 and nu > {dim - 1}, got {kappa} and {nu}")
    if not np.allclose(psi, psi.T) or np.linalg.eigvalsh(psi).min() <= 0.0:
        raise ValueError("scale must be symmetric positive definite")
    parts = (location, kappa, nu, psi, np.zeros(dim))
    return NIW(*(jnp.asarray(v, dtype) for v in parts))


def _outer(x: Float[Array, "*batch d"]) -> Float[Array, "*batch d d"]:
    return x[..., :, None] * x[..., None, :]


def _move(
    mean: Float[Array, "*batch d"],
    residual: Float[Array, "*batch d"],
    step: Float[Array, "*batch d"],
) -> tuple[Float[Array, "*batch d"], Float[Array, "*batch d"]]:
    """Add a step to the unevaluated sum mean + residual (Knuth's two-sum).

    One observation moves a mean of 600 by less than its last bit; dropping those bits
    puts an error of 1e-3 into a weak covariance after 5,000 single updates.
    """
    step = step + residual
    total = mean + step
    back = total - mean
    return total, (mean - (total - back)) + (step - back)


def empty_moments(
    shape: tuple[int, ...] = (), *, dim: int = 2, dtype: Any | None = None
) -> Moments:
    """Statistics of no data: the identity of ``merge``."""
    return Moments(
        number=jnp.zeros(shape, dtype),
        mean=jnp.zeros((*shape, dim), dtype),
        scatter=jnp.zeros((*shape, dim, dim), dtype),
        residual=jnp.zeros((*shape, dim), dtype),
        rejected=jnp.zeros(shape, jnp.int32),
    )


def _accept(
    x: Float[Array, "*batch rows d"], mask: Bool[Array, "*batch rows"] | None
) -> tuple[Bool[Array, "*batch rows"], Int[Array, "*batch"]]:
    """Rows that count, and the number asked for but refused."""
    asked = jnp.ones(x.shape[:-1], bool) if mask is None else mask.astype(bool)
    chex.assert_shape(asked, x.shape[:-1])
    # NaN fails the comparison too.
    usable = jnp.all(jnp.abs(x) <= magnitude_limit(x.dtype), axis=-1)
    return asked & usable, jnp.sum(asked & ~usable, axis=-1, dtype=jnp.int32)


def moments(
    x: Float[ArrayLike, "*batch rows d"],
    mask: Bool[Array, "*batch rows"] | None = None,
) -> Moments:
    """Centred statistics of the masked rows of x.

    Args:
      x: [..., N, d] observations.
      mask: [..., N], true where the row counts; all rows if None.

    Raises:
      AssertionError: the mask is not [..., N].
    """
    x = as_float(x)
    keep, rejected = _accept(x, mask)
    x = jnp.where(keep[..., None], x, 0)
    weight = keep.astype(x.dtype)[..., None]
    count = jnp.sum(weight, axis=-2)
    safe = jnp.maximum(count, 1)
    rough = jnp.sum(x, axis=-2) / safe
    # A second centring removes the rounding of the first mean from the scatter, and a
    # Gram matrix of deviations stays positive semi-definite.
    deviation = (x - rough[..., None, :]) * weight
    shift = jnp.sum(deviation, axis=-2) / safe
    deviation = (deviation - shift[..., None, :]) * weight
    mean, residual = _move(rough, jnp.zeros_like(rough), shift)
    return Moments(
        number=count[..., 0],
        mean=mean,
        scatter=jnp.sum(_outer(deviation), axis=-3),
        residual=residual,
        rejected=rejected,
    )


def segment_moments(
    x: Float[ArrayLike, "rows d"],
    segment: Int[Array, " rows"],
    num_segments: int,
    mask: Bool[Array, " rows"] | None = None,
) -> Moments:
    """Centred statistics of the rows of x, one set per segment.

    Args:
      x: [B, d] observations.
      segment: [B] int, the segment of each row; rows outside [0, num_segments) are
        rejected.
      num_segments: static number of segments M.
      mask: [B]; all rows if None.

    Returns:
      ``Moments`` with batch shape [M], but one ``rejected`` count for all, shape [].

    Raises:
      AssertionError: shapes do not fit.
    """
    x = as_float(x)
    chex.assert_rank([x, segment], [2, 1])
    chex.assert_equal_shape_prefix([x, segment], 1)
    asked = jnp.ones(x.shape[:1], bool) if mask is None else mask.astype(bool)
    chex.assert_equal_shape([segment, asked])
    inside = (segment >= 0) & (segment < num_segments)
    usable, _ = _accept(x, None)
    keep = asked & usable & inside
    x = jnp.where(keep[:, None], x, 0)
    weight = keep.astype(x.dtype)[:, None]
    segment = jnp.where(keep, segment, 0)

    def total(v: Array) -> Array:
        return jax.ops.segment_sum(v, segment, num_segments)

    count = total(weight)
    safe = jnp.maximum(count, 1)
    rough = total(x) / safe
    deviation = (x - rough[segment]) * weight
    shift = total(deviation) / safe
    deviation = (deviation - shift[segment]) * weight
    mean, residual = _move(rough, jnp.zeros_like(rough), shift)
    return Moments(
        number=count[:, 0],
        mean=mean,
        scatter=total(_outer(deviation)),
        residual=residual,
        rejected=jnp.sum(asked & ~(usable & inside), dtype=jnp.int32),
    )


def merge(a: Moments, b: Moments) -> Moments:
    """Statistics of the union of two disjoint data sets (Chan et al. 1979).

    Associative and commutative up to rounding; ``empty_moments`` is its identity.
    """
    count = a.number + b.number
    share = b.number / jnp.where(count > 0, count, 1)
    gap = (b.mean - a.mean) + (b.residual - a.residual)
    mean, residual = _move(a.mean, a.residual, gap * share[..., None])
    # n_a n_b / n without forming the product of two counts.
    between = _outer(gap) * (a.number * share)[..., None, None]
    return Moments(
        number=count,
        mean=mean,
        scatter=a.scatter + b.scatter + between,
        residual=residual,
        rejected=a.rejected + b.rejected,
    )


def _definite(scale: Float[Array, "*batch d d"]) -> Float[Array, "*batch d d"]:
    """Undo a loss of positive definiteness by rounding; otherwise the identity.

    A Cholesky sweep over the correlation matrix; a pivot below a few ulps is raised to
    that level by adding the same share to its diagonal entry. Unrolled: d is small, and
    batched ``jnp.linalg`` is slow on CPU.
    """
    dim = scale.shape[-1]
    floor = 8.0 * dim * float(float_info(scale.dtype).eps)
    diagonal = jnp.diagonal(scale, axis1=-2, axis2=-1)
    root = jnp.sqrt(jnp.maximum(diagonal, tiny(scale)))
    rows: list[list[Array]] = []
    bumps = []
    for i in range(dim):
        row: list[Array] = []
        pivot = jnp.ones_like(diagonal[..., i])
        for j in range(i):
            entry = scale[..., i, j] / root[..., i] / root[..., j]
            for k in range(j):
                entry = entry - row[k] * rows[j][k]
            row.append(entry / rows[j][j])
            pivot = pivot - row[j] * row[j]
        bumps.append(jnp.maximum(floor - pivot, 0))
        row.append(jnp.sqrt(jnp.maximum(pivot, floor)))
        rows.append(row)
    bump: Array = jax.lax.stop_gradient(jnp.stack(bumps, axis=-1)) * diagonal
    identity = jnp.broadcast_to(jnp.eye(dim, dtype=scale.dtype), scale.shape)
    return scale + bump[..., None] * identity


def expand(niw: NIW, batch: tuple[int, ...]) -> NIW:
    """The same parameters for every element of a batch, spelled out.

    Implicit promotion of ranks would do, but users may have forbidden it.
    """
    batch = jnp.broadcast_shapes(niw.kappa.shape, batch)
    dim = niw.mean.shape[-1]
    return NIW(
        mean=jnp.broadcast_to(niw.mean, (*batch, dim)),
        kappa=jnp.broadcast_to(niw.kappa, batch),
        nu=jnp.broadcast_to(niw.nu, batch),
        scale=jnp.broadcast_to(niw.scale, (*batch, dim, dim)),
        residual=jnp.broadcast_to(niw.residual, (*batch, dim)),
    )


def posterior(prior: NIW, data: Moments) -> NIW:
    """Conjugate posterior of a prior given centred statistics.

    kappa_n = kappa + n, nu_n = nu + n, mean_n = mean + (n / kappa_n)(xbar - mean),
    scale_n = scale + S + (kappa n / kappa_n)(xbar - mean)(xbar - mean)^T.

    Args:
      prior: parameters with batch shape broadcastable to that of ``data``.
      data: statistics from ``moments``, ``merge`` or ``segment_moments``.

    Raises:
      AssertionError: prior and data are of different widths d.
    """
    chex.assert_axis_dimension(data.mean, -1, prior.mean.shape[-1])
    prior = expand(prior, data.number.shape)
    kappa = prior.kappa + data.number
    gap = (data.mean - prior.mean) + (data.residual - prior.residual)
    share = data.number / kappa
    mean, residual = _move(prior.mean, prior.residual, gap * share[..., None])
    between = _outer(gap) * (prior.kappa * share)[..., None, None]
    return NIW(
        mean=mean,
        kappa=kappa,
        nu=prior.nu + data.number,
        scale=_definite(prior.scale + data.scatter + between),
        residual=residual,
    )


def update(
    prior: NIW,
    x: Float[ArrayLike, "*batch rows d"],
    mask: Bool[Array, "*batch rows"] | None = None,
) -> NIW:
    """Posterior after the masked rows of x: [..., N, d]; a stream calls it repeatedly.

    Rows that are not finite are left out; ``moments(x, mask).rejected`` counts them.
    """
    return posterior(prior, moments(x, mask))


def forget(
    niw: NIW, factor: float | Float[Array, "*batch"], *, min_nu: float | None = None
) -> NIW:
    """Discount a posterior before it serves as the next prior.

    kappa <- f kappa, nu <- max(f nu, min_nu), scale <- f scale; the mean stays. The
    scale's diagonal stays above 1e-30: under f = 0.3, data without any spread (every
    reward 0) would take it out of float32 within 80 fits.

    Args:
      niw: posterior to discount.
      factor: f in (0, 1], or one for each of the batch; 1 forgets nothing.
      min_nu: floor of nu, which keeps the predictive proper; d + 2 if None.
    """
    floor = niw.mean.shape[-1] + 2.0 if min_nu is None else min_nu
    if isinstance(factor, jax.Array) and factor.ndim:  # one for each of the batch
        scale = niw.scale * factor[..., None, None]
    else:
        scale = niw.scale * factor
    diagonal = jnp.eye(scale.shape[-1], dtype=bool)
    scale = jnp.where(diagonal, jnp.maximum(scale, MIN_SCALE), scale)
    return NIW(
        mean=niw.mean,
        kappa=niw.kappa * factor,
        nu=jnp.maximum(niw.nu * factor, floor),
        scale=scale,
        residual=niw.residual,
    )
