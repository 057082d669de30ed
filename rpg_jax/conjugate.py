"""Normal-inverse-Wishart posterior over pairs such as (reward, duration).

Everything is centred: data enter as (count, mean, scatter about the mean), never as raw
second moments, whose difference loses every digit in float32 once the mean is large
beside the spread (durations of 600 +- 0.5 s). Leading dimensions are batch dimensions,
masks replace ragged shapes, and an observation that is not finite is left out of the
statistics and counted in ``rejected``.

Notation follows Murphy (2007), "Conjugate Bayesian analysis of the Gaussian
distribution": NIW(mean, kappa, nu, scale) with ``scale`` the inverse-Wishart's Psi.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.arrays import as_float, magnitude_limit

Array = jax.Array

# Least variance that a discounted posterior keeps, in squared units of the data.
MIN_SCALE = 1e-30


class NIW(NamedTuple):
    """Normal-inverse-Wishart parameters; [...] are batch dimensions, d the width."""

    mean: Array  # [..., d]
    kappa: Array  # [...]; pseudo-observations behind the mean
    nu: Array  # [...]; degrees of freedom, > d - 1
    scale: Array  # [..., d, d]; positive definite
    residual: Array  # [..., d]; what rounding took off the mean


class Moments(NamedTuple):
    """Centred sufficient statistics of a set of d-vectors."""

    count: Array  # [...]; float, exact up to 2**24 in float32
    mean: Array  # [..., d]
    scatter: Array  # [..., d, d]; sum of (x - mean)(x - mean)^T
    residual: Array  # [..., d]; what rounding took off the mean
    rejected: Array  # [...] int32; masked-in observations that were not finite


def niw_prior(
    mean: Array | float = 0.0,
    kappa: Array | float = 1e-3,
    nu: Array | float = 3.0,
    scale: Array | float = 1e-3,
    *,
    dim: int = 2,
    dtype: jnp.dtype | None = None,
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
    mean = np.broadcast_to(np.asarray(mean, np.float64), (dim,))
    scale = np.asarray(scale, np.float64)
    if scale.ndim == 0:
        scale = scale * np.eye(dim)
    if scale.shape != (dim, dim):
        raise ValueError(f"scale must be a scalar or [{dim}, {dim}], got {scale.shape}")
    kappa, nu = float(kappa), float(nu)
    if not (np.isfinite(mean).all() and np.isfinite(scale).all()):
        raise ValueError("mean and scale must be finite")
    if not (0.0 < kappa < np.inf and dim - 1 < nu < np.inf):
        raise ValueError(f"need kappa > 0 and nu > {dim - 1}, got {kappa} and {nu}")
    if not np.allclose(scale, scale.T) or np.linalg.eigvalsh(scale).min() <= 0.0:
        raise ValueError("scale must be symmetric positive definite")
    parts = (mean, kappa, nu, scale, np.zeros(dim))
    return NIW(*(jnp.asarray(v, dtype) for v in parts))


def _outer(x: Array) -> Array:
    return x[..., :, None] * x[..., None, :]


def _move(mean: Array, residual: Array, step: Array) -> tuple[Array, Array]:
    """Add a step to the unevaluated sum mean + residual (Knuth's two-sum).

    One observation moves a mean of 600 by less than its last bit; dropping those bits
    puts an error of 1e-3 into a weak covariance after 5,000 single updates.
    """
    step = step + residual
    total = mean + step
    back = total - mean
    return total, (mean - (total - back)) + (step - back)


def empty_moments(shape: tuple[int, ...] = (), *, dim: int = 2, dtype=None) -> Moments:
    """Statistics of no data: the identity of ``merge``."""
    return Moments(
        count=jnp.zeros(shape, dtype),
        mean=jnp.zeros((*shape, dim), dtype),
        scatter=jnp.zeros((*shape, dim, dim), dtype),
        residual=jnp.zeros((*shape, dim), dtype),
        rejected=jnp.zeros(shape, jnp.int32),
    )


def _accept(x: Array, mask: Array | None) -> tuple[Array, Array]:
    """Rows that count, and the number asked for but refused."""
    asked = jnp.ones(x.shape[:-1], bool) if mask is None else mask.astype(bool)
    # NaN fails the comparison too.
    usable = jnp.all(jnp.abs(x) <= magnitude_limit(x.dtype), axis=-1)
    return asked & usable, jnp.sum(asked & ~usable, axis=-1, dtype=jnp.int32)


def moments(x: Array, mask: Array | None = None) -> Moments:
    """Centred statistics of the masked rows of x.

    Args:
      x: [..., N, d] observations.
      mask: [..., N], true where the row counts; all rows if None.
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
        count=count[..., 0],
        mean=mean,
        scatter=jnp.sum(_outer(deviation), axis=-3),
        residual=residual,
        rejected=rejected,
    )


def segment_moments(
    x: Array, segment: Array, num_segments: int, mask: Array | None = None
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
    """
    x = as_float(x)
    asked = jnp.ones(x.shape[:1], bool) if mask is None else mask.astype(bool)
    inside = (segment >= 0) & (segment < num_segments)
    usable, _ = _accept(x, None)
    keep = asked & usable & inside
    x = jnp.where(keep[:, None], x, 0)
    weight = keep.astype(x.dtype)[:, None]
    segment = jnp.where(keep, segment, 0)

    def total(v):
        return jax.ops.segment_sum(v, segment, num_segments)

    count = total(weight)
    safe = jnp.maximum(count, 1)
    rough = total(x) / safe
    deviation = (x - rough[segment]) * weight
    shift = total(deviation) / safe
    deviation = (deviation - shift[segment]) * weight
    mean, residual = _move(rough, jnp.zeros_like(rough), shift)
    return Moments(
        count=count[:, 0],
        mean=mean,
        scatter=total(_outer(deviation)),
        residual=residual,
        rejected=jnp.sum(asked & ~(usable & inside), dtype=jnp.int32),
    )


def merge(a: Moments, b: Moments) -> Moments:
    """Statistics of the union of two disjoint data sets (Chan et al. 1979).

    Associative and commutative up to rounding; ``empty_moments`` is its identity.
    """
    count = a.count + b.count
    share = b.count / jnp.where(count > 0, count, 1)
    gap = (b.mean - a.mean) + (b.residual - a.residual)
    mean, residual = _move(a.mean, a.residual, gap * share[..., None])
    # n_a n_b / n without forming the product of two counts.
    between = _outer(gap) * (a.count * share)[..., None, None]
    return Moments(
        count=count,
        mean=mean,
        scatter=a.scatter + b.scatter + between,
        residual=residual,
        rejected=a.rejected + b.rejected,
    )


def _definite(scale: Array) -> Array:
    """Undo a loss of positive definiteness by rounding; otherwise the identity.

    A Cholesky sweep over the correlation matrix; a pivot below a few ulps is raised to
    that level by adding the same share to its diagonal entry. Unrolled: d is small, and
    batched ``jnp.linalg`` is slow on CPU.
    """
    dim = scale.shape[-1]
    floor = 8.0 * dim * float(jnp.finfo(scale.dtype).eps)
    diagonal = jnp.diagonal(scale, axis1=-2, axis2=-1)
    root = jnp.sqrt(jnp.maximum(diagonal, float(jnp.finfo(scale.dtype).tiny)))
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
    bump = jax.lax.stop_gradient(jnp.stack(bumps, axis=-1)) * diagonal
    return scale + bump[..., None] * jnp.broadcast_to(
        jnp.eye(dim, dtype=scale.dtype), scale.shape
    )


def _expand(niw: NIW, batch: tuple[int, ...]) -> NIW:
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
    """
    prior = _expand(prior, data.count.shape)
    kappa = prior.kappa + data.count
    gap = (data.mean - prior.mean) + (data.residual - prior.residual)
    share = data.count / kappa
    mean, residual = _move(prior.mean, prior.residual, gap * share[..., None])
    between = _outer(gap) * (prior.kappa * share)[..., None, None]
    return NIW(
        mean=mean,
        kappa=kappa,
        nu=prior.nu + data.count,
        scale=_definite(prior.scale + data.scatter + between),
        residual=residual,
    )


def update(prior: NIW, x: Array, mask: Array | None = None) -> NIW:
    """Posterior after the masked rows of x: [..., N, d]; a stream calls it repeatedly.

    Rows that are not finite are left out; ``moments(x, mask).rejected`` counts them.
    """
    return posterior(prior, moments(x, mask))


def forget(niw: NIW, factor: float | Array, *, min_nu: float | None = None) -> NIW:
    """Discount a posterior before it serves as the next prior.

    kappa <- f kappa, nu <- max(f nu, min_nu), scale <- f scale; the mean stays. The
    scale's diagonal stays above 1e-30: under f = 0.3, data without any spread (every
    reward 0) would take it out of float32 within 80 fits.

    Args:
      niw: posterior to discount.
      factor: f in (0, 1]; 1 forgets nothing.
      min_nu: floor of nu, which keeps the predictive proper; d + 2 if None.
    """
    floor = niw.mean.shape[-1] + 2.0 if min_nu is None else min_nu
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


class SlotFit(NamedTuple):
    """Result of ``fit_slots``."""

    niw: NIW  # posterior over (reward, log duration); carry it to the next fit
    count: Array  # [...]; slots used
    rejected: Array  # [...] int32; masked-in slots that were refused


def fit_slots(
    carried: NIW,
    reward: Array,
    duration: Array,
    mask: Array,
    *,
    forgetting: float | Array = 0.3,
    log_duration: bool = True,
) -> SlotFit:
    """Refit the carried posterior to the filled slots (the paper's pooled estimate).

    The carried posterior, discounted by ``forget``, is the prior of the pairs
    (reward, log duration). With fewer than two usable slots nothing is fitted and the
    carried posterior is returned as it is.

    Args:
      carried: posterior of the last fit; ``niw_prior()`` before the first.
      reward: [..., S] reward summed in each slot.
      duration: [..., S] seconds summed in each slot, > 0.
      mask: [..., S] true where the slot is filled.
      forgetting: f in (0, 1], the share of the carried posterior that is kept.
      log_duration: model log seconds (the paper) rather than seconds.
    """
    asked = mask.astype(bool)
    reward, duration = as_float(reward), as_float(duration)
    usable = jnp.abs(reward) <= magnitude_limit(reward.dtype)
    usable &= (duration > 0) & (duration <= magnitude_limit(duration.dtype))
    keep = asked & usable
    r = jnp.where(keep, reward, 0)
    d = jnp.where(keep, duration, 1)
    d = jnp.log(d) if log_duration else jnp.where(keep, d, 0)

    weight = keep.astype(r.dtype)
    count = jnp.sum(weight, axis=-1)
    safe = jnp.maximum(count, 1)

    # The same two centrings as ``moments``, coordinate by coordinate: [..., S] arrays
    # vectorise over slots and trials where a trailing axis of two does not.
    def centred(v):
        rough = jnp.sum(v, axis=-1) / safe
        deviation = (v - rough[..., None]) * weight
        shift = jnp.sum(deviation, axis=-1) / safe
        return rough + shift, (deviation - shift[..., None]) * weight

    mean_r, dev_r = centred(r)
    mean_d, dev_d = centred(d)
    rr = jnp.sum(dev_r * dev_r, axis=-1)
    rd = jnp.sum(dev_r * dev_d, axis=-1)
    dd = jnp.sum(dev_d * dev_d, axis=-1)
    rejected = jnp.sum(asked & ~usable, axis=-1, dtype=jnp.int32)
    data = Moments(
        count=count,
        mean=jnp.stack([mean_r, mean_d], axis=-1),
        scatter=jnp.stack(
            [jnp.stack([rr, rd], axis=-1), jnp.stack([rd, dd], axis=-1)], axis=-2
        ),
        residual=jnp.zeros((*count.shape, 2), r.dtype),
        rejected=rejected,
    )
    carried = _expand(carried, count.shape)
    fitted = posterior(forget(carried, forgetting), data)
    enough = count >= 2
    niw = jax.tree.map(
        lambda new, old: jnp.where(
            enough.reshape(enough.shape + (1,) * (new.ndim - enough.ndim)), new, old
        ),
        fitted,
        carried,
    )
    return SlotFit(niw=niw, count=count, rejected=rejected)
