"""Masked arrays of tokens: their checks, and means in which a masked value is none."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rpg_jax import checks

Tokens = Float[Array, "*batch T"]
Mask = Bool[Array, "*batch T"]

NORMALIZERS = (1e-6, checks.MAX_VALUE)


def tokens_of(mask: Array, **values: Array) -> tuple[Array, ...]:
    """Values in float32 or wider and the mask as bool, all of one shape."""
    found = [checks.numbers(name, value) for name, value in values.items()]
    found.append(checks.flags("mask", mask))
    names = ", ".join(values)
    checks.same_shape(f"{names} and mask", found)
    return tuple(found)


def divisor_of(normalizer: Array | float | None) -> Array | float | None:
    """A normalizer, checked; None for the mask's sum."""
    if normalizer is None:
        return None
    divisor: Array | float = checks.scalar("normalizer", normalizer, NORMALIZERS)
    return divisor


def masked_sum(
    x: Float[Array, "*shape"], mask: Bool[Array, "*shape"]
) -> Float[Array, ""]:
    """Sum of the masked-in entries; masked-out ones may be NaN."""
    return jnp.sum(jnp.where(mask.astype(bool), x, 0))


def masked_mean(
    x: Float[Array, "*shape"],
    mask: Bool[Array, "*shape"],
    *,
    normalizer: Float[Array, ""] | float | None = None,
) -> Float[Array, ""]:
    """Masked sum over ``normalizer``, or over the number of masked-in entries.

    Args:
      x: values, any shape.
      mask: same shape.
      normalizer: constant divisor, e.g. rows * maximum length; None for the mask's sum
        (then an empty mask gives 0).

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: shapes differ or a setting is out of range; outside of jit also where
        a counted entry is not finite.
    """
    x, mask = tokens_of(mask, values=x)
    checks.within("values", x, mask=mask)
    return mean_of(x, mask, divisor_of(normalizer))


def mean_of(x: Array, mask: Array, normalizer: Array | float | None = None) -> Array:
    """``masked_mean`` without its checks."""
    total = masked_sum(x, mask)
    if normalizer is None:
        return total / jnp.maximum(jnp.sum(mask.astype(bool), dtype=total.dtype), 1)
    return total / normalizer
