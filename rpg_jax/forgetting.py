"""How estimators forget: by a factor per batch, or by a memory counted in decisions.

A policy learns, so what an action earned long ago is not what it earns. A factor per
batch depends on the size of batches; a memory of M decisions, exp(-rows / M), does not,
and is what the defaults are.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from rpg_jax import checks

# Decisions that a pooled average remembers, and a table of cells for each of its cells.
# Chosen by ``benchmarks.bench_drift``.
POOLED_MEMORY = 256.0
CELL_MEMORY = 16.0
LEAST_MEMORY = 256.0

# An arm has faded whose newest data weigh less than this share of its context's newest:
# it was not played for as long as the memory is.
FADED = 0.37

Forgetting = float | None


def check_forgetting(forgetting: Forgetting) -> None:
    """Refuse a factor outside (0, 1]; None stands for the default memory."""
    if forgetting is None:
        return
    checks.scalar("forgetting", forgetting)
    if not 0.0 < forgetting <= 1.0:
        raise ValueError(f"forgetting must be in (0, 1], got {forgetting}")


def kept_share(
    forgetting: Forgetting, rows: Float[Array, ""], *, memory: float
) -> Float[Array, ""] | None:
    """The share of the past that a batch of ``rows`` decisions leaves; None for all.

    Args:
      forgetting: factor per batch with data, or None for exp(-rows / memory).
      rows: decisions that count; none of them forgets nothing.
      memory: decisions.
    """
    if forgetting == 1.0:
        return None
    if forgetting is None:
        return jnp.exp(-rows / memory)
    return jnp.where(rows > 0, jnp.asarray(forgetting, rows.dtype), 1)
