"""Baselines of an advantage that are fitted to the batch itself."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rpg_jax import checks
from rpg_jax.arrays import float_info


def regression_advantage(
    reward: Float[Array, " N"],
    features: Float[Array, "N D"],
    mask: Bool[Array, " N"] | None = None,
    *,
    ridge: Float[Array, " D"] | float = 0.0,
) -> Float[Array, " N"]:
    r"""Reward minus its prediction by a linear fit to the *other* rows.

    .. math:: A_i = r_i - x_i^T b_{-i} = \frac{e_i}{1 - h_{ii}}

    b_{-i} is the (ridge) least-squares fit without row i, of least norm where several
    fit equally well; e are the residuals of the fit to all rows, h its hat matrix. Row
    i's prediction never uses row i's reward, so that it is an unbiased baseline. With
    features of ones and no ridge this is ``leave_one_out_advantage``.

    Args:
        reward: any unit.
        features: known before the action; columns of about equal scale. There is no
            intercept but a column of ones.
        mask: rows that count; the others may hold NaN.
        ridge: penalty on squared coefficients, one for all columns or one each (0 for
            an intercept).

    Returns:
        [N]; 0 for masked-out rows and for a single row, which has no baseline.

    Raises:
        ValueError: shapes do not fit, or a number that counts is not finite.
        TypeError: an argument is no array of numbers.

    Source: Allen (1974), the PRESS residuals.
    """
    reward, features, keep, ridge = _checked(reward, features, mask, ridge)
    kind = jnp.promote_types(jnp.result_type(reward, features), jnp.float32)
    y = jnp.where(keep, reward, 0).astype(kind)
    x = jnp.where(keep[:, None], features, 0).astype(kind)
    rows, columns = x.shape
    # A penalty is as good as rows of reward 0, which are never left out.
    penalty = jnp.broadcast_to(jnp.asarray(ridge, kind), (columns,))
    x = jnp.concatenate([x, jnp.diag(jnp.sqrt(penalty))])
    y = jnp.concatenate([y, jnp.zeros(columns, kind)])
    u, size, _ = jnp.linalg.svd(x, full_matrices=False)
    eps = float_info(kind).eps
    real = size > eps * max(x.shape) * jnp.max(size, initial=0)
    u = jnp.where(real[None, :], u, 0)
    # Twice: the rounding of the first fit is no residual.
    residual = y - u @ (u.T @ y)
    residual = residual - u @ (u.T @ residual)
    slack = 1 - jnp.sum(u * u, axis=1)
    # A row that alone fixes a direction has 0/0 there; as a ridge goes to 0, this:
    inverse = jnp.where(real, 1 / jnp.where(real, size, 1), 0)
    inverse = jnp.square(inverse / jnp.max(inverse, initial=eps))
    weight = jnp.sum(u * u * inverse[None, :], axis=1)
    alone = (u * inverse[None, :]) @ (u.T @ y) / jnp.where(weight > 0, weight, 1)
    free = slack > eps**0.5
    out = jnp.where(free, residual / jnp.where(free, slack, 1), alone)[:rows]
    return jnp.where(keep & (jnp.sum(keep) > 1), out, 0)


def _checked(
    reward: Any, features: Any, mask: Any, ridge: Any
) -> tuple[Array, Array, Array, Array]:
    """Arguments as arrays of fitting shapes, finite where they count."""
    reward = checks.numbers("reward", reward)
    features = checks.numbers("features", features)
    checks.rank("reward", reward, 1)
    checks.rank("features", features, 2)
    keep = jnp.ones(reward.shape, bool) if mask is None else checks.flags("mask", mask)
    checks.same_shape(
        "reward, mask and rows of features", [reward, keep, features[:, 0]]
    )
    rows = jnp.broadcast_to(keep[:, None], features.shape)
    checks.within("reward", reward, mask=keep)
    checks.within("features", features, mask=rows)
    ridge = checks.numbers("ridge", ridge)
    checks.within("ridge", ridge, (0.0, checks.MAX_VALUE))
    if ridge.shape not in ((), features.shape[1:]):
        raise ValueError(
            f"ridge must be one number, or one for each column: {ridge.shape}"
        )
    return reward, features, keep, ridge
