"""--advantage=parent against refits in NumPy, from the records alone."""

import dataclasses

import loop_help as helper
import numpy as np
import pytest

from experiments.config.budget import Budget
from experiments.config.errors import LoopError
from experiments.config.protocol import SOUND, Learning
from experiments.loop.algorithm import Loop
from experiments.loop.baseline import ParentBaseline, parent_features
from experiments.loop.learn import Rows, make_signals
from experiments.loop.select import Entry
from experiments.loop.turns import run
from experiments.policies.llm import LLMOptions, ppo_hyper
from experiments.records.recorded import MEASURED

PARENT = dataclasses.replace(
    SOUND, learning=Learning(advantage="parent", baseline_batches=3)
)
CHAINS = 6


def _run(folder, steps=6, **options):
    policy = helper.ScriptedPolicy(folder)
    spec = helper.spec(protocol=PARENT, chains=CHAINS)
    with Loop(folder, spec, helper.hooks(policy), **options) as loop:
        run([loop], Budget(steps=steps))


def _expected(records, metrics):
    """Fits without row i of [present batch, parent, value, log seconds]."""
    by_id = {r["run_id"]: r for r in records}
    batches = []
    for m in metrics:
        rows = [r for r in records if r["step"] == m["step"]]
        x = np.full((CHAINS, 3), np.nan)
        for i, r in enumerate(rows):
            parent = by_id.get(r["parent"])
            x[i, 0] = parent is not None
            if parent is not None:
                x[i, 1:] = parent["value"], np.log(parent["delta_s"])
        x = np.where(np.isnan(x), np.nan_to_num(np.nanmean(x, 0)), x)
        reward = np.array([r["reward"] for r in rows])
        batches = [*batches, (x - x.mean(0), reward, np.array(m["charged_s"]))][-3:]
        features, target = [], []
        for z, reward, charged in batches:
            y = reward - m["price"] * charged
            last = z is batches[-1][0]
            features.append(np.column_stack([np.full(CHAINS, float(last)), z]))
            target.append(y if last else y - y.mean())
        x, y = np.concatenate(features), np.concatenate(target)
        scale = np.sqrt((x[:, 1:] ** 2).mean(0))
        x[:, 1:] = np.where(scale > 1e-9, x[:, 1:] / np.maximum(scale, 1e-30), 0)
        out = []
        for i in range(len(y) - CHAINS, len(y)):
            a, b = np.delete(x, i, 0), np.delete(y, i)
            fit = np.linalg.solve(a.T @ a + np.diag([0.0, 1, 1, 1]), a.T @ b)
            out.append(y[i] - x[i] @ fit)
        yield np.array(out)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_advantages_recompute_from_the_records(tmp_path):
    _run(tmp_path)
    records = helper.records(tmp_path)
    metrics = helper.records(tmp_path, "metrics.jsonl")
    for m, want in zip(metrics, _expected(records, metrics), strict=True):
        np.testing.assert_allclose(m["advantage"], want, rtol=1e-3, atol=1e-5)
    first = np.array(metrics[0]["relative"])  # no parents: nothing but the mean
    loo = [first[i] - np.delete(first, i).mean() for i in range(CHAINS)]
    np.testing.assert_allclose(metrics[0]["advantage"], loo, rtol=1e-4, atol=1e-6)


def test_resume_and_replay_give_the_same_advantages(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    _run(tmp_path / "a")
    for steps in range(1, 7):
        _run(tmp_path / "b", steps, resume=True)
    _run(tmp_path / "c", replay=tmp_path / "a")
    found = [
        [
            {k: v for k, v in m.items() if k not in MEASURED}
            for m in helper.records(tmp_path / name, "metrics.jsonl")
        ]
        for name in ("a", "b", "c")
    ]
    assert found[0] == found[1] == found[2]


def test_a_child_is_credited_for_its_edit_and_not_for_its_parent():
    """Values are the parent's plus an edit: the advantage is the edit's."""
    rng = np.random.default_rng(0)
    baseline = ParentBaseline(8, 16)
    arm = helper.spec("vanilla").arm
    for _ in range(8):
        value, edit = rng.uniform(0, 1, 16), 0.05 * rng.standard_normal(16)
        parents = {str(i): Entry(str(i), 0, value[i], 2.0) for i in range(16)}
        records = [{"run_id": f"c{i}", "parent": str(i)} for i in range(16)]
        every = np.ones(16, bool)
        rows = Rows(value + edit, value + edit, np.ones(16), every, every, None)
        signals = make_signals(
            *(arm, SOUND.rule, rows),
            price=0.0,
            limit_s=60.0,
            baseline=baseline,
            features=parent_features(records, parents),
        )
    plain = make_signals(arm, SOUND.rule, rows, price=0.0, limit_s=60.0)
    assert np.corrcoef(signals.advantage, edit)[0, 1] > 0.95
    assert np.corrcoef(plain.advantage, edit)[0, 1] < 0.7


def test_lost_rows_and_lone_rows_have_no_advantage():
    baseline, same = ParentBaseline(2, 3), lambda reward, charged: reward
    x = np.array([[1.0, 0.2, 0.0], [1.0, 0.9, 1.0], [0.0, 0.5, 0.5]])
    reward, charged = np.array([1.0, 5.0, 2.0]), np.ones(3)
    for known in ([True, False, True], [False, True, False], [False] * 3):
        out = baseline.advantage(reward, charged, np.array(known), x, same)
        assert np.isfinite(out).all()
        lone = sum(known) < 2
        assert (out != 0).tolist() == ([False] * 3 if lone else known)
    with pytest.raises(LoopError, match="not on record before it"):
        parent_features([{"run_id": "b", "parent": "a"}], {})


def test_the_update_takes_them_as_they_are():
    hyper = ppo_hyper(PARENT.learning, PARENT.sampling, LLMOptions())
    assert hyper.advantage == "given"
    with pytest.raises(ValueError, match="advantage must be one of"):
        Learning(advantage="given")
