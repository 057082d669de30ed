"""The toy task of the guide: its files are the guide's own code blocks."""

import re
from pathlib import Path

from repo_paths import ROOT

SHORT = "toy-regression"
NAME = "toy_regression"
_GUIDE = ROOT / "docs" / "parts" / "add_a_task.md"


def _section() -> str:
    return _GUIDE.read_text("utf-8")


def files() -> dict[str, str]:
    """Path below the current folder -> text of every file that the guide shows."""
    shown = r"^`(my_tasks/[^`]+)`:\n\n```\w+\n(.*?)^```"
    return dict(re.findall(shown, _section(), re.MULTILINE | re.DOTALL))


def blocks(language: str) -> list[str]:
    """The guide's other code blocks in a language."""
    own = set(files().values())
    pattern = rf"^```{language}\n(.*?)^```"
    found = re.findall(pattern, _section(), re.MULTILINE | re.DOTALL)
    return [text for text in found if text not in own]


def write(root: Path) -> Path:
    """Write the files below a folder; returns the folder that holds the task's."""
    for name, text in files().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root / "my_tasks"


def change(folder: Path, file: str, old: str, new: str) -> None:
    """Replace text that must be in a task's file."""
    path = folder / file
    text = path.read_text("utf-8")
    assert old in text, (file, old)
    path.write_text(text.replace(old, new), "utf-8")
