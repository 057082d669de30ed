"""Verification in the sandbox: the loss of a model file, under either contract.

The loss that counts is computed here and never read from what a script prints. The
programs run in a pool like any script, with one core and their own limits.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rpg_tasks.speedrun import callable_contract, callable_worker, declared
from rpg_tasks.speedrun.data import SpeedrunData
from rpg_tasks.speedrun.declared import Refused
from rpg_tasks.speedrun.record import CONTRACTS, Speedrun
from rpg_tasks.speedrun.tokens import read_tokens, rows_of
from sandbox_exec.limits import Limits
from sandbox_exec.protocol import RunRecord, ScriptJob

Submit = Callable[[ScriptJob], "Future[RunRecord]"]


class VerificationError(RuntimeError):
    """The machinery failed: nothing is known of the model."""


class Loss(NamedTuple):
    """What verification found.

    Attributes:
        loss: mean validation loss, nats a token; None for a model that was refused.
        refused: why; None where there is a loss.
        seconds: CPU seconds of verification.
    """

    loss: float | None
    refused: str | None
    seconds: float


class Verifier:
    """Computes losses of model files.

    Args:
        speedrun: its record.
        data: its token files.
        contract: ``declared`` or ``callable``.
        part: tokens to score: ``val`` or ``final``.
        submit: runs a job in the sandbox.
        secret: seed of the callable contract's exams.
        wall_s: wall limit of one program.
    """

    def __init__(
        self,
        speedrun: Speedrun,
        data: SpeedrunData,
        submit: Submit,
        *,
        contract: str = "declared",
        part: str = "val",
        secret: int | None = None,
        wall_s: float = 120.0,
    ):
        if contract not in CONTRACTS:
            raise ValueError(f"the contract must be one of {CONTRACTS}: {contract!r}")
        self.contract, self._submit = contract, submit
        self._speedrun = speedrun
        self._rows = rows_of(read_tokens(data.rows(part)), speedrun.length)
        self._train = read_tokens(data.train) if contract == "callable" else None
        self._rng = np.random.default_rng(secret)
        self._limits = Limits(
            wall_s=wall_s, memory_mb=speedrun.memory_mb, submission_mb=256
        )

    def verify(self, run_id: str, script: bytes, model: bytes) -> Loss:
        """The loss of a model.

        Args:
            run_id: of the attempt.
            script: that made it; the callable contract runs it.
            model: bytes of ``model.npz``.

        Raises:
            VerificationError: the machinery failed.
        """
        if self.contract == "declared":
            return self._declared(run_id, model)
        return self._callable(run_id, script, model)

    def _declared(self, run_id: str, model: bytes) -> Loss:
        size = str(self._speedrun.vocabulary)
        with _folder({"model.npz": model}, self._rows) as inputs:
            run = self._submit(
                ScriptJob(
                    script=Path(declared.__file__).read_bytes(),
                    inputs=inputs,
                    args=(size,),
                    submission_name="verdict.json",
                    run_id=f"{run_id}-verify",
                    limits=self._limits,
                )
            ).result()
        if run.status != "ok" or run.submission_bytes is None:
            raise VerificationError(
                f"verification of {run_id}: {run.status} {run.error} {run.stderr_tail}"
            )
        found = json.loads(run.submission_bytes)
        return Loss(found.get("loss"), found.get("refused"), run.cpu_s)

    def _callable(self, run_id: str, script: bytes, model: bytes) -> Loss:
        assert self._train is not None
        exam = callable_contract.make_exam(self._rows, self._train, self._rng)
        files = {"model.npz": model, "submission.py": script}
        seconds = 0.0
        try:
            logits = []
            for name, rows in (("a", exam.a), ("b", exam.b)):
                with _folder(files, rows) as inputs:
                    run = self._worker(f"{run_id}-{name}", inputs).result()
                seconds += run.cpu_s
                logits.append(_answer(run, rows, self._speedrun.vocabulary))
            loss = callable_contract.judge(exam, *logits)
        except Refused as error:
            return Loss(None, str(error), seconds)
        return Loss(loss, None, seconds)

    def _worker(self, run_id: str, inputs: Path) -> Future[RunRecord]:
        return self._submit(
            ScriptJob(
                script=Path(callable_worker.__file__).read_bytes(),
                inputs=inputs,
                submission_name="logits.npy",
                run_id=run_id,
                limits=self._limits,
            )
        )


def _answer(run: RunRecord, rows: np.ndarray, vocabulary: int) -> np.ndarray:
    """Logits of a worker.

    Raises:
        Refused: the script's functions failed.
        VerificationError: the sandbox did.
    """
    if run.status == "sandbox_error":
        raise VerificationError(f"{run.run_id}: {run.error}")
    if run.status != "ok" or run.submission_bytes is None:
        last = run.stderr_tail.strip().rpartition("\n")[2]
        raise Refused(f"load or logits failed ({run.status}): {last[-300:]}")
    return callable_contract.read_logits(run.submission_bytes, rows, vocabulary)


@contextlib.contextmanager
def _folder(files: Mapping[str, bytes], rows: np.ndarray) -> Iterator[Path]:
    """A folder with a job's inputs, for as long as it runs."""
    home = Path(tempfile.mkdtemp(prefix="verify-"))
    try:
        for name, content in files.items():
            (home / name).write_bytes(content)
        np.save(home / "rows.npy", rows)
        home.chmod(0o755)  # the sandbox may read as another user
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)
