"""Agents on problems that nobody has tuned for: random instances beyond E1-E4's.

    python -m benchmarks.fresh_instances [--instances=12] [--arms=10] [--steps=30000]

Each instance draws its locations at random (rates uniform in [0.1, 0.9], durations
uniform in [0.55, 3] seconds, independent for every context and arm) under the noise of
one of E1-E4. NPG-NIW and both C-UCBs are tuned on every instance by the median of 30
seeds; IMED and posterior sampling keep their one setting. Verdicts are paired, against
two standard errors.
"""

import argparse

import jax
import numpy as np

from bandit import agents, claims, envs, sweep
from bandit.simulate import simulate

TUNED = ("npg-niw", "cucb-tuned", "cucb-plugin")
FIXED = ("imed", "posterior")


def random_instance(name: str, num_arms: int, seed: int) -> envs.Env:
    """Random locations for 4 contexts under the noise of environment ``name``."""
    rng = np.random.default_rng(seed)
    shape = (4, num_arms)
    duration = rng.uniform(0.55, 3.0, shape)
    return envs.env_of(name, rng.uniform(0.1, 0.9, shape) * duration, duration)


def tuned_regret(spec, env, key, seeds, steps) -> np.ndarray:
    """Final regret [S] after tuning by the median, or at the one setting."""
    grid = spec.settings(4)
    size = len(next(iter(grid.values())))
    if size > 1:
        tuning = sweep.TUNE_OFFSET + np.arange(sweep.TUNE_TRIALS)
        build = spec.tune_build or spec.build
        final = simulate(key, build, env, grid, tuning, steps, threads=2).regret[-1]
        best = int(np.median(final, axis=1).argmin())
        grid = {name: values[best : best + 1] for name, values in grid.items()}
    return simulate(key, spec.build, env, grid, seeds, steps, threads=2).regret[-1, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=12)
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--trials", type=int, default=100)
    args = parser.parse_args()
    key, seeds = jax.random.key(11), np.arange(args.trials)
    counts: dict[tuple[str, str], list[str]] = {}
    print(f"K = {args.arms}, X = 4, {args.steps:,} decisions, {args.trials} trials")
    for i in range(args.instances):
        name = envs.ENV_NAMES[i % 4]
        env = random_instance(name, args.arms, seed=1000 + i)
        regret = {
            agent: tuned_regret(agents.AGENTS[agent], env, key, seeds, args.steps)
            for agent in (*TUNED, *FIXED)
        }
        shown = ", ".join(f"{a} {r.mean():.0f}" for a, r in regret.items())
        print(f"{name} #{i} (rho* {env.rho_star:.3f}): {shown}", flush=True)
        for ours in FIXED:
            for other in TUNED:
                judged = claims.verdict(regret[ours] - regret[other])
                counts.setdefault((ours, other), []).append(judged)
    for (ours, other), found in counts.items():
        tally = " / ".join(str(found.count(v)) for v in ("lower", "tie", "higher"))
        print(f"{ours} against {other}: lower / tie / higher {tally}")


if __name__ == "__main__":
    main()
