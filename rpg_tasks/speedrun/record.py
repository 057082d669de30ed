"""A speedrun's record, ``speedrun.toml``, and where speedruns are found."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rpg_tasks.task import TaskError

RECORD = "speedrun.toml"
HERE = Path(__file__).parent
CONTRACTS = ("declared", "callable")


@dataclasses.dataclass(frozen=True)
class TextPart:
    """One part of the text: its number of tokens and the SHA-256 of its characters."""

    tokens: int
    sha256: str


@dataclasses.dataclass(frozen=True, repr=False)
class Speedrun:
    """One speedrun; a ``Goal`` whose score is seconds to the target.

    Attributes:
        short: name on the command line.
        folder: of the record.
        summary: what is to be done, in one sentence.
        metric_text: the score in words.
        target: validation loss to reach, nats a token.
        sigma: spread of the loss over training seeds, nats; of the soft crossing.
        baseline_s: seconds of the baseline on the machine that ``measured_on`` names.
        measured_on: CPU of ``baseline_s``.
        wall_limit_s: wall limit of a script, seconds.
        memory_mb: memory of a script, MiB.
        model_mb: largest model file, MiB.
        length: tokens of a validation row.
        vocabulary: number of symbols.
        parts: ``train``, ``val`` and ``final``, in the order of the text.
    """

    short: str
    folder: Path
    summary: str
    metric_text: str
    target: float
    sigma: float
    baseline_s: float
    measured_on: str
    wall_limit_s: float
    memory_mb: int
    model_mb: int
    length: int
    vocabulary: int
    parts: Mapping[str, TextPart]

    def __repr__(self) -> str:
        return f"<Speedrun {self.short}>"

    @property
    def higher_is_better(self) -> bool:
        """Fewer seconds are better."""
        return False

    @property
    def medals(self) -> None:
        """There is no leaderboard."""
        return

    @property
    def paper(self) -> None:
        """The paper has no such row."""
        return

    @property
    def model_file(self) -> str:
        """What a script leaves."""
        return "model.npz"


_KEYS = {
    "short": str,
    "summary": str,
    "metric_text": str,
    "target": float,
    "sigma": float,
    "baseline_s": float,
    "measured_on": str,
    "wall_limit_s": float,
    "memory_mb": int,
    "model_mb": int,
    "length": int,
    "vocabulary": int,
}
_PARTS = ("train", "val", "final")


def read_speedrun(folder: Path) -> Speedrun:
    """The record of a speedrun's folder.

    Raises:
        TaskError: no such file, or a key is missing, unknown or of another type.
    """
    path = folder / RECORD
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from error
    parts = table.pop("parts", {})
    if wrong := set(table) ^ set(_KEYS):
        raise TaskError(f"{path}: keys missing or unknown: {', '.join(sorted(wrong))}")
    for key, kind in _KEYS.items():
        value = table[key]
        if kind is float and type(value) is int:
            table[key] = float(value)
        elif type(value) is not kind:
            raise TaskError(f"{path}: {key} must be {kind.__name__}, not {value!r}")
    try:
        found = {
            name: TextPart(int(parts[name]["tokens"]), str(parts[name]["sha256"]))
            for name in _PARTS
        }
    except (KeyError, TypeError, ValueError) as error:
        raise TaskError(f"{path}: parts: {error}") from error
    return Speedrun(folder=folder, parts=MappingProxyType(found), **table)


@functools.cache
def speedruns() -> Mapping[str, Speedrun]:
    """All shipped speedruns by name."""
    found = [read_speedrun(path.parent) for path in sorted(HERE.glob(f"*/{RECORD}"))]
    return MappingProxyType({one.short: one for one in found})


def get_speedrun(name: str) -> Speedrun:
    """The speedrun of that name.

    Raises:
        TaskError: there is none.
    """
    known = speedruns()
    if name not in known:
        raise TaskError(
            f"there is no speedrun {name!r}: choose from {', '.join(known)}"
        )
    return known[name]
