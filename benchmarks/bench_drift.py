"""Relative RMSE of the rate estimators while what is earned, or the policy, changes.

    python -m benchmarks.bench_drift             # some minutes, most to compile
    python -m benchmarks.bench_drift --rows=8    # smaller batches
    python -m benchmarks.bench_drift --quick     # fewer decisions, no figures to quote

A table of means (4 contexts, 5 arms), a stream of batches, an estimate after each. The
error is that of the estimates in the second half of the stream against the true rate
of that moment. Per-cell estimators see every decision and estimate the best rate;
pooled ones see greedy decisions and estimate what these earn. Streams:

    steady    nothing changes; a fifth of the decisions explore
    jump      rewards treble in the middle
    drift     rewards treble little by little, over the second half
    learning  a softmax policy learns from a uniform start (NPG at the true rate)
    falls     in the middle the best arms earn a third, and are not played again
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import rpg_jax
from rpg_jax.network import MeanNetwork

X, A = 4, 5
STREAMS = ("steady", "jump", "drift", "learning", "falls")
NOISE = 0.3
EXPLORE = 0.2
STEP = 0.1  # of NPG in the stream where the policy learns


class Entry(NamedTuple):
    """An estimator of the table; ``kind`` is cells, pooled or network."""

    name: str
    build: Callable[[], rpg_jax.RateEstimator]
    kind: str


class World(NamedTuple):
    """Means and the policy of one batch, and the two rates to be estimated."""

    reward: np.ndarray | jax.Array  # [X, A]
    seconds: jax.Array  # [X, A]
    policy: jax.Array  # [X, A] probabilities
    best: jax.Array  # rate of the best policy among the arms that are played
    greedy: jax.Array  # rate of the policy's greedy decisions


def network() -> rpg_jax.RateEstimator:
    """The neural estimator on one-hot contexts."""
    net = MeanNetwork(num_arms=A, hidden=16)
    contexts = jnp.eye(X)
    params = net.init(jax.random.key(1), contexts)
    return rpg_jax.neural(
        net.apply, params, optax.adam(1e-2), num_steps=40, contexts=contexts
    )


def entries() -> list[Entry]:
    """What is compared; the first of a kind is what it was, the second the default."""

    def cells(name: str, **options: Any) -> Entry:
        return Entry(name, lambda: rpg_jax.niw(X, A, **options), "cells")

    def slots(name: str, **options: Any) -> Entry:
        return Entry(name, lambda: rpg_jax.niw_slots(128, **options), "pooled")

    def pooled(name: str, build: Callable[[], rpg_jax.RateEstimator]) -> Entry:
        return Entry(name, build, "pooled")

    return [
        cells("niw(forgetting=1)", forgetting=1.0),
        cells("niw()"),
        cells("niw(forgetting=.9)", forgetting=0.9),
        slots("niw_slots(age=None)", age=None),
        slots("niw_slots()"),
        slots("niw_slots(age=512)", age=512),
        pooled("empirical(forgetting=1)", lambda: rpg_jax.empirical(forgetting=1.0)),
        pooled("empirical()", rpg_jax.empirical),
        pooled("empirical(forgetting=.9)", lambda: rpg_jax.empirical(forgetting=0.9)),
        pooled("robbins_monro(.1)", lambda: rpg_jax.robbins_monro(0.1)),
        pooled("robbins_monro(.3)", lambda: rpg_jax.robbins_monro(0.3)),
        Entry("neural()", network, "network"),
    ]


def best_policy(
    reward: np.ndarray, seconds: np.ndarray, played: np.ndarray
) -> tuple[np.ndarray, float]:
    """Dinkelbach among the arms that are played, and the rate."""
    rate = 0.0
    for _ in range(20):
        value = np.where(played, reward - rate * seconds, -np.inf)
        policy = value.argmax(-1)
        rate = float(earned(policy, reward, seconds))
    return policy, rate


def earned(policy: np.ndarray, reward: np.ndarray, seconds: np.ndarray) -> float:
    """Reward per second of a deterministic policy."""
    rows = np.arange(X)
    return float(reward[rows, policy].sum() / seconds[rows, policy].sum())


def worlds(stream: str, seed: int, batches: int) -> World:
    """The world at every batch, stacked."""
    rng = np.random.default_rng(seed)
    reward, seconds = rng.uniform(0.2, 1.0, (X, A)), rng.uniform(0.5, 3.0, (X, A))
    everything = np.ones((X, A), bool)
    start, _ = best_policy(reward, seconds, everything)
    logits = np.zeros((X, A))
    found = []
    for batch in range(batches):
        late = max(0.0, 2 * batch / batches - 1)
        after = batch >= batches // 2
        factor = {"jump": 3.0 if after else 1.0, "drift": 3.0**late}.get(stream, 1.0)
        means, played = reward * factor, everything
        if stream == "falls" and after:
            fallen = np.eye(A)[start] > 0
            means, played = np.where(fallen, reward / 3, reward), ~fallen
        greedy, rate = best_policy(means, seconds, played)
        policy = EXPLORE * played / played.sum(-1, keepdims=True)
        policy += (1 - EXPLORE) * np.eye(A)[greedy]
        if stream == "learning":
            greedy = logits.argmax(-1)
            policy = np.exp(logits - logits.max(-1, keepdims=True))
            policy /= policy.sum(-1, keepdims=True)
            value = means - rate * seconds
            logits = logits + STEP * (value - (policy * value).sum(-1, keepdims=True))
        got = earned(greedy, means, seconds)
        found.append((means, seconds, policy, rate, got))
    return World(*(np.array(v, np.float32) for v in zip(*found, strict=True)))


def draw(key: jax.Array, world: World, rows: int, kind: str) -> rpg_jax.Batch:
    """Decisions of the policy; pooled estimators are fed greedy ones alone."""
    keys = jax.random.split(key, 3)
    context = jax.random.randint(keys[0], (rows,), 0, X)
    action = jax.random.categorical(keys[1], jnp.log(world.policy)[context])
    z = jax.random.normal(keys[2], (2, rows))
    reward = world.reward[context, action] * (1 + NOISE * z[0])
    spread = jnp.exp(NOISE * z[1] - NOISE**2 / 2)
    greedy = action == jnp.argmax(world.policy, axis=-1)[context]
    return rpg_jax.Batch(
        context=jnp.eye(X)[context] if kind == "network" else context,
        action=action,
        reward=reward,
        duration=world.seconds[context, action] * spread,
        mask=greedy if kind == "pooled" else jnp.ones(rows, bool),
    )


def errors(entry: Entry, streams: World, rows: int) -> jax.Array:
    """Relative RMSE in the second half, for each of the stacked seeds."""
    estimator = entry.build()

    def run(item: tuple[jax.Array, World]) -> jax.Array:
        key, stream = item
        keys = jax.random.split(key, stream.best.shape[0])

        def step(state: Any, now: tuple[jax.Array, World]) -> tuple[Any, jax.Array]:
            key, world = now
            state = estimator.update(state, draw(key, world, rows, entry.kind))
            rate = rpg_jax.fixed_point(estimator, state, 0.0)
            true = world.greedy if entry.kind == "pooled" else world.best
            return state, rate / true - 1

        _, error = jax.lax.scan(step, estimator.init(), (keys, stream))
        return jnp.sqrt(jnp.mean(jnp.square(error[error.shape[0] // 2 :])))

    seeds = streams.best.shape[0]
    # One seed after the other: side by side, branches would cost both of their sides.
    run_all = jax.jit(lambda items: jax.lax.map(run, items))
    return run_all((jax.random.split(jax.random.key(0), seeds), streams))


def table(seeds: int, batches: int, rows: int) -> str:
    """Median over seeds, one line an estimator."""
    head = f"{'estimator':26}" + "".join(f"{name:>10}" for name in STREAMS)
    lines = [head]
    made = []
    for name in STREAMS:
        each = [worlds(name, seed, batches) for seed in range(seeds)]
        made.append(jax.tree.map(lambda *v: np.stack(v), *each))
    for entry in entries():
        medians = [
            statistics.median(np.asarray(errors(entry, stream, rows)).tolist())
            for stream in made
        ]
        lines.append(f"{entry.name:26}" + "".join(f"{m:10.3f}" for m in medians))
        print(lines[-1] if len(lines) > 2 else "\n".join(lines), flush=True)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=80)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--quick", action="store_true", help="2 seeds, 8 batches")
    options = parser.parse_args()
    seeds, batches = (2, 8) if options.quick else (options.seeds, options.batches)
    print(f"{seeds} seeds, {batches} batches of {options.rows}; relative RMSE\n")
    table(seeds, batches, options.rows)


if __name__ == "__main__":
    main()
