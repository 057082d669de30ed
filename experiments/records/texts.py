"""Scripts and answers of a run, one file per content."""

import hashlib
import os
from pathlib import Path

from experiments.config.errors import LedgerError


def write_through(path: Path, data: bytes) -> None:
    """Write a whole file under another name, sync it, and rename it."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def digest(text: str) -> str:
    """Hex SHA-256 of a text; what UTF-8 cannot hold is replaced."""
    return hashlib.sha256(encoded(text)).hexdigest()


def encoded(text: str) -> bytes:
    """UTF-8, lone surrogates replaced."""
    return text.encode("utf-8", errors="replace")


class Texts:
    """Scripts and answers, one file per content, named by its digest."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, sha256: str, suffix: str = ".py") -> Path:
        """Where a text of that digest lies."""
        return self.folder / f"{sha256}{suffix}"

    def save(self, text: str, suffix: str = ".py") -> str:
        """Write a text unless it is there; its digest.

        Raises:
            LedgerError: the disk refuses.
        """
        name = digest(text)
        path = self.path(name, suffix)
        if not path.exists():
            try:
                self.folder.mkdir(exist_ok=True)
                write_through(path, encoded(text))
            except OSError as error:
                raise LedgerError(
                    f"cannot write {path} ({error.strerror or error}): nothing "
                    "recorded so far is lost; free some space or fix the permissions, "
                    "then --resume"
                ) from error
        return name

    def load(self, sha256: str, suffix: str = ".py") -> str:
        """The text of that digest.

        Raises:
            LedgerError: it is gone.
        """
        try:
            return self.path(sha256, suffix).read_text("utf-8")
        except OSError as error:
            raise LedgerError(
                f"{self.path(sha256, suffix)} is gone ({error.strerror or error}): "
                "restore the run's folder from a copy"
            ) from error
