"""What can be done with tasks from a command line: list, show, prepare, prompt, grade.

``rpg-tasks`` and ``python -m experiments.mle_bench`` share these functions. Each prints
and returns an exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpg_tasks import mlebench
from rpg_tasks.prepare import TaskData, prepare_task
from rpg_tasks.registry import get_task, load_tasks
from rpg_tasks.task import Task


def list_tasks(data_dir: Path | str | None) -> int:
    """Print every task with its metric, direction and whether real data are there."""
    rows = [("task", "better", "metric", "real data", "paper: rpg", "vanilla")]
    for task in load_tasks().values():
        found = mlebench.inspect_prepared(task, data_dir)
        paper = task.paper
        rows.append(
            (
                task.short,
                _better(task),
                task.metric_text,
                found.state,
                "-" if paper is None else f"{paper.rpg:g}",
                "-" if paper is None else f"{paper.vanilla:g}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True))
        print(line.rstrip())
    base = Path(data_dir).expanduser() if data_dir else mlebench.default_data_dir()
    print(
        f"\nReal data are looked for in {base} (--data-dir); without them a task runs "
        "on synthetic data of the same form."
    )
    return 0


def _better(task: Task) -> str:
    return "higher" if task.higher_is_better else "lower"


def show_task(task: Task | str, data_dir: Path | str | None) -> int:
    """Print a task's record, where its files are, what its data are, its traps."""
    from rpg_tasks.taskcode import load_code

    task = get_task(task)
    found = mlebench.inspect_prepared(task, data_dir)
    synthetic = load_code(task).synthetic
    rows = [
        ("task", f"{task.short}, {task.modality}"),
        ("folder", str(task.folder)),
        ("MLE-Bench", task.competition_id if task.from_mle_bench else "no"),
        ("predict", task.summary),
        ("score", f"{task.metric_text}, {_better(task)} is better"),
        ("submission", task.submission_text),
        ("grading", ", ".join(f"{k} {v}" for k, v in vars(task.grading).items())),
        ("files", ", ".join(task.files)),
        ("optional", ", ".join(task.optional_files) or "none"),
        (
            "limits",
            f"{task.wall_limit_s:g} s, {task.memory_mb} MiB, {task.cores} core",
        ),
        ("notes", task.notes or "none"),
    ]
    if task.medals is not None:
        limits = vars(task.medals).items()
        rows.append(("medals", ", ".join(f"{name} {value}" for name, value in limits)))
    if task.paper is not None:
        rows.append(("paper", f"rpg {task.paper.rpg}, vanilla {task.paper.vanilla}"))
    rows += [
        ("small", synthetic.describe("small")),
        ("medium", synthetic.describe("medium")),
        ("real data", f"{found.state}, {found.root}"),
        *(("trap", text) for text in task.traps),
    ]
    for name, text in rows:
        print(f"{name:<11} {text}")
    return 0


def data_line(data: TaskData) -> str:
    """One line that says which data a ``TaskData`` is."""
    if data.source == "synthetic":
        return f"synthetic data, size {data.size}, seed {data.seed}"
    return f"MLE-Bench data in {data.test_public.parent}, split seed {data.seed}"


def prepare_data(task: Task | str, *, prepare: Mapping[str, Any]) -> int:
    """Build a task's data, or find them in the cache, and print where they are.

    Args:
        task: task or its name.
        prepare: options of ``prepare_task``; ``data`` may be None.

    Raises:
        TaskError: the data cannot be made or read.
    """
    data = _prepared(get_task(task), prepare)
    print(f"{data_line(data)}")
    for name, path in (
        ("public", data.public),
        ("answers", data.answers),
        ("sample", data.sample),
        ("test_public", data.test_public),
        ("test_answers", data.test_answers),
    ):
        print(f"{name:<13} {path}")
    return 0


def grade_file(
    task: Task | str,
    submission: Path | str,
    *,
    answers: Path | str | None,
    sample: Path | str | None,
    split: str,
    prepare: Mapping[str, Any],
) -> int:
    """Print the verdict on one submission.

    Args:
        task: task or its name.
        submission: the file to grade.
        answers: answers file; None for those of the prepared data.
        sample: sample submission of those answers; None to find or rebuild it.
        split: ``validation`` or ``test`` of the prepared data.
        prepare: options of ``prepare_task``; ``data`` may be None.

    Returns:
        0 for a valid submission, 1 for an invalid one.

    Raises:
        TaskError: nothing could be graded.
    """
    from rpg_tasks.grading import Grader

    task = get_task(task)
    source = f"{answers}"
    synthetic = False
    if answers is None:
        data = _prepared(task, prepare)
        synthetic = data.source == "synthetic"
        source = f"{split} split of {data_line(data)}"
        if split == "validation":
            answers, sample = data.answers, sample or data.sample
        else:
            answers, sample = data.test_answers, sample or data.test_sample
    grade = Grader(task, answers, sample).grade(submission)
    print(f"task     {task.short}: {task.metric_text}, {_better(task)} is better")
    print(f"answers  {source}")
    if not grade.valid:
        print(f"invalid  {grade.reason}")
        return 1
    print(f"score    {grade.score:.10g}")
    if grade.gain is None:
        print("gain     not known without the sample submission (--sample=FILE)")
    else:
        print(f"gain     {grade.gain:.6g} over the sample's {grade.baseline:.6g}")
    if task.medals is None:
        return 0
    median = "above" if grade.above_median else "below"
    print(f"medal    {grade.medal or 'none'}, {median} the leaderboard's median")
    if synthetic:
        print("note     medals are the real competition's; these data are synthetic")
    return 0


def _prepared(task: Task, options: Mapping[str, Any]) -> TaskData:
    source = mlebench.choose_source(task, options["data"], options["data_dir"])
    return prepare_task(task, **{**options, "data": source})


def _copy_script(task: Task) -> str:
    """The least that a script can do: hand in the sample submission."""
    path = f"input/{task.sample_file}"
    if not path.endswith(".zip"):
        return f'import shutil\n\nshutil.copy("{path}", "submission.csv")'
    return (
        "import zipfile\n\n"
        f'with zipfile.ZipFile("{path}") as archive:\n'
        "    data = archive.read(archive.namelist()[0])\n"
        'with open("submission.csv", "wb") as file:\n'
        "    file.write(data)"
    )


def show_prompt(
    task: Task | str,
    *,
    style: str,
    tokenizer: str | None,
    prepare: Mapping[str, Any],
) -> int:
    """Print the base prompt, then the improve prompt with an example attempt.

    The example is the script that copies the sample submission, with its true score.

    Args:
        task: task or its name.
        style: ``full`` or ``compact``.
        tokenizer: folder or hub id whose chat template to use; None for plain text.
        prepare: options of ``prepare_task``; ``data`` may be None.

    Raises:
        TaskError: the data or the tokenizer cannot be read.
    """
    from rpg_tasks import prompts
    from rpg_tasks.grading import Grader
    from rpg_tasks.prompts.tokenizer import load_tokenizer

    task = get_task(task)
    data = _prepared(task, prepare)
    chat = load_tokenizer(tokenizer) if tokenizer else None
    baseline = Grader(task, data.answers, data.sample).baseline
    script = _copy_script(task)
    failure = "no score" if baseline is None else None
    example = prompts.Attempt(script, seconds=0.1, score=baseline, failure=failure)
    for title, attempt in (("base", None), ("improve (example)", example)):
        text = prompts.prompt(task, data.public, attempt, style=style)
        print(f"--- {title} prompt, {data_line(data)} ---", file=sys.stderr)
        print(prompts.render(text, chat))
        print()
    return 0
