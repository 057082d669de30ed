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

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rpg_jax import checks
from rpg_jax.arrays import float_info, magnitude_limit, tiny
from rpg_jax.statistics import (
    MIN_SCALE,
    NIW,
    Moments,
    checked_moments,
    checked_niw,
    empty_moments,
    niw_prior,
)

__all__ = [
    "MIN_SCALE",
    "NIW",
    "Moments",
    "empty_moments",
    "expand",
    "forget",
    "merge",
    "moments",
    "niw_prior",
    "posterior",
    "segment_moments",
    "update",
]


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


def _accept(
    x: Float[Array, "*batch rows d"], mask: Bool[Array, "*batch rows"] | None
) -> tuple[Bool[Array, "*batch rows"], Int[Array, "*batch"]]:
    """Rows that count, and the number asked for but refused."""
    asked = jnp.ones(x.shape[:-1], bool)
    if mask is not None:
        asked = checks.flags("mask", mask)
    if asked.shape != x.shape[:-1]:
        raise ValueError(f"mask must be {x.shape[:-1]}, got {asked.shape}")
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
      TypeError: an argument is no array of numbers.
      ValueError: x is not [..., N, d], or the mask is not [..., N].
    """
    x = checks.numbers("x", x)
    if x.ndim < 2:
        raise ValueError(f"x must be [..., N, d], got shape {x.shape}")
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
      TypeError: an argument is no array of numbers, or a segment is no integer.
      ValueError: shapes do not fit, or num_segments < 1.
    """
    x, segment = checks.numbers("x", x), checks.integers("segment", segment)
    num_segments = checks.count("num_segments", num_segments, most=10**7)
    checks.rank("x", x, 2)
    asked = jnp.ones(x.shape[:1], bool)
    if mask is not None:
        asked = checks.flags("mask", mask)
    checks.same_shape("segment, the rows of x and mask", [segment, x[:, 0], asked])
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

    Args:
      a: statistics from ``moments``, ``merge`` or ``segment_moments``.
      b: likewise, of the same batch shape.

    Raises:
      TypeError: one of them is no ``Moments``.
      ValueError: shapes differ; outside of jit also where values are no statistics.
    """
    a, b = checked_moments(a), checked_moments(b)
    checks.same_shape("the two sets' means", [a.mean, b.mean])
    return _merged(a, b)


def _merged(a: Moments, b: Moments) -> Moments:
    count = a.number + b.number
    share = b.number / jnp.where(count > 0, count, 1)
    gap = (b.mean - a.mean) + (b.residual - a.residual)
    mean, residual = _move(a.mean, a.residual, gap * share[..., None])
    # n_a n_b / n without forming the product of two counts.
    between = _outer(gap) * (a.number * share)[..., None, None]
    scatter = a.scatter + b.scatter + between
    _check_overflow(scatter)
    return Moments(
        number=count,
        mean=mean,
        scatter=scatter,
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
      TypeError: no NIW, or no ``Moments``.
      ValueError: shapes do not fit; outside of jit also where values are out of range.
    """
    data = checked_moments(data)
    prior = checked_niw(prior, dim=data.mean.shape[-1])
    batches = prior.kappa.shape, data.number.shape
    try:
        jnp.broadcast_shapes(*batches)
    except ValueError:
        raise ValueError(f"batch shapes {batches} do not fit") from None
    prior = expand(prior, data.number.shape)
    kappa = prior.kappa + data.number
    gap = (data.mean - prior.mean) + (data.residual - prior.residual)
    share = data.number / kappa
    mean, residual = _move(prior.mean, prior.residual, gap * share[..., None])
    between = _outer(gap) * (prior.kappa * share)[..., None, None]
    scale = _definite(prior.scale + data.scatter + between)
    _check_overflow(scale)
    return NIW(
        mean=mean,
        kappa=kappa,
        nu=prior.nu + data.number,
        scale=scale,
        residual=residual,
    )


def _check_overflow(scatter: Float[Array, "*batch d d"]) -> None:
    largest = float(float_info(scatter.dtype).max)
    checks.within("the scatter of both together", scatter, (-largest, largest))


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

    Raises:
      TypeError: no NIW, or no numbers.
      ValueError: a factor outside (0, 1] or of another shape, a floor that is not above
        d - 1; outside of jit also where values are out of range.
    """
    niw = checked_niw(niw)
    if not isinstance(factor, jax.Array):
        factor = checks.scalar("factor", factor, (1e-12, 1.0))
    elif factor.shape not in ((), niw.kappa.shape):
        raise ValueError(f"factor must be scalar or {niw.kappa.shape}: {factor.shape}")
    checks.within("factor", checks.real("factor", factor), (1e-12, 1.0))
    if min_nu is not None:
        least = niw.mean.shape[-1] - 1 + 1e-3
        min_nu = checks.scalar("min_nu", min_nu, (least, checks.MAX_VALUE))
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
