"""A stop is not free: seconds of a step that was not committed stay on the clock."""

import shutil

import loop_help as helper
import pytest

from experiments.config.errors import LoopError, Stopped
from experiments.loop.algorithm import Loop
from experiments.records.phases import PHASES, Phases, Unfinished

# Seconds: an answer, a script, a grade.
SAMPLE, EXECUTE, GRADE = 0.75, 5.0, 0.5
STEPS, CHAINS = 3, 6


class Time:
    """A clock that only the policy, the sandbox and the grader move."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Slow(helper.ScriptedPolicy):
    """Answers take time, and their seconds say so."""

    def __init__(self, folder, time):
        super().__init__(folder, menu=((0.6, 1.0), (0.9, 8.0)))
        self.time = time

    def sample(self, step, rows, prompts):
        for group in super().sample(step, rows, prompts):
            self.time.now += SAMPLE * len(group.rows)
            yield group._replace(seconds=0 * group.seconds + SAMPLE)


def _begin(folder, time, *, stop_at=None, at_script=None, every=1, grade=None):
    """A loop of which the n-th script is stopped before it takes any time."""
    ran = iter(range(1, 10**6))

    def execute(run_id, script):
        now = next(ran)
        if at_script is not None:
            at_script(now)
        if now == stop_at:
            raise KeyboardInterrupt
        time.now += EXECUTE
        return helper.execute(run_id, script)

    def slow_grade(run):
        time.now += GRADE
        return helper.grade(run)

    hooks = helper.hooks(Slow(folder, time), execute=execute, grade=grade or slow_grade)
    spec = helper.spec("vanilla", chains=CHAINS, checkpoint_every=every)
    return Loop(folder, spec, hooks, resume=True, clock=time)


def _run(loop):
    while loop.next_step < STEPS:
        loop.step()


def _finish(folder, **options):
    with _begin(folder, Time(), **options) as loop:
        _run(loop)
        return loop.used()["total"], dict(loop.phase_s)


@pytest.fixture
def straight(tmp_path):
    folder = tmp_path / "straight"
    folder.mkdir()
    total, phases = _finish(folder)
    assert total == STEPS * CHAINS * (SAMPLE + EXECUTE + GRADE)
    return total, phases


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("stops", [(1,), (9,), (10, 2, 1), (16, 1)])
def test_a_stop_gives_no_free_seconds(tmp_path, straight, stops, every):
    """The stopped script had taken no time, so that totals are equal."""
    folder = tmp_path / "stopped"
    folder.mkdir()
    for stop in stops:
        with (
            _begin(folder, Time(), stop_at=stop, every=every) as loop,
            pytest.raises(Stopped),
        ):
            _run(loop)
    total, phases = _finish(folder, every=every)
    assert total == pytest.approx(straight[0])
    assert sum(phases.values()) == pytest.approx(straight[0])
    assert phases["sample"] == pytest.approx(straight[1]["sample"])
    assert phases["grade"] == pytest.approx(straight[1]["grade"])
    used = [m["used"]["total"] for m in helper.records(folder, "metrics.jsonl")]
    assert used == pytest.approx([straight[0] * k / STEPS for k in (1, 2, 3)])
    assert not Unfinished(folder).path.exists()


def test_a_killed_process_gives_none_either(tmp_path, straight):
    """The folder as a SIGKILL leaves it, before the fifth script of step 1 starts."""
    folder, killed = tmp_path / "run", tmp_path / "killed"
    folder.mkdir()

    def copy(script):
        if script == CHAINS + 5:
            shutil.copytree(folder, killed)

    _finish(folder, at_script=copy)
    # The fourth script had run, but nobody had looked at it: its seconds are lost with
    # it, and it runs again.
    assert _finish(killed)[0] == pytest.approx(straight[0])
    ids = [r["run_id"] for r in helper.records(killed)]
    assert len(ids) == len(set(ids)) == STEPS * CHAINS


def test_without_the_file_answers_say_what_they_cost(tmp_path, straight):
    folder = tmp_path / "run"
    folder.mkdir()
    with _begin(folder, Time(), stop_at=1) as loop, pytest.raises(Stopped):
        loop.step()
    Unfinished(folder).path.write_text("{ torn")
    assert _finish(folder)[0] == pytest.approx(straight[0])


def test_an_update_that_failed_is_not_free(tmp_path, straight):
    class Failing(Slow):
        def learn(self, *_):
            self.time.now += 7.0
            return {"norm": float("inf")}

    folder = tmp_path / "run"
    folder.mkdir()
    time = Time()
    hooks = helper.hooks(Failing(folder, time))
    with (
        Loop(folder, helper.spec("vanilla"), hooks, clock=time) as loop,
        pytest.raises(LoopError, match="norm is inf"),
    ):
        loop.step()
    total, phases = _finish(folder)
    assert phases["update"] == 7.0
    # That process ran and graded its scripts in no time.
    assert total == pytest.approx(straight[0] + 7 - CHAINS * (EXECUTE + GRADE))


def test_a_broken_sandbox_costs_its_answers_alone(tmp_path, straight):
    """No script ran: when the machine is well again they have their time."""
    folder = tmp_path / "run"
    folder.mkdir()
    time = Time()

    def broken(run_id, script):
        time.now += 1000.0
        raise RuntimeError("the pool is closed")

    hooks = helper.hooks(Slow(folder, time), execute=broken)
    spec = helper.spec("vanilla", chains=CHAINS)
    with (
        Loop(folder, spec, hooks, clock=time) as loop,
        pytest.raises(LoopError, match="every attempt"),
    ):
        loop.step()
    assert Unfinished(folder).load(0)["execute"] == 0
    assert _finish(folder)[1]["sample"] == pytest.approx(straight[1]["sample"])


def test_phases_add_up_at_any_moment():
    time, kept = Time(), []
    phases = Phases(time, {"sample": 10.0, "other": 1.0}, kept.append)
    time.now += 1
    with phases("sample"):
        time.now += 2
        phases.mark()
        time.now += 4
    with phases("grade"):
        time.now += 8
    assert kept == [dict.fromkeys(PHASES, 0.0) | {"sample": 12.0, "other": 2.0}]
    assert phases.done() == {
        "sample": 16.0, "execute": 0.0, "grade": 8.0, "update": 0.0, "other": 2.0,
    }  # fmt: skip


def test_a_file_of_another_step_or_of_nonsense_says_nothing(tmp_path):
    file = Unfinished(tmp_path)
    seconds = dict.fromkeys(PHASES, 1.5)
    assert file.load(0) is None
    file.keep(4, seconds)
    assert file.load(4) == seconds
    assert file.load(5) is None
    for bad in ("[]", '{"step": 4}', '{"step": 4, "seconds": {"sample": -1}}'):
        file.path.write_text(bad)
        assert file.load(4) is None
