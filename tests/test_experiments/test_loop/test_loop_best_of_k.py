"""Max-at-k and the own rate in the loop: every number again from the records alone."""

import dataclasses
import json

import loop_help as helper
import numpy as np
import pytest

from experiments.config.budget import Budget
from experiments.config.errors import ReplayError
from experiments.config.objective import MaxAtK
from experiments.config.protocol import SOUND
from experiments.loop.algorithm import Loop
from experiments.loop.horizon import Horizon
from experiments.loop.learn import Rows
from experiments.loop.objective import BestOfK
from experiments.loop.turns import run
from experiments.records.recorded import MEASURED
from rpg_jax import kernel_cdf, max_at_k_of, pareto_tail_cdf

CHAINS, STEPS = 6, 6
ARMS = ("max-at-k", "max-at-k+own", "max-at-k+greedy-ranking", "rpg-best", "reward+own")


def _spec(arm, budget=None, *, protocol=SOUND, **options):
    spec = helper.spec(arm, chains=CHAINS, protocol=_with(protocol, **options))
    return dataclasses.replace(spec, budget=budget)


def _with(protocol, *, repeats="run", **options):
    changed = MaxAtK(**options)
    return dataclasses.replace(protocol, max_at_k=changed, repeats=repeats)


def _run(folder, spec, steps=STEPS, **options):
    folder.mkdir(exist_ok=True)
    policy = options.pop("policy", None) or helper.ScriptedPolicy(folder)
    with Loop(folder, spec, helper.hooks(policy), **options) as loop:
        run([loop], Budget(steps=steps))
    return policy


def _numbers(folder):
    return [
        {k: v for k, v in m.items() if k not in MEASURED}
        for m in helper.records(folder, "metrics.jsonl")
    ]


def _w(value, sample, k, best):
    """The integral, by the steps of the empirical distribution."""
    edges = np.unique(
        np.concatenate([[best], sample[sample > best], [max(value, best)]])
    )
    edges = edges[edges <= max(value, best)]
    share = [(sample <= low).mean() for low in edges[:-1]]
    return float(np.sum(np.diff(edges) * np.array(share) ** (k - 1)))


def _left(metrics, step, budget):
    """Attempts left of a chain, from the recorded seconds."""
    left = np.inf if budget.steps is None else budget.steps - step
    if budget.seconds is not None and step:
        used = [0.0, *(m["used"][budget.clock] for m in metrics[:step])][-6:]
        each = (used[-1] - used[0]) / (len(used) - 1)
        left = min(left, (budget.seconds - used[-1]) / each)
    return max(left, 1.0)


def _rows(values):
    ones, all_of = np.ones(len(values)), np.ones(len(values), bool)
    return Rows(values, values, ones, all_of, all_of, np.arange(len(values)))


@pytest.mark.parametrize("form", ["kernel", "pareto"])
def test_smooth_forms_are_those_of_the_library(form):
    chosen, horizon = BestOfK(MaxAtK(form=form, max_k=4), 8), Horizon(9.0, 0.0, None)
    plain = BestOfK(MaxAtK(max_k=4), 8)
    rng, values = np.random.default_rng(0), []
    for step in range(3):
        values.append(rng.random(8) if step else np.zeros(8))
        rows = _rows(values[-1])
        w, numbers = chosen.earned(rows, horizon)
        expected, _ = plain.earned(rows, horizon)
        sample = np.concatenate(values)
        if step:  # before, all values are equal
            fitted = {"kernel": kernel_cdf, "pareto": pareto_tail_cdf}[form](sample)
            expected = max_at_k_of(values[-1], fitted, k=4.0)
        np.testing.assert_allclose(w, expected, rtol=1e-5)
        assert numbers["sample"] == len(sample)


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        ({}, Budget(steps=STEPS)),
        ({"max_k": 4}, Budget(seconds=60.0, clock="attempt")),
        ({"best": "chain"}, Budget(seconds=90.0, steps=40, clock="execution")),
        ({"k_start": 2, "max_k": 9, "batches": 2}, Budget(steps=4 * STEPS)),
    ],
)
def test_every_number_recomputes(tmp_path, options, budget):
    spec = _spec("rpg-best", budget, **options)
    _run(tmp_path, spec)
    records = helper.records(tmp_path)
    metrics = helper.records(tmp_path, "metrics.jsonl")
    settings = MaxAtK(**options)
    batches, best = [], np.zeros(CHAINS)
    earned = seconds = 0.0
    rate = 0.0
    for step, found in enumerate(metrics):
        rows = [r for r in records if r["step"] == step]
        value = np.array([r["value"] for r in rows])
        delta = np.array([r["delta_s"] for r in rows])
        batches = [*batches, value][-settings.batches :]
        sample = np.concatenate(batches)
        left, k = _left(metrics, step, budget), float(settings.max_k)
        if settings.k_start is not None:
            k = 2 + (k - 2) * step / budget.steps
        k = max(1.0, min(k, left))
        about = found["max_at_k"]
        assert about["k"] == pytest.approx(k, rel=1e-12)
        assert about["sample"] == len(sample)
        floor = best if settings.best == "chain" else np.zeros(CHAINS)
        assert about["best"] == (list(floor) if settings.best == "chain" else 0.0)
        w = np.array([_w(v, sample, k, b) for v, b in zip(value, floor, strict=True)])
        np.testing.assert_allclose(about["w"], w, rtol=1e-9, atol=1e-12)
        earned, seconds = 0.8 * earned + w.sum(), 0.8 * seconds + delta.sum()
        own = rate if step else earned / seconds
        rate = earned / seconds
        assert found["own_rate"] == pytest.approx(own, rel=1e-9)
        assert found["price"] == found["own_rate"]
        relative = w - own * np.array(found["charged_s"])
        np.testing.assert_allclose(found["relative"], relative, rtol=1e-9, atol=1e-12)
        if step + 1 < len(metrics):
            later = metrics[step + 1]["ranking_price"]
            assert later == pytest.approx(rate, rel=1e-9)
        best = np.maximum(best, value)
    assert len({m["max_at_k"]["k"] for m in metrics}) > 1


def test_parents_are_ranked_by_what_is_learned_from(tmp_path):
    """By mean w over the chains, less its price; by value less the value's price."""
    for rank_by in ("objective", "value"):
        folder = tmp_path / rank_by
        _run(folder, _spec("max-at-k+own", None, rank_by=rank_by, best="chain"))
        records = helper.records(folder)
        metrics = helper.records(folder, "metrics.jsonl")
        for step in range(1, STEPS):
            past = [r for r in records if r["step"] < step]
            valid = [r for r in past if r["valid"]]
            best = [
                max(r["value"] for r in past if r["chain"] == c) for c in range(CHAINS)
            ]
            sample = np.array([r["value"] for r in past if r["step"] >= step - 5])
            worth = [r["value"] for r in valid]
            if rank_by == "objective":
                worth = [np.mean([_w(v, sample, 16, b) for b in best]) for v in worth]
            price = metrics[step]["ranking_price"]
            score = [
                (w - price * r["delta_s"], r["value"])
                for w, r in zip(worth, valid, strict=True)
            ]
            chosen = [
                score[[r["run_id"] for r in valid].index(p)]
                for p in metrics[step]["parents"]
            ]
            best_first = sorted(score, reverse=True)[:CHAINS]
            top = [best_first[i % len(best_first)] for i in range(CHAINS)]
            np.testing.assert_allclose(chosen, top, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("arm", ARMS)
def test_stopping_changes_nothing(tmp_path, arm, every):
    """A clock of the scripts' own: it is the same for both runs."""
    budget = Budget(seconds=70.0, clock="attempt")
    spec = _spec(arm, budget, best="chain", k_start=2)
    spec = dataclasses.replace(spec, checkpoint_every=every)
    straight = _run(tmp_path / "a", spec)
    folder = tmp_path / "b"
    folder.mkdir()
    for _ in range(STEPS * every):
        policy = helper.ScriptedPolicy(folder)
        with Loop(folder, spec, helper.hooks(policy), resume=True) as loop:
            while loop.next_step < STEPS:
                before = loop.next_step
                loop.step()
                if (before + 1) % every == 0:
                    break
    assert _numbers(folder) == _numbers(tmp_path / "a")
    np.testing.assert_array_equal(policy.theta, straight.theta)


@pytest.mark.parametrize("form", ["value", "rank", "pareto"])
@pytest.mark.parametrize("arm", ARMS)
def test_replay_is_bit_for_bit(tmp_path, arm, form):
    """k follows the wall time of the run that was recorded, not the replay's."""
    spec = _spec(arm, Budget(seconds=0.5), form=form)
    now = iter(np.cumsum(np.random.default_rng(0).random(10_000) * 0.01).tolist())
    policy = _run(tmp_path / "a", spec, clock=lambda: next(now))

    def never(*_):
        raise AssertionError("a replay executes and grades nothing")

    folder = tmp_path / "b"
    folder.mkdir()
    again = helper.ScriptedPolicy(folder)
    hooks = helper.hooks(again, execute=never, grade=never)
    with Loop(folder, spec, hooks, replay=tmp_path / "a") as loop:
        run([loop], Budget(steps=100))
        assert loop.next_step == STEPS
    assert _numbers(folder) == _numbers(tmp_path / "a")
    np.testing.assert_array_equal(again.theta, policy.theta)
    if arm != "reward+own":
        ks = [m["max_at_k"]["k"] for m in _numbers(folder)]
        assert ks[0] == 16
        assert len(set(ks)) > 2


def test_a_larger_budget_leaves_the_steps_before_it_as_they_are(tmp_path):
    folder = tmp_path / "a"
    _run(folder, _spec("rpg-best", Budget(steps=4)), steps=4)
    longer = _spec("rpg-best", Budget(steps=9))
    _run(folder, longer, steps=9, resume=True)
    ks = [m["max_at_k"]["k"] for m in _numbers(folder)]
    assert ks == [4, 3, 2, 1, 5, 4, 3, 2, 1]
    _run(tmp_path / "b", longer, steps=9, replay=folder)
    assert _numbers(tmp_path / "b") == _numbers(folder)


def test_another_k_is_noticed(tmp_path):
    folder = tmp_path / "a"
    _run(folder, _spec("max-at-k", Budget(steps=4)), steps=3)
    other = _spec("max-at-k", Budget(steps=4), max_k=2)
    with pytest.raises(ReplayError, match="on record is"):
        _run(tmp_path / "b", other, steps=3, replay=folder)


def test_one_attempt_left_is_the_plain_reward(tmp_path):
    """k = 1 and b = 0: max-at-k is vanilla, number by number."""
    for arm in ("vanilla", "max-at-k"):
        _run(tmp_path / arm, _spec(arm, None, max_k=1))
    plain, best = _numbers(tmp_path / "vanilla"), _numbers(tmp_path / "max-at-k")
    for one, two in zip(plain, best, strict=True):
        shown = [[p and p.split("-s0-")[1] for p in m["parents"]] for m in (one, two)]
        assert shown[0] == shown[1]
        np.testing.assert_allclose(two["relative"], one["relative"], atol=1e-15)
        assert two["own_rate"] == pytest.approx(one["own_rate"], rel=1e-12)
        assert two["greedy_rate"] == pytest.approx(one["greedy_rate"], rel=1e-5)


def test_both_rates_are_kept_for_every_arm(tmp_path):
    for arm in ("vanilla", "rpg", "reward+own"):
        _run(tmp_path / arm, _spec(arm), steps=3)
        for m in _numbers(tmp_path / arm):
            assert m["greedy_rate"] == m["rho"] > 0
            assert m["own_rate"] > 0
            prices = {"vanilla": 0.0, "rpg": m["greedy_rate"]}
            assert m["price"] == prices.get(arm, m["own_rate"])


def test_repeats_earn_no_rate(tmp_path):
    """Only first runs count in the own rate; all attempts in the distribution."""
    policy = helper.Unsalted(tmp_path)
    _run(tmp_path, _spec("rpg-best", None, repeats="reuse"), policy=policy)
    records = helper.records(tmp_path)
    earned = seconds = 0.0
    for m in _numbers(tmp_path):
        own = earned / seconds if seconds else None
        rows = [r for r in records if r["step"] == m["step"]]
        first = [r.get("repeat_of") is None for r in rows]
        if any(first):
            w = np.array(m["max_at_k"]["w"])[first].sum()
            earned = 0.8 * earned + w
            delta = sum(r["delta_s"] for r, new in zip(rows, first, strict=True) if new)
            seconds = 0.8 * seconds + delta
        if own is not None:
            assert m["own_rate"] == pytest.approx(own, rel=1e-9)
        assert m["max_at_k"]["sample"] == CHAINS * min(m["step"] + 1, 5)
    assert m["repeats"] > 0


def test_records_from_before_the_rates_were_kept(tmp_path):
    spec = _spec("rpg")
    _run(tmp_path, spec, steps=3)
    path = tmp_path / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        del line["greedy_rate"], line["own_rate"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    policy = helper.ScriptedPolicy(tmp_path)
    with Loop(tmp_path, spec, helper.hooks(policy), resume=True) as loop:
        assert loop.next_step == 3
        assert loop.step()["own_rate"] > 0


def test_failures_lose_their_penalty_beside_w(tmp_path):
    rule = dataclasses.replace(SOUND.rule, failure_penalty=0.25)
    protocol = dataclasses.replace(SOUND, rule=rule)
    _run(tmp_path, _spec("max-at-k", protocol=protocol), steps=2)
    records = helper.records(tmp_path)
    for m in _numbers(tmp_path):
        failed = [not r["valid"] for r in records if r["step"] == m["step"]]
        w = np.array(m["max_at_k"]["w"]) - np.where(failed, 0.25, 0.0)
        np.testing.assert_allclose(m["relative"], w, atol=1e-15)
        assert any(failed)
