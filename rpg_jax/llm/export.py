"""Write a model as a Hugging Face folder of safetensors."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.tensor_files import INDEX, SINGLE
from rpg_jax.llm.tensor_names import named_tensors, to_stored
from rpg_jax.llm.transformer import Params, TensorSpec


def export_pretrained(
    path: str | os.PathLike[str],
    config: ModelConfig,
    params: Params,
    *,
    max_shard_bytes: int = 5_000_000_000,
    overwrite: bool = False,
    more: Callable[[Path], None] | None = None,
) -> Path:
    """Write a folder that transformers and ``load_pretrained`` read back unchanged.

    The folder appears under its name only when complete.

    Args:
        path: folder to create.
        max_shard_bytes: size above which the tensors are split over several files.
        overwrite: replace an existing folder.
        more: writes further files (a tokenizer, a card) into the folder that it is
            given, before it appears.

    Raises:
        CheckpointError: the folder exists already, or the disk refused (nothing is
            left behind then, and an existing folder is kept).
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise CheckpointError(f"{path} exists already: choose another name")
    scratch = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        scratch.mkdir(parents=True)
        _write_tensors(scratch, config, params, max_shard_bytes)
        raw = config.to_hf_json()
        raw["dtype"] = str(params["embed"].dtype)
        _write_json(scratch / "config.json", raw)
        if more is not None:
            more(scratch)
        for written in scratch.iterdir():
            written.chmod(0o644)  # safetensors writes for its owner alone
            with written.open("rb") as handle:
                os.fsync(handle.fileno())
        if path.exists():
            old = path.with_name(f".{path.name}.old-{os.getpid()}")
            path.rename(old)
            scratch.rename(path)
            shutil.rmtree(old)
        else:
            scratch.rename(path)
    except Exception as error:
        shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(error, OSError) or type(error).__name__ == "SafetensorError":
            raise CheckpointError(f"cannot write {path}: {error}") from error
        raise
    return path


# Name, spec, path in the parameters, index in a stack.
Entry = tuple[str, TensorSpec, tuple[str, ...], int | None]


def _write_tensors(
    folder: Path, config: ModelConfig, params: Params, max_shard_bytes: int
) -> None:
    """One file of tensors, or several and their index."""
    from safetensors.numpy import save_file

    shards = _plan_shards(list(named_tensors(config)), params, max_shard_bytes)
    weight_map: dict[str, str] = {}
    total = 0
    for number, shard in enumerate(shards):
        file = (
            SINGLE
            if len(shards) == 1
            else f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        )
        tensors = {name: to_stored(params, s, p, i) for name, s, p, i in shard}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, file)
        total += sum(t.nbytes for t in tensors.values())
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write_json(folder / INDEX, index)


def _plan_shards(entries: list[Entry], params: Params, limit: int) -> list[list[Entry]]:
    shards: list[list[Entry]] = [[]]
    size = 0
    for entry in entries:
        leaf: Any = params
        for key in entry[2]:
            leaf = leaf[key]
        nbytes = int(np.prod(entry[1].shape)) * leaf.dtype.itemsize
        if shards[-1] and size + nbytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(entry)
        size += nbytes
    return shards


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
