"""Our parameters by their Hugging Face names, and in the layout stored there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from rpg_jax.llm import models, transformer
from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.families import family_of
from rpg_jax.llm.transformer import Params, TensorSpec


def named_tensors(
    config: ModelConfig,
) -> Iterator[tuple[str, TensorSpec, tuple[str, ...], int | None]]:
    """Every tensor: our export name, spec, path in the parameters, stacked index.

    The spec's shape is that of one layer, without the stacked axis.
    """
    prefix = family_of(config).prefixes[0]
    specs = models.tensor_specs(config)
    for key in ("embed", "norm"):
        yield prefix + specs[key].name, specs[key], (key,), None
    if "lm_head" in specs:
        yield specs["lm_head"].name, specs["lm_head"], ("lm_head",), None
    places = transformer.map_layers(config, specs)
    for number, (group, position, index) in enumerate(places):
        flat = jax.tree_util.tree_flatten_with_path(
            specs["layers"][group][position], is_leaf=models.is_spec
        )[0]
        for keys, spec in flat:
            path = ("layers", group, position, *(k.key for k in keys))
            if index is not None:
                spec = spec._replace(shape=spec.shape[1:])
            yield f"{prefix}layers.{number}.{spec.name}", spec, path, index


def from_stored(stored: np.ndarray, kind: str) -> np.ndarray:
    """A tensor as Hugging Face stores it -> in our layout."""
    if kind == "kernel":
        return stored.T
    return stored[:, 0, :].T if kind == "conv" else stored


def stored_shape(spec: TensorSpec) -> tuple[int, ...]:
    """The shape that Hugging Face stores."""
    if spec.kind == "kernel":
        return spec.shape[::-1]
    if spec.kind == "conv":
        return (spec.shape[1], 1, spec.shape[0])
    return spec.shape


def to_stored(
    params: Params, spec: TensorSpec, path: tuple[str, ...], index: int | None
) -> np.ndarray:
    """A parameter in the layout that Hugging Face stores."""
    leaf: Any = params
    for key in path:
        leaf = leaf[key]
    array = np.asarray(leaf if index is None else leaf[index])
    if spec.kind == "kernel":
        array = array.T
    elif spec.kind == "conv":
        array = array.T[:, None, :]
    return np.ascontiguousarray(array)
