"""The agents of the study by name: builder, default setting, tuning grids.

An agent's name is what ``--agents`` takes. ``grid`` is the paper's where the paper has
one; an agent without a grid is run at its one documented setting, never tuned per cell.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from bandit import adaptive, policy_gradient, ppo_agent, prices, ucb
from bandit.base import Agent
from bandit.cucb_agent import MAX_EXACT_CONTEXTS, cucb_agent
from bandit.envs import Env
from rpg_jax import rates

Hyper = Mapping[str, float]
#: Sampled policies of C-UCB while tuning beyond 4 contexts; evaluation has 2,048.
TUNING_POLICIES = 64


class AgentSpec(NamedTuple):
    """An agent as the study knows it.

    Attributes:
      name: what ``--agents`` takes.
      label: what tables and figures show.
      build: (the trial's instance, hyper-parameters) -> Agent.
      defaults: the documented setting, used with ``--tune=none``.
      small_grid: values by hyper-parameter for up to 4 contexts; empty: never tuned.
      large_grid: the same beyond 4 contexts.
      tune_build: a cheaper builder used while tuning only, or None.
      large_build: the builder beyond 4 contexts, where it differs, or None.
      constants: computes the setting from the canonical instance, or None.
      note: one line on what it is.
    """

    name: str
    label: str
    build: Callable[[Env, Hyper], Agent]
    defaults: Hyper
    small_grid: Mapping[str, tuple[float, ...]] = {}
    large_grid: Mapping[str, tuple[float, ...]] = {}
    tune_build: Callable[[Env, Hyper], Agent] | None = None
    large_build: Callable[[Env, Hyper], Agent] | None = None
    constants: Callable[[Env], Hyper] | None = None
    note: str = ""

    def settings(self, num_contexts: int) -> dict[str, np.ndarray]:
        """The tuning grid as arrays [G], or the default setting as arrays [1]."""
        grid = self.small_grid if num_contexts <= 4 else self.large_grid
        if not grid:
            return {name: np.array([value]) for name, value in self.defaults.items()}
        rows = np.array(list(product(*grid.values())))
        return dict(zip(grid, rows.T, strict=True))

    def builder(self, num_contexts: int) -> Callable[[Env, Hyper], Agent]:
        """The builder for a number of contexts."""
        return self.large_build if num_contexts > 4 and self.large_build else self.build

    def setting(self, env: Env) -> dict[str, float]:
        """The documented setting, computed from the instance if it depends on it."""
        return dict(self.constants(env) if self.constants else self.defaults)


_AGES = (60.0, 125.0, *(250.0 * 2**k for k in range(8)))
_LR = (0.03, 0.1, 0.3, 1.0, 3.0)
_PG_SMALL = {"lr": _LR, "age": _AGES}
_PG_LARGE = {"lr": (*_LR, 10.0), "age": _AGES[:7]}
_C1 = tuple(float(v) for v in np.geomspace(1e-2, 1e2, 5))
_C2 = tuple(float(v) for v in np.geomspace(1e-4, 1.0, 5))
_C2_LARGE = (0.0, 1e-6, 1e-5, *_C2)


def _shape(env: Env) -> tuple[int, int]:
    return env.mean_reward.shape


def _slots(env: Env, hyper: Hyper) -> prices.Price:
    del env
    return prices.niw_slots(age=hyper["age"])


def _sampled_slots(env: Env, hyper: Hyper) -> prices.Price:
    del env
    return prices.niw_slots(age=hyper["age"], num_sampled=1000)


def _plug_in(env: Env, hyper: Hyper) -> prices.Price:
    del hyper
    return prices.plug_in(_shape(env)[0])


def _robbins_monro(env: Env, hyper: Hyper) -> prices.Price:
    del env

    def step_size(updates: jax.Array) -> jax.Array:
        return hyper["rm_step"] / (1.0 + updates.astype(jnp.float32)) ** 0.6

    return prices.from_estimator(rates.robbins_monro(step_size))


class _CellNetwork(nn.Module):
    """Mean reward and duration of every arm from a one-hot context."""

    num_contexts: int
    num_actions: int

    @nn.compact
    def __call__(self, context: jax.Array) -> jax.Array:
        hidden = nn.tanh(nn.Dense(16)(jax.nn.one_hot(context, self.num_contexts)))
        out = nn.Dense(2 * self.num_actions)(hidden)
        return out.reshape(*context.shape, self.num_actions, 2)


def _neural(env: Env, hyper: Hyper) -> prices.Price:
    num_contexts, num_actions = _shape(env)
    network = _CellNetwork(num_contexts, num_actions)
    contexts = jnp.arange(num_contexts)
    estimator = rates.neural(
        network.apply,
        network.init(jax.random.key(0), contexts),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adam(hyper["net_lr"])),
        num_steps=1,
        contexts=contexts,
    )
    return prices.from_estimator(estimator, every=64, greedy_only=False)


def _free(env: Env, hyper: Hyper) -> prices.Price:
    del env, hyper
    return prices.fixed(0.0)


def _gradient(
    name: str,
    label: str,
    price: Callable[[Env, Hyper], prices.Price],
    *,
    defaults: Hyper,
    note: str,
    tuned: bool = True,
    **switches: str,
) -> AgentSpec:
    """A ``tabular_policy_gradient`` agent; the paper's grid restricted to its keys."""

    def build(env: Env, hyper: Hyper) -> Agent:
        return policy_gradient.tabular_policy_gradient(
            *_shape(env), step_size=hyper["lr"], price=price(env, hyper), **switches
        )

    def grid(full: Mapping[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
        return {key: full[key] for key in full if key in defaults and tuned}

    return AgentSpec(
        name, label, build, defaults, grid(_PG_SMALL), grid(_PG_LARGE), note=note
    )


def _build_ppo(env: Env, hyper: Hyper) -> Agent:
    return ppo_agent.tabular_ppo(
        *_shape(env), step_size=hyper["lr"], price=_slots(env, hyper)
    )


def _build_plug_in_ucb(env: Env, hyper: Hyper) -> Agent:
    return ucb.plug_in_ucb(*_shape(env), c2=hyper["c2"])


def _build_cucb(env: Env, hyper: Hyper) -> Agent:
    return cucb_agent(*_shape(env), c1=hyper["c1"], c2=hyper["c2"])


def _build_cucb_tuning(env: Env, hyper: Hyper) -> Agent:
    """Cheaper than what is evaluated: a lower bound of lambda, or a smaller pool."""
    exact = _shape(env)[0] <= MAX_EXACT_CONTEXTS
    return cucb_agent(
        *_shape(env),
        c1=hyper["c1"],
        c2=hyper["c2"],
        rate="approximate" if exact else "pool",
        num_policies=TUNING_POLICIES,
    )


def _build_cucb_at_floor(env: Env, hyper: Hyper) -> Agent:
    """C-UCB whose bounds prove lambda to be at its floor: no samples needed."""
    constants = {"c1": hyper["c1"], "c2": hyper["c2"]}
    return cucb_agent(*_shape(env), **constants, rate="approximate")


def _theory_constants(env: Env) -> Hyper:
    c1, c2 = ucb.theory_constants(env)
    return {"c1": float(c1), "c2": float(c2)}


def _build_imed(env: Env, hyper: Hyper) -> Agent:
    return adaptive.imed(*_shape(env), scale=hyper["scale"])


def _build_posterior(env: Env, hyper: Hyper) -> Agent:
    return adaptive.posterior_sampling(*_shape(env), scale=hyper["scale"])


AGENTS: dict[str, AgentSpec] = {
    spec.name: spec
    for spec in (
        _gradient(
            "npg-niw",
            "NPG-NIW",
            _slots,
            defaults={"lr": 0.3, "age": 1000.0},
            note="the paper's agent: NPG, pooled NIW rate",
        ),
        _gradient(
            "spg-niw",
            "SPG-NIW",
            _slots,
            rule="spg",
            defaults={"lr": 1.0, "age": 1000.0},
            note="the same with the standard gradient",
        ),
        AgentSpec(
            "cucb-tuned",
            "C-UCB (tuned)",
            _build_cucb,
            {"c1": 0.01, "c2": 0.1},
            {"c1": _C1, "c2": _C2},
            {"c1": _C1, "c2": _C2_LARGE},
            tune_build=_build_cucb_tuning,
            note="Gyorgy et al. (2007), tuned constants",
        ),
        AgentSpec(
            "cucb-theory",
            "C-UCB (theory)",
            # The same builder as tuned: the two share one (long) compilation.
            _build_cucb,
            {"c1": 3032.0, "c2": 272.0},
            large_build=_build_cucb_at_floor,
            constants=_theory_constants,
            note="the constants of its theorem",
        ),
        AgentSpec(
            "cucb-plugin",
            "C-UCB (plug-in rate)",
            _build_plug_in_ucb,
            {"c2": 0.1},
            {"c2": _C2},
            {"c2": _C2_LARGE},
            note="C-UCB's index with the consistent plug-in rate",
        ),
        AgentSpec(
            "imed",
            "IMED, plug-in rate",
            _build_imed,
            {"scale": 0.7},
            note="ours: variance-aware index, one setting, never tuned per cell",
        ),
        AgentSpec(
            "posterior",
            "Posterior sampling",
            _build_posterior,
            {"scale": 0.7},
            note="ours: NIW cells sampled, one setting, never tuned per cell",
        ),
        AgentSpec(
            "ppo-niw",
            "PPO-NIW",
            _build_ppo,
            {"lr": 30.0, "age": 1000.0},
            {"lr": (3.0, 10.0, 30.0, 100.0), "age": (250.0, 1000.0, 4000.0)},
            {"lr": (3.0, 10.0, 30.0, 100.0), "age": (250.0, 1000.0, 4000.0)},
            note="clipped surrogate on batches of 64",
        ),
        _gradient(
            "npg-cells",
            "NPG, plug-in rate",
            _plug_in,
            defaults={"lr": 0.3},
            note="NIW per (context, arm) cell and Dinkelbach",
        ),
        _gradient(
            "npg-rm",
            "NPG, Robbins-Monro rate",
            _robbins_monro,
            defaults={"lr": 0.3, "rm_step": 0.5},
            note="stochastic approximation on greedy decisions",
        ),
        _gradient(
            "npg-neural",
            "NPG, neural rate",
            _neural,
            defaults={"lr": 0.3, "net_lr": 0.01},
            note="a small network's means and Dinkelbach",
        ),
        _gradient(
            "npg-on-policy",
            "NPG, on-policy rate",
            lambda env, hyper: prices.on_policy(),
            defaults={"lr": 0.3},
            note="SMDP rate of the policy that is played",
        ),
        _gradient(
            "npg-fixed-price",
            "NPG, fixed price",
            lambda env, hyper: prices.fixed(hyper["price"]),
            defaults={"lr": 0.3, "price": 0.5},
            note="r - 0.5 delta, a hand-set price",
        ),
        _gradient(
            "npg-reward",
            "NPG, reward only",
            _free,
            defaults={"lr": 0.3},
            note="vanilla RL: time is free",
        ),
        _gradient(
            "npg-ratio",
            "NPG, ratio r/δ",
            _free,
            signal="ratio",
            defaults={"lr": 0.3},
            note="maximises the mean of each sample's ratio",
        ),
        _gradient(
            "npg-duration-weighted",
            "NPG, duration-weighted",
            _free,
            signal="duration-weighted",
            defaults={"lr": 0.3},
            note="reward weighted by delta over its mean",
        ),
        AgentSpec("uniform", "Uniform", lambda e, _: ucb.uniform(*_shape(e)), {}),
        AgentSpec("oracle", "Oracle", lambda e, _: ucb.oracle(e), {}),
    )
}

#: The sampled form of the paper's percentile, 1,000 predictive batches a fit.
SAMPLED: dict[str, AgentSpec] = {
    name: AGENTS[name]._replace(
        build=_gradient(
            name, "", _sampled_slots, defaults={}, note="", rule=name[:3]
        ).build
    )
    for name in ("npg-niw", "spg-niw")
}
