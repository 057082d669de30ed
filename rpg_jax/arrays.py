"""Values from outside: their float type, its limit, and whether they are known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree


def as_float(
    x: ArrayLike | np.ndarray, dtype: Any | None = None
) -> Float[Array, "*shape"]:
    """The values as a JAX array of float32, or of JAX's default float if that is wider.

    A limit must be that of the type which is computed with: NumPy's 1e300 is finite in
    float64 and inf in float32, and float16 has no room for the square of a duration.

    Args:
      x: [...] numbers of any real type.
      dtype: type of the state that they enter; their own if None.
    """
    known = x if isinstance(x, jax.Array) else np.asarray(x)
    wanted = known.dtype if dtype is None else dtype
    narrow = jnp.issubdtype(wanted, jnp.floating) and float_info(wanted).bits <= 32
    target = np.dtype(np.float32) if narrow else jnp.zeros(()).dtype
    if isinstance(known, jax.Array):
        return known.astype(target)
    # What is too large becomes inf, and inf is refused by whoever asked.
    with np.errstate(over="ignore"):
        return jnp.asarray(known.astype(target))


def concrete(x: ArrayLike | np.ndarray) -> np.ndarray | None:
    """The value as a NumPy array, or None while it is traced."""
    try:
        return np.asarray(x)
    except jax.errors.TracerArrayConversionError:
        return None


def magnitude_limit(dtype: Any) -> float:
    """Largest |x| whose squared deviations can be summed 2**24 times without overflow.

    Larger values count as not finite: they could only put inf into a scatter matrix.
    """
    root: float = float(float_info(dtype).max) ** 0.5
    return root * 2.0**-13


def float_info(dtype: Any) -> np.finfo[Any]:
    """``jnp.finfo``, bfloat16 included, with a type."""
    info: np.finfo[Any] = jnp.finfo(dtype)
    return info


def tiny(x: Array) -> float:
    """Smallest normal number of the array's type."""
    return float(float_info(x.dtype).tiny)


def select(keep: Bool[Array, "*batch"], new: PyTree, old: PyTree) -> PyTree:
    """``new`` where ``keep``, else ``old``, leaf by leaf.

    Args:
      keep: [...] the leading dimensions of every leaf.
      new: pytree of [..., *rest].
      old: likewise.
    """

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(keep.reshape(keep.shape + (1,) * (a.ndim - keep.ndim)), a, b)

    return jax.tree.map(pick, new, old)
