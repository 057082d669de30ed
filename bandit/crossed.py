r"""How much arms and contexts share: crossed random effects, in closed form.

A cell's value is q(x,a) = mu + alpha_a + beta_x + gamma_xa with normal effects of
variances sa, sb, sc, and a mean of n samples y = q + e, e ~ N(0, v/n). gamma is summed
out: given the effects, y ~ N(mu + alpha_a + beta_x, s), s = v/n + sc. The posterior of
(beta, alpha) has precision

    M = [[diag(1/sb + sum_a P), P], [P', diag(1/sa + sum_x P)]],   P = 1/s,

0 where a cell is untried; its inverse costs X^3 through the Schur complement. With
sc -> inf cells are independent, with sc -> 0 the table is additive.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

#: Values per context and arm.
Cells = Float[Array, "contexts actions"]
#: Effects are never narrower than this: float32 would not hold the precisions.
MIN_SD = 0.01
#: A cell that is all there is to know its effects says nothing about itself.
MOST_LEVERAGE = 0.999


class Components(NamedTuple):
    """Mean and variances of the effects.

    Attributes:
      mean: mu.
      arm: variance of alpha.
      context: variance of beta.
      cell: variance of gamma.
    """

    mean: Float[Array, ""]
    arm: Float[Array, ""]
    context: Float[Array, ""]
    cell: Float[Array, ""]


class Effects(NamedTuple):
    """Posterior of the effects.

    Attributes:
      fitted: E[mu + alpha_a + beta_x | y].
      variance: Var[alpha_a + beta_x | y].
      arm_square: E[alpha_a^2 | y], [A].
      context_mean: E[beta_x | y], [X].
      context_square: E[beta_x^2 | y], [X].
      log_likelihood: log p(y | components), nats.
    """

    fitted: Cells
    variance: Cells
    arm_square: Float[Array, " actions"]
    context_mean: Float[Array, " contexts"]
    context_square: Float[Array, " contexts"]
    log_likelihood: Float[Array, ""]


def precision(noise: Cells, tried: Cells, components: Components) -> Cells:
    """P = 1/(v/n + sc) of tried cells, 0 of others.

    Args:
      noise: v/n of tried cells; any positive number elsewhere.
      tried: whether a cell has a sample.
      components: variances.
    """
    return jnp.where(tried, 1.0 / (noise + components.cell), 0.0)


def posterior(value: Cells, weight: Cells, components: Components) -> Effects:
    """The exact posterior of arm and context effects.

    Args:
      value: y; ignored where the weight is 0.
      weight: P = 1/s, see ``precision``.
      components: mean and variances.
    """
    residual = jnp.where(weight > 0, value - components.mean, 0.0)
    by_arm = 1.0 / components.arm + weight.sum(axis=0)
    by_context = 1.0 / components.context + weight.sum(axis=1)
    shared = weight / by_arm[None, :]
    schur = jnp.diag(by_context) - shared @ weight.T
    factor = jax.scipy.linalg.cho_factor(schur, lower=True)
    covariance = jax.scipy.linalg.cho_solve(factor, jnp.eye(schur.shape[0]))
    pull_arm = (weight * residual).sum(axis=0)
    pull_context = (weight * residual).sum(axis=1)
    beta = covariance @ (pull_context - shared @ pull_arm)
    alpha = (pull_arm - weight.T @ beta) / by_arm
    crossed = covariance @ shared
    arm_variance = 1.0 / by_arm + (shared * crossed).sum(axis=0)
    context_variance = jnp.diag(covariance)
    variance = context_variance[:, None] + arm_variance[None, :] - 2.0 * crossed
    # The determinant of M times the prior's, and the quadratic form by the effects.
    log_det = (
        2.0 * jnp.log(jnp.diag(factor[0])).sum()
        + jnp.log(by_arm).sum()
        + alpha.size * jnp.log(components.arm)
        + beta.size * jnp.log(components.context)
        - jnp.where(weight > 0, jnp.log(weight / (2 * jnp.pi)), 0.0).sum()
    )
    square = (weight * residual**2).sum() - beta @ pull_context - alpha @ pull_arm
    return Effects(
        fitted=components.mean + beta[:, None] + alpha[None, :],
        variance=jnp.maximum(variance, 0.0),
        arm_square=alpha**2 + arm_variance,
        context_mean=beta,
        context_square=beta**2 + context_variance,
        log_likelihood=-0.5 * (log_det + square),
    )


def others_say(
    value: Cells, weight: Cells, effects: Effects, components: Components
) -> tuple[Cells, Cells]:
    """What all other cells say: mean and variance of q before its own data.

    Leave-one-out in closed form: with leverage l = P Var[alpha + beta], the mean is
    (fitted - l y)/(1 - l) and the variance Var[alpha + beta]/(1 - l) + sc.
    """
    leverage = jnp.minimum(weight * effects.variance, MOST_LEVERAGE)
    own = jnp.where(weight > 0, value, 0.0)
    mean = (effects.fitted - leverage * own) / (1.0 - leverage)
    return mean, effects.variance / (1.0 - leverage) + components.cell


def learn(
    value: Cells,
    noise: Cells,
    tried: Cells,
    components: Components,
    *,
    prior_sd: float,
    prior_count: float,
) -> Components:
    """One EM step on the marginal likelihood of mean and variances.

    Args:
      value: y of tried cells.
      noise: v/n.
      tried: whether a cell has a sample.
      components: where to start; the likelihood (with its prior) never falls.
      prior_sd: of each effect, before any data.
      prior_count: effects that this is worth.
    """
    weight = precision(noise, tried, components)
    effects = posterior(value, weight, components)
    shrunk = weight * components.cell
    gamma = shrunk * jnp.where(weight > 0, value - effects.fitted, 0.0)
    square = gamma**2 + shrunk * noise + shrunk**2 * effects.variance
    number = jnp.sum(weight > 0)
    shift = effects.context_mean.mean()

    def variance(total: Float[Array, ""], count: Float[Array, ""]) -> Float[Array, ""]:
        found = (total + prior_count * prior_sd**2) / (count + prior_count)
        return jnp.maximum(found, MIN_SD**2)

    size = effects.context_mean.shape[0]
    return Components(
        mean=components.mean + shift,
        arm=variance(effects.arm_square.sum(), jnp.float32(effects.arm_square.size)),
        context=variance(
            effects.context_square.sum() - size * shift**2, jnp.float32(size)
        ),
        cell=variance(jnp.where(weight > 0, square, 0.0).sum(), number.astype(float)),
    )
