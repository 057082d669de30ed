"""The samples of a survey's finished tasks, in its folder's samples.jsonl."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from experiments.teaching.survey_summary import Sample, SurveyRow, summarise

SAMPLES = "samples.jsonl"
ALL = "all"


@dataclasses.dataclass(frozen=True)
class SurveyResults:
    """What a survey's folder holds: samples and the cheap reference's gain by task."""

    tasks: dict[str, list[Sample]]
    cheap: dict[str, float | None]

    def rows(self) -> list[SurveyRow]:
        """A row per task, then one for all."""
        rows = [summarise(task, found) for task, found in self.tasks.items()]
        every = [s for found in self.tasks.values() for s in found]
        return [*rows, summarise(ALL, every)]


def read(folder: Path) -> SurveyResults:
    """The finished tasks of a folder; a torn last line is a task not finished."""
    known = SurveyResults({}, {})
    path = folder / SAMPLES
    if not path.exists():
        return known
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
            samples = [Sample(**row) for row in record["samples"]]
            task, cheap = record["task"], record["cheap"]
        except (ValueError, KeyError, TypeError):
            break
        known.tasks[task], known.cheap[task] = samples, cheap
    return known


def append(
    folder: Path, samples: Sequence[Sample], task: str, cheap: float | None
) -> SurveyResults:
    """Add a finished task; everything known so far."""
    known = read(folder)
    known.tasks[task], known.cheap[task] = list(samples), cheap
    lines = [
        json.dumps(
            {
                "task": name,
                "cheap": known.cheap[name],
                "samples": [dataclasses.asdict(s) for s in found],
            }
        )
        for name, found in known.tasks.items()
    ]
    scratch = folder / f"{SAMPLES}.partial"
    scratch.write_text("\n".join(lines) + "\n", encoding="utf-8")
    scratch.replace(folder / SAMPLES)
    return known
