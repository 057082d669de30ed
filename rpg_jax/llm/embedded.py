"""The policy inside this package: where it lies, and whether its files are whole."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from rpg_jax.llm.errors import CheckpointError

FOLDER = Path(__file__).parent / "tiny"
SUMS = "SHA256SUMS"
REQUIRED = ("config.json", "model.safetensors", "tokenizer.json")
_ADVICE = "install rpg-jax again, or restore the files of rpg_jax/llm/tiny from git"


def embedded_folder(folder: Path | None = None) -> Path:
    """The embedded policy's folder, its files compared with their SHA-256.

    Args:
        folder: another folder with SHA256SUMS; by default this package's.

    Raises:
        CheckpointError: no such folder, or a file is missing or not the one that was
            shipped.
    """
    folder = FOLDER if folder is None else folder
    if not folder.is_dir():
        raise CheckpointError(
            "the embedded policy is not in this installation (rpg_jax/llm/tiny); make "
            "it from a checkout with python -m experiments.pretrain"
        )
    check_sums(folder)
    return folder


def check_sums(folder: Path) -> None:
    """Compare a folder with its SHA256SUMS.

    Raises:
        CheckpointError: the list or a file is missing, or a file differs.
    """
    try:
        lines = (folder / SUMS).read_text("utf-8").splitlines()
        pairs = (line.split(maxsplit=1) for line in lines)
        wanted = {name: digest for digest, name in pairs}
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{folder.name}/{SUMS} cannot be read ({error}): {_ADVICE}"
        ) from None
    lost = [name for name in REQUIRED if name not in wanted]
    if lost:
        raise CheckpointError(
            f"{folder.name}/{SUMS} does not list {', '.join(lost)}: {_ADVICE}"
        )
    for name, digest in wanted.items():
        path = folder / name
        try:
            stat = path.stat()
            found = _digest(path, stat.st_size, stat.st_mtime_ns)
        except OSError as error:
            raise CheckpointError(
                f"embedded policy: {name} cannot be read "
                f"({error.strerror or error}): {_ADVICE}"
            ) from None
        if found != digest:
            raise CheckpointError(
                f"embedded policy: {name} is damaged (SHA-256 {found[:12]}..., should "
                f"be {digest[:12]}...): {_ADVICE}"
            )


@functools.lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> str:
    """Read once for each state of the file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
