"""The two stages of C-UCB's exact search that prove: bound, prune, enumerate.

``search_round`` bounds every cell of every context and enumerates the best few;
``split_search`` does so in parts where that proves nothing. See ``cucb_exact``.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from bandit.cucb_bounds import (
    NEVER,
    Mask,
    cell_bounds,
    count_range,
    even_edges,
    near_edges,
)
from bandit.cucb_policies import (
    Column,
    Policy,
    Table,
    Tables,
    enumerate_product,
    first_argmax,
    policy_sums,
)

_WIDTH = 4  # cells a context that are enumerated after pruning

Flags = Bool[Array, " trials"]
#: Value and policy of the best policy met, and whether it is proved to be the best.
Found = tuple[Column, Policy, Flags]
#: The cells of largest bound, [X, width, B], their indices, and the next bound.
_Top = tuple[Tables, Int[Array, "contexts width trials"], Array]


def _top_cells(tables: Tables, bound: Table, width: int) -> _Top:
    """The ``width`` cells of largest bound in each context, and the next bound."""
    arms = bound.shape[1]
    num_contexts, _, batch = bound.shape
    keys = [jnp.full((num_contexts, batch), NEVER, bound.dtype)] * (width + 1)
    zeros = jnp.zeros((num_contexts, batch), bound.dtype)
    # An empty slot must not act as a cell: its count makes any policy invalid.
    empty = (zeros, zeros, zeros + NEVER, zeros.astype(jnp.int32))
    payload = [empty] * width

    Carry = tuple[tuple[Array, ...], tuple[tuple[Array, ...], ...]]

    def insert(carry: Carry, cell: tuple[Array, ...]) -> tuple[Carry, None]:
        key, item = cell[0], cell[1:]
        keys, payload = list(carry[0]), list(carry[1])
        for i in range(width):
            up = key > keys[i]
            keys[i], key = jnp.where(up, key, keys[i]), jnp.where(up, keys[i], key)
            old = payload[i]
            payload[i] = tuple(
                jnp.where(up, n, o) for n, o in zip(item, old, strict=True)
            )
            item = tuple(jnp.where(up, o, n) for n, o in zip(item, old, strict=True))
        keys[width] = jnp.maximum(keys[width], key)
        return (tuple(keys), tuple(payload)), None

    index = jnp.broadcast_to(
        jnp.arange(arms, dtype=jnp.int32)[:, None, None], (arms, num_contexts, batch)
    )
    rows = (bound.swapaxes(0, 1), *(t.swapaxes(0, 1) for t in tables), index)
    start: Carry = (tuple(keys), tuple(payload))
    (last_keys, found), _ = jax.lax.scan(insert, start, rows)
    stacked = [jnp.stack([p[i] for p in found], axis=1) for i in range(4)]
    return Tables(*stacked[:3]), stacked[3], last_keys[width]


def _enumerate_best(tables: Tables, bound: Table, penalty: Column) -> Found:
    """Value, policy and proof of the cells of largest bound, _WIDTH a context."""
    width = min(_WIDTH, bound.shape[1])
    lists, index, rest = _top_cells(tables, bound, width)
    value, position = enumerate_product(lists, penalty)
    policy = jnp.take_along_axis(index, position[:, None], axis=1)[:, 0]
    return value, policy, (rest < 0).all(axis=0)


def search_round(
    tables: Tables, allowed: Mask, penalty: Column, level: Column, policy: Policy
) -> Found:
    """Bound all cells, enumerate the best few of each context.

    Args:
      tables: cell sums.
      allowed: cells to consider.
      penalty: C = 2 c1 L.
      level: the value to beat.
      policy: incumbent whose count the bands crowd around.

    Returns:
      value and policy of the best enumerated, and proved: no policy of allowed cells
      beats max(level, value).
    """
    least, low, high = count_range(tables.visits, allowed)
    _, duration, count = policy_sums(tables, policy)
    edges = near_edges(low, jnp.maximum(count, 1.0), high)
    ratio = _ratio(duration, count)
    bound = cell_bounds(tables, allowed, penalty, level, ratio, edges, least)
    return _enumerate_best(tables, bound, penalty)


def _ratio(duration: Column, count: Column) -> Column:
    """Seconds per decision, 1 where nothing was measured."""
    usable = (duration > 0) & (count > 0)
    return jnp.where(usable, duration / jnp.maximum(count, 1.0), 1.0)


def _parts(tables: Tables, allowed: Mask, share: Column) -> tuple[Tables, Mask]:
    """2^X columns a trial, and each one's cells: the often or the seldom played."""
    num_contexts, arms, batch = tables.reward.shape
    parts = 2**num_contexts
    most = tables.visits.max(axis=1, keepdims=True)
    heavy = tables.visits > share[None, None] * most
    bits = (jnp.arange(parts)[None] >> jnp.arange(num_contexts)[:, None]) & 1
    mask = heavy[..., None] == (bits == 1)[:, None, None]
    mask = mask.reshape(num_contexts, arms, batch * parts)
    mask = mask & _repeat(allowed, parts)
    return Tables(*(_repeat(t, parts) for t in tables)), mask


def _repeat(x: Array, parts: int) -> Array:
    """Each trial's column ``parts`` times: [..., B] -> [..., B parts]."""
    wide = jnp.broadcast_to(x[..., None], (*x.shape, parts))
    return wide.reshape(*x.shape[:-1], x.shape[-1] * parts)


def _part_bounds(
    tables: Tables, columns: Tables, mask: Mask, penalty: Column, level: Column
) -> Table:
    """``cell_bounds`` of every part of every trial."""
    parts = 2 ** tables.reward.shape[0]
    least, low, high = count_range(columns.visits, mask)
    ratio = _ratio(tables.duration.sum((0, 1)), tables.visits.sum((0, 1)))
    return cell_bounds(
        columns,
        mask,
        _repeat(penalty, parts),
        _repeat(level, parts),
        _repeat(ratio, parts),
        even_edges(low, high),
        least,
    )


def split_search(
    tables: Tables, allowed: Mask, penalty: Column, level: Column, share: Column
) -> Found:
    """``search_round`` on 2^X parts: each context's often or seldom played cells.

    Two policies that compete from far-apart counts (one with, one without a heavy
    cell) leave a gap in any separable bound at the counts between them, which no
    policy attains. Within a part the range of counts is short and the gap closes.
    Most parts hold no promising cell; at most a quarter of them are enumerated, and a
    trial with more stays unproved.

    Args:
      tables: cell sums.
      allowed: cells to consider.
      penalty: C = 2 c1 L.
      level: the value to beat.
      share: often means more than this share of the context's largest count.

    Returns:
      As ``search_round``.
    """
    num_contexts, _, batch = tables.reward.shape
    parts = 2**num_contexts
    total = batch * parts
    columns, mask = _parts(tables, allowed, share)
    bound = _part_bounds(tables, columns, mask, penalty, level)
    alive = (bound >= 0).any(axis=(0, 1))
    room = max(total // 4, 1)
    index = jnp.nonzero(alive, size=room, fill_value=total)[0]
    own = jnp.minimum(index, total - 1)
    trial = own // parts
    found, candidate, proved = _enumerate_best(
        Tables(*(t[..., trial] for t in tables)), bound[..., own], penalty[trial]
    )
    value = jnp.full((total,), -jnp.inf, found.dtype)
    value = value.at[index].set(found, mode="drop").reshape(batch, parts)
    policy = jnp.zeros((num_contexts, total), jnp.int32)
    policy = policy.at[:, index].set(candidate, mode="drop")
    policy = policy.reshape(num_contexts, batch, parts)
    proved = (~alive).at[index].set(proved, mode="drop").reshape(batch, parts)
    best = value.max(axis=1)
    part = first_argmax(value.T, best)
    policy = jnp.take_along_axis(policy, part[None, :, None], axis=2)[..., 0]
    return best, policy, proved.all(axis=1)
