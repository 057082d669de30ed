"""C-UCB's maximum over policies: exact bound and prune against enumeration.

    python -m benchmarks.bench_cucb [--arms=5,10,20,30] [--env=E1] [--trials=100]

Tables are recorded along real C-UCB trajectories; both methods see the same tables in
one process. Reported: median microseconds per trial and decision, their ratio, how many
trials needed the second stage or full enumeration, the largest difference of the two
values, and how often and how far the approximate method falls short.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from bandit import envs
from bandit.cucb import approximate_max, brute_force_max, disagreement, exact_max
from bandit.cucb_record import Recording, record

CHECKPOINTS = (500, 2000, 8000, 30000)


def seconds(function, *args, repeats):
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def enumerate_in_groups(tables, group):
    """Enumeration, a few trials at a time: larger groups leave the cache."""
    brute = jax.jit(brute_force_max)
    batch = tables.n.shape[-1]
    parts = [slice(i, i + group) for i in range(0, batch - group + 1, group)]

    def run():
        return [
            brute(
                tables.sum_r[..., p],
                tables.sum_d[..., p],
                tables.n[..., p],
                tables.penalty[p],
            )
            for p in parts
        ]

    return run, len(parts) * group


def mixed_settings(trials):
    """Trials over the tuning grid of c1 (but for the two largest) and c2."""
    c1, c2 = np.logspace(-2, 0, 3), np.logspace(-4, 0, 5)
    return np.resize(np.repeat(c1, 5), trials), np.resize(np.tile(c2, 3), trials)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", default="5,10,20,30")
    parser.add_argument("--env", default="E1", choices=envs.ENV_NAMES)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", default=",".join(map(str, CHECKPOINTS)))
    args = parser.parse_args(argv)
    steps = tuple(int(s) for s in args.steps.split(","))
    print(f"{args.env}, {args.trials} trials, X = 4, medians of {args.repeats}")
    print(
        "K   t      policies  enumerate us  exact us  ratio  approx us  split  full"
        "  max |diff|  approx short"
    )
    for arms in (int(k) for k in args.arms.split(",")):
        env = envs.make_env(args.env, arms)
        recorded, _ = record(
            jax.random.key(arms), env, *mixed_settings(args.trials), steps
        )
        exact, close = jax.jit(exact_max), jax.jit(approximate_max)
        ratios = []
        for step, tables in zip(steps, recorded, strict=True):
            tables = Recording(*map(jnp.asarray, tables))
            group = min(args.trials, 10)
            run, done = enumerate_in_groups(tables, group)
            brute_us = 1e6 * seconds(run, repeats=min(args.repeats, 3)) / done
            exact_us = 1e6 * seconds(exact, *tables, repeats=args.repeats)
            close_us = 1e6 * seconds(close, *tables, repeats=args.repeats)
            exact_us, close_us = exact_us / args.trials, close_us / args.trials
            value, _, info = exact(*tables)
            want = np.maximum(np.concatenate([v for v, _ in run()]), 1e-9)
            worst = float(np.abs(np.asarray(value)[: len(want)] - want).max())
            gap, differs = disagreement(*tables)
            ratios.append(brute_us / exact_us)
            print(
                f"{arms:<3} {step:<6} {(arms + 1) ** 4:<9} {brute_us:<13.1f} "
                f"{exact_us:<9.2f} {ratios[-1]:<6.0f} {close_us:<10.2f} "
                f"{int(info.split):<6} {int(info.enumerated):<5} {worst:<11.1e} "
                f"{int(differs.sum())} of {args.trials}, at most {float(gap.max()):.1e}"
            )
        print(f"{arms:<3} median ratio {statistics.median(ratios):.0f}", flush=True)


if __name__ == "__main__":
    main()
