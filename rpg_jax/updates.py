"""Policy updates on tabular softmax logits: natural, standard and clipped.

Logits and values are [..., A]; leading dimensions are contexts. A row whose values are
not all finite is left as it was: a NaN never enters a policy.
"""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rpg_jax.losses import ppo_clip_loss

Logits = Float[Array, "*contexts arms"]
Step = float | Float[Array, ""]


def _centred_values(logits: Logits, q_values: Logits) -> tuple[Logits, Logits]:
    chex.assert_equal_shape([logits, q_values])
    usable = jnp.all(jnp.isfinite(q_values), axis=-1, keepdims=True)
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
      AssertionError: shapes differ.

    Source: the paper, "Natural policy gradient and reward-rate RL"; Kakade (2001).
    """
    _, centred = _centred_values(logits, q_values)
    return logits + step_size * centred


def spg(logits: Logits, q_values: Logits, *, step_size: Step) -> Logits:
    """Standard (softmax) policy gradient step: theta + eta pi (Q - pi.Q).

    Args:
      logits: [..., A].
      q_values: [..., A] (relative) values.
      step_size: eta > 0, in 1 / (unit of value).

    Raises:
      AssertionError: shapes differ.
    """
    policy, centred = _centred_values(logits, q_values)
    return logits + step_size * policy * centred


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
      advantage: [B].
      mask: [B] bool.
      step_size: gradient step, > 0.
      clip_eps: half-width of the trust region of the probability ratio.
      num_epochs: static number of gradient steps.

    Raises:
      AssertionError: shapes do not fit.

    Source: Schulman et al. (2017); the paper argues for the step from NPG to PPO.
    """
    chex.assert_rank([logits, context], [2, 1])
    chex.assert_equal_shape([context, action, advantage, mask])
    num_contexts, num_actions = logits.shape
    # An index out of range would be clamped, a negative one wrapped, to another cell.
    inside = (context >= 0) & (context < num_contexts)
    inside &= (action >= 0) & (action < num_actions)
    context, action = jnp.where(inside, context, 0), jnp.where(inside, action, 0)
    mask = mask.astype(bool) & inside

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
