"""Speedruns for tests: a pool that trains nothing, a verifier that reads the script."""

import contextlib
import io
import re
from concurrent.futures import Future

import numpy as np
import speedrun_help
from rich.console import Console

from experiments.config.speedrun_options import SpeedrunOptions
from experiments.console.screen import Screen
from experiments.policies import random_edits
from experiments.policies.models import ModelInfo
from experiments.reporting.build import build
from experiments.running import experiment as experiments
from experiments.running import launch as launching
from experiments.running import speedrun_run
from experiments.running.experiment import Parts
from experiments.running.places import Places
from experiments.running.resolve_speedrun import resolve_speedrun
from rpg_tasks.speedrun.verify import Loss
from sandbox_exec import Level
from sandbox_exec.protocol import RunRecord, Submission


def steps_of(script):
    """How long a script trains."""
    return int(re.search(rb"^STEPS = (\d+)$", script, re.MULTILINE)[1])


class FakePool:
    """Every script takes a second for 60 steps and leaves its seed."""

    capacity, isolation = 1, Level.POSIX

    def __init__(self):
        self.jobs = []

    def submit(self, job):
        self.jobs.append(job)
        seconds = steps_of(job.script) / 60
        data = job.args[-1].encode()
        future = Future()
        future.set_result(
            RunRecord(
                run_id=job.run_id,
                script_sha256=job.script_sha256,
                status="ok",
                delta_s=2 * seconds,
                cpu_s=seconds,
                cpu_source="test",
                cpu_model="test",
                submission=Submission("ok", sha256="0" * 64, n_bytes=len(data)),
                submission_bytes=data,
            )
        )
        return future


class FakeVerifier:
    """The loss falls with the steps; seeds differ by a little.

    ``before`` is called first, with the attempt's id.
    """

    def __init__(self, before=None):
        self.before, self.seen = before, []

    def verify(self, run_id, script, model):
        if self.before is not None:
            self.before(run_id)
        self.seen.append(run_id)
        seed = int(model.split(b"=")[1])
        luck = np.random.default_rng(seed).normal(0, 0.005)
        return Loss(2.45 - 0.0006 * steps_of(script) + luck, None, 0.5)


def settings(**changes):
    """Three steps of four scripts."""
    given = {"steps": 3, "chains": 4, "slots": 1} | changes
    return resolve_speedrun(
        SpeedrunOptions(**given), describe=lambda name: ModelInfo(name, 5, "cpu")
    )


class SpeedrunExperiment:
    """An experiment in a folder, launched as often as a test likes."""

    def __init__(self, folder, cache, monkeypatch, **changes):
        self.out, self.cache = folder, cache
        self.settings = settings(**changes)
        self.pool, self.verifier = FakePool(), FakeVerifier()
        monkeypatch.setattr(
            speedrun_run.SpeedrunRun, "verifier", lambda run, part="val": self.verifier
        )

    def launch(self, *, replay=None, resume=False, report=False):
        """(exit code, what was printed)."""

        @contextlib.contextmanager
        def pool():
            yield self.pool

        def policy(folder, seed, protocol, task):
            return random_edits.random_edits(folder, seed, task)

        now = iter(range(10**9))
        parts = Parts(
            policy=policy,
            describer=random_edits.describer,
            count_tokens=None,
            pool=None if replay else pool,
            prepare=None,
            leaderboard=lambda task: None,
            clock=lambda: next(now) / 10,
            verifying=None if replay else pool,
        )
        text = io.StringIO()
        experiment = experiments.Experiment(
            self.settings,
            Places(out=self.out, cache_dir=self.cache),
            parts,
            {"weights": "none"},
            screen=Screen(Console(file=text, width=118)),
            resume=resume,
            replay=replay,
        )
        code = launching.launch(experiment, report=build if report else None)
        return code, text.getvalue()

    def run(self, arm="rpg", seed=0):
        """Folder of one run."""
        return self.out / speedrun_help.SPEEDRUN.short / arm / f"seed-{seed}"
