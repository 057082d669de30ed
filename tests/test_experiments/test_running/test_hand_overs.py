"""From a flag to the first script: as few hand-overs as the architecture page draws."""

import sys

import pytest
from mle_run_help import Experiment

MOST = 10


@pytest.mark.timeout(300)
def test_at_most_ten_hand_overs_from_the_command_to_the_pool(tmp_path):
    seen = []

    def before(job):
        frame, names = sys._getframe(), []
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.split(".")[0] in ("experiments", "rpg_tasks", "sandbox_exec"):
                names.append(f"{module}.{frame.f_code.co_name}")
            frame = frame.f_back
        seen.append(names[::-1])

    experiment = Experiment(
        tmp_path / "run", tmp_path / "cache", arms=["vanilla"], steps=1
    )
    experiment.before = before
    assert experiment.launch()[0] == 0
    first = seen[0]
    assert first[0] == "experiments.running.launch.launch"
    assert first[-1] == "experiments.running.wiring.execute"
    # mle_bench.main and mle_bench.train come before launch; the pool after execute.
    assert 2 + len(first) <= MOST, first
