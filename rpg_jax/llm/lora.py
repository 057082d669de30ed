"""Low-rank adapters beside frozen weights, in the form that `layers.linear` reads.

W x + (alpha / r) A B x with A random and B zero, so that training starts at the frozen
policy exactly (Hu et al. 2021). A full fine-tune of 4.2 B parameters holds about 67 GB
of masters, moments and gradients; rank 32 holds about 1 GB.
"""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

# The large projections of attention, DeltaNet and the MLP.
DEFAULT_TARGETS = r"_proj$|^in_proj_(qkv|z)$"

Adapter = dict[str, Array]  # lora_a [..., in, r] and lora_b [..., r, out]
Adapters = dict[str, Adapter]  # by path


def init(
    key: PRNGKeyArray, params: Any, *, rank: int, targets: str = DEFAULT_TARGETS
) -> Adapters:
    """Fresh adapters for every layer kernel whose name matches.

    Args:
        key: typed PRNG key.
        params: model parameters; kernels `[in, out]`, or `[layers, in, out]` stacked.
        rank: r >= 1.
        targets: regular expression searched in the kernel's own name.

    Returns:
        `{path: {"lora_a": [..., in, r], "lora_b": [..., r, out]}}`, float32.

    Raises:
        ValueError: the rank is below 1, or nothing matches.
    """
    if rank < 1:
        raise ValueError(f"LoRA rank must be at least 1, got {rank}.")
    adapters: Adapters = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        names = [str(getattr(part, "key", part)) for part in path]
        if names[0] != "layers" or not re.search(targets, names[-1]):
            continue
        name = "/".join(names)
        *stack, fan_in, fan_out = leaf.shape
        key, sub = jax.random.split(key)
        bound = math.sqrt(3.0 / fan_in)
        adapters[name] = {
            "lora_a": jax.random.uniform(
                sub, (*stack, fan_in, rank), jnp.float32, -bound, bound
            ),
            "lora_b": jnp.zeros((*stack, rank, fan_out), jnp.float32),
        }
    if not adapters:
        raise ValueError(f"No layer kernel matches the LoRA targets {targets!r}.")
    return adapters


def attach(params: Any, adapters: Adapters, *, alpha: float) -> Any:
    """Parameters in which each adapted kernel is `{kernel, lora_a, lora_b}`.

    Args:
        params: frozen model parameters.
        adapters: from `init`.
        alpha: scale; the update is `(alpha / r) A B`, and the factor goes into B.

    Raises:
        KeyError: an adapter names a kernel that the model does not have.
    """

    def put(kernel: Array, adapter: Adapter) -> dict[str, Array]:
        return {
            "kernel": jax.lax.stop_gradient(kernel),
            "lora_a": adapter["lora_a"],
            "lora_b": adapter["lora_b"] * _scale(adapter, alpha),
        }

    return _edit(params, adapters, put)


def merge(params: Any, adapters: Adapters, *, alpha: float) -> Any:
    """Plain parameters with the update added to the kernels, for export.

    The sum is taken in float32 and rounded once to the kernel's type: in bfloat16 small
    updates are partly lost, which is why sampling during training uses `attach`.
    """

    def put(kernel: Array, adapter: Adapter) -> Array:
        a, b = adapter["lora_a"], adapter["lora_b"] * _scale(adapter, alpha)
        update = jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
        total: Array = kernel.astype(jnp.float32) + update
        return total.astype(kernel.dtype)

    return _edit(params, adapters, put)


def _scale(adapter: Adapter, alpha: float) -> Float[Array, ""]:
    scale: Array = jnp.float32(alpha / adapter["lora_a"].shape[-1])
    return scale


def _edit(params: Any, adapters: Adapters, put: Any) -> Any:
    """A copy of the nested dict with `put(kernel, adapter)` at every adapter's path."""

    def walk(node: Any, prefix: str) -> Any:
        if not isinstance(node, dict):
            return put(node, adapters[prefix]) if prefix in adapters else node
        return {k: walk(v, f"{prefix}/{k}" if prefix else k) for k, v in node.items()}

    paths = {
        "/".join(str(getattr(part, "key", part)) for part in path)
        for path, _ in jax.tree_util.tree_flatten_with_path(params)[0]
    }
    missing = sorted(set(adapters) - paths)
    if missing:
        raise KeyError(
            f"The model has no kernels {missing}: adapters of another model?"
        )
    return walk(params, "")
