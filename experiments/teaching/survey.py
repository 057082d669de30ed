"""What a policy writes before any reinforcement: does it parse, run, submit, vary?

Per task: base prompts are answered and the scripts run; improve prompts then show some
of those attempts with their real scores and seconds, and are answered and run as well.
"""

from __future__ import annotations

import dataclasses
import difflib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from experiments.teaching.run_scripts import Outcome, run_scripts
from experiments.teaching.survey_store import SurveyResults, append, read
from experiments.teaching.survey_summary import Sample, summarise
from experiments.teaching.writer import Answer, Writer, parses
from rpg_tasks import prepare_task
from rpg_tasks.prepare import TaskData
from rpg_tasks.prompts import Attempt
from sandbox_exec import LocalPool


@dataclasses.dataclass(frozen=True)
class Survey:
    """How every task is surveyed.

    Attributes:
        writer: the policy.
        pool: the sandbox.
        samples: answers per task, half of them improvements.
        seed: of the sampler and of the choice of attempts to show.
        batch: prompts answered at a time.
        wall_s: limit of a run, seconds.
        progress: called with every sample.
    """

    writer: Writer
    pool: LocalPool
    samples: int
    seed: int
    batch: int = 16
    wall_s: float = 120.0
    progress: Callable[[Sample], None] = lambda _: None

    def task(self, data: TaskData) -> list[Sample]:
        """Ask for scripts of a task, run them all, and show some to be improved."""
        base = self.samples - self.samples // 2
        batch = min(self.batch, base)
        prompts = [self.writer.prompt(data)] * base
        first = self._answered(data, prompts, [""] * base, seed=self.seed, batch=batch)
        shown = [sample for sample, _ in first if sample.status == "valid"]
        if not shown:
            return [sample for sample, _ in first]
        rng = np.random.default_rng([self.seed, *map(ord, data.task.short)])
        picked = [
            shown[int(rng.integers(len(shown)))] for _ in range(self.samples // 2)
        ]
        outputs = {s.script: o.output for s, o in first if o is not None}
        prompts = [
            self.writer.prompt(data, _attempt(sample, outputs, shown))
            for sample in picked
        ]
        previous = [sample.script for sample in picked]
        second = self._answered(
            data, prompts, previous, seed=self.seed + 1, batch=batch
        )
        children = self._with_nats(data, [s for s, _ in second], prompts)
        return [sample for sample, _ in first] + children

    def _with_nats(
        self, data: TaskData, samples: Sequence[Sample], prompts: Sequence[str]
    ) -> list[Sample]:
        """With what the own parent is worth to each answer over the next other one."""
        texts = [sample.plan for sample in samples]
        swapped = []
        for at, sample in enumerate(samples):
            turned = [*prompts[at:], *prompts[:at]]
            befores = [s.previous for s in [*samples[at:], *samples[:at]]]
            swapped.append(
                next(
                    (
                        prompt
                        for prompt, before in zip(turned, befores, strict=True)
                        if before != sample.previous
                    ),
                    prompts[at],
                )
            )
        own = self.writer.log_probs(prompts, texts)
        other = self.writer.log_probs(swapped, texts)
        return [
            dataclasses.replace(sample, nats=float(a - b))
            for sample, a, b in zip(samples, own, other, strict=True)
        ]

    def _answered(
        self,
        data: TaskData,
        prompts: Sequence[str],
        previous: Sequence[str],
        *,
        seed: int,
        batch: int,
    ) -> list[tuple[Sample, Outcome | None]]:
        """Answers to prompts, run: each with the previous script it was shown."""
        answers: list[Answer] = []
        for start in range(0, len(prompts), batch):
            part = list(prompts[start : start + batch])
            # Batches of one size compile once.
            fill = batch - len(part)
            shown = [text or None for text in previous[start : start + batch]]
            answers += self.writer.write(
                data.task,
                part + part[:1] * fill,
                shown + shown[:1] * fill,
                seed=seed * 1009 + start,
            )[: len(part)]
        scripts = [a.script for a in answers if a.script is not None]
        outcomes = iter(run_scripts(self.pool, data, scripts, wall_s=self.wall_s))
        found = []
        for answer, before in zip(answers, previous, strict=True):
            outcome = None if answer.script is None else next(outcomes)
            sample = _sample(data, answer, before, outcome)
            self.progress(sample)
            found.append((sample, outcome))
        return found


def survey_tasks(
    folder: Path,
    survey: Survey,
    tasks: Iterable[str],
    *,
    reference: Path,
    cache_dir: str | None = None,
    say: Callable[[str], None] = print,
) -> SurveyResults:
    """Survey the tasks that a folder does not hold yet; everything it holds then.

    Args:
        folder: of the survey; see ``survey_store``.
        survey: how each task is surveyed.
        tasks: short names.
        reference: folder of TASK/cheap.py scripts to compare with; some may be missing.
        cache_dir: where built data are kept; None: the user's cache.
        say: told of every finished task.

    Raises:
        TaskError: a task's data cannot be built.
    """
    known = read(folder)
    for task in tasks:
        if task in known.tasks:
            continue
        data = prepare_task(task, data="synthetic", cache_dir=cache_dir)
        begin = time.monotonic()
        samples = survey.task(data)
        script = reference / task / "cheap.py"
        cheap = None
        if script.exists():
            text = script.read_text(encoding="utf-8")
            (outcome,) = run_scripts(survey.pool, data, [text])
            cheap = outcome.gain
        known = append(folder, samples, task, cheap)
        valid = summarise(task, samples).valid
        say(f"{task}: {valid:.0%} valid, {time.monotonic() - begin:.0f} s")
    return known


def _attempt(
    sample: Sample, outputs: dict[str, str], known: Sequence[Sample]
) -> Attempt:
    """A valid sample as an improve prompt shows it."""
    better = sum((s.gain or 0.0) > (sample.gain or 0.0) for s in known)
    return Attempt(
        sample.script,
        sample.wall_s,
        score=sample.score,
        output=outputs[sample.script],
        rank=(1 + better, len(known)),
    )


def _sample(
    data: TaskData, answer: Answer, previous: str, outcome: Outcome | None
) -> Sample:
    """The record of an answer; ``outcome`` is None without a script."""
    script = answer.script or ""
    return Sample(
        task=data.task.short,
        kind="improve" if previous else "base",
        parses=bool(script) and parses(script),
        status="no_script" if outcome is None else outcome.status,
        gain=None if outcome is None else outcome.gain,
        score=None if outcome is None else outcome.score,
        wall_s=0.0 if outcome is None else outcome.wall_s,
        cpu_s=0.0 if outcome is None else outcome.cpu_s,
        tokens=answer.tokens,
        reason=answer.reason if outcome is None else outcome.reason,
        changed=changed_share(previous, script) if previous and script else None,
        script=script,
        previous=previous,
        plan=answer.text.strip(),
    )


def changed_share(previous: str, script: str) -> float:
    """Share of lines of the longer script that the two do not have in common."""
    a, b = previous.strip().splitlines(), script.strip().splitlines()
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return 1.0 - same / max(len(a), len(b), 1)
