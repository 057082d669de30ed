"""The bandit study's speed: ratios of ours to plain NumPy, and how costs grow.

    python -m benchmarks.bench_bandit            # all parts, some minutes
    python -m benchmarks.bench_bandit --parts=a,e
    python -m benchmarks.bench_bandit --quick    # a smoke run, no figures to quote

(a) one cell of the paper (E1, K = 10, 100 trials) against NumPy loops per trial-step:
    in the paper's form (sampled percentile) and with the same estimate as ours;
(b) the analytic against the sampled percentile of one rate fit;
(c) C-UCB: searches per decision, decisions that the approximate rate would change, and
    the cost of exact against approximate play (``bench_cucb`` has enumeration);
(d) how a step's cost grows with K and with X;
(e) NIW updates per second against vectorised NumPy and a memory copy;
(f) the regret of NPG-NIW with the sampled and with the analytic percentile, paired.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bandit import agents, analysis, base, envs, simulate, ucb
from benchmarks import numpy_bandit
from rpg_jax import conjugate, ratio
from rpg_jax.slots import fit_slots

REPEATS = 5


def seconds(function: Callable[[], object], repeats: int = REPEATS) -> float:
    """Median wall seconds of a call after one to compile and warm up."""
    jax.block_until_ready(function())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def one_agent(name: str, **hyper: float) -> tuple[Callable, dict[str, np.ndarray]]:
    spec = agents.AGENTS[name]
    values = {**spec.defaults, **hyper}
    return spec.build, {k: np.array([v]) for k, v in values.items()} or {
        "none": np.zeros(1)
    }


def numpy_trial(name: str, num_arms: int, steps: int) -> numpy_bandit.Trial:
    env = envs.make_env(name, num_arms, 4)
    rng = np.random.default_rng(0)
    z1 = rng.standard_normal(steps)
    corr = float(env.correlation)
    z2 = corr * z1 + (1 - corr**2) ** 0.5 * rng.standard_normal(steps)
    return numpy_bandit.Trial(
        env.reward_loc,
        env.duration_loc,
        rng.integers(0, 4, steps),
        z1,
        z2,
        rng.random(steps),
        bool(env.lognormal),
    )


def part_a(quick: bool) -> None:
    steps, trials = (1_000, 20) if quick else (30_000, 100)
    build, hyper = one_agent("npg-niw", lr=0.3, age=500.0)
    env = envs.make_env("E1", 10, 4)
    cores = os.cpu_count() or 1
    print(f"(a) E1, K = 10, {trials} trials of {steps:,} decisions")
    cost = {}
    for threads in dict.fromkeys((1, cores)):
        cost[threads] = seconds(
            lambda threads=threads: (
                simulate.simulate(
                    jax.random.key(0),
                    build,
                    env,
                    hyper,
                    np.arange(trials),
                    steps,
                    threads=threads,
                ).regret
            ),
            3,
        ) / (steps * trials)
        label = f"ours, {threads} thread(s)"
        print(f"    {label:<27} {cost[threads] * 1e6:10.3f} us per trial-step")
    for label, sampled, length in (
        ("NumPy loop, paper's form", True, 400 if quick else 3_000),
        ("NumPy loop, same estimate", False, 1_000 if quick else 10_000),
    ):
        trial = numpy_trial("E1", 10, length)
        times = []
        for seed in range(1 if quick else 3):
            start = time.perf_counter()
            numpy_bandit.npg_trial(
                trial, step_size=0.3, age=500.0, sampled=sampled, seed=seed
            )
            times.append((time.perf_counter() - start) / length)
        loop = statistics.median(times)
        ratios = " and ".join(f"{loop / ours:,.0f}x" for ours in cost.values())
        print(f"    {label:<27} {loop * 1e6:10.1f} us, ratio {ratios}")


def part_b(quick: bool) -> None:
    del quick
    rng = np.random.default_rng(0)
    lanes = 100
    reward = rng.gamma(60.0, 0.1, (lanes, 128)).astype(np.float32)
    duration = rng.gamma(80.0, 0.1, (lanes, 128)).astype(np.float32)
    mask = jnp.ones((lanes, 128), bool)
    prior = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)),
        conjugate.niw_prior(),
    )
    fit = fit_slots(prior, jnp.asarray(reward), jnp.asarray(duration), mask)
    keys = jax.random.split(jax.random.key(0), lanes)
    analytic = jax.jit(lambda: ratio.ratio_quantile(fit.niw, fit.number))
    sampled = jax.jit(
        lambda: jax.vmap(ratio.ratio_quantile_sampled)(keys, fit.niw, fit.number)
    )
    fast, slow = seconds(analytic), seconds(sampled, 3)
    print("(b) 95th percentile of the predictive ratio, 128 slots, per fit")
    print(
        f"    analytic {fast / lanes * 1e6:.2f} us, sampled {slow / lanes * 1e6:,.0f}"
    )
    print(f"    us: {slow / fast:,.0f}x; largest difference ", end="")
    print(f"{np.abs(analytic() / sampled() - 1).max():.2%}")


def part_c(quick: bool) -> None:
    steps, trials = (500, 20) if quick else (30_000, 100)
    spec = agents.AGENTS["cucb-tuned"]
    print(
        f"(c) C-UCB (c1 = 0.01, c2 = 0.1), E1, {trials} trials of {steps:,} decisions"
    )

    def counting(env: envs.Env, hyper: dict, *, searches: bool) -> base.Agent:
        """The exact agent, its rate replaced by a count."""
        agent = spec.build(env, hyper)

        def act(state, step):
            inner, overruled = state
            cells = base.CellSums(*inner.table[step.context])
            log_term = jnp.log(jnp.maximum(step.t, 2.0))
            log_term += 0.5 * ucb.log_one_plus_policies(*env.mean_reward.shape)
            low, _ = inner.search.enclose(inner.table, 2 * hyper["c1"] * log_term)
            action, inner = agent.act(inner, step)
            other = ucb.ucb_action(cells, low, hyper["c2"], log_term)
            return action, (inner, overruled + (other != action).astype(jnp.float32))

        return base.Agent(
            lambda: (agent.init(), jnp.zeros(())),
            act,
            lambda state, *rest: (agent.update(state[0], *rest), state[1]),
            lambda state: state[0].searches if searches else state[1],
        )

    hyper = {"c1": np.array([0.01]), "c2": np.array([0.1])}
    for num_arms in (5, 10, 20, 30):
        env = envs.make_env("E1", num_arms, 4)

        def play(build, env=env):
            return simulate.simulate(
                jax.random.key(0), build, env, hyper, np.arange(trials), steps
            )

        searched, changed = (
            play(partial(counting, searches=flag)).rate[-1, 0].mean() / steps
            for flag in (True, False)
        )
        cost = {
            name: seconds(lambda build=build: play(build).regret, 1) / steps / trials
            for name, build in (("exact", spec.build), ("approx", spec.tune_build))
        }
        print(
            f"    K = {num_arms:2d}: searched {searched:6.2%} of decisions, the lower "
            f"bound alone would change {changed:.3%}; exact {cost['exact'] * 1e6:.2f}"
            f" us, approximate {cost['approx'] * 1e6:5.2f} us per trial-step"
        )


def part_d(quick: bool) -> None:
    steps, trials = (200, 20) if quick else (2_000, 100)
    build, hyper = one_agent("npg-niw")

    def cost(num_arms: int, num_contexts: int) -> float:
        env = envs.make_env("E1", num_arms, num_contexts)
        return seconds(
            lambda: (
                simulate.simulate(
                    jax.random.key(0), build, env, hyper, np.arange(trials), steps
                ).regret
            ),
            3,
        ) / (steps * trials)

    print("(d) NPG-NIW, us per trial-step")
    for label, pairs in (
        ("K at X = 4", [(k, 4) for k in (8, 32, 128, 512)]),
        ("X at K = 16", [(16, x) for x in (4, 16, 64)]),
    ):
        costs = [cost(*pair) for pair in pairs]
        sizes = [max(p) if "K at" in label else p[1] for p in pairs]
        slope = np.polyfit(np.log(sizes), np.log(costs), 1)[0]
        shown = ", ".join(
            f"{s}: {c * 1e6:.3f}" for s, c in zip(sizes, costs, strict=True)
        )
        print(f"    {label}: {shown}; log-log slope {slope:.2f}")


def part_e(quick: bool) -> None:
    cells, batch = (1_000, 16) if quick else (200_000, 16)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(cells, batch, 2)).astype(np.float32)
    device = jnp.asarray(x)
    prior = conjugate.niw_prior()
    ours = seconds(jax.jit(lambda: conjugate.update(prior, device)))

    def vectorised() -> np.ndarray:
        mean = x.mean(axis=1)
        deviation = x - mean[:, None]
        scatter = np.einsum("nbi,nbj->nij", deviation, deviation)
        kappa, n = 1e-3, batch
        outer = mean[:, :, None] * mean[:, None, :]
        return 1e-3 * np.eye(2) + scatter + kappa * n / (kappa + n) * outer

    numpy_time = seconds(vectorised)
    target = np.empty_like(x)
    copy = seconds(lambda: np.copyto(target, x))
    # A copy reads and writes every byte; an update has to read them once.
    bound = copy / 2
    rate = cells / ours
    print(f"(e) NIW update of {cells:,} cells with {batch} pairs each")
    print(
        f"    ours {rate / 1e6:.1f} M updates/s: {numpy_time / ours:.1f}x vectorised "
    )
    print(f"    NumPy, {bound / ours:.0%} of the read-bandwidth bound")


def part_f(quick: bool) -> None:
    steps, trials = (400, 4) if quick else (5_000, 24)
    print(f"(f) NPG-NIW's regret, sampled minus analytic, {trials} paired trials of ")
    print(f"    {steps:,} decisions, K = 10, mean with a 95% interval")
    _, hyper = one_agent("npg-niw", lr=0.3, age=500.0)
    for name in ("E1", "E4"):
        env = envs.make_env(name, 10, 4)
        regret = [
            simulate.simulate(
                jax.random.key(0), spec.build, env, hyper, np.arange(trials), steps
            ).regret[-1, 0]
            for spec in (agents.SAMPLED["npg-niw"], agents.AGENTS["npg-niw"])
        ]
        low, high = analysis.bootstrap_interval(regret[0] - regret[1])
        print(
            f"    {name}: {(regret[0] - regret[1]).mean():+.2f} [{low:+.2f}, "
            f"{high:+.2f}] of {regret[1].mean():.1f}"
        )


PARTS = {
    "a": part_a,
    "b": part_b,
    "c": part_c,
    "d": part_d,
    "e": part_e,
    "f": part_f,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"jax {jax.__version__}, {os.cpu_count()} cores, load average {load:.1f}")
    for name in args.parts.split(","):
        PARTS[name](args.quick)


if __name__ == "__main__":
    main()
