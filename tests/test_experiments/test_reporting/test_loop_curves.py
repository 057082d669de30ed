"""Budget curves and the paper's table against plain recomputations."""

import loop_help as helper
import numpy as np
import pytest

from experiments.loop.algorithm import Loop
from experiments.reporting import curves, tables
from rpg_tasks import get_task

LOSS = get_task("spooky-author")


def _naive(events, t, baseline, higher, kind):
    """Value of one chain at t, by its definition."""
    seen, clock = [], 0.0
    for seconds, score in events:
        clock += seconds
        if clock <= t:
            seen.append(score)
    if kind == "best":
        valid = [s for s in seen if s is not None]
        return (max if higher else min)(valid) if valid else baseline
    filled = [baseline if s is None else s for s in seen]
    if not filled:
        return baseline
    return filled[-1] if kind == "last" else float(np.mean(filled))


@pytest.mark.parametrize("kind", curves.CURVES)
@pytest.mark.parametrize("task", [helper.TASK, LOSS], ids=["higher", "lower"])
def test_a_curve_is_its_definition(task, kind):
    rng = np.random.default_rng(1)
    baseline = 0.5
    events = [
        [
            (
                float(rng.choice([0.5, 1.0, 2.0])),
                None if rng.random() < 0.3 else rng.random(),
            )
            for _ in range(n)
        ]
        for n in (5, 9, 1)
    ]
    chains = [
        curves.chain(*zip(*e, strict=True), baseline=baseline, task=task, curve=kind)
        for e in events
    ]
    until = curves.reached(chains)
    assert until == min(sum(s for s, _ in e) for e in events)
    curve = curves.budget_curve(chains, baseline=baseline, until=until)
    assert curve.time[0] == 0
    assert curve.time[-1] == until
    for t, mean, se in zip(*curve, strict=True):
        values = [_naive(e, t, baseline, task.higher_is_better, kind) for e in events]
        assert mean == pytest.approx(np.mean(values), abs=1e-12)
        assert se == pytest.approx(np.std(values, ddof=1) / 3**0.5, abs=1e-9)


def test_right_continuous_and_baseline_first():
    chain = curves.chain(
        [2.0, 3.0], [None, 0.8], baseline=0.5, task=helper.TASK, curve="best"
    )
    times = np.array([0.0, 2.0, 4.999, 5.0, 9.0])
    np.testing.assert_array_equal(
        curves.at(chain, times, baseline=0.5), [0.5, 0.5, 0.5, 0.8, 0.8]
    )
    alone = curves.budget_curve([chain], baseline=0.5, until=5.0)
    assert np.isnan(alone.se).all()
    with pytest.raises(ValueError, match="at least one chain"):
        curves.budget_curve([], baseline=0.5, until=1.0)
    with pytest.raises(ValueError, match="curve must be"):
        curves.chain([1.0], [0.5], baseline=0.5, task=helper.TASK, curve="max")


def test_curves_of_a_run(tmp_path):
    """Both clocks from the records, and an attempt that the machinery lost."""

    def execute(run_id, script):
        if run_id.endswith("00001-002"):
            raise RuntimeError("pool gone")
        return helper.execute(run_id, script)

    policy = helper.ScriptedPolicy(tmp_path)
    hooks = helper.hooks(policy, execute=execute)
    with Loop(tmp_path, helper.spec(), hooks) as loop:
        for _ in range(5):
            loop.step()
    records = helper.records(tmp_path)
    metrics = helper.records(tmp_path, "metrics.jsonl")
    for clock in curves.CLOCKS:
        chains = curves.read_chains(
            tmp_path, helper.TASK, baseline=0.5, clock=clock, curve="best"
        )
        assert [len(c.time) for c in chains] == [5, 5, 4, 5, 5, 5]
        for i, chain in enumerate(chains):
            events = []
            for r in records:
                if r["chain"] == i and r["status"] != "infrastructure":
                    seconds = r["execution_s"]
                    if clock == "total":
                        update = metrics[r["step"]]["seconds"]["update"]
                        seconds += r["generation_s"] + r["grading_s"] + update / 6
                    events.append((seconds, r["score"]))
            np.testing.assert_allclose(
                chain.time, np.cumsum([s for s, _ in events]), rtol=1e-12
            )
            expected = [_naive(events, t + 1e-9, 0.5, True, "best") for t in chain.time]
            np.testing.assert_allclose(chain.value, expected)


def test_over_seeds():
    def one(score):
        return [
            curves.chain([1.0], [s], baseline=0.5, task=helper.TASK)
            for s in (score, score + 0.1)
        ]

    curve = curves.over_seeds([one(0.6), one(0.8)], baseline=0.5, until=1.0)
    assert curve.mean.tolist() == pytest.approx([0.5, 0.75])
    assert curve.se[-1] == pytest.approx(0.1)
    single = curves.over_seeds([one(0.6)], baseline=0.5, until=1.0)
    assert single.se[-1] == pytest.approx(0.05)


def test_the_papers_averages():
    printed = tables.paper_printed()
    assert printed.trimmed_mean == pytest.approx(19.185, abs=1e-9)
    assert round(printed.trimmed_mean, 1) == 19.2
    assert printed.mean == pytest.approx(40.0, abs=0.05)
    assert printed.median == pytest.approx(9.4, abs=0.05)
    assert (printed.wins, printed.rows) == (20, 22)


def test_the_papers_rows_by_the_same_code():
    """Each improvement recomputed from the printed means, within their rounding."""
    rows = tables.paper_rows()
    assert len(rows) == 22
    for row in rows:
        paper = row.task.paper
        slack = 0.0005 * (1 + abs(paper.rpg / paper.vanilla)) / paper.vanilla * 100
        assert row.improvement == pytest.approx(paper.improv_pct, abs=slack + 0.06)
    summary = tables.summarise([row.improvement for row in rows])
    assert summary.trimmed_mean == pytest.approx(19.2, abs=0.1)


def test_signs_and_small_tables():
    higher, lower = helper.TASK, LOSS
    assert tables.improvement(higher, 0.9, 0.6) == pytest.approx(50)
    assert tables.improvement(lower, 0.3, 0.6) == pytest.approx(50)
    assert tables.improvement(lower, 0.9, 0.6) == pytest.approx(-50)
    assert tables.improvement(higher, -0.1, -0.2) == pytest.approx(50)
    assert np.isnan(tables.improvement(higher, 0.5, 0.0))
    assert tables.improvement(higher, 0.0, 0.0) == 0
    two = tables.summarise([1.0, 3.0])
    assert np.isnan(two.trimmed_mean)
    assert (two.mean, two.median, two.wins) == (2.0, 2.0, 2)
    assert tables.summarise([]).rows == 0
    assert tables.repetitions([1.0, 2.0, 3.0]) == pytest.approx((2.0, 1 / 3**0.5))
    assert np.isnan(tables.repetitions([1.0]).se)
