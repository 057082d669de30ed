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
# The idea in ten cells

An agent whose actions take different times should earn reward *per second*, not per
action. This notebook shows the idea on a bandit with three arms: what the best rate is,
how an estimator learns it, and what a policy that pays for its time does differently.

It needs `rpg_jax` and `matplotlib` and runs in half a minute on one core. Run it here,
or as a script: `python notebooks/01_the_idea.py`.
"""

# %%
import functools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import rpg_jax

# Three arms. The third has the largest reward and takes the most time.
reward = jnp.array([[0.2, 0.5, 0.9]])  # means per pull, [contexts, arms]
duration = jnp.array([[0.5, 1.0, 3.0]])  # mean seconds

best = rpg_jax.optimal_rate(reward, duration)
print("reward per second of each arm:", (reward / duration).round(3)[0])
print(f"best rate {best.rate:.3f}: arm {best.policy[0]}, {best.steps} steps")

# %% [markdown]
"""
## The price of a second

The reward rate of a policy is ρ = E[reward] / E[seconds]. `optimal_rate` finds the best
one by Dinkelbach's iteration: take the policy that is greedy for
`reward - rate * duration`, compute its rate, repeat.

The *relative reward* `reward - rate * duration` charges each second what the best
policy would have earned in it. At the best rate the best arm has a relative reward of
exactly 0 and every other arm a negative one:
"""

# %%
print("relative rewards:", rpg_jax.relative_reward(reward, duration, best.rate))

# %% [markdown]
"""
## Learning it

Nobody knows the rate beforehand. `rpg_jax.niw` keeps a normal-inverse-Wishart posterior
over (reward, duration) for each (context, arm) and returns the rate of the policy that
is greedy at the present estimate. An estimator is three pure functions, `init`,
`update` and `rate`, so the whole loop is one `lax.scan`.

The policy is a softmax that takes natural-policy-gradient steps on what it has seen.
The two runs below differ in one thing: whether a second has a price.
"""

# %%
NOISE = 0.2
estimator = rpg_jax.niw(num_contexts=1, num_arms=3, forgetting=1.0)


def decide(carry, key, priced):
    """One decision: draw an arm, update the estimator, take a policy step."""
    logits, state, rho = carry
    keys = jax.random.split(key, 3)
    arm = jax.random.categorical(keys[0], logits[0])
    r = reward[0, arm] + NOISE * jax.random.normal(keys[1])
    d = duration[0, arm] * jnp.exp(NOISE * jax.random.normal(keys[2]))
    one = jnp.ones(1, bool)
    batch = rpg_jax.Batch(jnp.zeros(1, int), arm[None], r[None], d[None], one)
    state = estimator.update(state, batch)
    rho = estimator.rate(state, rho) if priced else jnp.zeros(())
    mean = state.cells.mean  # [1, arms, 2]; arms without data are at 0
    value = rpg_jax.relative_reward(mean[..., 0], mean[..., 1], rho)
    return (rpg_jax.npg(logits, value, step_size=0.3), state, rho), (r, d, rho)


@functools.partial(jax.jit, static_argnames=("priced", "steps"))
def play(key, priced, steps=400):
    """A run of ``steps`` decisions, with or without a price of a second."""
    start = (jnp.zeros((1, 3)), estimator.init(), jnp.zeros(()))
    step = functools.partial(decide, priced=priced)
    return jax.lax.scan(step, start, jax.random.split(key, steps))


# %%
runs = {}
for name, priced in [("reward rate", True), ("reward alone", False)]:
    (logits, state, rho), history = play(jax.random.key(0), priced)
    runs[name] = history
    r, d, _ = history
    print(
        f"{name:13s} plays arm {logits[0].argmax()}, "
        f"reward per action {r[-100:].mean():.2f}, "
        f"per second {r[-100:].sum() / d[-100:].sum():.2f}, "
        f"rows refused {state.rejected}"
    )

# %% [markdown]
"""
Maximising reward picks the slow arm and earns less per second. Charging each action
for its time at the estimated rate picks the arm with the best rate, and the estimate
settles there:
"""

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for name, (r, d, _) in runs.items():
    left.plot(d.cumsum(), r.cumsum(), label=name)
left.set(xlabel="seconds", ylabel="reward earned so far", xlim=(0, 300), ylim=(0, 150))
left.legend(frameon=False, loc="upper left")
right.plot(runs["reward rate"][2], label="estimate")
right.axhline(float(best.rate), color="black", linestyle=":", label="best rate")
right.set(xlabel="decision", ylabel="reward per second", ylim=(0, None))
right.legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
"""
## Where to go next

- `02_bandit_panel.py`: the same comparison on the paper's four environments.
- `03_your_own_bandit.py`: your own environment and agent in the study's simulator.
- `04_estimator_in_your_trainer.py`: the price of a second in a trainer that is not
  written in JAX.
"""
