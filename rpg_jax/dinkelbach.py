"""Optimal reward rate of a table of means, exactly and with errors of known effect.

A deterministic policy u earns R_u / D_u with R_u = sum_x p(x) r(x, u(x)) and D_u
likewise. The best rate is the root of F(rho) = sum_x p(x) max_a (r(x, a) - rho d(x, a))
(Dinkelbach 1967); following the greedy policy of the last rate reaches it in finitely
many steps, from below after the first.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rpg_jax import checks

Table = Float[Array, "contexts arms"]
Rate = float | Float[Array, ""]
Probs = Float[ArrayLike, " contexts"]
Mask = Bool[Array, "contexts arms"]

# Rates, prices of a second: those of tables within their bounds, at the most.
RATES = (-1e21, 1e21)
FACTORS = (0.0, 1e6)


class OptimalRate(NamedTuple):
    """Result of ``optimal_rate``."""

    rate: Float[Array, ""]  # reward per second
    policy: Int[Array, " contexts"]  # an action per context
    steps: Int[Array, ""]  # policies evaluated
    converged: Bool[Array, ""]


# Rate, policy, steps so far, done.
Search = tuple[Array, Array, Array, Array]


class Trajectory(NamedTuple):
    """Result of ``approximate_iteration``."""

    rate: Float[Array, " N"]  # rho_1 .. rho_N
    greedy_rate: Float[Array, " N"]  # rho(u_{rho_{k-1}}); rho_k is a perturbed copy


def _tables(
    reward: Table, duration: Table, context_probs: Probs | None, mask: Mask | None
) -> tuple[Table, Table, Mask | None]:
    """Tables and mask as JAX arrays, after all checks.

    Raises:
      TypeError: they are no arrays of numbers.
      ValueError: not [X, A] all of them, or, outside of jit, an entry is out of bounds.
    """
    reward = checks.numbers("reward", reward)
    duration = checks.numbers("duration", duration)
    checks.rank("reward", reward, 2)
    checks.same_shape("reward and duration", [reward, duration])
    if not reward.size:
        raise ValueError(f"tables need a context and an arm, got shape {reward.shape}")
    if mask is not None:
        mask = checks.flags("mask", mask)
        checks.same_shape("the tables and the mask", [reward, mask])
    checks.within("reward", reward, mask=mask)
    checks.within("duration", duration, checks.SECONDS, mask=mask)
    checks.weights("context_probs", context_probs, reward.shape[0])
    return reward, duration, mask


def context_weights(
    reward: Table,
    context_probs: Probs | None,
    mask: Mask | None,
) -> Float[Array, " contexts"]:
    """Probabilities of the contexts that have an action, [X], summing to 1 (or 0)."""
    size = reward.shape[0]
    if context_probs is None:
        probs = jnp.full(size, 1 / size, reward.dtype)
    else:
        probs = jnp.asarray(context_probs, reward.dtype)
    if mask is not None:
        probs = jnp.where(jnp.any(mask, axis=-1), probs, 0)
    total = jnp.sum(probs)
    return probs / jnp.where(total > 0, total, 1)


def greedy_policy(
    reward: Table,
    duration: Table,
    rate: Rate,
    *,
    mask: Mask | None = None,
) -> Int[Array, " contexts"]:
    """argmax_a r(x, a) - rate d(x, a), first on ties: [X] int32.

    Args:
      reward: [X, A] mean rewards.
      duration: [X, A] mean seconds.
      rate: scalar price of a second.
      mask: [X, A] actions that may be chosen; all if None.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: not tables [X, A]; outside of jit also where an entry in use is not
        finite, or seconds are not in [1e-9, 1e10].
    """
    reward, duration, mask = _tables(reward, duration, None, mask)
    return argmax_policy(
        reward, duration, checks.scalar("rate", rate, RATES), mask=mask
    )


def argmax_policy(
    reward: Table, duration: Table, rate: Rate, *, mask: Mask | None = None
) -> Int[Array, " contexts"]:
    """``greedy_policy`` without its checks."""
    value = reward - rate * duration
    if mask is not None:
        value = jnp.where(mask, value, -jnp.inf)
    return jnp.argmax(value, axis=-1).astype(jnp.int32)


def policy_totals(
    policy: Int[Array, " contexts"],
    reward: Table,
    duration: Table,
    *,
    context_probs: Probs | None = None,
    mask: Mask | None = None,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Expected reward R_u and expected seconds D_u of a decision under a policy."""
    probs = context_weights(reward, context_probs, mask)
    # Masked cells may hold anything; contexts without an action carry no weight.
    seen = probs > 0
    r = jnp.take_along_axis(reward, policy[:, None], axis=-1)[:, 0]
    d = jnp.take_along_axis(duration, policy[:, None], axis=-1)[:, 0]
    return (
        jnp.sum(probs * jnp.where(seen, r, 0)),
        jnp.sum(probs * jnp.where(seen, d, 0)),
    )


def greedy_rate(
    reward: Table,
    duration: Table,
    rate: Rate,
    *,
    context_probs: Probs | None = None,
    mask: Mask | None = None,
) -> Float[Array, ""]:
    """Rate of the policy that is greedy at ``rate``: one Dinkelbach step.

    Newton form rho + F(rho) / D: in float32 it loses less than R / D. Zero where no
    context has an action.

    Args:
      reward: [X, A] mean rewards.
      duration: [X, A] mean seconds, > 0.
      rate: scalar price of a second.
      context_probs: [X] weights of the contexts; uniform if None.
      mask: [X, A] actions that exist; contexts without one are left out.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: as ``greedy_policy``, or context_probs are not X weights >= 0.
    """
    reward, duration, mask = _tables(reward, duration, context_probs, mask)
    rate = checks.scalar("rate", rate, RATES)
    return dinkelbach_step(
        reward, duration, rate, context_probs=context_probs, mask=mask
    )


def dinkelbach_step(
    reward: Table,
    duration: Table,
    rate: Rate,
    *,
    context_probs: Probs | None = None,
    mask: Mask | None = None,
) -> Float[Array, ""]:
    """``greedy_rate`` without its checks, for means that an estimator made."""
    policy = argmax_policy(reward, duration, rate, mask=mask)
    return _newton(policy, reward, duration, rate, context_probs, mask)


def _newton(
    policy: Int[Array, " contexts"],
    reward: Table,
    duration: Table,
    rate: Rate,
    context_probs: Probs | None,
    mask: Mask | None,
) -> Float[Array, ""]:
    value, time = policy_totals(
        policy,
        reward - rate * duration,
        duration,
        context_probs=context_probs,
        mask=mask,
    )
    return jnp.where(time > 0, rate + value / jnp.where(time > 0, time, 1), 0)


def optimal_rate(
    reward: Table,
    duration: Table,
    *,
    context_probs: Probs | None = None,
    mask: Mask | None = None,
    max_steps: int = 100,
) -> OptimalRate:
    """Best rate over all deterministic policies, without enumerating them.

    Stops when the greedy policy repeats. Differentiable in both tables by the envelope
    theorem: d rho* / d r(x, a) = p(x) 1[a = u*(x)] / D*.

    Args:
      reward: [X, A] mean rewards, of either sign.
      duration: [X, A] mean seconds, > 0.
      context_probs: [X] weights of the contexts; uniform if None.
      mask: [X, A] actions that exist; contexts without one are left out.
      max_steps: bound of the loop; 5 steps are typical.

    Returns:
      ``OptimalRate``; under jit its ``rate`` is NaN if a cell in use is not finite.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: as ``greedy_rate``, or max_steps < 1.
    """
    reward, duration, mask = _tables(reward, duration, context_probs, mask)
    max_steps = checks.count("max_steps", max_steps)
    fixed_r, fixed_d = jax.lax.stop_gradient((reward, duration))

    def step(carry: Search) -> Search:
        rate, policy, steps, _ = carry
        better = argmax_policy(fixed_r, fixed_d, rate, mask=mask)
        new = _newton(better, fixed_r, fixed_d, rate, context_probs, mask)
        # After the first step rates only rise; near ties in float32 could make two
        # policies alternate, so a step that gains nothing ends the search too.
        done = jnp.all(better == policy) | ((steps > 0) & ~(new > rate))
        return new, better, steps + 1, done

    def unfinished(carry: Search) -> Array:
        return ~carry[3] & (carry[2] < max_steps)

    start = (
        jnp.zeros((), reward.dtype),
        jnp.full(reward.shape[0], -1, jnp.int32),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), bool),
    )
    rate, policy, steps, done = jax.lax.while_loop(unfinished, step, start)
    rate = _newton(policy, reward, duration, rate, context_probs, mask)
    return OptimalRate(rate=rate, policy=policy, steps=steps, converged=done)


def approximate_iteration(
    reward: Table,
    duration: Table,
    factors: Float[Array, " N"],
    *,
    context_probs: Probs | None = None,
    initial_rate: Rate = 0.0,
) -> Trajectory:
    """Dinkelbach iteration whose every rate is off by a factor.

    rho_{k+1} = factors[k] * rho(u_{rho_k}); factors within [1/(1+gamma), 1+gamma] are
    the paper's tolerance band.

    Args:
      reward: [X, A] mean rewards.
      duration: [X, A] mean seconds.
      factors: [N] multiplicative errors.
      context_probs: [X]; uniform if None.
      initial_rate: rho_0.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: as ``greedy_rate``; factors are not [N] in [0, 1e6].

    Source: the paper, "Approximate Dinkelbach iteration".
    """
    reward, duration, _ = _tables(reward, duration, context_probs, None)
    factors = checks.numbers("factors", factors)
    checks.rank("factors", factors, 1)
    checks.within("factors", factors, FACTORS)
    initial_rate = checks.scalar("initial_rate", initial_rate, RATES)

    def step(rate: Array, factor: Array) -> tuple[Array, tuple[Array, Array]]:
        target = dinkelbach_step(reward, duration, rate, context_probs=context_probs)
        return factor * target, (factor * target, target)

    start = jnp.asarray(initial_rate, reward.dtype)
    _, (rates, targets) = jax.lax.scan(step, start, factors)
    return Trajectory(rate=rates, greedy_rate=targets)


def duration_spread(
    reward: Table,
    duration: Table,
    gamma: Rate,
    *,
    context_probs: Probs | None = None,
) -> Float[Array, ""]:
    """R = max of D_u / D* and D* / D_u over policies greedy in [0, (1 + gamma) rho*].

    F is convex in rho with slope -D_u, so D_u falls as the rate rises and the two ends
    of the interval hold the extremes. Ties are broken towards them.

    Args:
      reward: [X, A] mean rewards.
      duration: [X, A] mean seconds, > 0.
      gamma: tolerance >= 0.
      context_probs: [X]; uniform if None.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: as ``greedy_rate``; gamma is not in [0, 1e6].
    """
    reward, duration, _ = _tables(reward, duration, context_probs, None)
    gamma = checks.scalar("gamma", gamma, FACTORS)
    best = optimal_rate(reward, duration, context_probs=context_probs)
    _, middle = policy_totals(
        best.policy, reward, duration, context_probs=context_probs
    )

    def extreme(rate: Array, sign: int) -> Array:
        value = reward - rate * duration
        tied = value >= jnp.max(value, axis=-1, keepdims=True)
        pick = jnp.argmax(jnp.where(tied, sign * duration, -jnp.inf), axis=-1)
        return policy_totals(
            pick.astype(jnp.int32), reward, duration, context_probs=context_probs
        )[1]

    longest = extreme(jnp.zeros_like(best.rate), 1)
    shortest = extreme((1 + gamma) * best.rate, -1)
    return jnp.maximum(longest / middle, middle / shortest)


def tolerance_band(
    rate: Float[Array, ""], gamma: Rate, spread: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Interval that holds the tail of an approximate iteration.

    [(1 - R gamma / (1 + gamma)) rho*, (1 + gamma) rho*].

    Args:
      rate: rho* > 0.
      gamma: tolerance >= 0.
      spread: R from ``duration_spread``.

    Raises:
      TypeError: an argument is no array of numbers.
      ValueError: outside of jit, one is negative, not finite or absurdly large.
    """
    rate = checks.numbers("rate", rate)
    checks.within("rate", rate, (0.0, RATES[1]))
    gamma = checks.scalar("gamma", gamma, FACTORS)
    spread = checks.numbers("spread", spread)
    checks.within("spread", spread, (0.0, checks.MAX_VALUE))
    checks.same_shape("rate and spread", [rate, spread])
    return (1 - spread * gamma / (1 + gamma)) * rate, (1 + gamma) * rate
