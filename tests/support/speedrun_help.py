"""A small copy of the shipped speedrun, and jobs that run in a plain subprocess."""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from rpg_tasks.speedrun import data as speedrun_data
from rpg_tasks.speedrun.data import SpeedrunData, encode, split_text
from rpg_tasks.speedrun.record import get_speedrun
from rpg_tasks.speedrun.tokens import token_bytes
from rpg_tasks.speedrun.verify import Verifier
from sandbox_exec.protocol import RunRecord, Submission

SPEEDRUN = get_speedrun("tiny-gpt")
SIZES = {"train": 300_000, "val": 16_250, "final": 9_750}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def small_data(folder: Path) -> SpeedrunData:
    """The first tokens of each part, as token files."""
    found = SpeedrunData(folder / "inputs", folder / "hidden")
    text = split_text(SPEEDRUN)
    for name, size in SIZES.items():
        path = found.train if name == "train" else found.rows(name)
        speedrun_data._write(path, token_bytes(encode(text[name][:size])))
    return found


def run_job(job) -> RunRecord:
    """What a sandbox without any isolation would do."""
    home = Path(tempfile.mkdtemp(prefix="job-"))
    try:
        shutil.copytree(job.inputs, home / "input")
        (home / "script.py").write_bytes(job.script)
        done = subprocess.run(
            [sys.executable, "script.py", *job.args],
            cwd=home,
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            text=True,
        )
        path = home / job.submission_name
        content = path.read_bytes() if path.exists() else None
    finally:
        shutil.rmtree(home)
    record = RunRecord(
        run_id=job.run_id,
        script_sha256=job.script_sha256,
        status="nonzero_exit" if done.returncode else "ok",
        delta_s=1.5,
        cpu_s=1.25,
        cpu_source="test",
        cpu_model="test",
        stdout_tail=done.stdout[-2000:],
        stderr_tail=done.stderr[-2000:],
    )
    if content is None:
        return record
    return dataclasses.replace(
        record,
        submission=Submission("ok", sha256="0" * 64, n_bytes=len(content)),
        submission_bytes=content,
    )


def submit(job) -> Future:
    """At once."""
    future = Future()
    try:
        future.set_result(run_job(job))
    except BaseException as error:
        future.set_exception(error)
    return future


def verifier(data, contract="declared", **options) -> Verifier:
    """Of the small data."""
    return Verifier(SPEEDRUN, data, submit, contract=contract, **options)


def bigram(data) -> np.ndarray:
    """Log-probabilities of the next symbol, by counts with one added."""
    tokens = np.fromfile(data.train, np.uint16, offset=1024).astype(int)
    counts = np.ones((96, 96))
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    return np.log(counts / counts.sum(1, keepdims=True)).astype(np.float32)
