"""Many trials of one agent: vmap over hyper-parameters and trials, scan over decisions.

A trial is identified by its seed alone. Its permutation of contexts and arms, contexts,
noise and the uniforms behind its actions all come from ``fold_in(key, seed)``, so that
agents face the same trials (paired differences make sense), a trial does not depend on
which others run beside it, and a shorter run is a prefix of a longer one.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bandit import envs
from bandit.base import Agent, Step

#: Decisions whose random numbers are drawn in one go.
CHUNK = 500
#: Decisions between two records of regret.
RECORD = 50
#: Float32 counts stop growing at 2**24.
MAX_STEPS = 16_000_000

#: (the trial's permuted instance, hyper-parameters) -> Agent. Only an oracle may look
#: at more of the instance than its shape.
Builder = Callable[[envs.Env, Any], Agent]


class Result(NamedTuple):
    """Regret of G hyper-parameter settings on S trials at C checkpoints.

    Attributes:
      steps: decisions made at each checkpoint, int [C].
      regret: rho* sum(delta) - sum(r), float64 [C, G, S].
      pseudo_regret: sum of per-decision gaps, float64 [C, G, S].
      rate: the agent's rate at each checkpoint, reward per second, [C, G, S].
      elapsed: sum(delta) in the environment's seconds, float64 [C, G, S].
    """

    steps: np.ndarray
    regret: np.ndarray
    pseudo_regret: np.ndarray
    rate: np.ndarray
    elapsed: np.ndarray


class _Lane(NamedTuple):
    env: envs.Env
    gaps: jax.Array


def trial_keys(key: jax.Array, seeds: jax.Array) -> jax.Array:
    """The key of each trial, [S]: nothing else distinguishes trials."""
    return jax.vmap(lambda seed: jax.random.fold_in(key, seed))(seeds)


def permute_trials(key: jax.Array, env: envs.Env, seeds: jax.Array) -> envs.Env:
    """Each trial's own permutation of the canonical instance; leaves gain an axis [S].

    Args:
      key: the study's key.
      env: the canonical instance.
      seeds: trial seeds, int32 [S].
    """
    num_contexts, num_actions = env.mean_reward.shape

    def one(trial_key: jax.Array) -> envs.Env:
        context_key, arm_key = jax.random.split(jax.random.fold_in(trial_key, 0))
        return envs.permuted(
            env,
            jax.random.permutation(context_key, num_contexts),
            jax.random.permutation(arm_key, num_actions - 1),
        )

    return jax.vmap(one)(trial_keys(key, seeds))


def draw_chunk(
    trial_key: jax.Array, chunk: jax.Array, num_contexts: int, num_normals: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Contexts [CHUNK], noise [CHUNK, 2], uniforms [CHUNK] and the agent's normals."""
    keys = jax.random.split(jax.random.fold_in(trial_key, 1 + chunk), 4)
    return (
        jax.random.randint(keys[0], (CHUNK,), 0, num_contexts),
        jax.random.normal(keys[1], (CHUNK, 2)),
        jax.random.uniform(keys[2], (CHUNK,)),
        jax.random.normal(keys[3], (CHUNK, num_normals)),
    )


_LANE_AXES = _Lane(env=envs.Env(0, 0, 0, 0, None, None, None), gaps=0)


@partial(jax.jit, static_argnames=("build",))
def _init(build: Builder, hyper: Any, lane: _Lane) -> Any:
    def one(setting: Any, trial: _Lane) -> Any:
        return build(trial.env, setting).init()

    return jax.vmap(jax.vmap(one, (None, _LANE_AXES)), (0, None))(hyper, lane)


@partial(
    jax.jit,
    static_argnames=("build", "start", "num_records", "record"),
    donate_argnames=("states",),
)
def _run_segment(
    build: Builder,
    states: Any,
    hyper: Any,
    lane: _Lane,
    key: jax.Array,
    seeds: jax.Array,
    chunk: jax.Array,
    *,
    start: int,
    num_records: int,
    record: int,
):
    """``num_records`` stretches of ``record`` decisions, from ``start`` in a chunk."""
    num_contexts, num_actions = lane.gaps.shape[-2:]
    one_trial = jax.tree.map(
        lambda leaf, axis: leaf if axis is None else leaf[0],
        lane.env,
        _LANE_AXES.env,
        is_leaf=lambda leaf: leaf is None,
    )
    first = jax.tree.map(lambda leaf: leaf[0], hyper)
    num_normals = build(one_trial, first).num_normals
    draws = jax.vmap(lambda k: draw_chunk(k, chunk, num_contexts, num_normals))(
        trial_keys(key, seeds)
    )
    offsets = start + np.arange(num_records * record)
    shaped = jax.tree.map(
        lambda d: jnp.moveaxis(d[:, offsets], 0, 1).reshape(
            num_records, record, seeds.shape[0], *d.shape[2:]
        ),
        draws,
    )
    t = (chunk * CHUNK + 1 + offsets).astype(jnp.float32).reshape(num_records, record)

    def decide(state, setting, trial: _Lane, context, noise, uniform, normals, t):
        agent = build(trial.env, setting)
        step = Step(t, context, uniform, normals)
        action, state = agent.act(state, step)
        env = trial.env
        z1, z2 = envs.correlate(env, noise)
        reward, duration = envs.outcome(
            env.reward_loc[context, action],
            env.duration_loc[context, action],
            action == num_actions - 1,
            z1,
            z2,
            env.lognormal,
        )
        state = agent.update(state, step, action, reward, duration)
        terms = jnp.stack(
            [
                env.rho_star * duration - reward,
                trial.gaps[context, action],
                duration,
            ]
        )
        return state, terms

    over_trials = jax.vmap(decide, (0, None, _LANE_AXES, 0, 0, 0, 0, None))
    over_settings = jax.vmap(over_trials, (0, 0, None, None, None, None, None, None))

    rates = jax.vmap(
        jax.vmap(
            lambda state, setting, trial: build(trial.env, setting).rate(state),
            (0, None, _LANE_AXES),
        ),
        (0, 0, None),
    )

    def body(carry, xs):
        states, total = carry
        (context, noise, uniform, normals), t = xs
        states, terms = over_settings(
            states, hyper, lane, context, noise, uniform, normals, t
        )
        return (states, total + terms), None

    def stretch(states, xs):
        # Float32 holds the sum of one short stretch; the host adds the stretches up
        # in float64 (a float32 running sum is off by thousands after 2e6 decisions).
        shape = (jax.tree.leaves(hyper)[0].shape[0], seeds.shape[0], 3)
        (states, total), _ = jax.lax.scan(body, (states, jnp.zeros(shape)), xs)
        rate = rates(states, hyper, lane)
        return states, (total, rate)

    return jax.lax.scan(stretch, states, (shaped, t))


def _segments(num_steps: int) -> list[tuple[int, int, int, int]]:
    """(chunk, start, num_records, record) covering exactly num_steps decisions."""
    full, rest = divmod(num_steps, CHUNK)
    plan = [(chunk, 0, CHUNK // RECORD, RECORD) for chunk in range(full)]
    records, tail = divmod(rest, RECORD)
    if records:
        plan.append((full, 0, records, RECORD))
    if tail:
        plan.append((full, records * RECORD, 1, tail))
    return plan


def simulate(
    key: jax.Array,
    build: Builder,
    env: envs.Env,
    hyper: Any,
    seeds: np.ndarray,
    num_steps: int,
    *,
    progress: Callable[[int], None] | None = None,
    threads: int = 1,
) -> Result:
    """Runs every hyper-parameter setting on every trial.

    Args:
      key: the study's key; with a seed it fixes a trial.
      build: makes the agent of a trial and a setting. Pass the same function object
        again to reuse its compilation.
      env: a canonical instance from ``envs.make_env``.
      hyper: pytree of arrays with a leading axis [G].
      seeds: trial seeds, int [S].
      num_steps: decisions in a trial, 1 to 16 million.
      progress: called with the trial-steps (decisions of all settings and trials) done
        since the last call; from several threads if there are any.
      threads: splits the trials over this many threads, where their number allows equal
        parts. XLA runs a scan of small steps on one core.

    Raises:
      ValueError: if num_steps is out of range or there is no trial.
    """
    if not 1 <= num_steps <= MAX_STEPS:
        raise ValueError(f"num_steps must be 1..{MAX_STEPS}, got {num_steps}")
    if len(seeds) < 1:
        raise ValueError("need at least one trial")
    if threads > 1 and len(seeds) % threads == 0:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(
                pool.map(
                    lambda part: simulate(
                        key, build, env, hyper, part, num_steps, progress=progress
                    ),
                    np.split(np.asarray(seeds), threads),
                )
            )
        joined = (np.concatenate(field, axis=-1) for field in zip(*parts, strict=True))
        return Result(*joined)._replace(steps=parts[0].steps)
    env = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), env)
    hyper = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), hyper)
    seeds = jnp.asarray(seeds, jnp.int32)
    trials = permute_trials(key, env, seeds)
    scalars = {
        field: getattr(env, field)
        for field, axis in zip(envs.Env._fields, _LANE_AXES.env, strict=True)
        if axis is None
    }
    lane = _Lane(trials._replace(**scalars), jax.vmap(envs.gaps)(trials))
    states = _init(build, hyper, lane)
    totals, rates, steps = [], [], []
    done = 0
    for chunk, start, num_records, record in _segments(num_steps):
        states, (total, rate) = _run_segment(
            build,
            states,
            hyper,
            lane,
            key,
            seeds,
            jnp.asarray(chunk, jnp.int32),
            start=start,
            num_records=num_records,
            record=record,
        )
        totals.append(np.asarray(total, np.float64))
        rates.append(np.asarray(rate))
        length = num_records * record
        steps.append(done + record * np.arange(1, num_records + 1))
        done += length
        if progress is not None:
            progress(length * total.shape[1] * len(seeds))
    sums = np.cumsum(np.concatenate(totals), axis=0)
    return Result(
        steps=np.concatenate(steps),
        regret=sums[..., 0],
        pseudo_regret=sums[..., 1],
        rate=np.concatenate(rates),
        elapsed=sums[..., 2],
    )


def checkpoints(steps: np.ndarray, count: int) -> np.ndarray:
    """Indices of about ``count`` log-spaced entries of ``steps``; the last is kept."""
    targets = np.geomspace(steps[0], steps[-1], count)
    return np.unique(np.searchsorted(steps, targets - 0.5))
