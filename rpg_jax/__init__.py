"""Reward-rate policy gradient in JAX: learn to earn reward per second.

The pieces in the order of the algorithm: a rate estimator (``niw``, ``niw_slots``,
``robbins_monro``, ``neural``, ``empirical``), ``relative_reward`` at its rate, and a
policy step (``npg``, ``spg``, ``ppo_clip_loss``). The language-model side is in
``rpg_jax.llm``, wrappers for other trainers are in ``rpg_jax.adapters``.
"""

from rpg_jax import (
    baselines,
    best_of_k,
    conjugate,
    dinkelbach,
    losses,
    rates,
    ratio,
    updates,
)
from rpg_jax.baselines import regression_advantage
from rpg_jax.best_of_k import expected_best, max_at_k, max_at_k_rank
from rpg_jax.conjugate import (
    NIW,
    Moments,
    empty_moments,
    forget,
    merge,
    moments,
    niw_prior,
    posterior,
    segment_moments,
)
from rpg_jax.dinkelbach import (
    approximate_iteration,
    duration_spread,
    greedy_policy,
    greedy_rate,
    optimal_rate,
    tolerance_band,
)
from rpg_jax.losses import (
    PPOInfo,
    gae,
    kl_estimate,
    leave_one_out_advantage,
    masked_mean,
    ppo_clip_loss,
    rejected_members,
    value_clip_loss,
    whiten,
)
from rpg_jax.quantiles import in_analytic_range, ratio_quantile_auto
from rpg_jax.rates import (
    empirical,
    fixed_point,
    neural,
    niw,
    niw_slots,
    robbins_monro,
)
from rpg_jax.ratio import (
    predictive,
    predictive_moments,
    ratio_quantile,
    ratio_quantile_sampled,
    slot_rate,
)
from rpg_jax.rewards import charged_duration, relative_reward
from rpg_jax.slots import fit_slots
from rpg_jax.smooth_cdf import kernel_cdf, max_at_k_of, pareto_tail_cdf
from rpg_jax.spread import Spread, score_free_spread, value_bins, wasted_share
from rpg_jax.types import Batch, RateEstimator, checked_batch
from rpg_jax.updates import npg, ppo, spg

__version__ = "0.1.0"

__all__ = [
    "NIW",
    "Batch",
    "Moments",
    "PPOInfo",
    "RateEstimator",
    "Spread",
    "approximate_iteration",
    "baselines",
    "best_of_k",
    "charged_duration",
    "checked_batch",
    "conjugate",
    "dinkelbach",
    "duration_spread",
    "empirical",
    "empty_moments",
    "expected_best",
    "fit_slots",
    "fixed_point",
    "forget",
    "gae",
    "greedy_policy",
    "greedy_rate",
    "in_analytic_range",
    "kernel_cdf",
    "kl_estimate",
    "leave_one_out_advantage",
    "losses",
    "masked_mean",
    "max_at_k",
    "max_at_k_of",
    "max_at_k_rank",
    "merge",
    "moments",
    "neural",
    "niw",
    "niw_prior",
    "niw_slots",
    "npg",
    "optimal_rate",
    "pareto_tail_cdf",
    "posterior",
    "ppo",
    "ppo_clip_loss",
    "predictive",
    "predictive_moments",
    "rates",
    "ratio",
    "ratio_quantile",
    "ratio_quantile_auto",
    "ratio_quantile_sampled",
    "regression_advantage",
    "rejected_members",
    "relative_reward",
    "robbins_monro",
    "score_free_spread",
    "segment_moments",
    "slot_rate",
    "spg",
    "tolerance_band",
    "updates",
    "value_bins",
    "value_clip_loss",
    "wasted_share",
    "whiten",
]
