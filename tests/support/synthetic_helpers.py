"""What the tests of the synthetic tasks share: a cache, file listings, submissions."""

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from repo_paths import TESTS

from rpg_tasks import archives
from rpg_tasks.prepare import TaskData
from rpg_tasks.registry import load_tasks

SHORTS = tuple(load_tasks())
SCRIPTS = TESTS / "reference_scripts"


def shared_cache(tmp_path_factory) -> Path:
    """One cache for all tests of a run, also over several worker processes."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tasks"


def own_core() -> int:
    """A core that no other worker process of this test run takes, as far as they go."""
    cores = sorted(os.sched_getaffinity(0))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return cores[-1 - int(worker) % len(cores)]


def walk(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder, and every member of its zips, as (name, bytes)."""
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        name = path.relative_to(root).as_posix()
        data = path.read_bytes()
        yield name, data
        if name.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for member in archive.namelist():
                    yield f"{name}!{member}", archive.read(member)


def digests(root: Path) -> dict[str, str]:
    """Name -> digest of every file and archive member below a folder."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in walk(root)}


def read_text(source: Path | bytes) -> pd.DataFrame:
    """A csv (or the one in a zip) as text, no value interpreted."""
    data = archives.read_file(source) if isinstance(source, Path) else source
    return pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)


def perfect_submission(data: TaskData, part: str, folder: Path) -> Path:
    """The answers in the columns and row order of the sample submission."""
    sample_path = data.sample if part == "validation" else data.test_sample
    answers_path = data.answers if part == "validation" else data.test_answers
    sample, answers = read_text(sample_path), read_text(answers_path)
    out = folder / "submission.csv"
    answers[list(sample.columns)].to_csv(out, index=False)
    return out
