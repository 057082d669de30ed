"""The declared contract: weights and a small config; the harness's own forward pass.

Nothing that the script wrote is run. ``model.npz`` holds float arrays of the names and
shapes that the config implies, and nothing else, so that a table of n-gram counts is
refused: it is no weight of this model. With ``a = norm(x)``, ``norm(x) = x / rms(x)``:

    x  = tokens[t] + positions[i]  (+ previous[t before]  with lookback)
    x += attention(a; qkv) out ;  x += activation(a up) down       (each layer)
    logits = norm(x) head

This file is also the program that runs in the sandbox, on its own: it needs NumPy and
nothing of ours. It reads ``input/model.npz`` and ``input/rows.npy`` and writes
``verdict.json``.
"""

from __future__ import annotations

import ast
import json
import struct
import sys
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

ACTIVATIONS = ("gelu", "relu2", "relu")
#: Key of the config -> smallest and largest value.
SIZES = {
    "width": (8, 256),
    "layers": (1, 8),
    "heads": (1, 16),
    "hidden": (8, 1024),
    "context": (8, 512),
}
MOST_BYTES = 64 << 20
BATCH = 128

Weights = dict[str, np.ndarray]


class Refused(ValueError):
    """A model that is not of the contract; the message says what is wrong."""


def shapes_of(config: dict[str, Any], vocabulary: int) -> dict[str, tuple[int, int]]:
    """Names and shapes of the weights that a config implies."""
    width, hidden = config["width"], config["hidden"]
    shapes = {
        "tokens": (vocabulary, width),
        "positions": (config["context"], width),
        "head": (width, vocabulary),
    }
    if config["lookback"]:
        shapes["previous"] = (vocabulary, width)
    for layer in range(config["layers"]):
        shapes[f"{layer}.qkv"] = (width, 3 * width)
        shapes[f"{layer}.out"] = (width, width)
        shapes[f"{layer}.up"] = (width, hidden)
        shapes[f"{layer}.down"] = (hidden, width)
    return shapes


def check_config(config: Any, length: int) -> dict[str, Any]:
    """The config, if it is one.

    Raises:
        Refused: a key is missing, unknown or out of range.
    """
    names = {*SIZES, "activation", "lookback"}
    if not isinstance(config, dict) or set(config) != names:
        raise Refused(f"the config must have the keys {', '.join(sorted(names))}")
    for key, (low, high) in SIZES.items():
        value = config[key]
        if type(value) is not int or not low <= value <= high:
            raise Refused(f"the config's {key} must be {low} to {high}, not {value!r}")
    if config["activation"] not in ACTIVATIONS:
        raise Refused(f"the activation must be one of {', '.join(ACTIVATIONS)}")
    if type(config["lookback"]) is not bool:
        raise Refused("lookback must be true or false")
    if config["width"] % config["heads"]:
        raise Refused("the width must be a multiple of heads")
    if config["context"] < length:
        raise Refused(f"the context must be at least {length}")
    return config


def _header(file: IO[bytes], name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape that an array's header declares; nothing else of it is read."""
    start = file.read(8)
    if start[:6] != b"\x93NUMPY" or start[6] not in (1, 2):
        raise Refused(f"{name} is no array")
    form = "<H" if start[6] == 1 else "<I"
    size = struct.unpack(form, file.read(struct.calcsize(form)))[0]
    if size > 4096:
        raise Refused(f"the header of {name} is too long")
    about = ast.literal_eval(file.read(size).decode("latin-1"))
    if about["fortran_order"] and len(about["shape"]) > 1:
        raise Refused(f"{name} must be stored in C order")
    return np.dtype(about["descr"]), tuple(about["shape"])


def read_arrays(path: Path) -> Weights:
    """Arrays of numbers in an .npz file, none of it unpickled.

    Raises:
        Refused: not such a file, arrays of other types, or too large when unpacked.
    """
    found: Weights = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len({m.filename for m in members}) != len(members):
                raise Refused("two arrays of one name")
            if sum(m.file_size for m in members) > MOST_BYTES:
                raise Refused(f"the model is larger than {MOST_BYTES >> 20} MiB")
            for member in members:
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as file:
                    kind, shape = _header(file, name)
                    if kind.kind not in "fu" or kind.hasobject:
                        raise Refused(f"{name} has the type {kind}: floats are wanted")
                    count = int(np.prod(shape, dtype=np.int64))
                    data = file.read(count * kind.itemsize + 1)
                    if len(data) != count * kind.itemsize:
                        raise Refused(f"{name} is not as long as its header says")
                    found[name] = np.frombuffer(data, kind).reshape(shape)
    except Refused:
        raise
    except Exception as error:  # whatever a damaged file brings about
        raise Refused(f"model.npz cannot be read: {type(error).__name__}") from None
    return found


def read_model(
    path: Path, *, vocabulary: int, length: int
) -> tuple[dict[str, Any], Weights]:
    """Config and weights, checked.

    Raises:
        Refused: the file is not of the contract.
    """
    arrays = read_arrays(path)
    text = arrays.pop("config", None)
    if text is None or text.dtype != np.uint8 or text.size > 4096:
        raise Refused("model.npz needs 'config': the bytes of a JSON text")
    try:
        config = json.loads(text.tobytes().decode("utf-8"))
    except (UnicodeDecodeError, ValueError):
        raise Refused("the config is no JSON") from None
    config = check_config(config, length)
    shapes = shapes_of(config, vocabulary)
    if set(arrays) != set(shapes):
        odd = sorted(set(arrays) ^ set(shapes))[:4]
        raise Refused(f"weights missing or not of the model: {', '.join(odd)}")
    weights = {}
    for name, shape in shapes.items():
        array = arrays[name]
        if array.dtype.kind != "f" or array.shape != shape:
            raise Refused(f"{name} must be floats of shape {shape}, not {array.shape}")
        weights[name] = array.astype(np.float32)
        if not np.isfinite(weights[name]).all():
            raise Refused(f"{name} is not finite")
    return config, weights


def _norm(x: np.ndarray) -> np.ndarray:
    scale = np.sqrt(np.einsum("...i,...i->...", x, x) / x.shape[-1] + 1e-6)
    normed: np.ndarray = x / scale[..., None]
    return normed


def _activate(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "gelu":
        y: np.ndarray = x / (1.0 + np.exp(np.float32(-1.702) * x))
        return y
    positive = np.maximum(x, 0.0)
    squared: np.ndarray = positive * positive
    return squared if kind == "relu2" else positive


def forward(config: dict[str, Any], weights: Weights, tokens: np.ndarray) -> np.ndarray:
    """Logits, [batch, length] -> [batch, length, vocabulary]."""
    batch, length = tokens.shape
    heads, width = config["heads"], config["width"]
    size = width // heads
    x = weights["tokens"][tokens] + weights["positions"][:length]
    if config["lookback"]:
        x[:, 1:] += weights["previous"][tokens[:, :-1]]
    mask = np.triu(np.full((length, length), -1e9, np.float32), 1)
    for layer in range(config["layers"]):
        qkv = (_norm(x) @ weights[f"{layer}.qkv"]).reshape(
            batch, length, 3, heads, size
        )
        q, k, v = np.ascontiguousarray(qkv.transpose(2, 0, 3, 1, 4))
        p = q @ k.swapaxes(-1, -2) * np.float32(size**-0.5) + mask
        p = np.exp(p - p.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        taken = (p @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        x = x + taken @ weights[f"{layer}.out"]
        up = _norm(x) @ weights[f"{layer}.up"]
        x = x + _activate(up, config["activation"]) @ weights[f"{layer}.down"]
    logits: np.ndarray = _norm(x) @ weights["head"]
    return logits


def nats(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Cross-entropy of each target; adding a constant to its logits changes nothing."""
    logits = logits - logits.max(-1, keepdims=True)
    own = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    loss: np.ndarray = np.log(np.exp(logits).sum(-1)) - own
    return loss


def loss_of(config: dict[str, Any], weights: Weights, rows: np.ndarray) -> float:
    """Mean loss of rows [N, length + 1], nats a token."""
    total = 0.0
    for at in range(0, len(rows), BATCH):
        part = rows[at : at + BATCH]
        logits = forward(config, weights, part[:, :-1])
        total += float(nats(logits, part[:, 1:]).sum(dtype=np.float64))
    tokens: int = len(rows) * (rows.shape[1] - 1)
    return total / tokens


def judge(path: Path, rows: np.ndarray, vocabulary: int) -> dict[str, Any]:
    """``{"loss": L}``, or ``{"refused": reason}``."""
    try:
        config, weights = read_model(
            path, vocabulary=vocabulary, length=rows.shape[1] - 1
        )
        with np.errstate(all="ignore"):
            loss = loss_of(config, weights, rows)
    except Refused as error:
        return {"refused": str(error)}
    if not np.isfinite(loss):
        return {"refused": "the loss is not finite"}
    return {"loss": loss}


if __name__ == "__main__":
    found = judge(Path("input/model.npz"), np.load("input/rows.npy"), int(sys.argv[1]))
    Path("verdict.json").write_text(json.dumps(found))
