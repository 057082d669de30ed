"""Policy updates on tabular softmax logits: natural, standard and clipped.

Logits and values are [..., A]; leading dimensions are contexts. A row whose values are
not all finite is left as it was: a NaN never enters a policy.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rpg_jax import checks
from rpg_jax.losses import ppo_clip_loss

Logits = Float[Array, "*contexts arms"]
Step = float | Float[Array, ""]

STEPS = (0.0, checks.MAX_VALUE)


def _tables(logits: Logits, q_values: Logits) -> tuple[Logits, Logits]:
    return checks.numbers("logits", logits), checks.numbers("q_values", q_values)


def _centred_values(logits: Logits, q_values: Logits) -> tuple[Logits, Logits]:
    checks.at_least_one_axis("logits", logits)
    checks.same_shape("logits and q_values", [logits, q_values])
    checks.within("logits", logits)
    fine = jnp.abs(q_values) <= checks.MAX_VALUE
    usable = jnp.all(fine, axis=-1, keepdims=True)
    q = jnp.where(usable, q_values, 0)
    policy = jax.nn.softmax(logits, axis=-1)
    return policy, q - jnp.sum(policy * q, axis=-1, keepdims=True)


def npg(logits: Logits, q_values: Logits, *, step_size: Step) -> Logits:
    """Natural policy gradient step: theta + eta (Q - pi.Q).

    Independent of how likely an action is, unlike ``spg``; k exact steps give the
    Boltzmann policy on the running average of Q.

    Args:
      logits: [..., A].
      q_values: [..., A] (relative) values.
      step_size: eta > 0, in 1 / (unit of value).

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: shapes differ; outside of jit also where logits or the step are not
        finite, or the step is negative.

    Source: the paper, "Natural policy gradient and reward-rate RL"; Kakade (2001).
    """
    logits, q_values = _tables(logits, q_values)
    step_size = checks.scalar("step_size", step_size, STEPS)
    _, centred = _centred_values(logits, q_values)
    return logits + step_size * centred


def spg(logits: Logits, q_values: Logits, *, step_size: Step) -> Logits:
    """Standard (softmax) policy gradient step: theta + eta pi (Q - pi.Q).

    Args:
      logits: [..., A].
      q_values: [..., A] (relative) values.
      step_size: eta > 0, in 1 / (unit of value).

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: shapes differ; outside of jit also where logits or the step are not
        finite, or the step is negative.
    """
    logits, q_values = _tables(logits, q_values)
    step_size = checks.scalar("step_size", step_size, STEPS)
    policy, centred = _centred_values(logits, q_values)
    return logits + step_size * policy * centred


def _checked_logits(logits: Array) -> Array:
    logits = checks.numbers("logits", logits)
    checks.rank("logits", logits, 2)
    checks.within("logits", logits)
    if not logits.size:
        raise ValueError(f"logits need a context and an arm, got {logits.shape}")
    return logits


def _checked_rows(
    context: Array, action: Array, advantage: Array, mask: Array
) -> tuple[Array, Array, Array, Array]:
    rows = (
        checks.integers("context", context),
        checks.integers("action", action),
        checks.numbers("advantage", advantage),
        checks.flags("mask", mask),
    )
    checks.rank("context", rows[0], 1)
    checks.same_shape("context, action, advantage and mask", rows)
    return rows


def _inside(logits: Array, context: Array, action: Array) -> tuple[Array, Array, Array]:
    """Indices of cells, and the rows that name one."""
    num_contexts, num_actions = logits.shape
    # An index out of range would be clamped, a negative one wrapped, to another cell.
    inside = (context >= 0) & (context < num_contexts)
    inside &= (action >= 0) & (action < num_actions)
    return jnp.where(inside, context, 0), jnp.where(inside, action, 0), inside


def ppo(
    logits: Float[Array, "contexts arms"],
    context: Int[Array, " B"],
    action: Int[Array, " B"],
    advantage: Float[Array, " B"],
    mask: Bool[Array, " B"],
    *,
    step_size: Step,
    clip_eps: float = 0.2,
    num_epochs: int = 4,
) -> Float[Array, "contexts arms"]:
    """Clipped-surrogate ascent of a tabular policy on one batch.

    The policy at entry is the one that is clipped against; every epoch is one gradient
    step on the whole batch.

    Args:
      logits: [X, A].
      context: [B] int; rows outside [0, X) are masked out.
      action: [B] int; rows outside [0, A) likewise.
      advantage: [B]; rows that are not finite are left out.
      mask: [B] bool.
      step_size: gradient step, > 0.
      clip_eps: half-width of the trust region of the probability ratio.
      num_epochs: static number of gradient steps.

    Raises:
      TypeError: an argument is no array of numbers, or an index is no integer.
      ValueError: shapes do not fit, or a setting is out of range; outside of jit also
        where logits are not finite.

    Source: Schulman et al. (2017); the paper argues for the step from NPG to PPO.
    """
    logits = _checked_logits(logits)
    context, action, advantage, mask = _checked_rows(context, action, advantage, mask)
    step_size = checks.scalar("step_size", step_size, STEPS)
    num_epochs = checks.count("num_epochs", num_epochs, least=0, most=10_000)
    context, action, inside = _inside(logits, context, action)
    mask &= inside

    def log_prob(theta: Array) -> Array:
        return jax.nn.log_softmax(theta, axis=-1)[context, action]

    old = log_prob(logits)

    def objective(theta: Array) -> Array:
        loss, _ = ppo_clip_loss(
            log_prob(theta), old, advantage, mask, clip_eps=clip_eps
        )
        return loss

    def epoch(_: Array, theta: Array) -> Array:
        gradient: Array = jax.grad(objective)(theta)
        return theta - step_size * gradient

    final: Array = jax.lax.fori_loop(0, num_epochs, epoch, logits)
    return final
