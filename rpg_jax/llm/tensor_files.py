"""The safetensors files of a model folder, whole or in shards, opened and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rpg_jax.llm.errors import CheckpointError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Stored dtype -> the dtype we hold it in.
_READABLE = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float32"}
SHOWN = 12


class TensorFiles:
    """Tensors of a safetensors folder by name, files opened once."""

    def __init__(self, folder: Path) -> None:
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            raise CheckpointError(
                "reading checkpoints needs safetensors: pip install rpg-jax[llm]"
            ) from error
        self.files: dict[str, Any] = {}
        self.where: dict[str, str] = {}
        listed: dict[str, str] | None = None
        files: list[str]
        if (folder / INDEX).is_file():
            listed = read_json(folder / INDEX).get("weight_map")
            if not isinstance(listed, Mapping) or not listed:
                raise CheckpointError(f"{folder / INDEX}: no weight_map")
            files = sorted(set(listed.values()))
            missing = [f for f in files if not (folder / f).is_file()]
            if missing:
                raise CheckpointError(
                    f"{folder}: {len(missing)} of {len(files)} shards missing: "
                    f"{some(missing)}. Download the checkpoint again"
                )
        else:
            files = sorted(f.name for f in folder.glob("*.safetensors"))
            if SINGLE in files:
                files = [SINGLE]
            if not files:
                raise CheckpointError(_no_weights(folder))
            if len(files) > 1:
                raise CheckpointError(
                    f"{folder}: {len(files)} safetensors files but no {INDEX}"
                )
        for file in files:
            try:
                handle = safe_open(folder / file, framework="np")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(
                    f"{folder / file} is damaged or incomplete ({error}). "
                    "Download or export it again"
                ) from error
            self.files[file] = handle
            self.where |= dict.fromkeys(handle.keys(), file)
        if listed is not None:
            lost = sorted(n for n, f in listed.items() if self.where.get(n) != f)
            if lost:
                raise CheckpointError(
                    f"{folder}: tensors named in {INDEX} are not in their shard: "
                    f"{some(lost)}"
                )

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape as stored."""
        return tuple(self.files[self.where[name]].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """The dtype that we hold it in.

        Raises:
            CheckpointError: it is stored in a dtype that is not read.
        """
        stored = self.files[self.where[name]].get_slice(name).get_dtype()
        if stored not in _READABLE:
            raise CheckpointError(
                f"{name} is stored as {stored}: quantised weights are not read"
            )
        return _READABLE[stored]

    def read(self, name: str) -> np.ndarray:
        """The tensor as stored."""
        tensor: np.ndarray = self.files[self.where[name]].get_tensor(name)
        return tensor


def _no_weights(folder: Path) -> str:
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
        return (
            f"{folder}: only pickled PyTorch weights, which are not read; convert them "
            "to safetensors"
        )
    return f"{folder}: no {SINGLE} and no {INDEX}"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CheckpointError: there is no such file, or it holds something else.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path.parent}: no {path.name}; is it a model folder?"
        ) from error
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return raw


def some(names: list[str]) -> str:
    """The first few names, for a message."""
    tail = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + tail
