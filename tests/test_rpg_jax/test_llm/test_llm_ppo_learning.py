"""The PPO step learns: on bandits over tokens whose optimum is known."""

import jax
import llm_tiny as tiny
import numpy as np
import pytest

from rpg_jax.llm import make_ppo
from rpg_jax.llm.batch import make_batch
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import model_for

CONFIG = tiny.llama()


@pytest.fixture(scope="module")
def params():
    return model_for(CONFIG).init(jax.random.key(0))


LENGTH, LIKED = 8, 3


def train_bandit(config, price, *, steps, **change):
    """Reward = count of a token - price * length; returns the last rewards."""
    hyper = PPOHyper(
        **{
            "learning_rate": 1e-2,
            "epochs": 2,
            "microbatch": 32,
            "kl_coef": 0.0,
            "weight_decay": 0.0,
            "loss_length": LENGTH,
            **change,
        }
    )
    ppo = make_ppo(config, hyper)
    params = model_for(config).init(jax.random.key(0))
    state = ppo.init(jax.random.key(1), params)
    prompt, prompt_mask = tiny.prompts(64)
    rewards = []
    for i in range(steps):
        tokens, mask, log_prob = tiny.rollout(
            jax.random.fold_in(jax.random.key(2), i),
            ppo.policy_params(state),
            config,
            *(prompt, prompt_mask, LENGTH),
        )
        tokens, mask = np.asarray(tokens), np.asarray(mask)
        reward = ((tokens == LIKED) & mask).sum(1) - price * mask.sum(1)
        batch = make_batch(prompt, prompt_mask, tokens, mask, log_prob, reward)
        state, _ = ppo.update(state, batch)
        rewards.append(reward.mean())
    return np.asarray(rewards)


@pytest.mark.parametrize(
    ("price", "optimum", "change"),
    [
        # Say the liked token to the end.
        pytest.param(0.3, LENGTH * 0.7, {}, marks=pytest.mark.slow),
        (1.5, -1.5, {}),  # every token costs more than it earns: stop at once
        pytest.param(
            *(0.3, LENGTH * 0.7, {"lora_rank": 4, "learning_rate": 3e-2}),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(0.3, LENGTH * 0.7),
            {"advantage": "critic", "critic_learning_rate": 1e-2},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["long", "short", "lora", "critic"],
)
def test_the_reward_of_a_token_bandit_rises_to_its_optimum(price, optimum, change):
    rewards = train_bandit(CONFIG, price, steps=40, **change)
    assert rewards[0] < optimum - 0.5 * abs(optimum)
    assert rewards[-5:].mean() > optimum - 0.05 * abs(optimum)


def test_a_relative_reward_prefers_the_shorter_of_two_equals(params):
    """Two completions of reward 1; only a price of time tells them apart."""
    short, long = [3, 0, 0, 0, 0], [3, 5, 5, 5, 0]
    lengths = np.array([2, 5])
    prompt, prompt_mask = tiny.prompts(1)
    prompt, prompt_mask = np.tile(prompt, (8, 1)), np.tile(prompt_mask, (8, 1))
    completion = np.tile(np.array([short, long]), (4, 1))
    length = np.tile(lengths, 4)
    mask = np.arange(5)[None] < length[:, None]
    hyper = PPOHyper(
        learning_rate=3e-3,
        microbatch=8,
        kl_coef=0.0,
        entropy_coef=0.0,
        weight_decay=0.0,
    )
    ppo = make_ppo(CONFIG, hyper)

    def log_odds(rate, steps=10):
        """log p(short) - log p(long) before and after training at this rate."""
        state = ppo.init(jax.random.key(1), params)
        reward = 1.0 - rate * 0.1 * length  # 0.1 s per token
        out = []
        for _ in range(steps):
            blank = make_batch(
                prompt, prompt_mask, completion, mask, np.zeros(mask.shape), reward
            )
            log_prob = np.asarray(ppo.score(state, blank).log_prob)
            total = np.where(mask, log_prob, 0).sum(1)
            out.append(total[0] - total[1])
            state, _ = ppo.update(state, blank._replace(sampler_log_prob=log_prob))
        return out

    relative, vanilla = log_odds(rate=1.0), log_odds(rate=0.0)
    assert relative[0] == vanilla[0]
    assert relative[-1] > relative[0] + 1.0
    assert vanilla[-1] == vanilla[0]  # equal rewards: no gradient at all
