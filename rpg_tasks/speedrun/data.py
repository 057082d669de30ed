"""A speedrun's data: unpacked once into the cache, checked against its record."""

from __future__ import annotations

import dataclasses
import hashlib
import lzma
import os
import tempfile
from pathlib import Path

import numpy as np

from rpg_tasks.prepare import default_cache_dir
from rpg_tasks.speedrun.record import Speedrun
from rpg_tasks.speedrun.tokens import read_tokens, token_bytes
from rpg_tasks.task import TaskError

TEXT = "text.xz"
_NEWLINE, _FIRST = 95, 32


@dataclasses.dataclass(frozen=True)
class SpeedrunData:
    """Where a speedrun's tokens lie.

    Attributes:
        inputs: folder that scripts see: ``train.bin`` alone.
        hidden: folder that only verification sees: ``val.bin``, ``final.bin``.
    """

    inputs: Path
    hidden: Path

    @property
    def train(self) -> Path:
        """Tokens to train on."""
        return self.inputs / "train.bin"

    def rows(self, part: str) -> Path:
        """Tokens of ``val`` or ``final``."""
        return self.hidden / f"{part}.bin"


def encode(text: bytes) -> np.ndarray:
    """Symbols of a text of printable ASCII and newlines: 0 .. 94, and 95."""
    codes = np.frombuffer(text, np.uint8).astype(np.int32)
    tokens = np.where(codes == ord("\n"), _NEWLINE, codes - _FIRST)
    if len(tokens) and not (tokens.min() >= 0 and tokens.max() <= _NEWLINE):
        raise TaskError("the text has characters that are no symbols")
    return tokens.astype(np.uint16)


def decode(tokens: np.ndarray) -> str:
    """The text of symbols."""
    codes = np.where(tokens == _NEWLINE, ord("\n"), tokens.astype(np.int32) + _FIRST)
    return codes.astype(np.uint8).tobytes().decode("ascii")


def split_text(speedrun: Speedrun, path: Path | None = None) -> dict[str, bytes]:
    """The parts of the packed text, each checked.

    Args:
        speedrun: gives lengths and digests.
        path: of the packed text; the speedrun's own by default.

    Raises:
        TaskError: it cannot be read, or is not the text of the record.
    """
    path = path or speedrun.folder / TEXT
    try:
        text = lzma.decompress(path.read_bytes())
    except (OSError, lzma.LZMAError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from error
    found, at = {}, 0
    for name, part in speedrun.parts.items():
        found[name] = text[at : at + part.tokens]
        at += part.tokens
        digest = hashlib.sha256(found[name]).hexdigest()
        if digest != part.sha256:
            raise TaskError(
                f"{path}: the part {name} has the SHA-256 {digest[:12]}..., not "
                f"{part.sha256[:12]}...: the file is damaged, restore it from a copy"
            )
    if at != len(text):
        raise TaskError(f"{path} holds {len(text)} characters, not {at}")
    return found


def prepare_speedrun(
    speedrun: Speedrun, *, cache_dir: Path | str | None = None
) -> SpeedrunData:
    """The data, built into the cache on first use and checked on every use.

    Raises:
        TaskError: the packed text or a token file is damaged.
    """
    digests = "".join(part.sha256 for part in speedrun.parts.values())
    version = hashlib.sha256(digests.encode()).hexdigest()[:16]
    cache = Path(cache_dir) if cache_dir else default_cache_dir()
    home = cache / "speedrun" / f"{speedrun.short}-{version}"
    data = SpeedrunData(home / "inputs", home / "hidden")
    places = {"train": data.train, "val": data.rows("val"), "final": data.rows("final")}
    if not all(path.exists() for path in places.values()):
        for name, text in split_text(speedrun).items():
            _write(places[name], token_bytes(encode(text)))
    check_data(speedrun, data)
    return data


def check_data(speedrun: Speedrun, data: SpeedrunData) -> None:
    """Refuse damaged token files before anything is run on them.

    Raises:
        TaskError: a file is missing, cut short or of other tokens.
    """
    paths = {"train": data.train, "val": data.rows("val"), "final": data.rows("final")}
    for name, path in paths.items():
        tokens = read_tokens(path, vocabulary=speedrun.vocabulary)
        text = decode(tokens).encode()
        if hashlib.sha256(text).hexdigest() != speedrun.parts[name].sha256:
            raise TaskError(f"{path} is damaged: delete it and start again")


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all; several processes may write the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, scratch = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    with os.fdopen(number, "wb") as file:
        file.write(data)
    os.chmod(scratch, 0o644)  # the sandbox may read as another user
    os.replace(scratch, path)
