"""The two prompts: write a script; improve this one.

    base     task, data as they are on disk, submission format, limits, answer format
    improve  the same, plus the previous script, its score and seconds or what failed

``style="full"`` fits a language model with a few thousand tokens of context,
``compact`` a small one. ``fit`` drops detail, least important first, until a token
limit is met.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import platform
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template
from typing import Any

from rpg_tasks.prompts.describe import Entry, describe
from rpg_tasks.registry import get_task
from rpg_tasks.task import Task, TaskError

STYLES = ("full", "compact")
TEMPLATES = Path(__file__).with_name("templates")

# What a script is likely to look for; only those that are installed are named.
_PACKAGES = [
    "numpy",
    "pandas",
    "scipy",
    "scikit-learn",
    "lightgbm",
    "xgboost",
    "catboost",
    "pillow",
    "opencv-python",
    "opencv-python-headless",
    "scikit-image",
    "torch",
    "torchvision",
    "tensorflow",
    "soundfile",
    "librosa",
    "num2words",
    "nltk",
    "statsmodels",
    "py7zr",
]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A script that was run, as the improve prompt shows it.

    Attributes:
        script: the source.
        seconds: measured run time.
        score: graded score in metric units; None when it failed.
        failure: what went wrong, in words; None when it was graded.
        output: what it printed, standard error included.
        note: what else the next answer should know, in words.
        rank: its place among the valid distinct scripts of its run, 1 for the best, and
            their number; None where it is not known. Other styles leave it out.
    """

    script: str
    seconds: float
    score: float | None = None
    failure: str | None = None
    output: str = ""
    note: str = ""
    rank: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if (self.score is None) == (self.failure is None):
            raise ValueError("an attempt has either a score or a failure")


@dataclasses.dataclass(frozen=True)
class StatedLimits:
    """What the sandbox allows a script; a prompt states only this.

    Attributes:
        wall_s: wall-clock limit, seconds.
        memory_mb: memory limit, MiB.
        cores: CPU cores.
        gpus: GPUs.
    """

    wall_s: float
    memory_mb: int
    cores: int = 1
    gpus: int = 0

    @classmethod
    def of(cls, task: Task) -> StatedLimits:
        """The limits in the task's record."""
        return cls(task.wall_limit_s, task.memory_mb, task.cores)


@dataclasses.dataclass(frozen=True)
class Detail:
    """How much a prompt shows: first rows of tables, width, characters of output."""

    heads: bool
    wide: int
    output_chars: int


# From rich to bare; ``fit`` goes down this list.
_DETAILS = {
    "full": (
        Detail(True, 12, 1500),
        Detail(True, 12, 600),
        Detail(False, 12, 600),
        Detail(False, 6, 300),
        Detail(False, 3, 0),
    ),
    "compact": (Detail(False, 5, 200), Detail(False, 3, 80), Detail(False, 2, 0)),
}


@functools.cache
def installed_packages(names: Sequence[str] = tuple(_PACKAGES)) -> tuple[str, ...]:
    """``name version`` of the packages that scripts can import in this environment."""
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(found)


@functools.cache
def _template(name: str) -> Template:
    return Template((TEMPLATES / f"{name}.txt").read_text("utf-8"))


def _listing(entries: Sequence[Entry], detail: Detail, style: str) -> str:
    lines = []
    for entry in entries:
        lines.append(f"- {entry.name}: {entry.what}" if entry.what else entry.name)
        if detail.heads and entry.head:
            lines += [f"    {line}" for line in entry.head.split("\n") if line]
    if style == "compact":
        lines = [line.removeprefix("- ") for line in lines]
    return "\n".join(lines)


def _rows(task: Task, entries: Sequence[Entry]) -> str:
    for entry in entries:
        if entry.name.split(" > ")[0] == task.sample_file:
            match = re.match(r"(?:about )?(\d+) rows?", entry.what)
            if match:
                return match[1]
    raise TaskError(
        f"{task.short}: no sample submission {task.sample_file} in the data"
    )


def tail(text: str, limit: int) -> str:
    """The end of a text, whole lines where possible, at most ``limit`` characters."""
    text = text.strip()
    if len(text) <= limit:
        return text
    if limit <= 4:
        return ""
    cut = text[-(limit - 4) :]
    line = cut.find("\n")
    return "...\n" + (cut[line + 1 :] if 0 <= line < len(cut) - 1 else cut)


def fence(text: str) -> str:
    """A run of backticks longer than any in the text, and at least three."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)


def _count(number: int, noun: str, before: str = "") -> str:
    if number == 0:
        return f"no {before}{noun}"
    return f"{number} {before}{noun}{'' if number == 1 else 's'}"


def _result(task: Task, attempt: Attempt) -> str:
    ran = f"{attempt.seconds:.1f} s"
    if attempt.score is not None:
        return f"score {attempt.score:.5g} in {ran}."
    reason = " ".join((attempt.failure or "").split())
    return f"it failed after {ran}: {reason.rstrip('.')}."


def _ask(task: Task, attempt: Attempt | None) -> str:
    if attempt is None:
        return "Write the script."
    if attempt.score is None:
        return "Write a script that runs, with a good score in little time."
    word = "higher" if task.higher_is_better else "lower"
    return f"Write a better script: a {word} score in less time."


_HOW = {
    "full": "First a plan of 3 to 5 sentences, then exactly one fenced block "
    "(```python) with the whole script.",
    "compact": "One ```python block.",
}


def _previous(attempt: Attempt, task: Task, detail: Detail, style: str) -> str:
    script = attempt.script.strip("\n")
    output = tail(attempt.output, detail.output_chars)
    shown = ""
    if output:
        marks = fence(output)
        shown = f"\nIts output:\n{marks}\n{output}\n{marks}"
    text = _template("improve" if style == "full" else "improve_compact").substitute(
        result=_result(task, attempt), script=script, output=shown
    )
    if attempt.note:
        text += f"{attempt.note}\n"
    marks = fence(script)
    return text if marks == "```" else _refenced(text, script, marks)


def _refenced(text: str, script: str, marks: str) -> str:
    return text.replace(
        f"```python\n{script}\n```", f"{marks}python\n{script}\n{marks}"
    )


def prompt(
    task: Task | str,
    public: Path | str,
    attempt: Attempt | None = None,
    *,
    style: str = "full",
    limits: StatedLimits | None = None,
    detail: Detail | None = None,
    how: str = "",
) -> str:
    """The text of one prompt.

    Args:
        task: task or its name.
        public: folder that the script will see as ``./input``.
        attempt: the script to improve; None for the base prompt.
        style: ``full`` or ``compact``.
        limits: the sandbox's limits; None for those in the task's record.
        detail: how much to show; None for the style's richest.
        how: how to answer; empty asks for a whole script.

    Raises:
        TaskError: the data cannot be read, or hold no sample submission.
        ValueError: unknown style.
    """
    task = get_task(task)
    if style not in STYLES:
        raise ValueError(f"style must be one of {STYLES}, got {style!r}")
    detail = detail or _DETAILS[style][0]
    entries = describe(public, detail.wide)
    limits = limits or StatedLimits.of(task)
    previous = "" if attempt is None else _previous(attempt, task, detail, style)
    name = "base" if style == "full" else "base_compact"
    return (
        _template(name)
        .substitute(
            task=task.short,
            summary=task.summary,
            metric=task.metric_text,
            better="higher" if task.higher_is_better else "lower",
            notes=f"\n{task.notes}" if task.notes else "",
            files=_listing(entries, detail, style),
            submission=task.submission_text,
            sample=task.sample_file,
            rows=_rows(task, entries),
            seconds=f"{limits.wall_s:g}",
            cores=_count(limits.cores, "core", "CPU "),
            gpus=_count(limits.gpus, "GPU"),
            memory=f"{limits.memory_mb / 1024:.3g}",
            python=".".join(platform.python_version_tuple()[:2]),
            packages=", ".join(installed_packages()) or "the standard library only",
            previous=previous,
            ask=_ask(task, attempt),
            how=how or _HOW[style],
        )
        .strip()
    )


def fit(
    count_tokens: Callable[[str], int],
    max_tokens: int,
    task: Task | str,
    public: Path | str,
    attempt: Attempt | None = None,
    *,
    style: str = "full",
    limits: StatedLimits | None = None,
    how: str = "",
) -> str:
    """The richest prompt of at most ``max_tokens`` tokens.

    Detail goes first (output, first rows, column lists); the script is never cut,
    because half a script cannot be improved.

    Args:
        count_tokens: text -> number of tokens, chat template included.
        max_tokens: the limit.
        task: see ``prompt``, also for the rest.
        public: see ``prompt``.
        attempt: see ``prompt``.
        style: see ``prompt``.
        limits: see ``prompt``.
        how: see ``prompt``.

    Raises:
        TaskError: even the barest prompt is too long.
    """
    counts = []
    for detail in _DETAILS[style]:
        text = prompt(
            task, public, attempt, style=style, limits=limits, detail=detail, how=how
        )
        counts.append(count_tokens(text))
        if counts[-1] <= max_tokens:
            return text
    kind = "base" if attempt is None else "improve"
    raise TaskError(
        f"{get_task(task).short}: the {kind} prompt "
        f"has {counts[-1]} tokens at least, the limit is {max_tokens}"
    )


def messages(text: str) -> list[dict[str, str]]:
    """The prompt as the single user turn of a chat."""
    return [{"role": "user", "content": text}]


def render(text: str, tokenizer: Any | None = None, *, thinking: bool = False) -> str:
    """The prompt through the model's chat template; as it is without a tokenizer.

    Args:
        text: a prompt.
        tokenizer: anything with transformers' ``apply_chat_template``.
        thinking: passed on as ``enable_thinking``; templates without it ignore it.
    """
    if tokenizer is None:
        return text
    rendered: str = tokenizer.apply_chat_template(
        messages(text),
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=thinking,
    )
    return rendered
