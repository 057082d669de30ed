"""Tasks in one folder each (22 of MLE-Bench Lite): data, graders, scores, prompts.

The names below load on first use, so that listing tasks needs neither pandas nor
scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Grading": "task",
    "Task": "task",
    "TaskError": "task",
    "get_task": "registry",
    "load_tasks": "registry",
    "register_task_folder": "registry",
    "task_folder": "registry",
    "Grade": "grading",
    "Grader": "grading",
    "grade": "grading",
    "InvalidSubmission": "submission",
    "above_median": "scores",
    "gain": "scores",
    "medal": "scores",
    "oriented": "scores",
    "TaskData": "prepare",
    "prepare_task": "prepare",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
