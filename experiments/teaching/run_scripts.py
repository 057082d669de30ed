"""Run drawn scripts in the sandbox: what share is valid, gains, seconds, duplicates."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rpg_tasks import Grader
from rpg_tasks.prepare import TaskData
from sandbox_exec import Limits, LocalPool, ScriptJob


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One script, run and graded.

    Attributes:
        task: short name.
        status: the sandbox's word, or "valid" / "invalid" for a graded submission.
        gain: in [0, 1]; None unless valid.
        score: metric units; None unless valid.
        wall_s: wall-clock seconds.
        cpu_s: CPU seconds.
        reason: last line of what went wrong; empty when valid.
        script: the source.
        output: what it printed, standard error after standard output.
    """

    task: str
    status: str
    gain: float | None
    score: float | None
    wall_s: float
    cpu_s: float
    reason: str
    script: str
    output: str = ""


def run_scripts(
    pool: LocalPool,
    data: TaskData,
    scripts: Iterable[str],
    *,
    wall_s: float = 120.0,
    memory_mb: int = 4096,
) -> Iterator[Outcome]:
    """Run scripts on the validation view and grade them; outcomes in their order."""
    task = data.task.short
    grader = Grader(task, data.answers, data.sample)
    limits = Limits(wall_s=wall_s, memory_mb=memory_mb)
    scripts = list(scripts)
    jobs = [
        ScriptJob(
            script=script.encode(), inputs=data.public, task_id=task, limits=limits
        )
        for script in scripts
    ]
    for script, future in zip(scripts, [pool.submit(j) for j in jobs], strict=True):
        record = future.result()
        status, reason = record.status, ""
        gain = score = None
        if record.ok and record.submission_bytes is not None:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "submission.csv"
                path.write_bytes(record.submission_bytes)
                grade = grader.grade(path)
            status = "valid" if grade.valid else "invalid"
            gain, score, reason = grade.gain, grade.score, grade.reason or ""
        else:
            # The tail is what the head has no room for: short errors have none.
            lines = (record.stderr_head + record.stderr_tail).strip().splitlines()
            reason = placeless(lines[-1]) if lines else str(record.submission.status)
        yield Outcome(
            task,
            str(status),
            gain if status == "valid" else None,
            score if status == "valid" else None,
            record.delta_s,
            record.cpu_s,
            reason,
            script,
            _printed(record),
        )


def placeless(text: str) -> str:
    """An error message without the folder where this machine keeps its packages."""
    return re.sub(r"/\S*/site-packages/", "", text)


def _printed(record: Any) -> str:
    """The end of what a script printed, as the training loop records it."""
    parts = (
        (record.stdout_head + record.stdout_tail)[-2000:],
        (record.stderr_head + record.stderr_tail)[-2000:],
    )
    return "\n".join(part for part in parts if part)


def summary(outcomes: Sequence[Outcome]) -> str:
    """One line for one task: shares, spread of CPU seconds, of gains, duplicates."""
    valid = [o for o in outcomes if o.status == "valid"]
    share = len(valid) / max(len(outcomes), 1)
    text = f"{outcomes[0].task:16s} n {len(outcomes):4d}  valid {share:4.0%}"
    if valid:
        low, mid, high = np.quantile([o.cpu_s for o in valid], (0.05, 0.5, 0.95))
        gains = np.quantile([o.gain for o in valid], (0, 0.05, 0.5, 0.95, 1))
        text += f"  cpu s {low:.2f} {mid:.2f} {high:.2f} (x{high / low:.1f})"
        text += "  gain " + " ".join(f"{g:.3f}" for g in gains)
    unique = len({o.script for o in outcomes})
    return f"{text}  unique {unique / len(outcomes):.0%}"
