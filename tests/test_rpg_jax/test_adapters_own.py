"""The default price of the adapters: it follows, starts no backend, is saved."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from repo_paths import ROOT

import rpg_jax
from rpg_jax.adapters import MaxAtK, RelativeReward
from rpg_jax.adapters.own import ExactSum


def test_the_default_follows_a_policy_that_learns():
    # What the policy earns rises from .05 to .20 a second at batch 200 of 400.
    relative, rng = RelativeReward(), np.random.default_rng(0)
    rates = []
    for batch in range(400):
        seconds = rng.uniform(5.0, 15.0, 16)
        true = 0.05 if batch < 200 else 0.20
        relative(rng.uniform(0.5, 1.5, 16) * true * seconds, seconds)
        rates.append(relative.rate)
    assert 0.046 < np.mean(rates[150:200]) < 0.054
    assert rates[250] > 0.18
    assert 0.19 < np.mean(rates[300:]) < 0.21
    whole = RelativeReward(memory=np.inf)
    for rate in (0.05, 0.20):
        whole(np.full(200, rate * 10), np.full(200, 10.0))
    np.testing.assert_allclose(whole.rate, 0.125)


def test_the_default_is_never_below_zero():
    relative = RelativeReward()
    np.testing.assert_array_equal(relative([-1.0, 0.5], [1.0, 1.0]), [-1.0, 0.5])
    assert relative.rate == 0.0
    with pytest.raises(ValueError, match="memory must be > 0"):
        RelativeReward(memory=0)


def test_the_order_of_rows_changes_no_bit():
    rng = np.random.default_rng(1)
    reward, seconds = rng.lognormal(0, 3, 1000), rng.lognormal(0, 3, 1000)
    order = rng.permutation(1000)
    first, second = RelativeReward(), RelativeReward()
    first(reward, seconds)
    second(reward[order], seconds[order])
    assert first.rate == second.rate
    one, two = ExactSum(), ExactSum()
    one.add(reward)
    for part in np.split(reward[order], 10):
        two.add(part)
    assert one.value == two.value
    np.testing.assert_allclose(one.value, reward.sum(), rtol=1e-12)


@pytest.mark.parametrize("half", [slice(0, 4), slice(4, 8)])
def test_ranks_charge_one_price(half):
    """A rank with half of the rows, against one process with all of them."""
    rng = np.random.default_rng(2)
    batches = rng.uniform(0.1, 9, (3, 2, 8))
    everyone = iter(batches)

    def gather(mine):
        reward, duration = next(everyone)
        np.testing.assert_array_equal(mine["reward"], reward[half])
        return [
            {"reward": reward[part], "duration": duration[part]}
            for part in (slice(0, 4), slice(4, 8))
        ]

    whole, rank = RelativeReward(), RelativeReward(gather=gather)
    for batch in batches:
        want, got = whole.priced(*batch), rank.priced(*batch[:, half])
        assert got.rate == want.rate
        np.testing.assert_array_equal(got.score, want.score[half])
        # An evaluation gathers nothing: ranks may have different numbers of batches.
        rank.priced(*batch[:, half], update=False)


@pytest.mark.parametrize("build", [None, lambda: rpg_jax.niw_slots(4)])
def test_the_state_is_one_file(tmp_path, build):
    path = tmp_path / "deep" / "rate.json"
    made = [RelativeReward(build and build()) for _ in range(2)]
    made[0]([0.5, 0.1], [3.0, 7.0])
    made[0].save(path)
    made[1].load(path)
    assert made[0].rate == made[1].rate
    assert json.loads(path.read_text())["format"] == "rpg_jax.rate"
    assert [p.name for p in path.parent.iterdir()] == ["rate.json"]
    np.testing.assert_array_equal(made[0]([1.0], [2.0]), made[1]([1.0], [2.0]))
    path.write_text("{}")
    with pytest.raises(ValueError, match="want a state of format"):
        made[1].load(path)
    path.write_text("{")
    with pytest.raises(ValueError, match="holds no state"):
        made[1].load(path)


def test_the_default_pickles_with_its_state():
    relative = RelativeReward(objective=MaxAtK(4))
    relative([0.5, 0.1], [3.0, 7.0])
    again = pickle.loads(pickle.dumps(relative))
    np.testing.assert_array_equal(again([1.0], [2.0]), relative([1.0], [2.0]))
    with pytest.raises(TypeError, match="give the reward function"):
        pickle.dumps(RelativeReward(rpg_jax.robbins_monro(0.1)))


def test_max_at_k_pays_what_an_attempt_adds_to_the_best():
    relative = RelativeReward(objective=MaxAtK(3, batches=2), initial_rate=0.0)
    value, seconds = np.array([0.2, 0.4, 0.9, -1.0]), np.full(4, 2.0)
    got = relative.priced(value, seconds)
    want = rpg_jax.max_at_k(np.maximum(value, 0), np.maximum(value, 0), k=3)
    np.testing.assert_allclose(got.reward, want)
    np.testing.assert_allclose(relative.rate, want.sum() / 8.0)
    again = RelativeReward(objective=MaxAtK(3, batches=2))
    again.load_state_dict(relative.state_dict())
    np.testing.assert_array_equal(again(value, seconds), relative(value, seconds))
    with pytest.raises(ValueError, match="does not fit"):
        RelativeReward().load_state_dict(relative.state_dict())
    with pytest.raises(ValueError, match="at least 1"):
        MaxAtK(0)


def test_the_default_starts_no_backend():
    code = """
import sys
from rpg_jax.adapters import MaxAtK, RelativeReward, RewardRateServer, trl, tunix, verl
from jax._src import xla_bridge
relative = RelativeReward(objective=MaxAtK(2))
relative([0.5, 0.1], [3.0, 7.0])
relative.load_state_dict(relative.state_dict())
RewardRateServer().charge([0.5], [1.0])
reward = trl.price(lambda prompts, completions: [0.5 for _ in completions])
reward(prompts=["p"], completions=["c"])
assert not xla_bridge.backends_are_initialized()
for trainer in ("trl", "verl", "tunix", "torch", "ray", "transformers"):
    assert trainer not in sys.modules, trainer
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
