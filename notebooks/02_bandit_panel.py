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
# A panel of the bandit study

A small size of the study: four environments, 8 arms, 4 contexts, 24 trials of 4,000
decisions. Every agent runs at its documented setting; nothing is tuned, so the ranking
here is not the study's. The full study and its results are in `results/bandit`:

    python -m experiments.bandit --env=all --arms=5,10,20,30 --tune=paper

It runs from a checkout (the folder `bandit` is not in the wheel), in under 40 seconds
on one core.
"""

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

from bandit import envs, simulate
from bandit.agents import AGENTS

ARMS, TRIALS, STEPS = 8, 24, 4_000
NAMES = ("npg-niw", "npg-reward", "cucb-plugin", "imed")

# %% [markdown]
"""
## The problem

In each decision a context is drawn, the agent picks one of K arms or SKIP, and sees a
reward and the seconds that it took. Its regret after N decisions is what the best rate
would have earned in the same time, minus what it earned:

    regret = rho* · sum(seconds) − sum(reward)

The four environments differ in how reward and seconds vary together.
"""

# %%
panel = {name: envs.make_env(name, ARMS) for name in envs.ENV_NAMES}
for name, env in panel.items():
    print(
        f"{name}: best rate {float(env.rho_star):.4f} per second, "
        f"correlation {float(env.correlation):+.1f}"
    )

# %% [markdown]
"""
## The agents

- `npg-niw`, the paper's: a natural policy gradient on relative rewards, with a pooled
  NIW estimate of the rate.
- `npg-reward`: the same policy gradient on rewards alone; time is free.
- `cucb-plugin`: an upper confidence bound per cell with a plug-in rate.
- `imed`: an index of ours with one setting for all problems.

All of them meet the same trials: a trial is its seed.
"""

# %%
results = {}
for agent in NAMES:
    spec = AGENTS[agent]
    for name, env in panel.items():
        setting = {key: np.array([v]) for key, v in spec.setting(env).items()}
        found = simulate.simulate(
            jax.random.key(0), spec.build, env, setting, np.arange(TRIALS), STEPS
        )
        results[agent, name] = found.steps, found.regret[:, 0]  # [C], [C, trials]
    last = [results[agent, name][1][-1].mean() for name in panel]
    print(f"{spec.label:22s}", "  ".join(f"{value:7.0f}" for value in last))

# %% [markdown]
"""
## The panel

Mean regret over the trials, with a band of one standard error. The agent for which time
is free does not stop losing: its regret grows in proportion to the decisions, while the
others' flattens.
"""

# %%
figure, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained", sharex=True)
for axis, name in zip(axes.flat, panel, strict=True):
    for agent in NAMES:
        steps, regret = results[agent, name]
        mean = regret.mean(axis=1)
        error = regret.std(axis=1, ddof=1) / np.sqrt(TRIALS)
        (line,) = axis.plot(steps, mean, label=AGENTS[agent].label)
        axis.fill_between(
            steps, mean - error, mean + error, color=line.get_color(), alpha=0.25
        )
    axis.set_title(name)
    axis.set_yscale("log")
    axis.set_ylim(10, 5000)
for axis in axes[1]:
    axis.set_xlabel("decisions")
for axis in axes[:, 0]:
    axis.set_ylabel("regret (log scale)")
handles, labels = axes[0, 0].get_legend_handles_labels()
figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
plt.show()
