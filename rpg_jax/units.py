"""Running units of reward, seconds and features, for a network's inputs and outputs.

A network learns numbers of size 1. What its data are measured in is not known before
they come, and the first batch may be unlike the rest (crashes, a warm-up), so units
are running averages over the last ``MEMORY`` rows: the first batch counts by its rows.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

# Rows behind an average: units wander by a few percent, which a network follows.
MEMORY = 1024

# A spread below this share of a feature's size is rounding, not variation.
LEAST_SPREAD = 1e-5


class Units(NamedTuple):
    """Running sizes; as a part of a state they are arrays alone."""

    scale: Float[Array, " 2"]  # mean |reward| and mean seconds
    mean: Float[Array, "*features"]  # of every feature; [0] where there are none
    spread: Float[Array, "*features"]  # its standard deviation
    number: Float[Array, ""]  # rows behind them, at most MEMORY


def empty_units(contexts: Shaped[Array, "N ..."]) -> Units:
    """Units before any data: 1, and features as they are.

    Args:
      contexts: [N, ...]; features if they are floats, numbers of contexts if integers.
    """
    known = jnp.asarray(contexts)
    features = known.shape[1:] if jnp.issubdtype(known.dtype, jnp.floating) else (0,)
    return Units(
        scale=jnp.ones(2),
        mean=jnp.zeros(features),
        spread=jnp.ones(features),
        number=jnp.zeros(()),
    )


def moved(
    units: Units,
    target: Float[Array, "2 B"],
    context: Shaped[Array, "B ..."],
    keep: Bool[Array, " B"],
) -> Units:
    """Units after a batch: weighted by rows, with at most MEMORY rows of the past.

    size <- size + w (mean size of the batch - size), w = B / (number + B). Means, not
    mean squares: one outlier would set a unit for long.

    Args:
      units: before the batch.
      target: [2, B] reward and seconds, 0 where not kept.
      context: [B, ...] of the form that the units were made for, 0 where not kept.
      keep: [B] rows that count; none of them leaves the units as they are.
    """
    dtype = units.scale.dtype
    rows = jnp.sum(keep, dtype=dtype)
    safe = jnp.maximum(rows, 1)
    share = rows / jnp.maximum(units.number + rows, 1)
    fresh = jnp.sum(jnp.abs(target), axis=-1).astype(dtype) / safe
    scale = (1 - share) * units.scale + share * fresh
    mean, spread = units.mean, units.spread
    if units.mean.shape != (0,):
        x = jnp.asarray(context).astype(dtype)
        weight = keep.astype(dtype).reshape((-1,) + (1,) * (x.ndim - 1))
        middle = jnp.sum(x * weight, axis=0) / safe
        deviation = (x - jnp.expand_dims(middle, 0)) * weight
        around = jnp.sqrt(jnp.sum(jnp.square(deviation), axis=0) / safe)
        gap = middle - mean
        between = jnp.abs(gap) * jnp.sqrt(share * (1 - share))
        # The first batch replaces what stood there: its share is 1.
        within = _mixed(jnp.where(units.number > 0, spread, 0), around, share)
        mean = mean + share * gap
        spread = jnp.hypot(within, between)
    number = jnp.minimum(units.number + rows, MEMORY)
    return Units(scale=scale, mean=mean, spread=spread, number=number)


def _mixed(
    old: Float[Array, "*shape"], new: Float[Array, "*shape"], share: Float[Array, ""]
) -> Float[Array, "*shape"]:
    """Root of the mean of squares: sqrt((1 - w) old^2 + w new^2)."""
    return jnp.hypot(jnp.sqrt(1 - share) * old, jnp.sqrt(share) * new)


def sizes(units: Units) -> Float[Array, " 2"]:
    """Units of reward and seconds; 1 where everything seen was 0."""
    return jnp.where(units.scale > 0, units.scale, 1)


def standardised(
    units: Units, context: Shaped[Array, "B ..."]
) -> Shaped[Array, "B ..."]:
    """(x - mean) / spread of features; contexts that are numbers as they are."""
    if units.mean.shape == (0,):
        return jnp.asarray(context)
    x = jnp.asarray(context).astype(units.mean.dtype)
    floor = LEAST_SPREAD * jnp.abs(units.mean)
    spread = jnp.where(units.spread > floor, units.spread, 1)
    centred = x - jnp.expand_dims(units.mean, 0)
    return centred / jnp.expand_dims(spread, 0)
