"""Does a task's data hold together? Each check returns what is wrong, in words.

The tests run these checks on every task here; ``rpg-tasks check FOLDER`` runs them on a
new one. ``leaks`` has those that look for labels.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from rpg_tasks import archives
from rpg_tasks.building import carve, generate
from rpg_tasks.grading import Grader
from rpg_tasks.prepare import TaskData


@dataclasses.dataclass(frozen=True)
class View:
    """One split of a prepared task: what scripts see, and the answers.

    Attributes:
        name: ``validation`` or ``test``.
        public: folder that a script sees.
        answers: the private answers.
        sample: the sample submission, maybe a zip.
    """

    name: str
    public: Path
    answers: Path
    sample: Path


def views(data: TaskData) -> tuple[View, View]:
    """The validation view and the test view of a prepared task."""
    return (
        View("validation", data.public, data.answers, data.sample),
        View("test", data.test_public, data.test_answers, data.test_sample),
    )


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


def differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Names that are in one alone, or differ."""
    return sorted(k for k in before | after if before.get(k) != after.get(k))


def read_text(source: Path | bytes) -> pd.DataFrame:
    """A csv (or the one in a zip) as text, no value interpreted."""
    data = archives.read_file(source) if isinstance(source, Path) else source
    return pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)


def perfect_submission(view: View) -> bytes:
    """The answers in the columns and row order of the sample submission.

    Raises:
        KeyError: the answers lack a column of the sample submission.
    """
    sample, answers = read_text(view.sample), read_text(view.answers)
    text: str = answers[list(sample.columns)].to_csv(index=False)
    return text.encode()


def wrong_files(data: TaskData) -> list[str]:
    """Files that the record names are there, and no others are."""
    task, wrong = data.task, []
    for view in views(data):
        for pattern in task.files:
            if not any(view.public.glob(pattern)):
                wrong.append(f"{view.name}: there is no {pattern}")
        if not view.answers.is_file():
            wrong.append(f"{view.name}: there are no answers {task.answers}")
        elif view.public in view.answers.parents:
            wrong.append(f"{view.name}: the answers lie among the public files")
        else:
            missing = {task.id_column, *task.targets} - set(read_text(view.answers))
            wrong += [f"{view.name}: the answers lack {c!r}" for c in sorted(missing)]
        patterns = (*task.files, *task.optional_files)
        known = {p for f in patterns for p in view.public.glob(f)}
        known |= {f for p in known if p.is_dir() for f in p.rglob("*")}
        stray = {p for p in view.public.rglob("*") if p.is_file()} - known
        if stray:
            names = [p.relative_to(view.public).as_posix() for p in sorted(stray)[:3]]
            wrong.append(f"{view.name}: files that task.toml does not name: {names}")
    return wrong


def wrong_ids(data: TaskData) -> list[str]:
    """Sample, test table and answers name the same rows in one order, each once."""
    column, wrong = data.task.id_column, []
    for view in views(data):
        ids = list(read_text(view.answers)[column])
        if len(set(ids)) != len(ids):
            wrong.append(f"{view.name}: the answers name a row twice")
        tables = [f for f in data.task.files if f.startswith("test.csv")]
        for name in (data.task.sample_file, *tables):
            if list(read_text(view.public / name)[column]) != ids:
                wrong.append(f"{view.name}: {name} has other ids than the answers")
    return wrong


def wrong_gains(data: TaskData) -> list[str]:
    """The sample submission gains 0, the answers themselves gain 1."""
    wrong = []
    for view in views(data):
        grader = Grader(data.task, view.answers, view.sample)
        try:
            perfect = perfect_submission(view)
        except KeyError as error:
            wrong.append(f"{view.name}: answers and sample differ: {error}")
            continue
        for what, blob, gain in (
            ("the sample submission", archives.read_file(view.sample), 0.0),
            ("the answers", perfect, 1.0),
        ):
            verdict = grader.grade_bytes(blob)
            if not verdict.valid:
                wrong.append(f"{view.name}: {what}: invalid, {verdict.reason}")
            elif verdict.gain is None or abs(verdict.gain - gain) > 1e-9:
                wrong.append(
                    f"{view.name}: {what}: gain {verdict.gain}, should be {gain:g} "
                    f"(score {verdict.score}, sample {verdict.baseline})"
                )
    return wrong


def unstable_data(data: TaskData, folder: Path) -> list[str]:
    """Equal seeds give equal bytes, other seeds other answers.

    Args:
        data: synthetic data of the size "small" and some seed.
        folder: an empty folder to work in.
    """
    task, made = data.task, []
    for name, seed in (("same", data.seed), ("other", data.seed + 1)):
        root = folder / name
        generate(task, "small", seed, root / "public", root / "private")
        made.append(digests(root))
    changed = differing(digests(data.test_public.parent), made[0])
    wrong = [f"made twice from one seed, it differs: {changed[:3]}"] if changed else []
    answers = f"private/{task.answers}"
    if made[0].get(answers) == made[1].get(answers):
        wrong.append("another seed gives the same answers")
    return wrong


def unstable_view(data: TaskData, folder: Path) -> list[str]:
    """Carving again with the same seed gives the same bytes."""
    carve(data.task, data.seed, data.test_public, folder / "public", folder / "private")
    changed = differing(digests(data.public.parent), digests(folder))
    return [f"carved twice with one seed, it differs: {changed[:3]}"] if changed else []
