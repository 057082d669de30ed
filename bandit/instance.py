"""One instance of a bandit: its exact means, its optimal rate, its random outcomes.

A context x is uniform over X. The agent picks one of K arms or SKIP (index K, so that
A = K + 1 actions exist) and sees a reward r and a duration delta in seconds. SKIP gives
r = 0 and delta = 0.35 always. ``bandit.envs`` has the instances of the study.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike
from scipy.special import ndtr

from rpg_jax.rewards import relative_reward

SKIP_DURATION = 0.35
MIN_DURATION = 0.5
REWARD_SD = 0.20
DURATION_CV = 0.15
LOG_SD = 0.5

#: A number per context and action, on the host (float64) or on a device (float32).
Table = Float[Array | np.ndarray, "contexts actions"]
HostTable = Float[np.ndarray, "contexts actions"]
AnyScalar = Float[Array | np.ndarray, ""]


class Env(NamedTuple):
    """One instance; a pytree, so that instances of a size share one compilation.

    Attributes:
      reward_loc: m_r; the last column is SKIP.
      duration_loc: m_d in seconds.
      mean_reward: exact E[r | x, a].
      mean_duration: exact E[delta | x, a] in seconds.
      rho_star: optimal reward rate, reward per second.
      correlation: c of the two normals behind reward and duration.
      lognormal: 1.0 for lognormal noise, 0.0 for normal noise.
    """

    reward_loc: Table
    duration_loc: Table
    mean_reward: Table
    mean_duration: Table
    rho_star: AnyScalar
    correlation: AnyScalar
    lognormal: AnyScalar


#: (instance, context, action, two standard normals) -> (reward, seconds).
Draw = Callable[
    [Env, Int[Array, ""], Int[Array, ""], Float[Array, "2"]],
    tuple[Float[Array, ""], Float[Array, ""]],
]


def rectified_normal_mean(mean: ArrayLike, sd: ArrayLike) -> Float[np.ndarray, "..."]:
    """E[max(N(mean, sd^2), 0)] = mean Phi(mean/sd) + sd phi(mean/sd).

    Raises:
      ValueError: mean is not finite, or sd is not finite and positive.
    """
    mean, sd = np.asarray(mean, float), np.asarray(sd, float)
    _require(np.isfinite(mean), "mean must be finite")
    _require(np.isfinite(sd) & (sd > 0), "sd must be finite and positive")
    score = np.asarray(mean / sd)
    density = np.exp(-(score**2) / 2.0) / np.sqrt(2 * np.pi)
    return np.asarray(mean * ndtr(score) + sd * density)


def floored_lognormal_mean(
    mean: ArrayLike, log_sd: float, floor: float
) -> Float[np.ndarray, "..."]:
    """E[max(Y, floor)] for lognormal Y of the given mean and log standard deviation.

    Raises:
      ValueError: an argument is not finite and positive.
    """
    mean = np.asarray(mean, float)
    for name, value in (("mean", mean), ("log_sd", log_sd), ("floor", floor)):
        _require(
            np.isfinite(value) & (np.asarray(value) > 0),
            f"{name} must be finite and positive",
        )
    log_mean = np.log(mean) - log_sd**2 / 2
    gap = (np.log(floor) - log_mean) / log_sd
    return np.asarray(floor * ndtr(gap) + mean * ndtr(log_sd - gap))


def _require(holds: ArrayLike, message: str) -> None:
    if not np.all(holds):
        raise ValueError(message)


def _host_table(values: ArrayLike, name: str) -> HostTable:
    """A finite, non-empty float64 table [X, A]."""
    try:
        table = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a table of numbers, [X, A]") from None
    _require(
        table.ndim == 2 and table.size > 0,
        f"{name} must be a table [X, A] with at least one entry, got shape "
        f"{table.shape}",
    )
    _require(np.isfinite(table), f"{name} must be finite")
    return table


def optimal_rate(mean_reward: ArrayLike, mean_duration: ArrayLike) -> float:
    """The root rho* of F(rho) = mean_x max_a (E[r|x,a] - rho E[delta|x,a]).

    Newton's steps on the convex, piecewise linear F are Dinkelbach's: each is the rate
    of the policy greedy at the last one, so the sequence rises and ends after finitely
    many. On the host in float64: ``rpg_jax.dinkelbach`` is its float32, jitted twin.

    Args:
      mean_reward: E[r | x, a], [X, A].
      mean_duration: E[delta | x, a] in seconds, > 0, [X, A].

    Raises:
      ValueError: not two tables of one shape, or rewards that are not finite, or
        durations that are not finite and positive.
    """
    reward = _host_table(mean_reward, "mean_reward")
    duration = _host_table(mean_duration, "mean_duration")
    _require(
        reward.shape == duration.shape,
        f"rewards {reward.shape} and durations {duration.shape} differ in shape",
    )
    _require(duration > 0, "durations must be positive")
    rows = np.arange(reward.shape[0])
    with np.errstate(over="ignore", invalid="ignore"):
        rate = -np.inf
        greedy = (reward / duration).argmax(axis=1)
        while True:
            previous = rate
            rate = reward[rows, greedy].sum() / duration[rows, greedy].sum()
            if not rate > previous:
                break
            greedy = relative_reward(reward, duration, rate).argmax(axis=1)
    _require(np.isfinite(previous), "rewards or durations are too large for a rate")
    return float(previous)


def instance(
    reward_loc: ArrayLike,
    duration_loc: ArrayLike,
    *,
    correlation: float = 0.0,
    lognormal: bool = False,
) -> Env:
    """The instance with given locations and one of the two kinds of noise, in float64.

    Normal noise: r = max(m_r + 0.20 z1, 0), delta = max(m_d (1 + 0.15 z2), 0.5);
    lognormal: r = m_r exp(0.5 z1 - 0.125), delta = max(m_d exp(0.5 z2 - 0.125), 0.5).

    Args:
      reward_loc: m_r, [X, K].
      duration_loc: m_d in seconds, > 0, [X, K].
      correlation: c of (z1, z2), in [-1, 1].
      lognormal: the kind of noise.

    Raises:
      ValueError: an argument is out of its range, or the shapes differ.
    """
    reward_loc = _host_table(reward_loc, "reward_loc")
    duration_loc = _host_table(duration_loc, "duration_loc")
    _require(
        reward_loc.shape == duration_loc.shape,
        f"rewards {reward_loc.shape} and durations {duration_loc.shape} differ in "
        "shape",
    )
    _require(duration_loc > 0, "durations must be positive")
    _require(-1 <= correlation <= 1, f"correlation must be in [-1, 1]: {correlation}")
    num_contexts = reward_loc.shape[0]
    if lognormal:
        mean_reward = reward_loc
        mean_duration = floored_lognormal_mean(duration_loc, LOG_SD, MIN_DURATION)
    else:
        mean_reward = rectified_normal_mean(reward_loc, REWARD_SD)
        mean_duration = MIN_DURATION + rectified_normal_mean(
            duration_loc - MIN_DURATION, DURATION_CV * duration_loc
        )

    def with_skip(table: HostTable, value: float) -> HostTable:
        return np.column_stack([table, np.full(num_contexts, value)])

    mean_reward = with_skip(mean_reward, 0.0)
    mean_duration = with_skip(mean_duration, SKIP_DURATION)
    return Env(
        reward_loc=with_skip(reward_loc, 0.0),
        duration_loc=with_skip(duration_loc, SKIP_DURATION),
        mean_reward=mean_reward,
        mean_duration=mean_duration,
        rho_star=np.asarray(optimal_rate(mean_reward, mean_duration)),
        correlation=np.asarray(float(correlation)),
        lognormal=np.asarray(float(lognormal)),
    )


def permuted(
    env: Env, context_order: Int[Array, " contexts"], arm_order: Int[Array, " arms"]
) -> Env:
    """The same instance under a permutation of contexts and arms; SKIP stays last.

    Args:
      env: an instance.
      context_order: permutation of range(X).
      arm_order: permutation of range(K).
    """
    num_contexts, num_actions = env.mean_reward.shape
    chex.assert_shape(context_order, (num_contexts,))
    chex.assert_shape(arm_order, (num_actions - 1,))
    skip = jnp.asarray([arm_order.shape[0]], arm_order.dtype)
    columns = jnp.concatenate([arm_order, skip])

    def shuffle(table: Table) -> Float[Array, "contexts actions"]:
        return jnp.asarray(table)[context_order][:, columns]

    return env._replace(
        reward_loc=shuffle(env.reward_loc),
        duration_loc=shuffle(env.duration_loc),
        mean_reward=shuffle(env.mean_reward),
        mean_duration=shuffle(env.mean_duration),
    )


def gaps(env: Env) -> Table:
    """Pseudo-regret of a decision: max_b (E r_b - rho* E d_b) - that of a.

    Non-negative, and zero for an optimal action.
    """
    chex.assert_equal_shape([env.mean_reward, env.mean_duration])
    relative = env.mean_reward - env.rho_star * env.mean_duration
    return relative.max(axis=-1, keepdims=True) - relative


def correlate(
    env: Env, normals: Float[Array, "*batch 2"]
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Turns independent normals into (z1, z2) of the instance's correlation."""
    chex.assert_axis_dimension(normals, -1, 2)
    corr = jnp.asarray(env.correlation)
    z1 = normals[..., 0]
    z2 = corr * z1 + jnp.sqrt(1 - corr * corr) * normals[..., 1]
    return z1, z2


def outcome(
    reward_loc: Float[Array, "*batch"],
    duration_loc: Float[Array, "*batch"],
    is_skip: Bool[Array, "*batch"],
    z1: Float[Array, "*batch"],
    z2: Float[Array, "*batch"],
    lognormal: AnyScalar,
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """Reward and duration (seconds) of chosen actions; elementwise over any shape.

    Args:
      reward_loc: m_r of the chosen action.
      duration_loc: m_d of the chosen action, seconds.
      is_skip: whether the action is SKIP.
      z1: standard normal of the reward.
      z2: standard normal of the duration, correlated with z1.
      lognormal: 1.0 for lognormal noise, 0.0 for normal noise.
    """
    chex.assert_equal_shape([z1, z2])

    def lognormal_pair(_: None) -> tuple[Array, Array]:
        bias = LOG_SD**2 / 2
        return (
            reward_loc * jnp.exp(LOG_SD * z1 - bias),
            duration_loc * jnp.exp(LOG_SD * z2 - bias),
        )

    def normal_pair(_: None) -> tuple[Array, Array]:
        return (
            jnp.maximum(reward_loc + REWARD_SD * z1, 0.0),
            duration_loc * (1 + DURATION_CV * z2),
        )

    reward, duration = jax.lax.cond(lognormal > 0.5, lognormal_pair, normal_pair, None)
    reward = jnp.where(is_skip, 0.0, reward)
    duration = jnp.where(is_skip, SKIP_DURATION, jnp.maximum(duration, MIN_DURATION))
    return reward, duration


def draw(
    env: Env,
    context: Int[Array, ""],
    action: Int[Array, ""],
    normals: Float[Array, "2"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Reward and seconds of one decision under the study's noise."""
    z1, z2 = correlate(env, normals)
    return outcome(
        jnp.asarray(env.reward_loc)[context, action],
        jnp.asarray(env.duration_loc)[context, action],
        action == env.reward_loc.shape[-1] - 1,
        z1,
        z2,
        env.lognormal,
    )
