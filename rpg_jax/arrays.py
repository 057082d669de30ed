"""Values from outside: their float type, its limit, and whether they are known."""

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def as_float(x: Array, dtype: jnp.dtype | None = None) -> Array:
    """The values as a JAX array of float32, or of JAX's default float if that is wider.

    A limit must be that of the type which is computed with: NumPy's 1e300 is finite in
    float64 and inf in float32, and float16 has no room for the square of a duration.

    Args:
      x: [...] numbers of any real type.
      dtype: type of the state that they enter; their own if None.
    """
    x = x if isinstance(x, jax.Array) else np.asarray(x)
    wanted = x.dtype if dtype is None else dtype
    narrow = jnp.issubdtype(wanted, jnp.floating) and jnp.finfo(wanted).bits <= 32
    target = np.dtype(np.float32) if narrow else jnp.zeros(()).dtype
    if isinstance(x, jax.Array):
        return x.astype(target)
    # What is too large becomes inf, and inf is refused by whoever asked.
    with np.errstate(over="ignore"):
        return jnp.asarray(x.astype(target))


def concrete(x: Array | float) -> np.ndarray | None:
    """The value as a NumPy array, or None while it is traced."""
    try:
        return np.asarray(x)
    except jax.errors.TracerArrayConversionError:
        return None


def magnitude_limit(dtype: jnp.dtype) -> float:
    """Largest |x| whose squared deviations can be summed 2**24 times without overflow.

    Larger values count as not finite: they could only put inf into a scatter matrix.
    """
    return float(jnp.finfo(dtype).max) ** 0.5 * 2.0**-13
