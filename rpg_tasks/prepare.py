"""Prepare a task's files: what scripts see, what graders see, built once into a cache.

    <cache>/<source>/<task>-...-seed<seed>-<version>/
        prepared/public    whole public data: training rows, real test rows
        prepared/private   the test answers, read for the report only
        validation/public  what a script sees while it is rewarded
        validation/private the validation answers
        test/public        real data whose public folder tells test labels, less those
        manifest.json      every file with its size, written last

`prepared` is there for synthetic data only; real data stay where `mlebench prepare` put
them. A folder appears under its final name by one rename, so it is whole or absent; a
lock per folder lets processes build side by side; what a killed build left is swept by
the next one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rpg_tasks.digests import data_version
from rpg_tasks.mlebench import as_source, find_prepared
from rpg_tasks.registry import get_task
from rpg_tasks.task import SIZES, Size, Source, Task, TaskError

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class TaskData:
    """Where the files of one prepared task are.

    Attributes:
        task: the task.
        source: "synthetic" or "mlebench".
        size: "small" or "medium"; "full" for real data.
        seed: of the generator and of the validation split.
        public: inputs of a script that is rewarded: training rows less the validation
            rows, the validation rows as its test set, their sample submission.
        answers: the validation answers, outside `public`.
        test_public: the competition's own training and test rows.
        test_answers: answers to those test rows; for the report only.
    """

    task: Task
    source: Source
    size: str
    seed: int
    public: Path
    answers: Path
    test_public: Path
    test_answers: Path

    @property
    def sample(self) -> Path:
        """The sample submission of the validation split (maybe a zip)."""
        return self.public / self.task.sample_file

    @property
    def test_sample(self) -> Path:
        """The sample submission of the test split (maybe a zip)."""
        return self.test_public / self.task.sample_file


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/rpg_jax/tasks`, or below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "rpg_jax" / "tasks"


def prepare_task(
    task: Task | str,
    *,
    data: Source = "synthetic",
    size: Size = "small",
    seed: int = 0,
    cache_dir: Path | str | None = None,
    data_dir: Path | str | None = None,
) -> TaskData:
    """Find the files of a task in the cache; build them first where they are missing.

    Args:
        task: a task or its name.
        data: "synthetic" generates small data from the seed; "mlebench" reads what
            `mlebench prepare` left.
        size: of synthetic data.
        seed: non-negative; draws synthetic data and the validation rows.
        cache_dir: where built data go; None: `default_cache_dir()`.
        data_dir: MLE-Bench's data folder; None: its default.

    Returns:
        The paths. The call costs one `stat` per file when the data are there.

    Raises:
        TaskError: unknown task or option, real data missing or half-prepared, cache not
            writable, disk full. The message is one line that says what to do.
    """
    task = get_task(task)
    data = as_source(data)
    if size not in SIZES:
        raise TaskError(f"size must be 'small' or 'medium', not {size!r}")
    if seed < 0:
        raise TaskError(f"seed must not be negative, got {seed}")
    cache = Path(cache_dir).expanduser() if cache_dir else default_cache_dir()
    if data == "synthetic":
        place = cache / data / f"{task.short}-{size}-seed{seed}-{data_version(task)}"
        build = functools.partial(_build_synthetic, task, size, seed)
        prepared = place / "prepared"
    else:
        prepared = find_prepared(task, data_dir).public.parent
        mark = _fingerprint(task, prepared)
        place = cache / data / f"{task.short}-{mark}-seed{seed}-{data_version(task)}"
        build = functools.partial(_build_validation, task, seed, prepared / "public")
    ensure_built(place, build)
    cleaned = place / "test" / "public"
    return TaskData(
        task=task,
        source=data,
        size=size if data == "synthetic" else "full",
        seed=seed,
        public=place / "validation" / "public",
        answers=place / "validation" / "private" / task.answers,
        test_public=cleaned if cleaned.is_dir() else prepared / "public",
        test_answers=prepared / "private" / task.answers,
    )


def _fingerprint(task: Task, prepared: Path) -> str:
    """Short mark of where the real data are and of the state of their plain files."""
    digest = hashlib.sha256(str(prepared.resolve()).encode())
    for name in task.files:
        path = prepared / "public" / name
        if path.is_file():
            stat = path.stat()
            digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:8]


def _build_synthetic(task: Task, size: Size, seed: int, root: Path) -> None:
    from rpg_tasks.building import generate

    prepared = root / "prepared"
    generate(task, size, seed, prepared / "public", prepared / "private")
    _build_validation(task, seed, prepared / "public", root)


def _build_validation(task: Task, seed: int, public: Path, root: Path) -> None:
    from rpg_tasks.building import carve, has_telltale, without_telltale

    view = root / "validation"
    view.mkdir(parents=True)
    carve(task, seed, public, view / "public", view / "private")
    if has_telltale(task, public):
        without_telltale(task, public, root / "test" / "public")


def is_whole(place: Path) -> bool:
    """Whether a built folder has its manifest and every file at its recorded size."""
    try:
        files = json.loads((place / MANIFEST).read_text("utf-8"))["files"]
        return all((place / f).stat().st_size == size for f, size in files.items())
    except (OSError, ValueError, KeyError):
        return False


def ensure_built(place: Path, build: Callable[[Path], None]) -> None:
    """Make `place` exist and be whole: build aside, then rename.

    Args:
        place: the final folder.
        build: fills the folder that it is given.

    Raises:
        TaskError: the cache cannot be written, or the disk is full.
    """
    if is_whole(place):
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _locked(place.parent / f".{place.name}.lock"):
            if is_whole(place):  # another process built it while this one waited
                return
            for left in place.parent.glob(f".{place.name}.*.tmp"):
                shutil.rmtree(left, ignore_errors=True)
            aside = place.parent / f".{place.name}.{os.getpid()}.tmp"
            aside.mkdir()
            try:
                build(aside)
                _write_manifest(aside)
                if place.exists():
                    broken = place.parent / f".{place.name}.{os.getpid()}.old.tmp"
                    place.rename(broken)
                    shutil.rmtree(broken, ignore_errors=True)
                aside.rename(place)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise TaskError(_explain(error, place.parent)) from error


def _write_manifest(root: Path) -> None:
    paths = sorted(p for p in root.rglob("*") if p.is_file())
    files = {p.relative_to(root).as_posix(): p.stat().st_size for p in paths}
    with (root / MANIFEST).open("w", encoding="utf-8") as handle:
        json.dump({"files": files}, handle)
        handle.flush()
        os.fsync(handle.fileno())


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the system releases it when the process dies."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _explain(error: OSError, cache: Path) -> str:
    hint = "choose another folder with --cache-dir"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"no room left in the cache {cache}: free some space or {hint}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
        return f"cannot write to the cache {cache} ({error.strerror}): {hint}"
    if error.errno == errno.ENOENT and error.filename:
        return f"a file is missing: {error.filename}; prepare the task's data again"
    return f"cannot build data in the cache {cache}: {error}"
