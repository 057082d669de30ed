"""An experiment from settings to result.csv, with a scripted policy."""

import csv
import json
import struct

import loop_help as helper
import mle_run_help as run_help
import numpy as np
import pytest
from mle_run_help import Experiment, lines
from synthetic_helpers import shared_cache

from experiments.config.errors import UsageError
from experiments.records.recorded import MEASURED
from experiments.records.results import FIELDS
from experiments.running.final import best_attempts
from rpg_tasks import Grader, get_task

COMMAND = run_help.COMMAND


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return shared_cache(tmp_path_factory)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache):
    experiment = Experiment(
        tmp_path_factory.mktemp("mle") / "run", cache, seeds=["2"], final="chains"
    )
    code, text = experiment.launch()
    assert code == 0, text
    return experiment, text


def rows(experiment):
    with (experiment.out / "result.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_folder_holds_the_whole_story(finished):
    experiment, _ = finished
    config = json.loads((experiment.out / "config.json").read_text("utf-8"))
    assert config["config"]["protocol"]["chains"] == 4
    assert config["config"]["weights"] == "scripted"
    assert config["config"]["sources"] == ["synthetic"]
    assert {"git", "machine", "versions", "command"} <= set(config)
    for arm in ("rpg", "vanilla"):
        for seed in (0, 1):
            folder = experiment.run(arm, seed)
            spec = json.loads((folder / "config.json").read_text("utf-8"))["config"]
            assert (spec["arm"]["name"], spec["seed"]) == (arm, seed)
            assert len(lines(folder / "attempts.jsonl")) == 12
            assert len(lines(folder / "metrics.jsonl")) == 3


def test_arms_differ_in_the_price_of_a_second_alone(finished):
    """Their records may differ where a price enters, and nowhere before."""
    experiment, _ = finished
    configs = [
        json.loads((experiment.run(arm) / "config.json").read_text("utf-8"))["config"]
        for arm in ("rpg", "vanilla")
    ]
    arms = [config.pop("arm") for config in configs]
    assert configs[0] == configs[1]
    assert {k for k in arms[0] if arms[0][k] != arms[1][k]} == {
        "name",
        "advantage_price",
        "ranking_price",
    }
    for seed in (0, 1):
        first = [
            [
                (r["chain"], r["prompt_id"], r["answer_sha256"], r["reward"])
                for r in lines(experiment.run(arm, seed) / "attempts.jsonl")
                if r["step"] == 0
            ]
            for arm in ("rpg", "vanilla")
        ]
        assert first[0] == first[1]
    different = [
        {r["answer_sha256"] for r in lines(experiment.run(seed=s) / "attempts.jsonl")}
        for s in (0, 1)
    ]
    assert different[0] != different[1]


def test_runs_take_turns(finished):
    """Each step of every run ends before the next step of any run begins."""
    _, text = finished
    steps = [line for line in text.splitlines() if ": step " in line]
    numbers = [int(line.split(": step ")[1].split(",")[0]) for line in steps]
    assert numbers == [0] * 4 + [1] * 4 + [2] * 4
    names = {line.split(":")[0] for line in steps[:4]}
    assert len(names) == 4


def test_result_csv_against_the_records(finished):
    experiment, _ = finished
    table = rows(experiment)
    assert list(table[0]) == list(FIELDS)
    assert len(table) == 4
    for row in table:
        folder = experiment.run(row["arm"], row["seed"])
        attempts = lines(folder / "attempts.jsonl")
        metrics = lines(folder / "metrics.jsonl")[-1]
        assert row["status"] == "done"
        assert int(row["attempts"]) == len(attempts) == 12
        share = np.mean([r["status"] == "valid" for r in attempts])
        assert float(row["valid_share"]) == pytest.approx(share)
        reward = np.mean([r["reward"] for r in attempts])
        assert float(row["mean_reward"]) == pytest.approx(reward)
        rate = sum(r["value"] for r in attempts) / sum(r["delta_s"] for r in attempts)
        assert float(row["reward_rate"]) == pytest.approx(rate)
        assert float(row["rho"]) == metrics["rho_next"]
        best = max(r["score"] for r in attempts if r["valid"])
        assert float(row["best_validation_score"]) == best
        assert float(row["execution_s"]) == pytest.approx(
            sum(r["execution_s"] for r in attempts) / 4
        )


def test_the_private_test_is_scored_on_its_own_answers(finished):
    """Scores are those of the test answers, for each chain's best script."""
    experiment, _ = finished
    grader = Grader(run_help.TASK, experiment.data.test_answers)
    for row in rows(experiment):
        folder = experiment.run(row["arm"], row["seed"])
        found = lines(folder / "final.jsonl")
        chains = {r["chain"]: r for r in found}
        best = {}
        for attempt in lines(folder / "attempts.jsonl"):
            known = best.get(attempt["chain"])
            if attempt["valid"] and (
                known is None or attempt["score"] > known["score"]
            ):
                best[attempt["chain"]] = attempt
        assert {c: r["of"] for c, r in chains.items()} == {
            c: r["run_id"] for c, r in best.items()
        }
        for record in found:
            text = (folder / record["script_file"]).read_text("utf-8")
            quality = helper.order_of(text.encode())["score"]
            content = run_help.submission(experiment.data, "test", quality)
            assert record["score"] == grader.grade_bytes(content).score
        (top,) = [r for r in found if r["best"]]
        assert top["validation_score"] == float(row["best_validation_score"])
        assert top["score"] == float(row["test_score"])


def test_test_runs_see_the_test_rows_and_nothing_goes_back(finished):
    experiment, _ = finished
    (pool,) = experiment.pools
    test = [j for j in pool.jobs if j.inputs == experiment.data.test_public]
    rest = [j for j in pool.jobs if j.inputs != experiment.data.test_public]
    assert {j.inputs for j in rest} == {experiment.data.public}
    assert pool.jobs == rest + test
    assert test


def test_ties_go_to_the_earliest(tmp_path):
    base = {"valid": True, "run_id": "x", "script_sha256": "s"}
    records = [
        {**base, "step": 0, "chain": 0, "score": 0.5},
        {**base, "step": 0, "chain": 1, "score": 0.7},
        {**base, "step": 1, "chain": 0, "score": 0.7},
        {**base, "step": 1, "chain": 1, "score": 0.7},
        {**base, "step": 2, "chain": 0, "score": 0.9},  # not committed
    ]
    text = "".join(json.dumps(r) + "\n" for r in records)
    (tmp_path / "attempts.jsonl").write_text(text)
    task = get_task("tabular-2022")
    (best,) = best_attempts(tmp_path, task, steps=2, mode="best")
    assert (best["step"], best["chain"]) == (0, 1)
    both = best_attempts(tmp_path, task, steps=2, mode="chains")
    assert [(r["step"], r["chain"]) for r in both] == [(0, 1), (1, 0)]
    lower = get_task("spooky-author")
    (best,) = best_attempts(tmp_path, lower, steps=2, mode="best")
    assert best["score"] == 0.5
    assert best_attempts(tmp_path, task, steps=2, mode="none") == []


def test_tensorboard_files_hold_the_metrics(finished):
    from tensorboardX.proto.event_pb2 import Event

    experiment, _ = finished
    folder = experiment.run()
    seen = {}
    for path in (folder / "tb").iterdir():
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            for value in event.summary.value:
                seen[value.tag, event.step] = value.simple_value
    for metrics in lines(folder / "metrics.jsonl"):
        for name in ("rho_next", "valid_share", "mean_delta_s"):
            assert seen[f"loop/{name}", metrics["step"]] == np.float32(metrics[name])
        assert seen["learn/norm", metrics["step"]] == np.float32(
            metrics["learn"]["norm"]
        )


def test_what_it_prints(finished):
    experiment, text = finished
    assert text.splitlines()[-1] == f"done    {experiment.out / 'result.csv'}"
    assert f"python -m experiments.report {experiment.out}" in text
    assert "test score" in text
    (time_line,) = [line for line in text.splitlines() if line.startswith("time ")]
    shares = [int(part.split()[-1].rstrip("%")) for part in time_line[8:].split(",")]
    assert abs(sum(shares) - 100) <= 3


def test_the_live_table(tmp_path, cache):
    experiment = Experiment(tmp_path / "run", cache, steps=2, arms=["rpg"])
    code, text = experiment.launch(live=True)
    assert code == 0
    assert "rpg s0" in text
    assert "100%" in text
    assert "\x1b[2K" in text  # drawn in place
    assert ": step 1" not in text


def test_replay_is_bit_for_bit(finished, tmp_path, cache):
    source, _ = finished
    copy = Experiment(tmp_path / "copy", cache, seeds=["2"])
    code, text = copy.launch(replay=source.out)
    assert code == 0, text
    assert "replay  12 steps of 4 runs came out bit for bit" in text
    assert copy.pools == []
    for arm in ("rpg", "vanilla"):
        one, two = source.run(arm, 1), copy.run(arm, 1)
        assert (one / "attempts.jsonl").read_bytes() == (
            two / "attempts.jsonl"
        ).read_bytes()
        for a, b in zip(
            lines(one / "metrics.jsonl"), lines(two / "metrics.jsonl"), strict=True
        ):
            assert {k: a[k] for k in a if k not in MEASURED} == {
                k: b[k] for k in b if k not in MEASURED
            }
    assert {row["status"] for row in rows(copy)} == {"replayed"}


def test_replay_of_a_changed_ledger_fails_in_one_line(tmp_path, cache, capsys):
    source = Experiment(tmp_path / "run", cache, arms=["rpg"])
    assert source.launch()[0] == 0
    path = source.run() / "attempts.jsonl"
    records = lines(path)
    at = next(i for i, r in enumerate(records) if r["valid"])
    records[at]["delta_s"] *= 1 + 1e-12
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    copy = Experiment(tmp_path / "copy", cache, arms=["rpg"])
    code, text = copy.launch(replay=source.out)
    assert code == 1
    assert "bit for bit" not in text
    # A replay cannot be resumed.
    assert "--resume" not in text
    assert text.splitlines()[-1].endswith(
        "a replay starts from the beginning: choose another --out"
    )
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "on record is" in line


def test_replay_of_what_was_stopped(tmp_path, cache, capsys):
    """Tasks never begun are passed over; a run without a step is refused."""
    tasks = [run_help.TASK, "leaf-classif"]
    source = Experiment(tmp_path / "run", cache, task=tasks, arms=["rpg"], steps=2)
    source.before = stop_in_step(1)
    assert source.launch()[0] == 130
    copy = Experiment(tmp_path / "copy", cache, task=tasks, arms=["rpg"], steps=2)
    code, text = copy.launch(replay=source.out)
    assert code == 0, capsys.readouterr().err
    assert f"leaf-classif: no step of it is finished in {source.out}" in text
    assert "replay  1 steps of 1 runs came out bit for bit" in text
    assert [(r["task"], r["status"], r["steps"]) for r in rows(copy)] == [
        (run_help.TASK, "replayed", "1"),
        ("leaf-classif", "new", "0"),
    ]

    empty = Experiment(tmp_path / "empty", cache, arms=["rpg"], steps=2)
    empty.before = stop_in_step(0)
    assert empty.launch()[0] == 130
    copy = Experiment(tmp_path / "copy2", cache, arms=["rpg"], steps=2)
    with pytest.raises(UsageError, match="no finished step: there is nothing to re"):
        copy.launch(replay=empty.out)
    assert not copy.out.exists()


def stop_in_step(step):
    def before(job):
        if f"-{step:05d}-" in job.run_id:
            raise KeyboardInterrupt

    return before


def test_a_policy_that_writes_no_script_is_no_error(tmp_path, cache):
    class Silent(helper.ScriptedPolicy):
        def sample(self, step, rows, prompts):
            for group in super().sample(step, rows, prompts):
                yield group._replace(texts=("nothing",) * len(group.rows))

    experiment = Experiment(tmp_path / "run", cache, arms=["vanilla"], steps=1)
    experiment.policy = lambda folder, seed: Silent(folder, seed=seed)
    assert experiment.launch()[0] == 0
    (row,) = rows(experiment)
    assert float(row["valid_share"]) == 0
    assert row["test_score"] == row["best_validation_score"] == ""
    assert not (experiment.run("vanilla") / "final.jsonl").exists()
