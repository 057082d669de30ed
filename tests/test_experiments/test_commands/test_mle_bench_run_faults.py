"""What can go wrong while an experiment runs: signals, disks, pools, tasks."""

import csv
import dataclasses
import errno
import json
import os
import signal
import threading
from concurrent.futures import Future

import loop_help as helper
import mle_run_help as run_help
import pytest
import report_help
from mle_run_help import Experiment, lines
from synthetic_helpers import shared_cache

from experiments.config.errors import UsageError
from experiments.records import ledger, rundir
from experiments.records.recorded import MEASURED
from experiments.running.final import FinalScoring
from experiments.running.places import check_folder
from rpg_jax.llm import Checkpoints
from rpg_tasks import Grader, TaskError
from sandbox_exec import Limits

COMMAND = run_help.COMMAND


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return shared_cache(tmp_path_factory)


def statuses(experiment):
    with (experiment.out / "result.csv").open(encoding="utf-8") as file:
        return {(r["task"], r["arm"]): r["status"] for r in csv.DictReader(file)}


def bare(folder):
    """Records without what is measured."""
    attempts = sorted(
        lines(folder / "attempts.jsonl"), key=lambda r: (r["step"], r["chain"])
    )
    drop = ("started_at", "grading_s")
    return (
        [{k: v for k, v in r.items() if k not in drop} for r in attempts],
        [
            {k: v for k, v in m.items() if k not in MEASURED}
            for m in lines(folder / "metrics.jsonl")
        ],
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory, cache):
    experiment = Experiment(tmp_path_factory.mktemp("mle") / "run", cache)
    assert experiment.launch()[0] == 0
    return experiment


def stop_at(count, sent):
    """Stops the process at its n-th script."""
    jobs = iter(range(1, 10**6))

    def before(job):
        if next(jobs) == count:
            if sent is None:
                raise KeyboardInterrupt
            os.kill(os.getpid(), sent)
            threading.Event().wait(5)  # until the handler has run

    return before


@pytest.mark.parametrize(
    ("count", "sent", "code"),
    [(3, None, 130), (11, signal.SIGTERM, 143), (22, None, 130)],
)
def test_stop_and_resume_is_exact(tmp_path, cache, whole, count, sent, code):
    experiment = Experiment(tmp_path / "run", cache)
    experiment.before = stop_at(count, sent)
    got, text = experiment.launch()
    assert got == code
    assert text.splitlines()[-1] == (
        f"go on with: python -m experiments.mle_bench --resume --out={experiment.out}"
    )
    assert set(statuses(experiment).values()) == {"stopped"}
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    experiment.before = None
    got, text = experiment.launch(resume=True)
    assert got == 0
    assert set(statuses(experiment).values()) == {"done"}
    for arm in ("rpg", "vanilla"):
        assert bare(experiment.run(arm)) == bare(whole.run(arm))
        assert lines(experiment.run(arm) / "final.jsonl") == lines(
            whole.run(arm) / "final.jsonl"
        )


def test_resume_of_a_finished_run_does_nothing(tmp_path, cache):
    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"], steps=1)
    assert experiment.launch()[0] == 0
    before = (experiment.run() / "attempts.jsonl").read_bytes()
    code, text = experiment.launch(resume=True)
    assert code == 0
    assert "done already" in text
    assert len(experiment.pools) == 1
    assert (experiment.run() / "attempts.jsonl").read_bytes() == before


def test_another_configuration_cannot_resume(tmp_path, cache):
    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"], steps=1)
    assert experiment.launch()[0] == 0
    experiment.settings = run_help.settings(arms=["rpg"], steps=1, chains=5)
    with pytest.raises(UsageError, match=r"another configuration .*protocol"):
        experiment.launch(resume=True)
    with pytest.raises(UsageError, match="holds a run already: add --resume"):
        experiment.launch()


def test_a_failing_task_costs_its_task_alone(tmp_path, cache, capsys):
    tasks = ["leaf-classif", run_help.TASK]
    experiment = Experiment(
        tmp_path / "run", cache, task=tasks, arms=["vanilla"], steps=1
    )
    good = experiment.prepare

    def prepare(task, source):
        if task.short == "leaf-classif":
            raise TaskError("leaf-classif: its data are\nhalf there")
        return good(task, source)

    experiment.prepare = prepare
    code, text = experiment.launch()
    assert code == 1
    error = capsys.readouterr().err
    assert error == "error: leaf-classif: leaf-classif: its data are half there\n"
    assert text.splitlines()[-1].startswith("failed  leaf-classif (1 of 2 tasks done)")
    assert statuses(experiment) == {
        ("leaf-classif", "vanilla"): "failed",
        (run_help.TASK, "vanilla"): "done",
    }
    # The next try skips what is done; the task can be run now but writes nothing.
    experiment.prepare = good
    code, text = experiment.launch(resume=True)
    assert code == 0
    assert f"{run_help.TASK}: done already" in text
    assert set(statuses(experiment).values()) == {"done"}


def test_a_full_disk_is_one_line_and_nothing_is_lost(
    tmp_path, cache, whole, monkeypatch, capsys
):
    experiment = Experiment(tmp_path / "run", cache)
    writes = iter(range(1, 10**6))
    real = ledger.Ledger._write

    def full(self, line):
        if next(writes) > 17:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, line)

    with monkeypatch.context() as patch:
        patch.setattr(ledger.Ledger, "_write", full)
        code, text = experiment.launch()
    assert code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "No space left" in line
    assert "--resume" in line
    assert "Traceback" not in text
    assert experiment.launch(resume=True)[0] == 0
    assert bare(experiment.run()) == bare(whole.run())


def test_a_checkpoint_that_does_not_fit_the_disk(
    tmp_path, cache, whole, monkeypatch, capsys
):
    """The real store says it in one line; steps already recorded are not run again."""

    class Storing(helper.ScriptedPolicy):
        full = False

        def save(self, step, meta):
            with Checkpoints(self.folder / "checkpoints") as store:
                if self.full and step == 2:
                    monkeypatch.setattr(store._manager, "save", no_space)
                store.save(step, {"theta": {"x": self.theta}})
            super().save(step, meta)

    def no_space(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    experiment = Experiment(tmp_path / "run", cache)
    machine = dataclasses.replace(experiment.settings.machine, checkpoint_every=1)
    experiment.settings = dataclasses.replace(experiment.settings, machine=machine)
    experiment.policy = lambda folder, seed: Storing(folder, seed=seed)
    monkeypatch.setattr(Storing, "full", True)
    assert experiment.launch()[0] == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "No space left" in line
    assert "resume" in line
    assert "CheckpointError" not in line
    assert not (experiment.out / run_help.TASK / "error.txt").exists()
    monkeypatch.setattr(Storing, "full", False)
    ran = []
    experiment.before = lambda job: ran.append(job.run_id)
    assert experiment.launch(resume=True)[0] == 0
    for arm in ("rpg", "vanilla"):
        assert bare(experiment.run(arm)) == bare(whole.run(arm))
    before = [r["run_id"] for r in lines(experiment.run() / "attempts.jsonl")][:8]
    assert not set(before) & set(ran)


def test_a_damaged_run_costs_its_own_row_alone(tmp_path, cache, capsys):
    """A line in the middle of its records is broken after it was done."""
    tasks = ["leaf-classif", run_help.TASK]
    experiment = Experiment(tmp_path / "run", cache, task=tasks, arms=["vanilla"])
    # The stand-in's submissions fit the other task alone.
    crash = (("nonzero_exit", 0.1), ("timeout", 60.0))
    experiment.policy = lambda folder, seed: helper.ScriptedPolicy(
        folder, seed=seed, menu=crash if "leaf-classif" in folder.parts else helper.MENU
    )
    assert experiment.launch()[0] == 0
    path = experiment.run("vanilla", task="leaf-classif") / "attempts.jsonl"
    records = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([records[0], b"{broken\n", *records[2:]]))
    capsys.readouterr()
    with report_help.undrawn():
        code, text = experiment.launch(resume=True, report=True)
    assert code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"{path} is damaged at byte {len(records[0])}" in line
    with (experiment.out / "result.csv").open(encoding="utf-8") as file:
        broken, good = csv.DictReader(file)
    assert (broken["status"], broken["steps"], broken["valid_share"]) == (
        "damaged",
        "0",
        "",
    )
    assert (good["status"], good["steps"]) == ("done", "3")
    page = (experiment.out / "report" / "report.html").read_text("utf-8")
    assert "leaf-classif/vanilla/seed-0: left out" in page
    assert "Only vanilla was run" in page
    assert f"report  {experiment.out}" in text
    assert "result  Only vanilla was run" in text


def test_a_second_process_is_refused_before_anything_starts(tmp_path, cache):
    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"], steps=1)
    assert experiment.launch()[0] == 0
    state = experiment.out / run_help.TASK / "task.json"
    state.write_text('{"status": "running"}')
    experiment.policies.clear()
    with (
        rundir.sole_writer(experiment.out),
        pytest.raises(UsageError, match="another process is writing to"),
    ):
        experiment.launch(resume=True)
    assert experiment.policies == []
    assert state.read_text() == '{"status": "running"}'
    assert experiment.launch(resume=True)[0] == 0


def test_half_a_configuration_is_no_run(tmp_path, cache, whole):
    """A process killed while it writes a config.json leaves the half of one."""
    experiment = Experiment(tmp_path / "run", cache)
    experiment.out.mkdir()
    (experiment.out / "tmpab12.partial").write_text('{"conf')
    check_folder(experiment.out, resume=False)
    good = experiment.prepare

    def stop(task, source):
        raise KeyboardInterrupt

    experiment.prepare = stop
    assert experiment.launch()[0] == 130
    experiment.run().mkdir(parents=True)
    (experiment.run() / "tmpcd34.partial").write_text('{"conf')
    experiment.prepare = good
    assert experiment.launch(resume=True)[0] == 0
    assert bare(experiment.run()) == bare(whole.run())


def test_a_closed_pool_is_one_line(tmp_path, cache, capsys):
    def closed(job):
        raise RuntimeError("the pool is closed")

    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"], steps=2)
    experiment.before = closed
    code, _ = experiment.launch()
    assert code == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "the pool is closed" in line
    assert "Nothing was learned" in line


def test_what_nobody_foresaw_keeps_its_traceback_in_a_file(tmp_path, cache, capsys):
    class Broken(helper.ScriptedPolicy):
        def learn(self, step, generations, signals):
            raise ZeroDivisionError("one over zero")

    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"], steps=2)
    experiment.policy = lambda folder, seed: Broken(folder, seed=seed)
    assert experiment.launch()[0] == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "ZeroDivisionError: one over zero" in line
    trace = experiment.out / run_help.TASK / "error.txt"
    assert str(trace) in line
    assert "in learn" in trace.read_text("utf-8")


def test_a_lost_test_run_is_reported_not_scored(tmp_path, cache):
    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"])
    experiment.lost = True
    code, text = experiment.launch()
    assert code == 0
    assert "private test: infrastructure (sandbox: a cable was cut)" in text
    (record,) = lines(experiment.run() / "final.jsonl")
    assert record["status"] == "infrastructure"
    assert record["score"] is None
    with (experiment.out / "result.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert (row["test_status"], row["test_score"]) == ("infrastructure", "")
    # The machine is well again: the same script is tried once more.
    state = experiment.out / run_help.TASK / "task.json"
    assert json.loads(state.read_text("utf-8"))["status"] == "test lost"
    experiment.lost = False
    code, _ = experiment.launch(resume=True)
    assert code == 0
    first, second = lines(experiment.run() / "final.jsonl")
    assert second["of"] == first["of"]
    assert second["status"] == "valid"


def test_a_test_run_that_never_ends_is_lost(tmp_path, cache):
    """Nobody waits for a pool that says nothing."""

    class Silent(run_help.FakePool):
        def submit(self, job):
            return Future()

    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"])
    assert experiment.launch()[0] == 0
    folder = experiment.run()
    (folder / "final.jsonl").unlink()
    grader = Grader(run_help.TASK, experiment.data.test_answers)
    scoring = FinalScoring(
        experiment.data, grader, Limits(), Silent(None), "best", patience_s=0.01
    )
    assert scoring.score([(folder, 3)]) == 1
    (record,) = lines(folder / "final.jsonl")
    assert record["status"] == "infrastructure"
    assert "no script finished for 0.01 s" in record["reason"]


def test_a_policy_is_closed_whatever_happens(tmp_path, cache):
    closed = []

    class Closing(helper.ScriptedPolicy):
        def learn(self, *_):
            raise ZeroDivisionError

        def close(self):
            closed.append(self.seed)

    experiment = Experiment(tmp_path / "run", cache, arms=["rpg"], seeds=["2"])
    experiment.policy = lambda folder, seed: Closing(folder, seed=seed)
    assert experiment.launch()[0] == 1
    assert sorted(closed) == [0, 1]
