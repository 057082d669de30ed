"""Meshes, shardings and several processes.

One mesh with two axes: rows of the batch are split over 'data' and 'fsdp' together,
weights and optimizer moments over 'fsdp' alone. `jit` over `NamedSharding`s inserts the
collectives; nothing else in the package knows how many devices there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXES = ("data", "fsdp")
# Sharding a small leaf costs a collective and saves nothing.
MIN_SHARDED_SIZE = 2**14


def make_mesh(
    data: int = 1, fsdp: int = -1, *, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """A `('data', 'fsdp')` mesh over all devices of all processes.

    Args:
        data: replicas of the weights.
        fsdp: pieces of the weights; -1 takes the devices that are left.
        devices: default: all.

    Raises:
        ValueError: the sizes do not use every device.
    """
    devices = list(jax.devices() if devices is None else devices)
    if fsdp == -1 and data > 0 and len(devices) % data == 0:
        fsdp = len(devices) // data
    if data < 1 or fsdp < 1 or data * fsdp != len(devices):
        raise ValueError(
            f"A mesh of data={data} x fsdp={fsdp} does not use {len(devices)} devices."
        )
    return jax.make_mesh(
        (data, fsdp), AXES, axis_types=(AxisType.Auto,) * 2, devices=devices
    )


def leaf_spec(shape: Sequence[int], pieces: int, *, stacked: bool) -> PartitionSpec:
    """Which axis of one array is split over 'fsdp'.

    The largest one that `pieces` divides; never the axis of stacked layers, which is
    scanned over; none for small arrays.
    """
    if pieces == 1 or int(np.prod(shape)) < MIN_SHARDED_SIZE:
        return PartitionSpec()
    first = 1 if stacked else 0
    axes = [a for a in range(first, len(shape)) if shape[a] % pieces == 0]
    if not axes:
        return PartitionSpec()
    axis = max(axes, key=lambda a: shape[a])
    return PartitionSpec(*(AXES[1] if a == axis else None for a in range(len(shape))))


def tree_shardings(tree: Any, mesh: Mesh) -> Any:
    """A `NamedSharding` for each leaf of parameters, moments or a whole state.

    Args:
        tree: arrays or `ShapeDtypeStruct`s; layers under a key "blocks", or LoRA
            adapters of such, are stacked along axis 0.
        mesh: from `make_mesh`.
    """

    def sharding(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return NamedSharding(mesh, PartitionSpec())
        stacked = "blocks" in jax.tree_util.keystr(path)
        spec = leaf_spec(leaf.shape, mesh.shape["fsdp"], stacked=stacked)
        return NamedSharding(mesh, spec)

    return jax.tree_util.tree_map_with_path(sharding, tree)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over all devices."""
    return NamedSharding(mesh, PartitionSpec(AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def place(tree: Any, shardings: Any) -> Any:
    """Put arrays on the devices of all processes.

    Args:
        tree: arrays. With several processes each must hold the same values, or a global
            `jax.Array`, which is moved by the devices themselves.
        shardings: one sharding, or a tree of them.
    """
    if isinstance(shardings, NamedSharding):
        shardings = jax.tree.map(lambda _: shardings, tree)
    return jax.tree.map(_place_leaf, tree, shardings)


def to_host(array: Any) -> np.ndarray:
    """The whole array as NumPy on every process; a collective if it is spread out."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))
    return np.asarray(array)


def _place_leaf(leaf: Any, sharding: NamedSharding) -> jax.Array:
    placed: jax.Array
    if sharding.is_fully_addressable:
        placed = jax.device_put(leaf, sharding)
    elif isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        placed = jax.jit(lambda x: x, out_shardings=sharding)(leaf)
    elif jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _place_leaf(jax.random.key_data(leaf), sharding)
        placed = jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    else:
        host = np.asarray(leaf)
        placed = jax.make_array_from_callback(host.shape, sharding, lambda i: host[i])
    return placed
