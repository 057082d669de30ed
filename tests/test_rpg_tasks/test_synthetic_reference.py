"""Scripts as a policy writes them, run in the sandbox, graded on the validation split.

What must hold for every task: a copy of the sample submission gains nothing, a cheap
honest script gains more than 0.2, and gains order scripts as scores do.
"""

import dataclasses

import pytest
from synthetic_helpers import SCRIPTS, SHORTS, one_slot, shared_cache, small_data

from rpg_tasks import Grader, get_task
from sandbox_exec import Limits, ScriptJob

FAST = ("denoising-docs", "nyc-taxi", "textnorm-en")
# One more script of the same task, for the order of gains; the slow test runs it.
WITH_DEAR = tuple(
    pytest.param(short, marks=pytest.mark.slow) if short not in FAST else short
    for short in SHORTS
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    score: float
    gain: float
    seconds: float


@pytest.fixture(scope="module")
def pool():
    with one_slot() as pool:
        yield pool


@pytest.fixture(scope="module")
def run(pool, tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    folder = tmp_path_factory.mktemp("submissions")

    def run_one(short: str, name: str, part: str = "validation") -> Outcome:
        data = small_data(cache, short)
        public, answers, sample = (
            (data.public, data.answers, data.sample)
            if part == "validation"
            else (data.test_public, data.test_answers, data.test_sample)
        )
        own = SCRIPTS / short / f"{name}.py"
        script = own if own.exists() else SCRIPTS / f"{name}.py"
        job = ScriptJob(
            script=script.read_bytes(),
            inputs=public,
            task_id=short,
            limits=Limits(wall_s=600, memory_mb=4096),
        )
        record = pool.submit(job).result()
        assert record.ok, (record.status, record.stderr_tail)
        assert record.submission.status == "ok", record.submission
        path = folder / f"{short}-{name}.csv"
        path.write_bytes(record.submission_bytes)
        verdict = Grader(short, answers, sample).grade(path)
        assert verdict.valid, (short, name, verdict.reason)
        return Outcome(verdict.score, verdict.gain, record.delta_s)

    return run_one


def test_every_task_has_a_cheap_and_a_dear_script():
    for name in ("cheap", "expensive"):
        assert {p.parent.name for p in SCRIPTS.glob(f"*/{name}.py")} == set(SHORTS)


@pytest.mark.parametrize("short", WITH_DEAR)
def test_copy_gains_nothing_and_gains_order_scripts(run, short, capsys):
    outcomes = {name: run(short, name) for name in ("trivial", "cheap")}
    if short not in FAST:
        outcomes["expensive"] = run(short, "expensive")
    assert outcomes["trivial"].gain == 0.0
    assert outcomes["cheap"].gain > 0.2
    sign = 1 if get_task(short).higher_is_better else -1
    ranked = sorted(outcomes.values(), key=lambda o: sign * o.score)
    gains = [o.gain for o in ranked]
    assert gains == sorted(gains)
    if short == "spooky-author":
        # The paper's example: counts and a linear model, against 1,200 boosted trees.
        assert outcomes["cheap"].score < outcomes["expensive"].score
        assert outcomes["expensive"].gain > 0.0
    with capsys.disabled():
        for name, o in outcomes.items():
            print(
                f"  {short} {name}: {o.score:.4f} gain {o.gain:.3f} {o.seconds:.2f} s"
            )


@pytest.mark.slow
@pytest.mark.parametrize("short", ["spooky-author", "plant-pathology", "nomad2018"])
def test_scripts_run_unchanged_on_the_test_view(run, short):
    """The validation score predicts the test score, roughly (small samples)."""
    seen, unseen = run(short, "cheap"), run(short, "cheap", part="test")
    assert unseen.gain == pytest.approx(seen.gain, abs=0.2)
