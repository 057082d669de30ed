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
# Your own bandit

The study's simulator takes any instance and any agent. This notebook builds both: two
kinds of help-desk tickets that can be answered in four ways, and an agent that explores
at random and charges for time at a plug-in rate.

It runs from a checkout, in under 40 seconds on one core.
"""

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from bandit import base, envs, prices, simulate
from bandit.policy_gradient import tabular_policy_gradient

# %% [markdown]
"""
## An environment

An instance is a table of mean rewards and a table of mean seconds, [contexts, arms].
`env_of` adds the noise of one of E1 to E4 (here E4: log-normal, reward and seconds vary
together) and the arm SKIP, which earns 0 and takes 0.35 s. It also computes the best
rate.
"""

# %%
ways = ["canned answer", "search and quote", "write an answer", "call a colleague"]
solved = np.array([[0.50, 0.70, 0.80, 0.90], [0.05, 0.20, 0.75, 0.95]])
minutes = np.array([[0.6, 1.0, 1.6, 5.0], [0.6, 1.0, 1.6, 5.0]])

desk = envs.env_of("E4", solved, minutes)
greedy = (desk.mean_reward - desk.rho_star * desk.mean_duration).argmax(axis=1)
print(f"best rate: {float(desk.rho_star):.3f} solved per minute")
for kind, arm in zip(("easy", "hard"), greedy, strict=True):
    print(f"  {kind} tickets: {[*ways, 'SKIP'][arm]}")

# %% [markdown]
"""
## An agent

An agent is four pure functions over one trial: `init`, `act`, `update` and `rate`. The
simulator vmaps them over trials and settings and scans over decisions. This one plays
the greedy arm at its own rate, and a random arm with probability `epsilon`; SKIP is the
last action.
"""


# %%
def epsilon_greedy(num_contexts, num_actions, epsilon):
    """Greedy for reward - rate * seconds at a plug-in rate, with random exploration."""

    def init():
        cells = jnp.zeros((num_contexts, 3, num_actions))  # sums and counts
        return cells, base.GreedyRate.empty(num_contexts)

    def act(state, step):
        cells, greedy = state
        sums = base.CellSums(*cells[step.context])
        value = jnp.where(sums.tried, sums.value(greedy.rate), jnp.inf)
        explores = step.uniform < epsilon
        # What is left of the uniform draw is a uniform draw again.
        anything = (step.uniform / epsilon * num_actions).astype(jnp.int32)
        action = jnp.where(explores, anything, base.first_argmax(value))
        return jnp.clip(action, 0, num_actions - 1), state

    def update(state, step, action, reward, duration):
        cells, greedy = state
        sums = base.CellSums(*cells[step.context]).add(action, reward, duration)
        cells = cells.at[step.context].set(jnp.stack(sums))
        return cells, greedy.refresh(step.context, sums)

    return base.Agent(init, act, update, rate=lambda state: state[1].rate)


# %% [markdown]
"""
## Builders

The simulator wants a builder: (instance, setting) -> agent. Only the *shape* of the
instance may be used, unless the agent is an oracle. Two rivals from the library stand
beside ours: a policy gradient whose price of time is the plug-in rate, and one for
which time is free.
"""


# %%
def build_epsilon(env, setting):
    """Our agent."""
    return epsilon_greedy(*env.mean_reward.shape, setting["epsilon"])


def build_priced(env, setting):
    """Natural policy gradient on relative rewards."""
    shape = env.mean_reward.shape
    price = prices.plug_in(shape[0])
    return tabular_policy_gradient(*shape, step_size=setting["lr"], price=price)


def build_free(env, setting):
    """Natural policy gradient on rewards alone."""
    shape = env.mean_reward.shape
    price = prices.fixed(0.0)
    return tabular_policy_gradient(*shape, step_size=setting["lr"], price=price)


rivals = {
    "ours, epsilon = 0.1": (build_epsilon, {"epsilon": [0.1]}),
    "ours, epsilon = 0.01": (build_epsilon, {"epsilon": [0.01]}),
    "policy gradient, priced": (build_priced, {"lr": [0.3]}),
    "policy gradient, time is free": (build_free, {"lr": [0.3]}),
}

# %% [markdown]
"""
## Run and look

Every agent meets the same 32 trials. The dashed line on the right is the best rate.
"""

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
final = {}
for name, (build, setting) in rivals.items():
    setting = {key: np.array(values) for key, values in setting.items()}
    found = simulate.simulate(
        jax.random.key(1), build, desk, setting, np.arange(32), 3_000
    )
    regret = found.regret[:, 0].mean(axis=1)
    # Reward per minute since the start: rho* - regret / time.
    earned = float(desk.rho_star) - regret / found.elapsed[:, 0].mean(axis=1)
    left.plot(found.steps, regret, label=name)
    right.plot(found.steps, earned)
    final[name] = float(regret[-1])
    print(f"{name:30s} regret {regret[-1]:6.1f}, {earned[-1]:.3f} solved per minute")
left.set(xlabel="tickets", ylabel="regret (tickets solved)", yscale="log")
figure.legend(loc="outside upper center", ncols=4, frameon=False)
right.axhline(float(desk.rho_star), color="black", linestyle="--")
right.set(xlabel="tickets", ylabel="solved per minute, since the start")
plt.show()

# %% [markdown]
"""
## In a study

`register_agent(AgentSpec("mine", "Mine", build_epsilon, {"epsilon": 0.01}))` from
`bandit.registry` gives the agent a name, and `register_env` an environment. Studies,
tables and figures of the process know them from then on (`bandit.study`).
"""
