"""An experiment's parts for tests: scripted policy, fake sandbox, small real data."""

import contextlib
import io
import json
from concurrent.futures import Future
from dataclasses import replace

import command_flags
import loop_help as helper
import numpy as np
import pandas as pd
from rich.console import Console

from experiments.config.options import Options
from experiments.console.screen import Screen
from experiments.policies.models import ModelInfo
from experiments.reporting.build import build
from experiments.running import experiment as experiments
from experiments.running import launch as launching
from experiments.running.experiment import Parts
from experiments.running.places import Places
from experiments.running.resolve import resolve_settings
from rpg_tasks import prepare_task
from sandbox_exec import Level

COMMAND = "experiments.mle_bench"
mle_bench = command_flags.load(COMMAND)

TASK = "tabular-2022"  # AUC: a share of flipped labels sets the score
IDENTITY = {"weights": "scripted", "sandbox": "FAKE"}


def options(**changes):
    """The defaults, with changes."""
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
    return Options(**given)


def settings(parameters=5_000_000, **changes):
    """Settings of an experiment on synthetic data."""
    chosen = {"task": [TASK], "data": "synthetic", "steps": 3, "chains": 4}
    return resolve_settings(
        options(**chosen | changes),
        describe=lambda name: ModelInfo(name, parameters, "cpu"),
    )


def submission(data, split, quality):
    """A CSV whose AUC is about ``quality``: so many labels are right."""
    answers = data.answers if split == "validation" else data.test_answers
    table = pd.read_csv(answers)
    target = data.task.targets[0]
    wrong = np.random.default_rng(1).random(len(table)) > quality
    table[target] = np.where(wrong, 1 - table[target], table[target])
    buffer = io.StringIO()
    table[[data.task.id_column, target]].to_csv(buffer, index=False)
    return buffer.getvalue().encode()


class FakePool:
    """Does what a script's comment orders, at once.

    ``before`` is called with each job; ``lost`` turns test runs into infrastructure
    errors.
    """

    capacity, isolation = 1, Level.POSIX

    def __init__(self, data, before=None, lost=False):
        self.data, self.before, self.lost = data, before, lost
        self.jobs = []

    def submit(self, job):
        self.jobs.append(job)
        if self.before is not None:
            self.before(job)
        future = Future()
        record = helper.run_record(job.run_id, job.script)
        test = job.inputs == self.data.test_public
        if test and self.lost:
            record = replace(record, status="sandbox_error", error="a cable was cut")
        if record.submission_bytes is not None:
            split = "test" if test else "validation"
            quality = float(record.submission_bytes)
            content = submission(self.data, split, quality)
            record = replace(record, submission_bytes=content)
        future.set_result(record)
        return future


class Experiment:
    """An experiment in a folder, launched as often as a test likes."""

    def __init__(self, folder, cache, **changes):
        self.out, self.cache = folder, cache
        self.settings = settings(**{"prompt_style": "compact"} | changes)
        self.pools, self.policies = [], []
        self.before = None
        self.lost = False
        self.prepare = lambda task, source: prepare_task(task, cache_dir=cache)
        self.policy = lambda folder, seed: helper.ScriptedPolicy(folder, seed=seed)

    def launch(self, *, live=False, replay=None, resume=False, report=False):
        """(exit code, what was printed); errors go to the test's stderr."""

        @contextlib.contextmanager
        def pool():
            self.pools.append(FakePool(self.data, self.before, self.lost))
            yield self.pools[-1]

        def prepare(task, source):
            self.data = self.prepare(task, source)
            return self.data

        def policy(folder, seed, protocol, task):
            self.policies.append(self.policy(folder, seed))
            return self.policies[-1]

        parts = Parts(
            policy=policy,
            describer=None,
            count_tokens=None,
            pool=None if replay else pool,
            prepare=prepare,
            leaderboard=lambda task: None,
            clock=_ticks(),
        )
        text = io.StringIO()
        screen = Screen(Console(file=text, width=118, force_terminal=live))
        experiment = experiments.Experiment(
            self.settings,
            Places(out=self.out),
            parts,
            IDENTITY,
            screen=screen,
            resume=resume,
            replay=replay,
        )
        code = launching.launch(experiment, report=build if report else None)
        return code, text.getvalue()

    def run(self, arm="rpg", seed=0, task=TASK):
        """Folder of one run."""
        return self.out / task / arm / f"seed-{seed}"


def _ticks():
    """A clock of which each look takes a tenth of a second."""
    now = iter(range(10**9))
    return lambda: next(now) / 10


def lines(path):
    """The JSON lines of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
