"""One report of stand-in runs, built once for all tests that only read it."""

import pytest
import report_checks as checks
import report_help as helper

from experiments.reporting.build import build


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "run"
    helper.make_run(
        folder, tasks=checks.TASKS, arms=checks.ARMS, seeds=checks.SEEDS,
        steps=checks.STEPS, lost=0.08,
    )  # fmt: skip
    with helper.undrawn():
        return build(folder)


@pytest.fixture(scope="session")
def frames(report):
    root = report.experiment.roots[0]
    return {
        (task, arm, seed): helper.attempts_frame(root / task / arm / f"seed-{seed}")
        for task in checks.TASKS
        for arm in checks.ARMS
        for seed in checks.SEEDS
    }
