"""The four environments of the study, E1-E4, and their canonical instances.

With z1 and z2 standard normal of correlation c:

====  =====  =========================  ====================================
env   c      reward                     duration
====  =====  =========================  ====================================
E1     0     max(m_r + 0.20 z1, 0)      max(m_d (1 + 0.15 z2), 0.5)
E2    +0.8   as E1                      as E1
E3    -0.8   as E1                      as E1
E4    +0.5   m_r exp(0.5 z1 - 0.125)    max(m_d exp(0.5 z2 - 0.125), 0.5)
====  =====  =========================  ====================================

An environment is one file with a function (K, X) -> ``Env`` and one call of
``registry.register_env``: see ``bandit.registry``.

Source: the paper, bandit validation.
"""

import hashlib

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from bandit.instance import (
    Env,
    correlate,
    draw,
    floored_lognormal_mean,
    gaps,
    instance,
    optimal_rate,
    outcome,
    permuted,
    rectified_normal_mean,
)
from bandit.registry import ENVS, EnvSpec, register_env

__all__ = [
    "ENV_NAMES",
    "Env",
    "context_scales",
    "correlate",
    "draw",
    "env_of",
    "floored_lognormal_mean",
    "gaps",
    "instance",
    "locations",
    "make_env",
    "optimal_rate",
    "outcome",
    "permuted",
    "rectified_normal_mean",
]

ENV_NAMES = ("E1", "E2", "E3", "E4")
_CORRELATION = {"E1": 0.0, "E2": 0.8, "E3": -0.8, "E4": 0.5}
_TITLES = {
    "E1": "E1: independent",
    "E2": "E2: correlation +0.8",
    "E3": "E3: correlation −0.8",
    "E4": "E4: lognormal, +0.5",
}
_FEATURED = ((0.50, 1.0), (0.57, 1.2), (0.90, 3.0), (0.21, 0.6))
_COUPLING = ((1.80, 2.0), (1.00, 1.0), (1.60, 3.0), (0.20, 0.6))


def context_scales(num_contexts: int) -> Float[np.ndarray, " contexts"]:
    """Reward scale s of each context; context 1's is that of its filler arms.

    Raises:
      ValueError: X < 1.
    """
    if num_contexts < 1:
        raise ValueError(f"need at least 1 context, got {num_contexts}")
    scales = np.array([1.50, 1.00, 1.00, 0.32])
    rest = np.arange(max(num_contexts - 4, 0))
    tail = 1.35 - 0.93 * (rest + 0.5) / max(num_contexts - 4, 1)
    return np.concatenate([scales, tail])[:num_contexts]


def locations(
    num_arms: int, num_contexts: int
) -> tuple[Float[np.ndarray, "contexts arms"], Float[np.ndarray, "contexts arms"]]:
    """Location parameters (m_r, m_d) of the canonical instance, float64.

    Args:
      num_arms: K >= 1, without SKIP.
      num_contexts: X >= 1.

    Returns:
      m_r and m_d (seconds).

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


def env_of(name: str, reward_loc: ArrayLike, duration_loc: ArrayLike) -> Env:
    """The instance with given locations under the noise of E1, E2, E3 or E4.

    Args:
      name: 'E1', 'E2', 'E3' or 'E4'.
      reward_loc: m_r, [X, K].
      duration_loc: m_d in seconds, > 0, [X, K].

    Raises:
      ValueError: another name, or locations out of their range.
    """
    if name not in ENV_NAMES:
        raise ValueError(f"unknown noise {name!r}: choose from {', '.join(ENV_NAMES)}")
    return instance(
        reward_loc,
        duration_loc,
        correlation=_CORRELATION[name],
        lognormal=name == "E4",
    )


def make_env(name: str, num_arms: int, num_contexts: int = 4) -> Env:
    """The canonical instance of a registered environment, in float64 on the host.

    Args:
      name: 'E1' to 'E4', or one that was registered.
      num_arms: K >= 1, without SKIP.
      num_contexts: X >= 1.

    Raises:
      ValueError: for an unknown name or an empty instance.
    """
    if name not in ENVS:
        raise ValueError(f"unknown environment {name!r}: choose from {', '.join(ENVS)}")
    return ENVS[name].make(num_arms, num_contexts)


def _register(name: str) -> None:
    def make(num_arms: int, num_contexts: int) -> Env:
        return env_of(name, *locations(num_arms, num_contexts))

    register_env(EnvSpec(name, _TITLES[name], make))


for _name in ENV_NAMES:
    _register(_name)
