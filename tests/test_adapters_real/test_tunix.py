"""The Tunix adapter in Tunix's own reward manager and advantage estimators."""

import dataclasses
import types
import warnings

import numpy as np
import pytest

pytest.importorskip("tunix")
from tunix.rl import algo_core, function_registry, reward_manager
from tunix.rl.grpo import drgrpo_learner, grpo_learner

from rpg_jax.adapters import tunix

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

assert algo_core  # registers the estimators


def known(prompts, completions, num_generations, **columns):
    """Rewards and seconds; Tunix gives the setting that the signature asks for."""
    assert num_generations == 2
    return [float(len(p)) for p in prompts], [float(len(c)) for c in completions]


def manager(config, function=known):
    return reward_manager.SequenceRewardManager([function], config)


@dataclasses.dataclass
class Learner:
    reward_manager: object
    algo_config: object


def call(made, mode="train"):
    return made(
        prompts=["p", "pp", "p", "pp"],
        completions=["a", "aaa", "aa", "aaaa"],
        mode=mode,
    )["rewards"]


def test_the_relative_reward_reaches_the_advantage():
    config = drgrpo_learner.DrGRPOConfig(num_generations=2)
    learner = Learner(manager(config), config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relative = tunix.attach(learner, initial_rate=0.25)
    reward, seconds = np.array([1.0, 2, 1, 2]), np.array([1.0, 3, 2, 4])
    np.testing.assert_allclose(call(learner.reward_manager), reward - 0.25 * seconds)
    for mode in ("eval", "train"):
        got = call(learner.reward_manager, mode)
        np.testing.assert_allclose(got, reward - 0.6 * seconds, rtol=1e-6)
        assert relative.rate == pytest.approx(0.6)
    estimator = function_registry.get_advantage_estimator(config.advantage_estimator)
    advantages = np.asarray(estimator(rewards=got, num_generations=2))
    groups = (reward - 0.6 * seconds).reshape(2, 2)
    want = groups - groups.mean(1, keepdims=True)
    np.testing.assert_allclose(advantages.ravel(), want.ravel(), rtol=1e-5)


def test_scaling_that_undoes_the_price_is_said():
    config = grpo_learner.GRPOConfig(num_generations=2)
    with pytest.warns(UserWarning, match="Take DrGRPOLearner"):
        tunix.attach(Learner(manager(config), config))
    several = types.SimpleNamespace(reward_fns=[known, known])
    with pytest.raises(ValueError, match="2 reward functions"):
        tunix.attach(Learner(several, config))


def test_tunix_says_that_it_evaluates():
    """The column that the adapter reads is the one that the learner fills."""
    import inspect

    from tunix.rl import rl_cluster, rl_learner

    source = inspect.getsource(rl_learner.RLLearner._compute_rewards)
    assert 'kwargs["mode"] = str(mode)' in source
    assert "eval" in str(rl_cluster.Mode.EVAL).lower()
    assert "eval" not in str(rl_cluster.Mode.TRAIN).lower()
