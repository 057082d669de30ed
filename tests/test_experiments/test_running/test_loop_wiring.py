"""The loop with a real sandbox, real graders and real prompts; scripts are scripted."""

import json

import loop_help as helper
import numpy as np
import pytest
from synthetic_helpers import shared_cache

from experiments.config.arms import get_arm
from experiments.config.protocol import SOUND
from experiments.loop.algorithm import Loop
from experiments.records.spec import RunSpec, Scoring, run_config
from experiments.running.wiring import make_hooks, script_limits
from rpg_tasks import Grader, prepare_task
from sandbox_exec import Level, LocalPool

COPY = "import shutil\nshutil.copy('input/sample_submission.csv', 'submission.csv')"
SCRIPTS = (
    COPY,
    COPY + "\nprint('seen by the next prompt')",
    "raise SystemExit(3)",
    "open('submission.csv', 'w').write('nonsense')",
    "print('no submission')",
)


class Fixed(helper.ScriptedPolicy):
    def sample(self, step, rows, prompts):
        self.prompts = list(prompts)
        for generation in super().sample(step, rows, prompts):
            texts = [f"Plan.\n```python\n{SCRIPTS[r]}\n```" for r in generation.rows]
            yield generation._replace(
                texts=tuple(texts), payload={"pick": np.zeros(len(texts), int)}
            )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare_task("leaf-classif", cache_dir=shared_cache(tmp_path_factory))


def test_the_limit_is_on_the_scripts_clock(data):
    grader = Grader(data.task, data.answers, data.sample)
    wall = script_limits(data, grader, limit_s=60.0)
    assert (wall.wall_s, wall.cpu_s) == (60.0, None)
    cpu = script_limits(data, grader, limit_s=60.0, script_clock="cpu")
    assert cpu.cpu_s == 60.0
    assert cpu.wall_s > 60.0
    prompts = [
        make_hooks(None, None, data, grader, limits, max_prompt_tokens=10_000).describe(
            None
        )
        for limits in (wall, cpu)
    ]
    assert prompts[0] == prompts[1]
    assert "60 s" in prompts[0]


def test_a_run_through_everything(tmp_path, data):
    grader = Grader(data.task, data.answers, data.sample)
    limits = script_limits(data, grader, limit_s=60.0)
    spec = RunSpec(
        arm=get_arm("rpg"),
        protocol=SOUND.__class__(chains=len(SCRIPTS)),
        scoring=Scoring(data.task, SOUND.rule, grader.baseline),
        limit_s=limits.wall_s,
    )
    assert json.loads(json.dumps(run_config(spec)))["baseline"] == grader.baseline
    policy = Fixed(tmp_path, groups=1)
    with LocalPool(1, level=Level.POSIX, rerun_contended=False, calibrate=False) as p:
        hooks = make_hooks(policy, p, data, grader, limits, max_prompt_tokens=10_000)
        with Loop(tmp_path, spec, hooks) as loop:
            loop.step()
            second = loop.step()
    records = helper.records(tmp_path)[: len(SCRIPTS)]
    assert [r["status"] for r in records] == [
        "valid",
        "valid",
        "failed",
        "invalid",
        "invalid",
    ]
    for record in records[:2]:
        assert record["score"] == pytest.approx(grader.baseline)
        assert record["reward"] == 0.0
        assert record["delta_s"] >= record["execution_s"] > 0
    assert records[2]["exit_code"] == 3
    assert records[4]["reason"].startswith("the submission is missing")
    assert second["rho"] == 0.0  # a copy of the sample earns nothing
    assert all(p is not None for p in second["parents"])
    assert any("seen by the next prompt" in text for text in policy.prompts)
