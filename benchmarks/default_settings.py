"""The documented settings of the agents: a small tuning run at seeds of its own.

    python -m benchmarks.default_settings --out=results/bandit/defaults.csv

An agent with hyper-parameters gets one setting for all problems: of a small grid, the
one whose mean regret is least in the average over 8 problems (E1-E4, K = 10 and 64,
X = 4), each divided by the least mean regret that the grid reaches there. The 10 seeds
begin at 2,000,000; tuning per cell has 1,000,000 and up, evaluation 0 and up. IMED's
and posterior sampling's scale is older: chosen on seeds 1000-1099 of the small study.
"""

import argparse
import json
import time
from itertools import product
from pathlib import Path

import jax
import numpy as np

from bandit import analysis, envs
from bandit.agents import AGENTS
from bandit.registry import AgentSpec
from bandit.simulate import simulate

SEEDS = 2_000_000 + np.arange(10)
PROBLEMS = tuple(product(envs.ENV_NAMES, (10, 64)))
VALUES = {
    "lr": (0.03, 0.1, 0.3, 1.0, 3.0),
    "age": (250.0, 1000.0, 4000.0, 16000.0),
    "c1": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "c2": (0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 1.0),
}
PPO_LR = (3.0, 10.0, 30.0, 100.0)
FIELDS = ("agent", "setting", "score", "at_edge", "env", "num_arms", "regret", "least")


def grid_of(spec: AgentSpec) -> dict[str, np.ndarray]:
    """All combinations of the small grid; what it does not name keeps its default."""
    values = {name: VALUES.get(name, (value,)) for name, value in spec.defaults.items()}
    if spec.name == "ppo-niw":
        values["lr"] = PPO_LR
    rows = np.array(list(product(*values.values())))
    return dict(zip(values, rows.T, strict=True))


def tune(spec: AgentSpec, steps: int) -> tuple[list[analysis.Row], dict[str, float]]:
    """The setting that is chosen, and its regret on each problem."""
    grid = grid_of(spec)
    build = spec.tune_build or spec.build
    means = []
    for env, num_arms in PROBLEMS:
        problem = envs.make_env(env, num_arms, 4)
        result = simulate(jax.random.key(0), build, problem, grid, SEEDS, steps)
        means.append(result.regret[-1].mean(axis=-1))
    table = np.stack(means)
    least = table.min(axis=1)
    # Below 1 a regret is noise, and a ratio of two of them says nothing.
    score = (np.maximum(table, 1.0) / np.maximum(least, 1.0)[:, None]).mean(axis=0)
    best = int(score.argmin())
    setting = {name: float(v[best]) for name, v in grid.items()}
    edge = [
        name
        for name, v in grid.items()
        if len(set(v)) > 1 and v[best] in (v.min(), v.max())
    ]
    rows = [
        {
            "agent": spec.name,
            "setting": json.dumps(setting),
            "score": float(score[best]),
            "at_edge": " ".join(edge),
            "env": env,
            "num_arms": num_arms,
            "regret": float(table[i, best]),
            "least": float(least[i]),
        }
        for i, (env, num_arms) in enumerate(PROBLEMS)
    ]
    return rows, setting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--agents", default="")
    parser.add_argument("--steps", type=int, default=30_000)
    args = parser.parse_args()
    names = [n for n in args.agents.split(",") if n] or [
        name for name, spec in AGENTS.items() if spec.small_grid
    ]
    rows = []
    for name in names:
        began = time.perf_counter()
        found, setting = tune(AGENTS[name], args.steps)
        rows += found
        seconds = time.perf_counter() - began
        print(
            f"{name}: {setting}, {found[0]['score']:.2f}, {seconds:.0f} s", flush=True
        )
        analysis.write_csv(args.out, FIELDS, rows)


if __name__ == "__main__":
    main()
