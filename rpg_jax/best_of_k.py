"""Max@k rewards: what one attempt adds to the best of k.

Who has a budget left for k attempts wants the best of them, and not their sum. The
gradient of the expected best score is a policy gradient in which the reward v is
replaced by w(v): near 0 for an attempt that k others would beat anyway, and all of what
is above the others for one that they would not. k = 1 gives back the reward itself.

All functions take NumPy or JAX arrays and return the same kind, as those of
``rpg_jax.rewards``: a training loop accounts in float64 on the host and calls the very
functions that run under jit and vmap. What is not finite is refused on the host; under
a trace, where nothing can be raised, it makes its results NaN.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from rpg_jax import checks
from rpg_jax.arrays import as_float, concrete

T = TypeVar("T", Array, np.ndarray)


def max_at_k(
    value: Float[T, " B"],
    sample: Float[T, " N"],
    *,
    k: float | Float[T, " B"],
    best: float | Float[T, " B"] = 0.0,
    mask: Bool[T, " N"] | None = None,
) -> Float[T, " B"]:
    r"""Max@k reward of each value, by the empirical distribution of a sample.

    .. math:: w(v) = \int_b^{\max(b, v)} F(t)^{k-1} \, dt

    F(t) is the share of the sample that is at most t. w is 0 up to b, never falls, and
    grows by 1 per unit above the sample's largest value. Terms are sums of segments
    that are all >= 0, so that nothing cancels in float32.

    Args:
        value: [B] values >= 0 in any unit, a failure's is 0; NumPy or JAX.
        sample: [N] values that stand for the policy's distribution, ties as they come.
        k: attempts still to come, this one included; a number or [B]. It need not be
            whole, and below 1 it is taken as 1: then w = max(v - b, 0).
        best: b, the best value so far, in the unit of ``value``; a number or [B].
        mask: [N] bool; what stands in rows that are out is never looked at. All if
            None.

    Returns:
        [B], of the arguments' kind, in the unit of ``value``.

    Raises:
        ValueError: a value, a counted row of the sample, k or b is not finite, or no
            row counts (on the host; NaN under a trace).

    Source: docs/concepts/best-score.md, "The gradient".
    """
    xp, value, sample, keep, power = _prepared(value, sample, mask, k)
    b = _best(xp, best, value)
    knots, share = _steps(xp, sample, keep)
    end = xp.full(1, np.inf, knots.dtype)
    low, high = xp.concatenate([-end, knots]), xp.concatenate([knots, end])
    top = xp.minimum(high[None, :], value[:, None])
    width = xp.maximum(top - xp.maximum(low[None, :], b[:, None]), 0)
    out = xp.sum(width * share[None, :] ** power[:, None], axis=-1)
    reward: T = _or_nan(xp, out, (value, b, power), sample, keep)
    return reward


def max_at_k_rank(
    value: Float[T, " B"],
    sample: Float[T, " N"],
    *,
    k: float | Float[T, " B"],
    best: float | Float[T, " B"] | None = 0.0,
    mask: Bool[T, " N"] | None = None,
) -> Float[T, " B"]:
    r"""Max@k reward in ranks: for scores whose scale means nothing.

    .. math:: w(v) = \int_{F(b)}^{\max(F(b), F(v))} q^{k-1} \, dq
        = \frac{\max(F(b), F(v))^k - F(b)^k}{k}

    ``max_at_k`` with a value replaced by its quantile: a monotone map of values, sample
    and b changes nothing. With b = 0 a failure, whose value is 0, earns 0.

    Args:
        value: [B] values; NumPy or JAX.
        sample: [N] values that stand for the policy's distribution.
        k: attempts still to come; a number or [B]; below 1 it is taken as 1.
        best: b; None is below all values: w = F(v)^k / k.
        mask: [N] bool; rows of the sample that count. All if None.

    Returns:
        [B], of the arguments' kind; between 0 and 1 / k.

    Raises:
        ValueError: as ``max_at_k``.

    Source: docs/concepts/best-score.md, "In ranks".
    """
    xp, value, sample, keep, power = _prepared(value, sample, mask, k)
    k = power + 1.0
    quantile = _cdf(xp, value, sample, keep)
    if best is None:
        whole: T = _or_nan(xp, quantile**k / k, (value, power), sample, keep)
        return whole
    b = _best(xp, best, value)
    start = _cdf(xp, b, sample, keep)
    out = (xp.maximum(start, quantile) ** k - start**k) / k
    reward: T = _or_nan(xp, out, (value, b, power), sample, keep)
    return reward


def expected_best(
    sample: Float[T, " N"],
    *,
    k: float,
    best: float = 0.0,
    mask: Bool[T, " N"] | None = None,
) -> Float[T, ""]:
    r"""Expected best of b and k draws from the sample's empirical distribution.

    .. math:: M_k = b + \int_b^\infty 1 - F(t)^k \, dt

    The mean of ``max_at_k`` over the sample is M_k - M_{k-1}.

    Args:
        sample: [N] values; NumPy or JAX.
        k: number of draws, >= 0; it need not be whole.
        best: b, in the unit of the sample.
        mask: [N] bool; rows of the sample that count. All if None.

    Raises:
        ValueError: as ``max_at_k``.

    Source: docs/concepts/best-score.md, "The aim".
    """
    k, best = (
        checks.scalar("k", k, (0.0, checks.MAX_VALUE)),
        checks.scalar("best", best),
    )
    xp, b, sample, keep, power = _prepared(
        _like(sample, [best]), sample, mask, 1.0 + k, name="best"
    )
    knots, share = _steps(xp, sample, keep)
    knots = xp.maximum(knots, b[0])
    low = xp.concatenate([b, knots[:-1]])
    # No length above the last counted knot; those that are out stand at infinity.
    last = xp.max(xp.where(xp.isfinite(knots), knots, b[0]))
    length = xp.minimum(knots, last) - xp.minimum(low, last)
    missed = xp.where(length > 0, 1 - share[:-1] ** k, 0)
    out = b[0] + xp.sum(length * missed)
    expected: T = _or_nan(xp, out, (b[0], power[0]), sample, keep)
    return expected


def _prepared(
    value: Any, sample: Any, mask: Any, k: Any, *, name: str = "value"
) -> tuple[ModuleType, Any, Any, Any, Any]:
    """Namespace, value [B], sample [N], keep [N] and k - 1 [B] as floats, checked."""
    traced = any(isinstance(x, jax.Array) for x in (value, sample, mask, k))
    xp = jnp if traced else np
    value, sample = _floats(xp, name, value), _floats(xp, "sample", sample)
    if value.ndim != 1 or sample.ndim != 1:
        raise ValueError(
            f"{name} and sample must be one-dimensional, got shapes {value.shape} and "
            f"{sample.shape}"
        )
    keep = xp.ones(sample.shape, bool)
    if mask is not None:
        mask = checks.real("mask", mask)
        checks.within("mask", mask)
        keep = xp.asarray(mask, bool)
    if keep.shape != sample.shape:
        raise ValueError(f"mask has shape {keep.shape}, the sample {sample.shape}")
    k = xp.asarray(checks.real("k", k), value.dtype)
    _refuse(value, name=name)
    _refuse(sample, name="sample", keep=keep)
    _refuse(k, name="k")
    counted = concrete(keep)
    if sample.shape[0] == 0 or (counted is not None and not counted.any()):
        raise ValueError("the sample has no row that counts")
    power = xp.broadcast_to(xp.maximum(k, 1) - 1, value.shape)
    return xp, value, sample, keep, power


def _floats(xp: ModuleType, name: str, x: Any) -> Any:
    """Floats of the namespace, float64 on the host.

    Raises:
        TypeError: no array of numbers.
    """
    x = checks.real(name, x)
    return as_float(x) if xp is jnp else np.asarray(x, np.float64)


def _best(xp: ModuleType, best: Any, value: Any) -> Any:
    """b of each row, checked."""
    best = xp.asarray(checks.real("best", best), value.dtype)
    b = xp.broadcast_to(best, value.shape)
    _refuse(b, name="best")
    return b


def _like(sample: Any, numbers: list[Any]) -> Any:
    return jnp.stack(numbers) if isinstance(sample, jax.Array) else np.array(numbers)


def _refuse(x: Any, *, name: str, keep: Any = None) -> None:
    """Refuse what is known and not finite; what is traced passes.

    Raises:
        ValueError: names the rows.
    """
    known = concrete(x)
    rows = None if keep is None else concrete(keep)
    if known is None or (keep is not None and rows is None):
        return
    # Beyond that, products would leave float32.
    bad = ~(np.abs(known) <= checks.MAX_VALUE) & (True if rows is None else rows)
    if not bad.any():
        return
    what = "too large" if np.isfinite(known[bad]).all() else "not finite"
    if bad.ndim:
        what += " in rows " + ", ".join(str(i) for i in np.flatnonzero(bad)[:8])
    raise ValueError(f"{name} is {what}")


def _steps(xp: ModuleType, sample: Any, keep: Any) -> tuple[Any, Any]:
    """Sorted knots [N] (what does not count at infinity) and F between them [N + 1]."""
    knots = xp.sort(xp.where(keep, sample, np.inf))
    number = xp.sum(keep)
    at = xp.minimum(xp.arange(len(sample) + 1), number)
    return knots, at.astype(sample.dtype) / number.astype(sample.dtype)


def _cdf(xp: ModuleType, at: Any, sample: Any, keep: Any) -> Any:
    """F at each point: the share of the counted rows that are at most that."""
    below = (sample[None, :] <= at[:, None]) & keep[None, :]
    count = xp.sum(below, axis=-1).astype(sample.dtype)
    return count / xp.sum(keep).astype(sample.dtype)


def _or_nan(
    xp: ModuleType, out: Any, numbers: tuple[Any, ...], sample: Any, keep: Any
) -> Any:
    """``out``, but NaN where something that was traced is not finite."""
    fine = xp.all(xp.isfinite(sample) | ~keep) & xp.any(keep)
    for each in numbers:
        fine = fine & xp.isfinite(each)
    return xp.where(fine, out, np.nan)
