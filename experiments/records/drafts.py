"""Answers of a step that no checkpoint covers yet."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.config.errors import LedgerError
from experiments.records.texts import write_through


class Generation(NamedTuple):
    """Answers to some of a step's prompts.

    Attributes:
        rows: chains that they belong to.
        texts: one answer per row.
        seconds: seconds of generation that each answer is charged for, [len(rows)].
        payload: arrays that ``learn`` needs again (tokens, log-probabilities), each
            with len(rows) leading entries or whatever the policy likes.
    """

    rows: tuple[int, ...]
    texts: tuple[str, ...]
    seconds: np.ndarray
    payload: Mapping[str, np.ndarray]


class Drafts:
    """Answers of steps that no checkpoint covers yet, one file per group.

    They make a resumed step exact: an answer is not written twice, so neither its text
    nor the seconds it took can differ.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def _name(self, step: int, first_row: int) -> Path:
        return self.folder / f"step-{step:08d}-{first_row:05d}.npz"

    def save(self, step: int, generation: Generation) -> None:
        """Write one group; it exists wholly or not at all.

        Raises:
            LedgerError: the disk refuses.
        """
        head = {
            "rows": list(map(int, generation.rows)),
            "texts": list(generation.texts),
        }
        arrays: dict[str, Any] = {
            "head": np.frombuffer(json.dumps(head).encode(), np.uint8),
            "seconds": np.asarray(generation.seconds, np.float64),
        }
        arrays |= {f"payload.{k}": np.asarray(v) for k, v in generation.payload.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        path = self._name(step, generation.rows[0])
        try:
            self.folder.mkdir(exist_ok=True)
            write_through(path, buffer.getvalue())
        except OSError as error:
            raise LedgerError(
                f"cannot write {path} ({error.strerror or error}): nothing recorded so "
                "far is lost; free some space or fix the permissions, then --resume"
            ) from error

    def load(self, step: int) -> list[Generation]:
        """The groups kept of a step; one that cannot be read is written again."""
        found = []
        for path in sorted(self.folder.glob(f"step-{step:08d}-*.npz")):
            try:
                with np.load(path, allow_pickle=False) as file:
                    head = json.loads(file["head"].tobytes())
                    payload = {
                        name.removeprefix("payload."): file[name]
                        for name in file.files
                        if name.startswith("payload.")
                    }
                    found.append(
                        Generation(
                            rows=tuple(head["rows"]),
                            texts=tuple(head["texts"]),
                            seconds=file["seconds"],
                            payload=payload,
                        )
                    )
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
                continue
        return found

    def discard(self, before: int) -> None:
        """Remove the groups of steps that a checkpoint covers."""
        for path in self.folder.glob("step-*.npz"):
            if int(path.name.split("-")[1]) < before:
                path.unlink(missing_ok=True)
