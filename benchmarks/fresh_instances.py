"""Agents on problems that nobody has tuned for: random instances beyond E1-E4's.

    python -m benchmarks.fresh_instances [--instances=12] [--arms=10] [--tune=fine]

Each instance draws its locations at random (rates uniform in [0.1, 0.9], durations
uniform in [0.55, 3] seconds, independent for every context and arm) under the noise of
one of E1-E4. NPG-NIW and both C-UCBs are tuned on every instance, by the median and by
the mean of 30 seeds; IMED and posterior sampling keep their one setting, which was
chosen on the small study. Verdicts are paired, against two standard errors.
"""

import argparse
from collections.abc import Mapping

import jax
import numpy as np

from bandit import agents, claims, envs, sweep
from bandit.registry import AgentSpec
from bandit.simulate import simulate

TUNED = ("npg-niw", "cucb-tuned", "cucb-plugin")
FIXED = ("imed", "posterior")
Regret = Mapping[str, np.ndarray]


def random_instance(name: str, num_arms: int, seed: int) -> envs.Env:
    """Random locations for 4 contexts under the noise of environment ``name``."""
    rng = np.random.default_rng(seed)
    shape = (4, num_arms)
    duration = rng.uniform(0.55, 3.0, shape)
    return envs.env_of(name, rng.uniform(0.1, 0.9, shape) * duration, duration)


def final_regret(
    spec: AgentSpec, env: envs.Env, key: jax.Array, args: argparse.Namespace
) -> Regret:
    """Final regret [S] by selection: of the tuned settings, or of the one setting."""
    grid = spec.settings(4, args.tune)
    size = len(next(iter(grid.values())))
    chosen = [0] * len(sweep.SELECTIONS)
    if size > 1:
        tuning = sweep.TUNE_OFFSET + np.arange(sweep.TUNE_TRIALS)
        build = spec.tune_build or spec.build
        result = simulate(key, build, env, grid, tuning, args.steps, threads=2)
        final = result.regret[-1]
        scores = (np.median(final, axis=1), final.mean(axis=1))
        chosen = [int(score.argmin()) for score in scores]
    picked = {name: values[chosen] for name, values in grid.items()}
    seeds = np.arange(args.trials)
    result = simulate(key, spec.build, env, picked, seeds, args.steps, threads=2)
    return dict(zip(sweep.SELECTIONS, result.regret[-1], strict=True))


def print_tallies(found: Mapping[tuple[str, str, str], list[str]]) -> None:
    for (selection, ours, other), verdicts in found.items():
        counts = [str(verdicts.count(v)) for v in ("lower", "tie", "higher")]
        print(f"tuned by {selection}: {ours} against {other}: ", end="")
        print(f"lower / tie / higher {' / '.join(counts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=12)
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--tune", choices=("paper", "fine"), default="paper")
    args = parser.parse_args()
    key = jax.random.key(11)
    found: dict[tuple[str, str, str], list[str]] = {}
    pairs = [(ours, other) for ours in (*FIXED, "npg-niw") for other in TUNED]
    pairs = [(ours, other) for ours, other in pairs if ours != other]
    print(f"K = {args.arms}, X = 4, {args.steps:,} decisions, {args.trials} trials")
    names = (*TUNED, *FIXED)
    print(f"| tuned by | noise | rho* | {' | '.join(names)} |\n{'|---' * 8}|")
    for i in range(args.instances):
        noise = envs.ENV_NAMES[i % 4]
        env = random_instance(noise, args.arms, seed=1000 + i)
        regret = {n: final_regret(agents.AGENTS[n], env, key, args) for n in names}
        for selection in sweep.SELECTIONS:
            shown = " | ".join(f"{r[selection].mean():.0f}" for r in regret.values())
            print(
                f"| {selection} | {noise} | {env.rho_star:.3f} | {shown} |", flush=True
            )
            for ours, other in pairs:
                difference = regret[ours][selection] - regret[other][selection]
                verdicts = found.setdefault((selection, ours, other), [])
                verdicts.append(claims.verdict(difference))
    print_tallies(found)


if __name__ == "__main__":
    main()
