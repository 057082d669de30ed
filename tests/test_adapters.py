"""Wrappers for other trainers: prices, state, refusals."""

import json

import numpy as np
import pytest

import rpg_jax
from rpg_jax.adapters import RelativeReward, trl, tunix, verl

REWARD = [0.5, 0.0, 0.9]
SECONDS = [10.0, 2.0, 30.0]


def test_a_batch_is_charged_at_the_rate_of_earlier_data():
    relative = RelativeReward()
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
        ([1e30], [1.0], "refused 1 rows"),
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
    assert [g["seconds"] for g in got] == SECONDS
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
