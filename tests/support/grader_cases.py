"""Committed grader cases: fabricated submissions with MLE-Bench's own verdicts.

``tests/data/grader_cases/<task>.json`` holds the files as lists of line numbers into a
table of distinct lines, so that a changed row costs one line.
"""

import functools
import json
from dataclasses import dataclass

from repo_paths import DATA

CASES = DATA / "grader_cases"
TASKS = sorted(path.stem for path in CASES.glob("*.json"))


@dataclass(frozen=True)
class Case:
    task: str
    submission: str
    answers: str
    status: str
    score: float | None = None
    version_dependent: bool = False

    @property
    def id(self) -> str:
        return f"{self.task}/{self.submission}"


@functools.cache
def _load(task: str) -> dict:
    return json.loads((CASES / f"{task}.json").read_text("utf-8"))


@functools.cache
def content(task: str, name: str) -> bytes:
    data = _load(task)
    text = "\n".join(data["lines"][number] for number in data["files"][name])
    return text.encode("utf-8", "surrogateescape")


def cases() -> list[Case]:
    return [Case(task, **case) for task in TASKS for case in _load(task)["cases"]]


def good_case(task: str) -> Case:
    """A case with the regular answers and a score between the sample's and perfect."""
    options = [c for c in cases() if c.task == task and c.answers == "answers.csv"]
    scored = [c for c in options if c.status == "score"]
    return next(c for c in scored if c.submission.startswith("good"))
