"""Harmonic means of per-attempt rates as an estimate of reward per second, on E1-E4.

    python -m benchmarks.harmonic_rate

A fixed policy that plays all arms alike (SKIP left out), 4 contexts, K arms. Its true
rate is E[r] / E[delta]. With q_i = r_i / delta_i the rate of one attempt:

    harmonic            n / sum 1/q_i                 equal weights
    harmonic, r > 0     the same of attempts that earned something
    weighted harmonic   sum r_i / sum (r_i / q_i)     weights r_i
    recursive           1/rho <- (1 - a) / rho + a / q_i, a = .05, where r_i > 0
    arithmetic          mean of q_i

Harmonic averaging is the idea of Shtossel et al. (2026), arXiv 2605.04880, for
semi-Markov problems; this is not their learning algorithm.
"""

import argparse
import sys
from collections.abc import Sequence

import jax
import numpy as np

from bandit.envs import ENV_NAMES, draw, make_env

CONTEXTS = 4


def attempts(name: str, arms: int, number: int, seed: int) -> np.ndarray:
    """(reward, seconds) of a policy that plays all arms alike, [number, 2]."""
    env = make_env(name, arms, CONTEXTS)
    rng = np.random.default_rng([seed, arms])
    # The last column is SKIP.
    context = rng.integers(CONTEXTS, size=number)
    action = rng.integers(env.reward_loc.shape[-1] - 1, size=number)
    normals = rng.standard_normal((number, 2)).astype(np.float32)
    pairs = jax.jit(jax.vmap(draw, (None, 0, 0, 0)))(env, context, action, normals)
    return np.stack([np.asarray(x, np.float64) for x in pairs], -1)


def estimates(reward: np.ndarray, seconds: np.ndarray) -> dict[str, float]:
    """Each mean of the attempts' rates, reward per second."""
    earned = reward > 0
    rate = reward[earned] / seconds[earned]
    slowness = np.concatenate([1 / rate, np.full((~earned).sum(), np.inf)])
    inverse = 1 / rate[0] if len(rate) else np.inf
    for one in 1 / rate[1:]:
        inverse = 0.95 * inverse + 0.05 * one
    weighted = reward[earned].sum() / (reward[earned] / rate).sum()
    return {
        "harmonic": float(1 / slowness.mean()),
        "harmonic, r > 0": float(1 / (1 / rate).mean()),
        "weighted harmonic": float(weighted),
        "recursive": float(1 / inverse),
        "arithmetic": float((reward / seconds).mean()),
        "sum r / sum delta": float(reward.sum() / seconds.sum()),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Prints each estimate as a share of the true rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, default=20)
    parser.add_argument("--number", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=9)
    flags = parser.parse_args(argv)
    names: list[str] = []
    for name in ENV_NAMES:
        env = make_env(name, flags.arms, CONTEXTS)
        true = env.mean_reward[:, :-1].mean() / env.mean_duration[:, :-1].mean()
        found: dict[str, list[float]] = {}
        failed = []
        for seed in range(flags.seeds):
            reward, seconds = attempts(name, flags.arms, flags.number, seed).T
            failed.append((reward <= 0).mean())
            for key, value in estimates(reward, seconds).items():
                found.setdefault(key, []).append(value / float(true))
        if not names:
            names = list(found)
            print("share of the true rate, median of seeds")
            print("env  true rate  r = 0  " + "  ".join(names))
        cells = [f"{np.median(found[n]):>{len(n)}.3f}" for n in names]
        print(f"{name}   {true:9.4f}  {np.mean(failed):5.3f}  " + "  ".join(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
