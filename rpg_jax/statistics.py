"""Parameters and sufficient statistics: what they are, the first ones, their checks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from rpg_jax import checks
from rpg_jax.arrays import concrete, float_info, magnitude_limit

# Least variance that a discounted posterior keeps, in squared units of the data.
MIN_SCALE = 1e-30
# Least weight of its mean.
MIN_KAPPA = 1e-9
MAX_SCALE = 1e32
MAX_DIM = 1000
KAPPAS = (MIN_KAPPA, checks.MAX_VALUE)


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
      TypeError: dim is no integer, dtype no float type, or a parameter no number.
      ValueError: a parameter is not finite, out of range, of a wrong shape, or scale is
        not symmetric positive definite.
    """
    dim = checks.count("dim", dim, most=MAX_DIM)
    dtype = float_type(dtype)
    location = np.asarray(checks.real("mean", mean), np.float64)
    if location.shape not in ((), (dim,)):
        raise ValueError(f"mean must be a scalar or [{dim}], got {location.shape}")
    location = np.broadcast_to(location, (dim,))
    psi = np.asarray(checks.real("scale", scale), np.float64)
    strength = np.asarray(checks.real("kappa", kappa), np.float64)
    freedom = np.asarray(checks.real("nu", nu), np.float64)
    if strength.shape or freedom.shape:
        raise ValueError("kappa and nu must be single numbers")
    kappa, nu = float(strength), float(freedom)
    if psi.ndim == 0:
        psi = psi * np.eye(dim)
    if psi.shape != (dim, dim):
        raise ValueError(f"scale must be a scalar or [{dim}, {dim}], got {psi.shape}")
    if not (np.isfinite(location).all() and np.isfinite(psi).all()):
        raise ValueError("mean and scale must be finite")
    if not (0.0 < kappa < np.inf and dim - 1 < nu < np.inf):
        raise ValueError(f"need kappa > 0 and nu > {dim - 1}, got {kappa} and {nu}")
    checks.within("mean", location)
    checks.within("kappa", kappa, KAPPAS)
    checks.within("nu", nu, (dim - 1 + 1e-3, checks.MAX_VALUE))
    checks.within("scale", psi, (-MAX_SCALE, MAX_SCALE))
    if not np.allclose(psi, psi.T) or np.linalg.eigvalsh(psi).min() <= MIN_SCALE:
        raise ValueError("scale must be symmetric positive definite")
    parts = (location, kappa, nu, psi, np.zeros(dim))
    return NIW(*(jnp.asarray(v, dtype) for v in parts))


def float_type(dtype: Any | None) -> Any:
    """JAX's float type of a name or type; its default float if None.

    Raises:
      TypeError: it names no float type.
    """
    try:
        known = jnp.zeros((), dtype).dtype
    except (TypeError, ValueError):
        known = None
    if known is None or not jnp.issubdtype(known, jnp.floating):
        raise TypeError(f"dtype must be a float type, got {str(dtype)[:60]!r}")
    return known


def checked_niw(niw: NIW, *, dim: int | None = None) -> NIW:
    """Refuse what is no NIW, or one that no data can have made.

    Args:
      niw: parameters; values are checked outside of jit.
      dim: width that is wanted; any if None.

    Raises:
      TypeError: it is no NIW.
      ValueError: shapes do not fit, or a value is not finite or out of range.
    """
    if not isinstance(niw, NIW):
        raise TypeError(f"want a NIW, as of niw_prior(), got {type(niw).__name__}")
    niw = NIW(*(checks.numbers(f"NIW's {n}", v) for n, v in niw._asdict().items()))
    checks.at_least_one_axis("NIW's mean", niw.mean)
    batch, width = niw.mean.shape[:-1], niw.mean.shape[-1]
    got = [v.shape for v in niw]
    if got != [(*batch, width), batch, batch, (*batch, width, width), (*batch, width)]:
        raise ValueError(f"NIW's shapes do not fit each other: {got}")
    if width != dim and (dim is not None or not width):
        raise ValueError(f"NIW must be of {dim or 1} coordinates, got {width}")
    mean, scale = _limits(niw.scale.dtype)
    checks.within("NIW's mean", niw.mean, (-mean, mean))
    checks.within("NIW's kappa", niw.kappa, KAPPAS)
    checks.within("NIW's nu", niw.nu, (width - 1 + 1e-3, checks.MAX_VALUE))
    checks.within("NIW's residual", niw.residual)
    checks.within("NIW's scale", niw.scale, (-scale, scale))
    known = concrete(niw.scale)
    if known is not None:
        variances = np.diagonal(known.astype(np.float64), axis1=-2, axis2=-1)
        checks.within("NIW's variances", variances, (1e-36, scale))
        root = np.sqrt(variances)
        bound = root[..., :, None] * root[..., None, :]
        checks.within("NIW's correlations", known / bound, (-1.001, 1.001))
    _check_predictive(niw)
    return niw


def _limits(dtype: Any) -> tuple[float, float]:
    """Largest mean and largest entry of a scatter that accepted data can make."""
    return 2 * magnitude_limit(dtype), float(float_info(dtype).max)


def _check_predictive(niw: NIW) -> None:
    """Refuse known parameters whose predictive would leave their type."""
    parts = [concrete(v) for v in (niw.scale, niw.kappa, niw.nu)]
    if any(part is None for part in parts):
        return
    scale, kappa, nu = (np.asarray(part, np.float64) for part in parts)
    df = nu - (scale.shape[-1] - 1)
    factor = (1 + 1 / kappa) / df
    shape = scale * factor[..., None, None]
    largest = 0.01 * _limits(niw.scale.dtype)[1]
    checks.within("NIW's predictive scale", shape, (-largest, largest))


def checked_moments(data: Moments) -> Moments:
    """Refuse what is no Moments, or one that no data can have made.

    Raises:
      TypeError: it is no Moments.
      ValueError: shapes do not fit, or a value is not finite or out of range.
    """
    if not isinstance(data, Moments):
        raise TypeError(f"want Moments, as of moments(x), got {type(data).__name__}")
    data = Moments(
        number=checks.numbers("number", data.number),
        mean=checks.numbers("mean", data.mean),
        scatter=checks.numbers("scatter", data.scatter),
        residual=checks.numbers("residual", data.residual),
        rejected=checks.integers("rejected", data.rejected),
    )
    checks.at_least_one_axis("the moments' mean", data.mean)
    batch, width = data.mean.shape[:-1], data.mean.shape[-1]
    got = [v.shape for v in data[:4]]
    if got != [batch, (*batch, width), (*batch, width, width), (*batch, width)]:
        raise ValueError(f"the moments' shapes do not fit each other: {got}")
    checks.within("number", data.number, (0.0, checks.MAX_VALUE))
    mean, scale = _limits(data.scatter.dtype)
    checks.within("mean", data.mean, (-mean, mean))
    checks.within("residual", data.residual)
    checks.within("scatter", data.scatter, (-scale, scale))
    known = concrete(data.scatter)
    if known is not None:
        variances = np.diagonal(known, axis1=-2, axis2=-1)
        checks.within("scatter's diagonal", variances, (0.0, scale))
    return data


def empty_moments(
    shape: tuple[int, ...] = (), *, dim: int = 2, dtype: Any | None = None
) -> Moments:
    """Statistics of no data: the identity of ``merge``.

    Args:
      shape: batch dimensions.
      dim: d, the number of coordinates.
      dtype: float type; JAX's default float if None.

    Raises:
      TypeError: shape or dim are no integers, or dtype is no float type.
      ValueError: a size is out of range.
    """
    if not isinstance(shape, tuple | list):
        raise TypeError(f"shape must be a tuple, got {type(shape).__name__}")
    shape = tuple(checks.count("shape", size, least=0) for size in shape)
    dim = checks.count("dim", dim, most=MAX_DIM)
    if math.prod(shape) * dim * dim > 10**8:
        raise ValueError(f"shape {shape} of {dim} x {dim} entries is too large")
    dtype = float_type(dtype)
    return Moments(
        number=jnp.zeros(shape, dtype),
        mean=jnp.zeros((*shape, dim), dtype),
        scatter=jnp.zeros((*shape, dim, dim), dtype),
        residual=jnp.zeros((*shape, dim), dtype),
        rejected=jnp.zeros(shape, jnp.int32),
    )
