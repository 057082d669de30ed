"""A speedrun's attempt: train in the sandbox, then verify, in one future.

Verification has slots of its own, so that it never waits behind training and never
blocks the loop's thread. What training left is kept on disk before it is verified: a
process that is killed between the two trains nothing twice.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.config.crossing import Crossing
from experiments.config.reward_rule import RewardRule
from experiments.records.recorded import MISSED
from rpg_tasks.speedrun.verify import Loss, VerificationError, Verifier
from sandbox_exec.limits import Limits
from sandbox_exec.protocol import RunRecord, ScriptJob, ScriptPool

if TYPE_CHECKING:  # scikit-learn is slow to import
    from rpg_tasks.grading import Grade

_PLACE = re.compile(r"-(\d{5,})-(\d{3,})(?:-t\d+)?$")


def training_seed(run_seed: int, run_id: str) -> int:
    """The training seed of an attempt: of run seed, step and chain, 0 .. 2^31 - 1.

    The arms of a run seed share it, so that they meet the same luck.

    Args:
        run_seed: of the run.
        run_id: of the attempt; it ends in its step and chain.
    """
    found = _PLACE.search(run_id)
    if found is None:
        raise ValueError(f"{run_id} does not end in a step and a chain")
    numbers = [run_seed, int(found[1]), int(found[2])]
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifiedRun(RunRecord):
    """A run of a training script, and what verification says of its model."""

    seed: int = 0
    loss: Loss | None = None


def verified(run: RunRecord, seed: int, loss: Loss | None) -> VerifiedRun:
    """The run with what is known of its model."""
    known = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    return VerifiedRun(**known, seed=seed, loss=loss)


def grade_run(run: RunRecord, crossing: Crossing, rule: RewardRule) -> Grade:
    """The verdict on a verified run; its score is seconds (``paper``: the loss)."""
    from rpg_tasks.grading import Grade

    assert isinstance(run, VerifiedRun)
    assert run.loss is not None
    loss = run.loss
    facts = {
        "loss": loss.loss,
        "verify_s": loss.seconds,
        "training_seed": run.seed,
        "cpu_model": run.cpu_model,
    }
    verdict = functools.partial(Grade, gain=None, medal=None, facts=facts)
    if loss.loss is None:
        return verdict(valid=False, score=None, reason=loss.refused, status="invalid")
    if rule.kind.startswith("paper"):
        return verdict(valid=True, score=loss.loss, reason=None)
    if not crossing.crossed(loss.loss):
        reason = f"loss {loss.loss:.4f}, the target is {crossing.target:g}"
        return verdict(valid=False, score=None, reason=reason, status=MISSED)
    seconds = run.cpu_s if rule.script_clock == "cpu" else run.delta_s
    return verdict(valid=True, score=seconds, reason=None)


class Trained:
    """Models that were trained and are not on record yet, in a run's folder.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path):
        self._folder = folder / "trained"

    def _paths(self, run_id: str) -> tuple[Path, Path]:
        return self._folder / f"{run_id}.json", self._folder / f"{run_id}.model"

    def keep(self, run: RunRecord) -> None:
        """Keep a run and what it left; the record comes last."""
        self._folder.mkdir(exist_ok=True)
        record, model = self._paths(run.run_id)
        _write(model, run.submission_bytes or b"")
        _write(record, run.to_json().encode())

    def load(self, run_id: str, script_sha256: str) -> RunRecord | None:
        """What is kept of an attempt with this script."""
        record, model = self._paths(run_id)
        try:
            run = RunRecord.from_dict(json.loads(record.read_text("utf-8")))
            data = model.read_bytes()
        except (OSError, ValueError):
            return None
        if run.script_sha256 != script_sha256:
            return None
        return dataclasses.replace(run, submission_bytes=data)

    def discard(self, before: str) -> None:
        """Drop attempts of the steps before that of the attempt ``before``."""
        step = int(_PLACE.search(before)[1])  # type: ignore[index]
        for path in self._folder.glob("*"):
            found = _PLACE.search(path.stem)
            if found is not None and int(found[1]) < step:
                path.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    scratch = path.with_name(path.name + ".partial")
    with scratch.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


class Attempts:
    """The loop's ``execute`` hook of one run.

    Args:
        folder: of the run.
        run_seed: of the run.
        pool: trains.
        verifier: verifies, on slots of its own.
        threads: wait for verification.
        job: (script, run_id, arguments) -> the training job.
    """

    def __init__(
        self,
        folder: Path,
        run_seed: int,
        pool: ScriptPool,
        verifier: Verifier,
        threads: Executor,
        job: Callable[[bytes, str, tuple[str, ...]], ScriptJob],
    ):
        self._seed, self._pool, self._job = run_seed, pool, job
        self._verifier, self._threads = verifier, threads
        self._trained = Trained(folder)

    def __call__(self, run_id: str, script: bytes) -> Future[RunRecord]:
        """Train and verify; a future of a ``VerifiedRun``."""
        seed = training_seed(self._seed, run_id)
        job = self._job(script, run_id, (f"--seed={seed}",))
        self._trained.discard(run_id)
        done: Future[RunRecord] = Future()
        kept = self._trained.load(run_id, job.script_sha256)
        if kept is not None:
            self._threads.submit(self._finish, done, kept, seed, script)
            return done
        training = self._pool.submit(job)
        training.add_done_callback(
            lambda over: self._threads.submit(self._after, done, over, seed, script)
        )
        return done

    def _after(
        self,
        done: Future[RunRecord],
        training: Future[RunRecord],
        seed: int,
        script: bytes,
    ) -> None:
        try:
            run = training.result()
            if run.ok and run.submission_bytes is not None:
                self._trained.keep(run)
        except BaseException as error:  # a cancelled future too
            _set(done, error)
            return
        self._finish(done, run, seed, script)

    def _finish(
        self, done: Future[RunRecord], run: RunRecord, seed: int, script: bytes
    ) -> None:
        try:
            loss = None
            if run.ok and run.submission_bytes is not None:
                loss = self._verify(run, script)
            _set(done, verified(run, seed, loss))
        except BaseException as error:
            _set(done, error)

    def _verify(self, run: RunRecord, script: bytes) -> Loss:
        model = run.submission_bytes or b""
        try:
            return self._verifier.verify(run.run_id, script, model)
        except VerificationError:
            return self._verifier.verify(f"{run.run_id}-again", script, model)


def _set(done: Future[RunRecord], outcome: RunRecord | BaseException) -> None:
    """Set the outcome, unless the loop has given the attempt up."""
    if not done.set_running_or_notify_cancel():
        return
    if isinstance(outcome, BaseException):
        done.set_exception(outcome)
    else:
        done.set_result(outcome)


def training_job(
    inputs: Path, task_id: str, limits: Limits, model_file: str
) -> Callable[[bytes, str, tuple[str, ...]], ScriptJob]:
    """Makes the jobs of a run's attempts."""

    def job(script: bytes, run_id: str, arguments: tuple[str, ...]) -> ScriptJob:
        return ScriptJob(
            script=script,
            inputs=inputs,
            task_id=task_id,
            limits=limits,
            submission_name=model_file,
            run_id=run_id,
            args=("--data=input", "--out=.", *arguments),
        )

    return job
