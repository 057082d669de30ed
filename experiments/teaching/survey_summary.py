"""A survey's samples in numbers: shares that parse, run and submit, gains, seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


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
        plan: the answer, as it was written.
        nats: log-probability that the answer loses when its prompt shows another
            parent, nats; None in base prompts.
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
    nats: float | None = None


@dataclasses.dataclass(frozen=True)
class SurveyRow:
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


def summarise(task: str, samples: Sequence[Sample]) -> SurveyRow:
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
    gains = np.sort([s.gain for s in valid if s.gain is not None] or [0.0])
    seconds = np.array([s.wall_s for s in valid] or [0.0])
    changed = [s.changed for s in samples if s.changed is not None]
    improved = [s for s in samples if s.kind == "improve"]
    edits = [s for s in improved if s.changed is not None and 0 < s.changed < 1]
    best = gains[-max(len(gains) // 20, 1) :]
    return SurveyRow(
        task=task,
        samples=len(samples),
        parse=sum(s.parses for s in samples) / n,
        run=len(ran) / n,
        valid=len(valid) / n,
        duplicates=repeated / n,
        gain=_quantiles(gains),
        best=float(best.mean()),
        mean=float(gains.mean()),
        seconds=_quantiles(seconds),
        changed=float(np.median(changed)) if changed else float("nan"),
        edits=len(edits) / max(len(improved), 1),
    )


def _quantiles(values: np.ndarray) -> tuple[float, float, float]:
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    return float(low), float(middle), float(high)
