"""The private test falls back on the next best script where the best one fails."""

import csv
from dataclasses import replace

import loop_help as helper
import mle_run_help as run_help
import pytest
from mle_run_help import Experiment, lines
from synthetic_helpers import shared_cache

from experiments.records.final import scored
from experiments.running.final import ranked_attempts
from rpg_tasks import get_task


class Timid(run_help.FakePool):
    """Scripts of these scores time out on the test rows."""

    hung: tuple = ()
    lost_scores: tuple = ()

    def submit(self, job):
        future = super().submit(job)
        if job.inputs == self.data.test_public:
            score = helper.order_of(job.script)["score"]
            for scores, status in (
                (self.hung, "timeout"),
                (self.lost_scores, "sandbox_error"),
            ):
                if score in scores:
                    record = replace(
                        future.result(), status=status, submission_bytes=None
                    )
                    future = type(future)()
                    future.set_result(record)
        return future


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return shared_cache(tmp_path_factory)


@pytest.fixture
def launch(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(run_help, "FakePool", Timid)

    def launched(hung, lost=(), resume=False, **changes):
        monkeypatch.setattr(Timid, "hung", hung)
        monkeypatch.setattr(Timid, "lost_scores", lost)
        experiment = Experiment(
            tmp_path / "run", cache, arms=["vanilla"], **{"steps": 3} | changes
        )
        code, text = experiment.launch(resume=resume)
        assert code == 0
        with (experiment.out / "result.csv").open(encoding="utf-8") as file:
            (row,) = csv.DictReader(file)
        folder = experiment.run("vanilla")
        return folder, lines(folder / "final.jsonl"), row, " ".join(text.split())

    return launched


@pytest.fixture
def ranked(launch, tmp_path):
    """Scores of the three best programs of the run that every launch repeats."""
    folder, _, _, _ = launch(())
    task = get_task(run_help.TASK)
    best = ranked_attempts(folder, task, steps=3)
    orders = [helper.order_of((folder / r["script_file"]).read_bytes()) for r in best]
    (tmp_path / "run").rename(tmp_path / "probe")
    assert [r["score"] for r in best] == sorted(r["score"] for r in best)[::-1]
    return best, [order["score"] for order in orders]


def test_the_next_best_stands_in(launch, ranked):
    best, scores = ranked
    hung = tuple({scores[0]})
    _, records, row, text = launch(hung)
    later = next(i for i, s in enumerate(scores) if s != scores[0])
    assert [r["of"] for r in records] == [r["run_id"] for r in best[: later + 1]]
    assert records[0]["best"]
    assert records[0]["status"] == "failed"
    assert records[0]["fallbacks"] == [r["run_id"] for r in best[1:]]
    last = records[-1]
    assert (last["instead_of"], last["place"]) == (best[0]["run_id"], later + 1)
    assert (row["test_status"], row["test_place"]) == ("valid", str(later + 1))
    assert float(row["test_score"]) == last["score"]
    assert "because the best script failed its private test" in text


def test_three_are_tried_and_no_more(launch, ranked):
    _, records, row, _ = launch(tuple(m[0] for m in helper.MENU))
    assert len(records) == 3
    assert (row["test_status"], row["test_place"]) == ("failed", "1")
    assert row["test_score"] == ""


def test_a_lost_fallback_is_tried_again_by_resume(launch, ranked):
    _, scores = ranked
    rest = tuple(s for s in scores if s != scores[0])
    folder, records, row, _ = launch((scores[0],), lost=rest)
    assert records[-1]["status"] == row["test_status"] == "infrastructure"
    count = len(records)
    _, records, row, _ = launch((scores[0],), resume=True)
    assert len(records) == count + 1
    assert records[-1]["run_id"].endswith("-t1")
    assert (records[-1]["status"], row["test_status"]) == ("valid", "valid")
    assert scored(folder)[0] == records[-1]
    _, again, _, _ = launch((scores[0],), resume=True)
    assert again == records


def test_every_chain_and_a_fallback(launch, ranked):
    best, scores = ranked
    folder, records, row, _ = launch((scores[0],), final="chains")
    assert len({r["of"] for r in records}) == len(records)
    found, place = scored(folder)
    assert place > 1
    assert row["test_score"] == str(found["score"])
    assert found["of"] == best[place - 1]["run_id"]
