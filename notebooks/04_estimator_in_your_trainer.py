# ---
# jupyter:
#   jupytext:
#     cell_markers: '"""'
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
"""
# The estimator in your own trainer

You have a training loop and want its policy to pay for its time. The change is one
line: where the loop has a reward, put `reward - rate * seconds`. This notebook does it
in a toy REINFORCE loop written in plain NumPy, so that nothing depends on JAX but the
estimator itself.

It needs `rpg_jax` and `matplotlib` and runs in half a minute on one core.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import rpg_jax
from rpg_jax.adapters import RelativeReward

# %% [markdown]
"""
## A toy job

A policy chooses how many trees a model gets. Reading the data takes 20 seconds
whatever it chooses. More trees score better, by less and less, and take longer. A run
also fails now and then, large ones more often: the time is gone and the reward is 0.
"""

# %%
TREES = np.array([10, 30, 100, 300, 1000, 3000])
SCORE = 0.9 - 0.6 * np.exp(-TREES / 120)  # mean gain
SECONDS = 20.0 + 0.05 * TREES
FAILS = 0.02 + 0.00005 * TREES

true_rate = (1 - FAILS) * SCORE / SECONDS
for trees, score, seconds, rate in zip(TREES, SCORE, SECONDS, true_rate, strict=True):
    print(
        f"{trees:5d} trees: gain {score:.2f}, {seconds:5.1f} s, {rate:.4f} per second"
    )


def execute(rng, choice):
    """What a batch of choices earns and takes: rewards [B], seconds [B]."""
    failed = rng.random(choice.shape) < FAILS[choice]
    reward = np.clip(SCORE[choice] + rng.normal(0, 0.05, choice.shape), 0, 1)
    seconds = SECONDS[choice] * rng.lognormal(0, 0.2, choice.shape)
    return np.where(failed, 0.0, reward), seconds


# %% [markdown]
"""
## The trainer

Softmax logits, a batch of choices, a leave-one-out baseline, a gradient step. `signal`
is the only hook: it turns rewards and seconds into what the policy learns from.
"""


# %%
def train(signal, *, updates=300, batch=32, step_size=2.0, seed=0):
    """REINFORCE; per update the reward and the seconds of its batch, [updates, 2]."""
    rng = np.random.default_rng(seed)
    logits = np.zeros(len(TREES))
    history = []
    for _ in range(updates):
        policy = np.exp(logits - logits.max())
        policy /= policy.sum()
        choice = rng.choice(len(TREES), size=batch, p=policy)
        reward, seconds = execute(rng, choice)
        score = signal(reward, seconds)
        advantage = (score - score.mean()) * batch / (batch - 1)
        gradient = np.zeros_like(logits)
        np.add.at(gradient, choice, advantage / batch)
        logits += step_size * (gradient - policy * advantage.mean())
        history.append((reward.sum(), seconds.sum()))
    return np.array(history), TREES[logits.argmax()]


# %% [markdown]
"""
## One line

`RelativeReward` holds an estimator and its state. It charges a batch at the rate of the
data *before* it, checks what comes in (NaN, infinities and durations that are not
positive are refused, with the rows named) and can be saved with `state_dict()`.

The default estimate is the policy's own recent rate: rewards over seconds of the last
256 decisions or so. It follows a policy that learns. `robbins_monro`, taken here, is
another that does.
"""

# %%
relative = RelativeReward(rpg_jax.robbins_monro(0.1))
signals = {
    "reward alone": lambda reward, seconds: reward,
    "reward − rate · seconds": relative,
}
runs = {name: train(signal) for name, signal in signals.items()}
for name, (history, trees) in runs.items():
    reward, seconds = history[-100:].sum(axis=0)
    print(f"{name:25s} {trees:5d} trees, {reward / seconds:.4f} per second")
print(f"best rate {true_rate.max():.4f}, the estimate {relative.rate:.4f}")

try:
    relative([0.9], [0.0])
except ValueError as error:
    print("refused:", error)

# %% [markdown]
"""
## The same time, not the same number of updates

Updates are cheap for the policy that learned to be quick. The comparison that counts is
by seconds:
"""

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for name, (history, _) in runs.items():
    reward, seconds = history.cumsum(axis=0).T
    left.plot(seconds / 3600, reward, label=name)
    recent = np.convolve(history[:, 0], np.ones(10), "valid")
    recent /= np.convolve(history[:, 1], np.ones(10), "valid")
    right.plot(np.arange(len(recent)) + 10, recent, label=name)
shortest = min(history[:, 1].sum() for history, _ in runs.values()) / 3600
left.set(xlabel="hours of execution", ylabel="reward earned so far")
left.set(xlim=(0, shortest), ylim=(0, None))
left.legend(frameon=False, loc="upper left")
right.axhline(true_rate.max(), color="black", linestyle=":", label="best rate")
right.set(xlabel="update", ylabel="reward per second, last 10 updates", ylim=(0, None))
plt.show()

# %% [markdown]
"""
## Other trainers

`rpg_jax.adapters` has thin wrappers for reward functions as TRL, verl and Tunix call
them: `trl.price(reward_fn)` and so on. A trainer that is written in
JAX can use the estimator's own functions inside its jitted step, as `01_the_idea.py`
does.
"""
