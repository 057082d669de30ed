"""What public functions ask of their arguments, and the one error where it is not so.

Types, shapes and settings are checked always. Values are checked where they are known:
not under ``jit``, ``vmap`` or ``grad``, where they are traced. There a value that is
not finite comes out as one, unless a function says that it leaves such rows out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from rpg_jax.arrays import as_float, concrete

# Largest size of a reward, a logit, a weight ...: products of three stay in float32.
MAX_VALUE = 1e12

# Seconds of a decision: a nanosecond to three centuries. What is outside is a fault of
# a clock, or of a unit; and 1e-50 would be 0 in float32.
MIN_SECONDS = 1e-9
MAX_SECONDS = 1e10

MAX_STEPS = 1_000_000

Range = tuple[float, float]
ANY: Range = (-MAX_VALUE, MAX_VALUE)
SECONDS: Range = (MIN_SECONDS, MAX_SECONDS)
POSITIVE: Range = (1e-12, MAX_VALUE)
SHARE: Range = (0.0, 1.0)


def numbers(name: str, value: Any) -> Array:
    """A value as a JAX array of float32 or wider.

    Raises:
      TypeError: it is no array of real numbers.
    """
    return as_float(real(name, value))


def real(name: str, value: Any) -> Any:
    """The value, as a NumPy array unless it is one of JAX.

    Raises:
      TypeError: it is no array of real numbers.
    """
    if not isinstance(value, jax.Array):
        try:
            value = np.asarray(value)
        except (TypeError, ValueError):
            raise TypeError(f"{name} must be an array of numbers") from None
    kind = np.dtype(value.dtype).kind if _is_numpy(value.dtype) else "V"
    if kind not in "biuf" and not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must be an array of numbers, got {value.dtype}")
    return value


def _is_numpy(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype)


def integers(name: str, value: Any) -> Array:
    """A value as a JAX array of int32; other integer types are narrowed.

    Raises:
      TypeError: it is no array of integers.
    """
    value = real(name, value)
    if not jnp.issubdtype(value.dtype, jnp.integer):
        raise TypeError(f"{name} must be integers, got {value.dtype}")
    known = concrete(value)
    if known is not None and known.size and not _fits_int32(known):
        raise ValueError(f"{name} is outside the range of int32")
    return jnp.asarray(value).astype(jnp.int32)


def _fits_int32(known: np.ndarray) -> bool:
    return bool(known.min() >= -(2**31)) and bool(known.max() < 2**31)


def flags(name: str, value: Any) -> Array:
    """A mask as a JAX array of bool; numbers count as true where they are not 0.

    Raises:
      TypeError: it is no array of numbers.
    """
    value = real(name, value)
    known = concrete(value)
    if known is not None and not np.isfinite(known.astype(np.float64)).all():
        raise ValueError(f"{name} must be true or false, it has entries that are not")
    return jnp.asarray(value).astype(bool)


def within(
    name: str, value: Any, limits: Range = ANY, *, mask: Any | None = None
) -> None:
    """Refuse known entries that are not finite or outside the limits, both included.

    Args:
      name: of the argument, for the message.
      value: an array; a traced one is not checked.
      limits: smallest and largest entry.
      mask: entries to check, of the same shape; all if None. Unless it is known too,
        nothing is checked.

    Raises:
      ValueError: naming the number of such entries.
    """
    known = concrete(value)
    if known is None:
        return
    known = known.astype(np.float64)
    fine = (known >= limits[0]) & (known <= limits[1])  # false for NaN
    if mask is not None:
        asked = concrete(mask)
        if asked is None:
            return
        fine |= ~asked.astype(bool)
    if not fine.all():
        raise ValueError(
            f"{name} must be finite and in [{limits[0]:g}, {limits[1]:g}]; "
            f"{int((~fine).sum())} of {fine.size} entries are not"
        )


def scalar(name: str, value: Any, limits: Range = ANY) -> Any:
    """A setting that is a number: checked if known, and then a plain float.

    Raises:
      TypeError: it is no single number.
      ValueError: it is not finite or outside the limits.
    """
    array = real(name, value)
    if array.shape != ():
        raise TypeError(f"{name} must be a single number, got shape {array.shape}")
    within(name, array, limits)
    if isinstance(value, jax.Array):
        return value if jnp.issubdtype(array.dtype, jnp.floating) else as_float(array)
    return float(array)


def count(name: str, value: Any, *, least: int = 1, most: int = MAX_STEPS) -> int:
    """A setting that is a whole number, such as a size or a number of steps.

    Raises:
      TypeError: it is no integer.
      ValueError: it is outside [least, most].
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole:
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{name} must be in [{least}, {most}], got {value}")
    return int(value)


def rank(name: str, value: Array, *ranks: int) -> None:
    """Refuse an array of another number of dimensions."""
    if value.ndim not in ranks:
        wanted = " or ".join(str(r) for r in ranks)
        raise ValueError(
            f"{name} must have {wanted} dimensions, got shape {value.shape}"
        )


def same_shape(names: str, values: Sequence[Array]) -> None:
    """Refuse arrays whose shapes differ; ``names`` for the message."""
    shapes = [v.shape for v in values]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"{names} must be of one shape, got {shapes}")


def at_least_one_axis(name: str, value: Array) -> None:
    """Refuse a scalar where rows are wanted."""
    if value.ndim == 0:
        raise ValueError(f"{name} must have a dimension, got a single number")


def key(value: Any) -> None:
    """Refuse what is no single PRNG key.

    Raises:
      TypeError: neither a typed key nor a raw one.
    """
    if isinstance(value, jax.Array):
        typed = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        if typed and value.shape == ():
            return
        if value.dtype == jnp.uint32 and value.ndim == 1:
            return
    raise TypeError("key must be a single PRNG key, as from jax.random.key(0)")


def weights(name: str, value: ArrayLike | None, number: int) -> None:
    """Refuse known weights that are not ``number`` numbers >= 0, or are all 0.

    Raises:
      TypeError: they are no array of numbers.
      ValueError: they are not such weights.
    """
    if value is None:
        return
    array = real(name, value)
    known = concrete(array)
    fine = array.shape == (number,)
    if fine and known is not None:
        known = known.astype(np.float64)
        fine = bool((known >= 0).all()) and bool(1e-12 <= known.sum() <= MAX_VALUE)
    if not fine:
        shown = "" if known is None else f", got {np.array2string(known, threshold=8)}"
        raise ValueError(
            f"{name} must be {number} finite weights >= 0 and not all 0"
            + shown.replace("\n", " ")
        )
