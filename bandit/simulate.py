"""Many trials of one agent: vmap over hyper-parameters and trials, scan over decisions.

A trial is identified by its seed alone. Its permutation of contexts and arms, contexts,
noise and the uniforms behind its actions all come from ``fold_in(key, seed)``, so that
agents face the same trials (paired differences make sense), a trial does not depend on
which others run beside it, and a shorter run is a prefix of a longer one.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike

from bandit import instance
from bandit.base import Index, Scalar, State, Step
from bandit.instance import Draw, Env
from bandit.registry import Builder

#: Decisions whose random numbers are drawn in one go.
CHUNK = 500
#: Decisions between two records of regret.
RECORD = 50
#: Float32 counts stop growing at 2**24.
MAX_STEPS = 16_000_000
#: One setting of an agent that has no hyper-parameter.
NO_HYPER: Mapping[str, ArrayLike] = {"none": np.zeros(1)}


class Result(NamedTuple):
    """Regret of G hyper-parameter settings on S trials at C checkpoints.

    Attributes:
      steps: decisions made at each checkpoint.
      regret: rho* sum(delta) - sum(r), float64.
      pseudo_regret: sum of per-decision gaps, float64.
      rate: the agent's rate at each checkpoint, reward per second.
      elapsed: sum(delta) in the environment's seconds, float64.
    """

    steps: Int[np.ndarray, " checkpoints"]
    regret: Float[np.ndarray, "checkpoints settings trials"]
    pseudo_regret: Float[np.ndarray, "checkpoints settings trials"]
    rate: Float[np.ndarray, "checkpoints settings trials"]
    elapsed: Float[np.ndarray, "checkpoints settings trials"]


class _Lane(NamedTuple):
    """What differs between trials: the permuted tables; leaves gain an axis [S]."""

    reward_loc: Float[Array, "*trials contexts actions"]
    duration_loc: Float[Array, "*trials contexts actions"]
    mean_reward: Float[Array, "*trials contexts actions"]
    mean_duration: Float[Array, "*trials contexts actions"]
    gaps: Float[Array, "*trials contexts actions"]

    def env(self, like: Env) -> Env:
        """One trial's instance: these tables, the numbers of ``like``."""
        return like._replace(
            reward_loc=self.reward_loc,
            duration_loc=self.duration_loc,
            mean_reward=self.mean_reward,
            mean_duration=self.mean_duration,
        )


class _Draws(NamedTuple):
    """Random numbers of decisions; under vmap those of one."""

    context: Int[Array, "*batch"]
    noise: Float[Array, "*batch 2"]
    uniform: Float[Array, "*batch"]
    normals: Float[Array, "*batch num_normals"]


def trial_keys(
    key: Key[Array, ""], seeds: Int[Array, " trials"]
) -> Key[Array, " trials"]:
    """The key of each trial: nothing else distinguishes trials."""
    return jax.vmap(lambda seed: jax.random.fold_in(key, seed))(seeds)


def permute_trials(key: Key[Array, ""], env: Env, seeds: Int[Array, " trials"]) -> Env:
    """Each trial's own permutation of the canonical instance; leaves gain an axis [S].

    Args:
      key: the study's key.
      env: the canonical instance.
      seeds: trial seeds, int32.
    """
    num_contexts, num_actions = env.mean_reward.shape

    def one(trial_key: Key[Array, ""]) -> Env:
        context_key, arm_key = jax.random.split(jax.random.fold_in(trial_key, 0))
        return instance.permuted(
            env,
            jax.random.permutation(context_key, num_contexts),
            jax.random.permutation(arm_key, num_actions - 1),
        )

    return jax.vmap(one)(trial_keys(key, seeds))


def draw_chunk(
    trial_key: Key[Array, ""], chunk: Index, num_contexts: int, num_normals: int
) -> tuple[
    Int[Array, " chunk"],
    Float[Array, "chunk 2"],
    Float[Array, " chunk"],
    Float[Array, "chunk num_normals"],
]:
    """Contexts, noise, uniforms and the agent's normals of CHUNK decisions."""
    keys = jax.random.split(jax.random.fold_in(trial_key, 1 + chunk), 4)
    return (
        jax.random.randint(keys[0], (CHUNK,), 0, num_contexts),
        jax.random.normal(keys[1], (CHUNK, 2)),
        jax.random.uniform(keys[2], (CHUNK,)),
        jax.random.normal(keys[3], (CHUNK, num_normals)),
    )


@partial(jax.jit, static_argnames=("build",))
def _init(build: Builder, hyper: Mapping[str, Array], env: Env, lane: _Lane) -> State:
    def one(setting: Mapping[str, Scalar], trial: _Lane) -> State:
        return build(trial.env(env), setting).init()

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(hyper, lane)


def _decide(
    build: Builder,
    draw: Draw,
    env: Env,
    state: State,
    setting: Mapping[str, Scalar],
    trial: _Lane,
    draws: _Draws,
    t: Scalar,
) -> tuple[State, Float[Array, "3"]]:
    """One decision of one trial: state, and its regret, gap and seconds."""
    own = trial.env(env)
    agent = build(own, setting)
    step = Step(t, draws.context, draws.uniform, draws.normals)
    action, state = agent.act(state, step)
    reward, duration = draw(own, draws.context, action, draws.noise)
    state = agent.update(state, step, action, reward, duration)
    terms = [
        own.rho_star * duration - reward,
        trial.gaps[draws.context, action],
        duration,
    ]
    return state, jnp.stack(terms)


class _Segment(NamedTuple):
    """``num_records`` stretches of ``record`` decisions, from ``start`` in a chunk."""

    start: int
    num_records: int
    record: int


def _segment_draws(
    segment: _Segment,
    num_contexts: int,
    num_normals: int,
    chunk: Index,
    keys: Key[Array, " trials"],
) -> tuple[_Draws, Float[Array, "records record"]]:
    """Random numbers [records, record, trials, ...] of a segment, and its t."""
    draws = jax.vmap(lambda k: draw_chunk(k, chunk, num_contexts, num_normals))(keys)
    shape = (segment.num_records, segment.record)
    offsets = segment.start + np.arange(segment.num_records * segment.record)
    shaped = [
        jnp.moveaxis(d[:, offsets], 0, 1).reshape(*shape, keys.shape[0], *d.shape[2:])
        for d in draws
    ]
    t = (chunk * CHUNK + 1 + offsets).astype(jnp.float32).reshape(shape)
    return _Draws(*shaped), t


@partial(
    jax.jit,
    static_argnames=("build", "draw", "segment"),
    donate_argnames=("states",),
)
def _run_segment(
    build: Builder,
    draw: Draw,
    states: State,
    hyper: Mapping[str, Array],
    env: Env,
    lane: _Lane,
    keys: Key[Array, " trials"],
    chunk: Index,
    *,
    segment: _Segment,
) -> tuple[State, tuple[Array, Array]]:
    """States after a segment; sums of terms and last rates of each record."""
    num_contexts = lane.gaps.shape[-2]
    one_trial, first = (jax.tree.map(lambda leaf: leaf[0], v) for v in (lane, hyper))
    num_normals = build(one_trial.env(env), first).num_normals
    shaped, t = _segment_draws(segment, num_contexts, num_normals, chunk, keys)
    decide = partial(_decide, build, draw, env)
    over_trials = jax.vmap(decide, (0, None, 0, 0, None))
    over_settings = jax.vmap(over_trials, (0, 0, None, None, None))

    def rate(state: State, setting: Mapping[str, Scalar], trial: _Lane) -> Scalar:
        return build(trial.env(env), setting).rate(state)

    rates = jax.vmap(jax.vmap(rate, (0, None, 0)), (0, 0, None))

    def body(
        carry: tuple[State, Array], xs: tuple[_Draws, Scalar]
    ) -> tuple[tuple[State, Array], None]:
        states, total = carry
        states, terms = over_settings(states, hyper, lane, *xs)
        return (states, total + terms), None

    def stretch(
        states: State, xs: tuple[_Draws, Array]
    ) -> tuple[State, tuple[Array, Array]]:
        # Float32 holds the sum of one short stretch; the host adds the stretches up
        # in float64 (a float32 running sum is off by thousands after 2e6 decisions).
        shape = (jax.tree.leaves(hyper)[0].shape[0], keys.shape[0], 3)
        (states, total), _ = jax.lax.scan(body, (states, jnp.zeros(shape)), xs)
        return states, (total, rates(states, hyper, lane))

    return jax.lax.scan(stretch, states, (shaped, t))


def _segments(num_steps: int) -> list[tuple[int, _Segment]]:
    """Chunks and segments that cover exactly num_steps decisions."""
    full, rest = divmod(num_steps, CHUNK)
    whole = _Segment(0, CHUNK // RECORD, RECORD)
    plan = [(chunk, whole) for chunk in range(full)]
    records, tail = divmod(rest, RECORD)
    if records:
        plan.append((full, _Segment(0, records, RECORD)))
    if tail:
        plan.append((full, _Segment(records * RECORD, 1, tail)))
    return plan


def simulate(
    key: Key[Array, ""],
    build: Builder,
    env: Env,
    hyper: Mapping[str, ArrayLike],
    seeds: ArrayLike,
    num_steps: int,
    *,
    draw: Draw = instance.draw,
    progress: Callable[[int], None] | None = None,
    threads: int = 1,
) -> Result:
    """Runs every hyper-parameter setting on every trial.

    Args:
      key: the study's key; with a seed it fixes a trial.
      build: makes the agent of a trial and a setting. Pass the same function object
        again to reuse its compilation. Only an oracle may look at more of the instance
        than its shape.
      env: a canonical instance, as from ``envs.make_env``.
      hyper: values of each hyper-parameter, [G]. An agent without any takes
        ``NO_HYPER``.
      seeds: trial seeds, int [S].
      num_steps: decisions in a trial, 1 to 16 million.
      draw: the environment's random outcomes.
      progress: called with the trial-steps (decisions of all settings and trials) done
        since the last call; from several threads if there are any.
      threads: splits the trials over this many threads, where their number allows equal
        parts. XLA runs a scan of small steps on one core.

    Raises:
      ValueError: if num_steps is out of range, there is no trial or no setting, or a
        hyper-parameter is no vector of finite numbers.
    """
    if not 1 <= num_steps <= MAX_STEPS:
        raise ValueError(f"num_steps must be 1..{MAX_STEPS}, got {num_steps}")
    trials = _checked_seeds(seeds)
    settings = _checked_hyper(hyper)
    one = partial(_simulate, key, build, env, settings, num_steps, draw, progress)
    if threads <= 1 or len(trials) % threads:
        return one(trials)
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(one, np.split(trials, threads)))
    joined = (np.concatenate(field, axis=-1) for field in zip(*parts, strict=True))
    return Result(*joined)._replace(steps=parts[0].steps)


def _checked_seeds(seeds: ArrayLike) -> Int[np.ndarray, " trials"]:
    trials = np.asarray(seeds)
    if trials.ndim != 1 or trials.size < 1:
        raise ValueError("need at least one trial: seeds must be a vector of integers")
    if not np.issubdtype(trials.dtype, np.integer):
        raise ValueError(f"seeds must be integers, got {trials.dtype}")
    if trials.min() < -(2**31) or trials.max() >= 2**31:
        raise ValueError("seeds must be 32-bit integers")
    return trials


def _checked_hyper(hyper: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    settings = {}
    for name, values in hyper.items():
        array = np.asarray(values, np.float32)
        if array.ndim != 1 or not np.isfinite(array).all():
            raise ValueError(f"{name} must be a vector of finite numbers")
        settings[name] = array
    lengths = {len(array) for array in settings.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(
            "need at least one setting, and every hyper-parameter in all of them"
        )
    return settings


def _simulate(
    key: Key[Array, ""],
    build: Builder,
    env: Env,
    settings: Mapping[str, np.ndarray],
    num_steps: int,
    draw: Draw,
    progress: Callable[[int], None] | None,
    trial_seeds: Int[np.ndarray, " trials"],
) -> Result:
    """``simulate`` on one thread, arguments checked."""
    env = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), env)
    hyper = {name: jnp.asarray(v, jnp.float32) for name, v in settings.items()}
    seeds = jnp.asarray(trial_seeds, jnp.int32)
    trials = permute_trials(key, env, seeds)
    lane = _Lane(
        reward_loc=jnp.asarray(trials.reward_loc),
        duration_loc=jnp.asarray(trials.duration_loc),
        mean_reward=jnp.asarray(trials.mean_reward),
        mean_duration=jnp.asarray(trials.mean_duration),
        gaps=jnp.asarray(jax.vmap(instance.gaps)(trials)),
    )
    states = _init(build, hyper, env, lane)
    keys = trial_keys(key, seeds)
    totals, rates, steps = [], [], []
    done = 0
    for chunk, segment in _segments(num_steps):
        where = jnp.asarray(chunk, jnp.int32)
        states, (total, rate) = _run_segment(
            build, draw, states, hyper, env, lane, keys, where, segment=segment
        )
        totals.append(np.asarray(total, np.float64))
        rates.append(np.asarray(rate))
        length = segment.num_records * segment.record
        steps.append(done + segment.record * np.arange(1, segment.num_records + 1))
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


def checkpoints(
    steps: Int[np.ndarray, " checkpoints"], count: int
) -> Int[np.ndarray, " kept"]:
    """Indices of about ``count`` log-spaced entries of ``steps``; the last is kept.

    Raises:
      ValueError: no step, steps that do not rise from 1 or more, or count < 1.
    """
    steps = np.asarray(steps)
    if count < 1 or steps.ndim != 1 or steps.size < 1:
        raise ValueError("need at least one step and one checkpoint")
    if steps[0] < 1 or (np.diff(steps) <= 0).any():
        raise ValueError("steps must rise, from 1 or more")
    if count == 1:
        return np.array([len(steps) - 1])
    targets = np.geomspace(steps[0], steps[-1], count)
    # Rounding may put the last target beyond the last step.
    index = np.searchsorted(steps, targets - 0.5)
    return np.unique(np.minimum(index, len(steps) - 1))
