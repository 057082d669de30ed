"""The agents of the study: builder, default setting, tuning grids, colour.

An agent's name is what ``--agents`` takes. A grid is the paper's where the paper has
one; the fine grid has scales 1.5 apart. An agent without a grid is run at its one
documented setting. Defaults are those of a small tuning run at seeds that no result
uses (``python -m benchmarks.default_settings``). To add an agent: ``bandit.registry``.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from bandit import adaptive, policy_gradient, ppo_agent, prices, shared_sampling, ucb
from bandit.base import Agent
from bandit.cucb_agent import MAX_EXACT_CONTEXTS, cucb_agent
from bandit.instance import Env
from bandit.registry import AGENTS, AgentSpec, Grid, Hyper, register_agent
from rpg_jax import rates

__all__ = ["AGENTS", "SAMPLED", "TUNING_POLICIES", "AgentSpec", "Hyper"]

#: Sampled policies of C-UCB while tuning beyond 4 contexts; evaluation has 2,048.
TUNING_POLICIES = 64

_AGES = (60.0, 125.0, *(250.0 * 2**k for k in range(8)))
_LR = (0.03, 0.1, 0.3, 1.0, 3.0)
_PG_SMALL = {"lr": _LR, "age": _AGES}
_PG_LARGE = {"lr": (*_LR, 10.0), "age": _AGES[:7]}
_C1 = tuple(float(v) for v in np.geomspace(1e-2, 1e2, 5))
_C2 = tuple(float(v) for v in np.geomspace(1e-4, 1.0, 5))
_C2_LARGE = (0.0, 1e-6, 1e-5, *_C2)


def _fine(low: float, high: float) -> tuple[float, ...]:
    """Values 1.5 apart from ``low`` until ``high`` is reached, 3 digits each."""
    count = int(np.ceil(np.log(high / low) / np.log(1.5))) + 1
    return tuple(float(f"{low * 1.5**k:.3g}") for k in range(count))


_LR_FINE = _fine(0.03, 10.0)
_PG_FINE = {"lr": _LR_FINE, "age": _AGES}
_C1_FINE = _fine(0.01, 10.0)
_C2_FINE = (0.0, *_fine(1e-3, 1.0))


def _shape(env: Env) -> tuple[int, int]:
    num_contexts, num_actions = env.mean_reward.shape
    return num_contexts, num_actions


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


def _neural(env: Env, hyper: Hyper) -> prices.Price:
    # flax and optax take as long to import as the rest of this package.
    from bandit.neural_price import neural

    return neural(*_shape(env), step_size=hyper["net_lr"])


def _free(env: Env, hyper: Hyper) -> prices.Price:
    del env, hyper
    return prices.fixed(0.0)


def _gradient(
    name: str,
    label: str,
    price: Callable[[Env, Hyper], prices.Price],
    *,
    defaults: Mapping[str, float],
    note: str,
    colour: str | None = None,
    marker: str = ".",
    rule: policy_gradient.Rule = "npg",
    signal: policy_gradient.Signal = "plain",
) -> AgentSpec:
    """A ``tabular_policy_gradient`` agent; the paper's grid restricted to its keys."""

    def build(env: Env, hyper: Hyper) -> Agent:
        return policy_gradient.tabular_policy_gradient(
            *_shape(env),
            step_size=hyper["lr"],
            price=price(env, hyper),
            rule=rule,
            signal=signal,
        )

    def grid(full: Grid) -> Grid:
        return {key: full[key] for key in full if key in defaults}

    return AgentSpec(
        name,
        label,
        build,
        defaults,
        grid(_PG_SMALL),
        grid(_PG_LARGE),
        grid(_PG_FINE),
        note=note,
        colour=colour,
        marker=marker,
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
    return cucb_agent(*_shape(env), c1=hyper["c1"], c2=hyper["c2"], rate="approximate")


def _theory_constants(env: Env) -> Mapping[str, float]:
    c1, c2 = ucb.theory_constants(env)
    return {"c1": float(c1), "c2": float(c2)}


def _build_imed(env: Env, hyper: Hyper) -> Agent:
    return adaptive.imed(*_shape(env), scale=hyper["scale"])


def _build_posterior(env: Env, hyper: Hyper) -> Agent:
    return adaptive.posterior_sampling(*_shape(env), scale=hyper["scale"])


def _build_shared(env: Env, hyper: Hyper) -> Agent:
    return shared_sampling.shared_sampling(*_shape(env), scale=hyper["scale"])


_PPO_GRID = {"lr": (3.0, 10.0, 30.0, 100.0), "age": (250.0, 1000.0, 4000.0)}
_PPO_FINE = {"lr": _fine(3.0, 100.0), "age": (250.0, 1000.0, 4000.0)}

_PAPER = (
    _gradient(
        "npg-niw",
        "NPG-NIW",
        _slots,
        defaults={"lr": 0.1, "age": 250.0},
        note="the paper's agent: NPG, pooled NIW rate",
        colour="#1b5e9b",
        marker="o",
    ),
    _gradient(
        "spg-niw",
        "SPG-NIW",
        _slots,
        rule="spg",
        defaults={"lr": 0.3, "age": 16000.0},
        note="the same with the standard gradient",
        colour="#d1852c",
        marker="s",
    ),
    AgentSpec(
        "cucb-tuned",
        "C-UCB (tuned)",
        _build_cucb,
        {"c1": 3.0, "c2": 0.1},
        {"c1": _C1, "c2": _C2},
        {"c1": _C1, "c2": _C2_LARGE},
        {"c1": _C1_FINE, "c2": _C2_FINE},
        tune_build=_build_cucb_tuning,
        note="Gyorgy et al. (2007), c1 and c2 tuned or at their defaults",
        colour="#2e8b57",
        marker="^",
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
        colour="#7f7f7f",
        marker="v",
    ),
    AgentSpec(
        "cucb-plugin",
        "C-UCB (plug-in rate)",
        _build_plug_in_ucb,
        {"c2": 0.1},
        {"c2": _C2},
        {"c2": _C2_LARGE},
        {"c2": _C2_FINE},
        note="C-UCB's index with the consistent plug-in rate",
        colour="#8e4fa8",
        marker="D",
    ),
)

_OURS = (
    AgentSpec(
        "imed",
        "IMED, plug-in rate",
        _build_imed,
        {"scale": 0.7},
        note="ours: variance-aware index; its one setting was chosen on seeds "
        "1000-1099 of the small study",
        colour="#c0392b",
        marker="*",
    ),
    AgentSpec(
        "posterior",
        "Posterior sampling",
        _build_posterior,
        {"scale": 0.7},
        note="ours: NIW cells sampled; its one setting was chosen as IMED's",
        colour="#17becf",
    ),
    AgentSpec(
        "shared",
        "Sampling, learned sharing",
        _build_shared,
        {"scale": 1.0},
        note="ours: posterior sampling that learns how much arms share across contexts",
        colour="#006d77",
    ),
    AgentSpec(
        "ppo-niw",
        "PPO-NIW",
        _build_ppo,
        {"lr": 30.0, "age": 4000.0},
        _PPO_GRID,
        _PPO_GRID,
        _PPO_FINE,
        note="clipped surrogate on batches of 64",
        colour="#e377c2",
    ),
    _gradient(
        "npg-cells",
        "NPG, plug-in rate",
        _plug_in,
        defaults={"lr": 0.1},
        note="NIW per (context, arm) cell and Dinkelbach",
        colour="#5fa2d9",
    ),
    _gradient(
        "npg-rm",
        "NPG, Robbins-Monro rate",
        _robbins_monro,
        defaults={"lr": 0.1, "rm_step": 0.5},
        note="stochastic approximation on greedy decisions",
        colour="#5ab4ac",
    ),
    _gradient(
        "npg-neural",
        "NPG, neural rate",
        _neural,
        defaults={"lr": 0.1, "net_lr": 0.01},
        note="a small network's means and Dinkelbach",
        colour="#bcbd22",
    ),
)

_BASELINES = (
    _gradient(
        "npg-on-policy",
        "NPG, on-policy rate",
        lambda env, hyper: prices.on_policy(),
        defaults={"lr": 0.1},
        note="SMDP rate of the policy that is played",
        colour="#8c6d31",
    ),
    _gradient(
        "npg-fixed-price",
        "NPG, fixed price",
        lambda env, hyper: prices.fixed(hyper["price"]),
        defaults={"lr": 0.1, "price": 0.5},
        note="r - 0.5 delta, a hand-set price",
        colour="#637939",
    ),
    _gradient(
        "npg-reward",
        "NPG, reward only",
        _free,
        defaults={"lr": 1.0},
        note="vanilla RL: time is free",
        colour="#ff9896",
    ),
    _gradient(
        "npg-ratio",
        "NPG, r/δ per sample",
        _free,
        signal="ratio",
        defaults={"lr": 0.03},
        note="maximises the mean of r/δ over samples",
        colour="#c49c94",
    ),
    _gradient(
        "npg-duration-weighted",
        "NPG, duration-weighted",
        _free,
        signal="duration-weighted",
        defaults={"lr": 3.0},
        note="reward weighted by delta over its mean",
        colour="#393b79",
    ),
    AgentSpec(
        "uniform", "Uniform", lambda env, _: ucb.uniform(*_shape(env)), colour="#bbbbbb"
    ),
    AgentSpec("oracle", "Oracle", lambda env, _: ucb.oracle(env), colour="#000000"),
)

for _spec in (*_PAPER, *_OURS, *_BASELINES):
    register_agent(_spec)


def _sampled(name: str, rule: policy_gradient.Rule) -> AgentSpec:
    twin = _gradient(name, "", _sampled_slots, defaults={}, note="", rule=rule)
    return AGENTS[name]._replace(build=twin.build)


#: The sampled form of the paper's percentile, 1,000 predictive batches a fit.
SAMPLED: dict[str, AgentSpec] = {
    "npg-niw": _sampled("npg-niw", "npg"),
    "spg-niw": _sampled("spg-niw", "spg"),
}
