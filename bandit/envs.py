"""The four environments E1-E4: canonical instances, exact means, optimal rate, draws.

A context x is uniform over X. The agent picks one of K arms or SKIP (index K, so that
A = K + 1 actions exist) and sees a reward r and a duration delta in seconds. With z1
and z2 standard normal of correlation c:

====  =====  =========================  ====================================
env   c      reward                     duration
====  =====  =========================  ====================================
E1     0     max(m_r + 0.20 z1, 0)      max(m_d (1 + 0.15 z2), 0.5)
E2    +0.8   as E1                      as E1
E3    -0.8   as E1                      as E1
E4    +0.5   m_r exp(0.5 z1 - 0.125)    max(m_d exp(0.5 z2 - 0.125), 0.5)
====  =====  =========================  ====================================

SKIP gives r = 0 and delta = 0.35 always. Source: the paper, bandit validation.
"""

import hashlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

ENV_NAMES = ("E1", "E2", "E3", "E4")
SKIP_DURATION = 0.35
MIN_DURATION = 0.5
REWARD_SD = 0.20
DURATION_CV = 0.15
LOG_SD = 0.5

_CORRELATION = {"E1": 0.0, "E2": 0.8, "E3": -0.8, "E4": 0.5}
_FEATURED = ((0.50, 1.0), (0.57, 1.2), (0.90, 3.0), (0.21, 0.6))
_COUPLING = ((1.80, 2.0), (1.00, 1.0), (1.60, 3.0), (0.20, 0.6))


class Env(NamedTuple):
    """One canonical instance; a pytree, so E1-E4 of a size share one compilation.

    Attributes:
      reward_loc: m_r, [X, A]; the last column is SKIP.
      duration_loc: m_d in seconds, [X, A].
      mean_reward: exact E[r | x, a], [X, A].
      mean_duration: exact E[delta | x, a] in seconds, [X, A].
      rho_star: optimal reward rate, reward per second, [].
      correlation: c of the two normals, [].
      lognormal: 1.0 for E4, else 0.0, [].
    """

    reward_loc: jax.Array | np.ndarray
    duration_loc: jax.Array | np.ndarray
    mean_reward: jax.Array | np.ndarray
    mean_duration: jax.Array | np.ndarray
    rho_star: jax.Array | np.ndarray
    correlation: jax.Array | np.ndarray
    lognormal: jax.Array | np.ndarray


def context_scales(num_contexts: int) -> np.ndarray:
    """Reward scale s of each context, [X]; context 1's is that of its filler arms."""
    scales = np.array([1.50, 1.00, 1.00, 0.32])
    rest = np.arange(max(num_contexts - 4, 0))
    tail = 1.35 - 0.93 * (rest + 0.5) / max(num_contexts - 4, 1)
    return np.concatenate([scales, tail])[:num_contexts]


def locations(num_arms: int, num_contexts: int) -> tuple[np.ndarray, np.ndarray]:
    """Location parameters (m_r, m_d) of the canonical instance.

    Args:
      num_arms: K >= 1, without SKIP.
      num_contexts: X >= 1.

    Returns:
      m_r [X, K] and m_d [X, K] (seconds), float64.

    Raises:
      ValueError: if K < 1 or X < 1.
    """
    if num_arms < 1 or num_contexts < 1:
        raise ValueError(
            f"need at least 1 arm and 1 context, got {num_arms} and {num_contexts}"
        )
    digest = hashlib.sha256(f"perm-v1|{num_arms}|{num_contexts}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    num_fillers = max(num_arms - 4, 0)
    reward = np.empty((num_contexts, num_arms))
    duration = np.empty((num_contexts, num_arms))
    for x, scale in enumerate(context_scales(num_contexts)):
        if x == 1:
            featured = np.array(_COUPLING)
        else:
            featured = np.array(_FEATURED) * np.array([scale, 1.0])
        filler_duration = rng.uniform(0.70, 2.00, size=num_fillers)
        filler_rate = np.linspace(0.42 * scale, 0.18 * scale, num_fillers)
        reward[x] = np.append(featured[:, 0], filler_rate * filler_duration)[:num_arms]
        duration[x] = np.append(featured[:, 1], filler_duration)[:num_arms]
    return reward, duration


def rectified_normal_mean(mean: np.ndarray, sd: np.ndarray | float) -> np.ndarray:
    """E[max(N(mean, sd^2), 0)] = mean Phi(mean/sd) + sd phi(mean/sd)."""
    ratio = mean / sd
    return mean * norm.cdf(ratio) + sd * norm.pdf(ratio)


def floored_lognormal_mean(mean: np.ndarray, log_sd: float, floor: float) -> np.ndarray:
    """E[max(Y, floor)] for lognormal Y of the given mean and log standard deviation."""
    log_mean = np.log(mean) - log_sd**2 / 2
    gap = (np.log(floor) - log_mean) / log_sd
    return floor * norm.cdf(gap) + mean * norm.cdf(log_sd - gap)


def optimal_rate(mean_reward: np.ndarray, mean_duration: np.ndarray) -> float:
    """The root rho* of F(rho) = mean_x max_a (E[r|x,a] - rho E[delta|x,a]).

    Newton's steps on the convex, piecewise linear F are Dinkelbach's: each is the rate
    of the policy greedy at the last one, so the sequence rises and ends after finitely
    many. On the host in float64: ``rpg_jax.dinkelbach`` is its float32, jitted twin.

    Args:
      mean_reward: E[r | x, a], [X, A].
      mean_duration: E[delta | x, a] in seconds, [X, A].
    """
    if not (np.isfinite(mean_reward).all() and (mean_duration > 0).all()):
        raise ValueError("rewards must be finite and durations positive")
    rows = np.arange(mean_reward.shape[0])
    rate = -np.inf
    greedy = (mean_reward / mean_duration).argmax(axis=1)
    while True:
        reward, duration = mean_reward[rows, greedy], mean_duration[rows, greedy]
        previous, rate = rate, reward.sum() / duration.sum()
        if rate <= previous:
            return float(previous)
        greedy = (mean_reward - rate * mean_duration).argmax(axis=1)


def make_env(name: str, num_arms: int, num_contexts: int = 4) -> Env:
    """The canonical instance of an environment, in float64 on the host.

    Args:
      name: 'E1', 'E2', 'E3' or 'E4'.
      num_arms: K >= 1, without SKIP.
      num_contexts: X >= 1.

    Raises:
      ValueError: for an unknown name or an empty instance.
    """
    if name not in ENV_NAMES:
        raise ValueError(f"unknown environment {name!r}: choose from {ENV_NAMES}")
    return env_of(name, *locations(num_arms, num_contexts))


def env_of(name: str, reward_loc: np.ndarray, duration_loc: np.ndarray) -> Env:
    """The instance with given locations under an environment's noise, in float64.

    Args:
      name: 'E1', 'E2', 'E3' or 'E4'.
      reward_loc: m_r, [X, K].
      duration_loc: m_d in seconds, > 0, [X, K].
    """
    num_contexts = reward_loc.shape[0]
    if name == "E4":
        mean_reward = reward_loc
        mean_duration = floored_lognormal_mean(duration_loc, LOG_SD, MIN_DURATION)
    else:
        mean_reward = rectified_normal_mean(reward_loc, REWARD_SD)
        mean_duration = MIN_DURATION + rectified_normal_mean(
            duration_loc - MIN_DURATION, DURATION_CV * duration_loc
        )

    def with_skip(table: np.ndarray, value: float) -> np.ndarray:
        return np.column_stack([table, np.full(num_contexts, value)])

    mean_reward = with_skip(mean_reward, 0.0)
    mean_duration = with_skip(mean_duration, SKIP_DURATION)
    return Env(
        reward_loc=with_skip(reward_loc, 0.0),
        duration_loc=with_skip(duration_loc, SKIP_DURATION),
        mean_reward=mean_reward,
        mean_duration=mean_duration,
        rho_star=np.asarray(optimal_rate(mean_reward, mean_duration)),
        correlation=np.asarray(_CORRELATION[name]),
        lognormal=np.asarray(float(name == "E4")),
    )


def permuted(env: Env, context_order: jax.Array, arm_order: jax.Array) -> Env:
    """The same instance under a permutation of contexts and arms; SKIP stays last.

    Args:
      env: an instance.
      context_order: permutation of range(X), int [X].
      arm_order: permutation of range(K), int [K].
    """
    skip = jnp.asarray([arm_order.shape[0]], arm_order.dtype)
    columns = jnp.concatenate([arm_order, skip])

    def shuffle(table: jax.Array) -> jax.Array:
        return jnp.asarray(table)[context_order][:, columns]

    return env._replace(
        reward_loc=shuffle(env.reward_loc),
        duration_loc=shuffle(env.duration_loc),
        mean_reward=shuffle(env.mean_reward),
        mean_duration=shuffle(env.mean_duration),
    )


def gaps(env: Env) -> jax.Array | np.ndarray:
    """Pseudo-regret of a decision: max_b (E r_b - rho* E d_b) - that of a, [X, A].

    Non-negative, and zero for an optimal action.
    """
    relative = env.mean_reward - env.rho_star * env.mean_duration
    return relative.max(axis=-1, keepdims=True) - relative


def correlate(env: Env, normals: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Turns independent normals [..., 2] into (z1, z2) of the env's correlation."""
    corr = env.correlation
    z1 = normals[..., 0]
    z2 = corr * z1 + jnp.sqrt(1 - corr * corr) * normals[..., 1]
    return z1, z2


def outcome(
    reward_loc: jax.Array,
    duration_loc: jax.Array,
    is_skip: jax.Array,
    z1: jax.Array,
    z2: jax.Array,
    lognormal: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Reward and duration (seconds) of chosen actions; elementwise over any shape.

    Args:
      reward_loc: m_r of the chosen action.
      duration_loc: m_d of the chosen action, seconds.
      is_skip: whether the action is SKIP, bool.
      z1: standard normal of the reward.
      z2: standard normal of the duration, correlated with z1.
      lognormal: 1.0 in E4, else 0.0, a scalar.
    """

    def lognormal_pair(_: None) -> tuple[jax.Array, jax.Array]:
        bias = LOG_SD**2 / 2
        return (
            reward_loc * jnp.exp(LOG_SD * z1 - bias),
            duration_loc * jnp.exp(LOG_SD * z2 - bias),
        )

    def normal_pair(_: None) -> tuple[jax.Array, jax.Array]:
        return (
            jnp.maximum(reward_loc + REWARD_SD * z1, 0.0),
            duration_loc * (1 + DURATION_CV * z2),
        )

    reward, duration = jax.lax.cond(lognormal > 0.5, lognormal_pair, normal_pair, None)
    reward = jnp.where(is_skip, 0.0, reward)
    duration = jnp.where(is_skip, SKIP_DURATION, jnp.maximum(duration, MIN_DURATION))
    return reward, duration
