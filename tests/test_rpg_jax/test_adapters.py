"""Wrappers for other trainers: prices, state, refusals."""

import json
import threading

import jax
import numpy as np
import pytest

import rpg_jax
from rpg_jax.adapters import RelativeReward, trl, tunix, verl

REWARD = [0.5, 0.0, 0.9]
SECONDS = [10.0, 2.0, 30.0]


def test_a_batch_is_charged_at_the_rate_of_earlier_data():
    relative = RelativeReward(rpg_jax.empirical(forgetting=1.0))
    own = sum(REWARD) / sum(SECONDS)
    first = relative(REWARD, SECONDS)
    want = np.subtract(REWARD, own * np.array(SECONDS))
    np.testing.assert_allclose(first, want, rtol=1e-5)
    second = relative([1.0, 1.0], [1.0, 3.0])
    np.testing.assert_allclose(second, [1 - own, 1 - 3 * own], rtol=1e-6)
    np.testing.assert_allclose(relative.rate, 3.4 / 46, rtol=1e-6)
    given = RelativeReward(initial_rate=0.0)
    np.testing.assert_allclose(given(REWARD, SECONDS), REWARD)


def test_failures_may_be_charged_for_more_than_they_took():
    relative = RelativeReward(initial_rate=0.1)
    got = relative([0.0, 0.9], [0.1, 30.0], charged=[30.0, 30.0])
    np.testing.assert_allclose(got, [-3.0, -2.1])
    np.testing.assert_allclose(relative.rate, 0.9 / 30.1, rtol=1e-6)


@pytest.mark.parametrize(
    ("reward", "duration", "message"),
    [
        ([np.nan], [1.0], "not finite in rows 0"),
        ([1.0], [0.0], "> 0"),
        ([1.0, 2.0], [1.0], "equal length"),
        ([1e30], [1.0], r"at most 1e.12 in size; it is not in rows 0"),
    ],
)
def test_bad_data_are_refused_and_leave_the_state(reward, duration, message):
    relative = RelativeReward()
    relative(REWARD, SECONDS)
    before = relative.state_dict()
    with pytest.raises(ValueError, match=message):
        relative(reward, duration)
    after = relative.state_dict()
    assert before["rate"] == after["rate"]
    for a, b in zip(before["leaves"], after["leaves"], strict=True):
        np.testing.assert_array_equal(a, b)


def test_contexts_out_of_range_are_refused():
    relative = RelativeReward(rpg_jax.niw_slots(4, by_context=True))
    with pytest.raises(ValueError, match="out of its range"):
        relative([1.0], [1.0], context=[4])
    with pytest.raises(ValueError, match="charged"):
        relative([1.0], [1.0], charged=[np.nan])


def test_state_survives_a_checkpoint():
    a, b = (RelativeReward(rpg_jax.niw_slots(4)) for _ in range(2))
    a(REWARD, SECONDS)
    b.load_state_dict(a.state_dict())
    np.testing.assert_array_equal(a(REWARD, SECONDS), b(REWARD, SECONDS))
    assert a.rate == b.rate
    with pytest.raises(ValueError, match="does not fit"):
        RelativeReward().load_state_dict(a.state_dict())


def test_trl_form():
    seen = []

    def execute(prompts, completions, task):
        seen.append((prompts, completions, task))
        return REWARD, SECONDS

    reward = trl.reward_function(execute, initial_rate=0.05, name="priced")
    got = reward(prompts=["p"] * 3, completions=["a", "b", "c"], task=[1, 2, 3])
    assert reward.__name__ == "priced"
    assert all(type(v) is float for v in got)
    np.testing.assert_allclose(got, [0.0, -0.1, -0.6], atol=1e-12)
    assert seen == [(["p"] * 3, ["a", "b", "c"], [1, 2, 3])]
    assert reward.relative.rate > 0
    with pytest.raises(ValueError, match="3 rewards for 2"):
        reward(prompts=["p"] * 2, completions=["a", "b"], task=[1, 2])


def test_verl_form():
    compute = verl.score_function(lambda **_: (REWARD, SECONDS), initial_rate=0.05)
    got = compute(
        data_sources=["d"] * 3,
        solution_strs=["a", "b", "c"],
        ground_truths=[None] * 3,
        extra_infos=[{}] * 3,
    )
    json.dumps(got)  # verl logs them
    np.testing.assert_allclose([g["score"] for g in got], [0, -0.1, -0.6], atol=1e-12)
    assert [g["rpg_seconds"] for g in got] == SECONDS
    with pytest.raises(ValueError, match="3 rewards for 1"):
        compute(["d"], ["a"], [None], [{}])


def test_contexts_and_actions_reach_the_estimator():
    estimator = rpg_jax.niw(num_contexts=2, num_arms=3)
    contexts, actions = [0, 1, 1], [2, 0, 1]
    reward = trl.reward_function(
        lambda **_: (REWARD, SECONDS, contexts, actions), estimator, initial_rate=0.0
    )
    reward(prompts=["p"] * 3, completions=["a"] * 3)
    direct = RelativeReward(estimator, initial_rate=0.0)
    direct(REWARD, SECONDS, context=contexts, action=actions)
    assert reward.relative.rate == direct.rate > 0
    short = trl.reward_function(lambda **_: (REWARD, SECONDS, [0]), estimator)
    with pytest.raises(ValueError, match="1 contexts for 3"):
        short(prompts=["p"] * 3, completions=["a"] * 3)
    alone = trl.reward_function(lambda **_: (REWARD,), estimator)
    with pytest.raises(ValueError, match="returned 1 lists"):
        alone(prompts=["p"] * 3, completions=["a"] * 3)


def test_a_rate_that_is_not_finite_charges_nothing():
    broken = rpg_jax.empirical()._replace(rate=lambda state, rho_k: np.float32("nan"))
    relative = RelativeReward(broken, initial_rate=0.0)
    with pytest.raises(ValueError, match="rate is nan"):
        relative(REWARD, SECONDS)
    assert relative.rate == 0.0


def test_tunix_form():
    reward = tunix.reward_function(lambda **_: (REWARD, SECONDS), initial_rate=0.05)
    got = reward(prompts=["p"] * 3, completions=["a"] * 3)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, [0, -0.1, -0.6], atol=1e-6)
    assert reward.relative.rate > 0


def test_padding_is_no_decision_to_the_slots():
    # Decisions 8 and 16 fit: with eight rows for seven decisions neither would be one.
    estimator = rpg_jax.niw_slots(4, fit_every=8, age=20)
    relative = RelativeReward(estimator, initial_rate=0.0)
    state, update = estimator.init(), jax.jit(estimator.update)
    rng = np.random.default_rng(0)
    for size in (7, 7, 7):
        reward, seconds = rng.uniform(0.5, 1, size), rng.uniform(1, 2, size)
        relative(reward, seconds)
        state = update(state, rpg_jax.checked_batch(reward, seconds))
    assert state.step == 21
    assert relative.rate > 0
    np.testing.assert_allclose(relative.rate, state.rate, rtol=1e-5)


def test_a_batch_without_data_changes_nothing():
    relative = RelativeReward()
    assert relative([], []).shape == (0,)
    assert np.isnan(relative([np.nan], [0.0], mask=[False])).all()
    assert relative.state_dict()["rate"] is None
    first = relative(REWARD, SECONDS)
    own = sum(REWARD) / sum(SECONDS)
    want = np.subtract(REWARD, own * np.array(SECONDS))
    np.testing.assert_allclose(first, want, rtol=1e-5)


def test_masked_rows_stay_out_of_the_estimator():
    relative = RelativeReward(initial_rate=0.05)
    got = relative([0.5, None, 0.9], [10.0, None, 30.0], mask=[True, False, True])
    np.testing.assert_allclose(got, [0.0, np.nan, -0.6], atol=1e-12)
    np.testing.assert_allclose(relative.rate, 1.4 / 40, rtol=1e-6)


def test_evaluation_learns_nothing():
    relative = RelativeReward()
    np.testing.assert_array_equal(relative(REWARD, SECONDS, update=False), REWARD)
    assert relative.state_dict()["rate"] is None
    relative(REWARD, SECONDS)
    rate = relative.rate
    got = relative([9.0], [2.0], update=False)
    np.testing.assert_allclose(got, [9.0 - 2.0 * rate])
    assert relative.rate == rate


@pytest.mark.parametrize(
    ("build", "given", "message"),
    [
        (lambda: rpg_jax.niw_slots(4, by_context=True), {}, "needs context for"),
        (lambda: rpg_jax.niw(2, 3), {}, "needs context and action"),
        (lambda: rpg_jax.niw(2, 3), {"context": [0, 1, 1]}, "needs action for"),
    ],
)
def test_an_index_that_the_estimator_reads_must_be_given(build, given, message):
    relative = RelativeReward(build())
    with pytest.raises(ValueError, match=message):
        relative(REWARD, SECONDS, **given)
    relative(REWARD, SECONDS, update=False, **given)
    relative([], [])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rates_and_charges_must_be_finite(bad):
    with pytest.raises(ValueError, match="rate must be finite"):
        RelativeReward(initial_rate=bad)
    relative = RelativeReward()
    with pytest.raises(ValueError, match="rate must be finite"):
        relative.load_state_dict({**relative.state_dict(), "rate": bad})
    for charged in (bad, -30.0):
        with pytest.raises(ValueError, match="finite seconds >= 0"):
            relative([1.0], [1.0], charged=[charged])


def test_a_checkpoint_waits_for_the_batch_in_progress():
    relative = RelativeReward()
    saved = relative.state_dict()
    for call in (relative.state_dict, lambda: relative.load_state_dict(saved)):
        thread = threading.Thread(target=call)
        with relative._lock:
            thread.start()
            thread.join(0.2)
            assert thread.is_alive()
        thread.join(30)
        assert not thread.is_alive()


def execute_with_a_failure(**_):
    """An attempt, a failure charged for 30 s, and an error of the machinery."""
    return {
        "reward": [0.5, 0.0, None],
        "duration": [10.0, 2.0, None],
        "charged": [10.0, 30.0, None],
        "mask": [True, True, False],
        "context": None,
    }


def test_failures_and_infrastructure_errors_in_every_form():
    form = {"prompts": ["p"] * 3, "completions": ["a"] * 3}
    reward = trl.reward_function(execute_with_a_failure, initial_rate=0.05)
    got = reward(**form)
    np.testing.assert_allclose(got[:2], [0.0, -1.5], atol=1e-12)
    assert got[2] is None
    np.testing.assert_allclose(reward.relative.rate, 0.5 / 12, rtol=1e-6)
    array = tunix.reward_function(execute_with_a_failure, initial_rate=0.05)(**form)
    assert array.dtype == np.float32
    np.testing.assert_allclose(array, [0.0, -1.5, 0.0], atol=1e-6)
    compute = verl.score_function(execute_with_a_failure, initial_rate=0.05)
    rows = compute(["d"] * 3, ["a"] * 3, [None] * 3, [{}] * 3)
    json.dumps(rows, allow_nan=False)
    np.testing.assert_allclose([r["score"] for r in rows], [0, -1.5, 0], atol=1e-12)
    assert [r["rpg_seconds"] for r in rows] == [10.0, 30.0, 0.0]
    assert [r["rpg_reward"] for r in rows] == [0.5, 0.0, 0.0]


@pytest.mark.parametrize("keys", [("reward",), ("reward", "duration", "seconds")])
def test_a_dict_must_have_the_known_keys(keys):
    reward = trl.reward_function(lambda **_: {key: [1.0] for key in keys})
    with pytest.raises(ValueError, match="want reward, duration"):
        reward(prompts=["p"], completions=["a"])


def test_verl_logs_the_rate_that_was_charged():
    compute = verl.score_function(lambda **_: (REWARD, SECONDS))
    for step in range(3):
        before = compute.relative.rate
        rows = compute(["d"] * 3, ["a"] * 3, [None] * 3, [{}] * 3)
        for row in rows:
            want = row["rpg_reward"] - row["rpg_rate"] * row["rpg_seconds"]
            np.testing.assert_allclose(row["score"], want, atol=1e-12)
            assert step == 0 or row["rpg_rate"] == before
