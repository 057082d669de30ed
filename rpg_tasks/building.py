"""Make a task's files: synthetic data, the validation view, a view without telltales.

`carve` reads a folder in the layout that `mlebench prepare` leaves (synthetic data has
the same one) and writes a second folder of that layout: the training files lack the
validation rows, the test files hold them without labels, the sample submission names
them. A script written against one runs unchanged against the other. Only files that a
task's carver names are carried over, so that no by-file can leak a label.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from rpg_tasks.kit import Draw, TableLayout, carve_table, make_rng, split_rng
from rpg_tasks.kit.files import link_or_copy
from rpg_tasks.registry import get_task
from rpg_tasks.task import Size, Task, TaskError
from rpg_tasks.taskcode import load_code


def generate(
    task: Task | str, size: Size, seed: int, public: Path, private: Path
) -> None:
    """Write the synthetic data of one task.

    Args:
        task: task or its name.
        size: "small" or "medium".
        seed: non-negative integer; equal seeds give equal bytes.
        public: folder for what the competition publishes.
        private: folder for the answers.
    """
    task = get_task(task)
    synthetic = load_code(task).synthetic
    for folder in (public, private):
        folder.mkdir(parents=True, exist_ok=True)
    rng = make_rng(task.short, seed)
    synthetic.generate(rng, *synthetic.rows(size), public, private)


def new_draw(task: Task | str, seed: int) -> Draw:
    """The draw of a task's validation rows: depends on task and seed only."""
    task = get_task(task)
    return Draw(load_code(task).split, split_rng(task.short, seed))


def carve(
    task: Task | str,
    seed: int,
    src: Path,
    public: Path,
    private: Path,
    draw: Draw | None = None,
) -> None:
    """Write the validation view of one task.

    Args:
        task: task or its name.
        seed: draws the rows, with the task's name.
        src: the task's whole public folder.
        public: folder to write what a script may see.
        private: folder, outside public, for the answers.
        draw: in place of `new_draw(task, seed)`.

    Raises:
        FileNotFoundError: `src` lacks a file that the task must have.
        TaskError: a file is damaged, or lacks a column or an archive member.
    """
    task = get_task(task)
    carver = load_code(task).carve
    draw = draw or new_draw(task, seed)
    try:
        if isinstance(carver, TableLayout):
            carve_table(carver, draw, src, public, private)
        else:
            carver(draw, src, public, private)
    except TaskError:
        raise
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        # Also undecodable text, broken JSON and csv, an archive without a member.
        raise TaskError(
            f"{task.short}: the files below {src} are not as task.toml and data.py "
            f"(SPLIT, CARVE) say ({type(error).__name__}: {error}): compare their "
            "columns; prepared data of MLE-Bench: prepare them again"
        ) from error
    if (src / "description.md").exists():
        link_or_copy(src / "description.md", public / "description.md")


def has_telltale(task: Task | str, public: Path) -> bool:
    """Whether a prepared public folder holds files that tell the test labels."""
    names = load_code(get_task(task)).telltale
    return any((public / name).exists() for name in names)


def without_telltale(task: Task | str, src: Path, public: Path) -> None:
    """Link or copy a public folder, less the files that tell the test labels."""
    names = load_code(get_task(task)).telltale
    for path in sorted(p for p in src.rglob("*") if p.is_file()):
        name = path.relative_to(src)
        if name.parts[0] not in names:
            link_or_copy(path, public / name)
