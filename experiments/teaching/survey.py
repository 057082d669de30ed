"""What a policy writes before any reinforcement: does it parse, run, submit, vary?

Per task: base prompts are answered and the scripts run; improve prompts then show some
of those attempts with their real scores and seconds, and are answered and run as well.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.teaching.run import Outcome, run_scripts
from experiments.teaching.writing import Writer, parses
from rpg_tasks.prepare import TaskData
from rpg_tasks.prompts import Attempt
from sandbox_exec import LocalPool


@dataclasses.dataclass(frozen=True)
class Sample:
    """One answer and what became of it; plain values, as samples.jsonl has them.

    Attributes:
        task: short name.
        kind: "base" or "improve".
        parses: whether there is a script that Python reads.
        status: "valid", "invalid", "no_script" or the sandbox's word.
        gain: in [0, 1]; None unless valid.
        score: metric units; None unless valid.
        wall_s: wall-clock seconds of the run.
        cpu_s: CPU seconds of the run.
        tokens: of the answer.
        reason: what went wrong; empty when valid.
        changed: share of the previous script's lines that the new one does not keep, in
            order; None in base prompts and without a script.
        script: the source; empty without one.
        previous: the script that the prompt shows; empty in base prompts.
        plan: the first line of the answer.
    """

    task: str
    kind: str
    parses: bool
    status: str
    gain: float | None
    score: float | None
    wall_s: float
    cpu_s: float
    tokens: int
    reason: str
    changed: float | None
    script: str
    previous: str
    plan: str


def changed_share(previous: str, script: str) -> float:
    """Share of lines of the longer script that the two do not have in common."""
    a, b = previous.strip().splitlines(), script.strip().splitlines()
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return 1.0 - same / max(len(a), len(b), 1)


def survey_task(
    writer: Writer,
    pool: LocalPool,
    data: TaskData,
    *,
    samples: int,
    seed: int,
    batch: int = 16,
    wall_s: float = 120.0,
    progress: Callable[[Sample], None] = lambda _: None,
) -> list[Sample]:
    """Ask for ``samples`` scripts, half of them improvements, and run them all.

    Args:
        writer: the policy.
        pool: the sandbox.
        data: the prepared task.
        samples: number of answers.
        seed: of the sampler and of the choice of attempts to show.
        batch: prompts answered at a time.
        wall_s: limit of a run, seconds.
        progress: called with every sample.
    """
    base = samples - samples // 2
    batch = min(batch, base)
    first = _answered(
        writer,
        pool,
        data,
        [writer.base_prompt(data)] * base,
        [""] * base,
        seed=seed,
        batch=batch,
        wall_s=wall_s,
        progress=progress,
    )
    shown = [s for s, o in first if s.status == "valid"]
    if not shown:
        return [s for s, _ in first]
    rng = np.random.default_rng([seed, *map(ord, data.task.short)])
    picked = [shown[int(rng.integers(len(shown)))] for _ in range(samples // 2)]
    outputs = {s.script: o for s, o in first}
    prompts = [
        writer.improve_prompt(
            data,
            Attempt(
                s.script,
                s.wall_s,
                score=s.score,
                output=outputs[s.script].output if outputs[s.script] else "",
            ),
        )
        for s in picked
    ]
    second = _answered(
        writer,
        pool,
        data,
        prompts,
        [s.script for s in picked],
        seed=seed + 1,
        batch=batch,
        wall_s=wall_s,
        progress=progress,
    )
    return [s for s, _ in first + second]


def _answered(
    writer: Writer,
    pool: LocalPool,
    data: TaskData,
    prompts: Sequence[str],
    previous: Sequence[str],
    *,
    seed: int,
    batch: int,
    wall_s: float,
    progress: Callable[[Sample], None],
) -> list[tuple[Sample, Outcome | None]]:
    answers: list[Any] = []
    for start in range(0, len(prompts), batch):
        part = list(prompts[start : start + batch])
        # Batches of one size compile once.
        answers += writer.write(
            part + part[:1] * (batch - len(part)), seed=seed * 1009 + start
        )[: len(part)]
    scripts = [a.script for a in answers if a.script is not None]
    outcomes = iter(run_scripts(pool, data, scripts, wall_s=wall_s))
    found = []
    for answer, before in zip(answers, previous, strict=True):
        outcome = None if answer.script is None else next(outcomes)
        sample = _sample(data, answer, before, outcome)
        progress(sample)
        found.append((sample, outcome))
    return found


def _sample(
    data: TaskData, answer: Any, previous: str, outcome: Outcome | None
) -> Sample:
    script = answer.script or ""
    plan = answer.text.strip().splitlines()
    return Sample(
        task=data.task.short,
        kind="improve" if previous else "base",
        parses=bool(script) and parses(script),
        status="no_script" if outcome is None else outcome.status,
        gain=outcome and outcome.gain,
        score=outcome and outcome.score,
        wall_s=outcome.wall_s if outcome else 0.0,
        cpu_s=outcome.cpu_s if outcome else 0.0,
        tokens=answer.tokens,
        reason=outcome.reason if outcome else "no script in the answer",
        changed=changed_share(previous, script) if previous and script else None,
        script=script,
        previous=previous,
        plan=plan[0] if plan else "",
    )


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the report: a task, or all of them.

    Shares are of all samples; ``duplicates`` of scripts that an earlier sample of the
    task had already; quantiles are of valid samples.
    """

    task: str
    samples: int
    parse: float
    run: float
    valid: float
    duplicates: float
    gain: tuple[float, float, float]  # 5, 50, 95 per cent
    best: float  # mean gain of the best twentieth, at least one sample
    mean: float  # of valid samples
    seconds: tuple[float, float, float]  # wall, 5, 50, 95 per cent
    changed: float  # median over improve prompts
    edits: float  # share of improve prompts that keep some lines and change some

    @property
    def spread(self) -> float:
        """p95 / p5 of the seconds."""
        return self.seconds[2] / max(self.seconds[0], 1e-9)


def summarise(task: str, samples: Sequence[Sample]) -> Row:
    """The line of one task, or of all when ``samples`` has them all."""
    n = max(len(samples), 1)
    valid = [s for s in samples if s.status == "valid"]
    ran = [s for s in samples if s.status in ("valid", "invalid")]
    seen: set[tuple[str, str]] = set()
    repeated = 0
    for s in samples:
        key = (s.task, s.script)
        repeated += bool(s.script) and key in seen
        seen.add(key)
    gains = np.array(sorted(s.gain for s in valid)) if valid else np.zeros(1)
    seconds = [s.wall_s for s in valid] or [0.0]
    changed = [s.changed for s in samples if s.changed is not None]
    improved = [s for s in samples if s.kind == "improve"]
    edits = [s for s in improved if s.changed is not None and 0 < s.changed < 1]
    best = gains[-max(len(gains) // 20, 1) :]
    return Row(
        task=task,
        samples=len(samples),
        parse=sum(s.parses for s in samples) / n,
        run=len(ran) / n,
        valid=len(valid) / n,
        duplicates=repeated / n,
        gain=tuple(float(q) for q in np.quantile(gains, (0.05, 0.5, 0.95))),
        best=float(best.mean()),
        mean=float(gains.mean()),
        seconds=tuple(float(q) for q in np.quantile(seconds, (0.05, 0.5, 0.95))),
        changed=float(np.median(changed)) if changed else float("nan"),
        edits=len(edits) / max(len(improved), 1),
    )
