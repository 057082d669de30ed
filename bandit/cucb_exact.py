"""Exact maximum of C-UCB's penalised rate without visiting every policy.

C-UCB needs, at every decision, the maximum over the (K+1)^X deterministic policies u of

    f(u) = R_u / D_u - sqrt(C / T_u),   C = 2 c1 L_t,

where R_u, D_u, T_u add up the reward sums, duration sums and counts of the cells
(x, u(x)). The search is bound and prune. All arrays are trials-last: tables are
``[X, A, B]``, one column per trial.

*Bound.* With phi(T) = sqrt(C / T), a policy beats v iff
G(u) = R_u - v D_u - D_u phi(T_u) > 0 (D_u > 0). The last term is the only one that is
not a sum over contexts. Take a band a <= T_u <= b, any kappa >= 0 and offsets o_x that
add up to 0, and write d_x = kappa n_x + e_x, so that D_u = kappa T_u + E_u:

    D_u phi(T_u) = kappa sqrt(C) sqrt(T_u) + E_u phi(T_u).

sqrt is concave, so inside the band sqrt(T) >= sqrt(a) + (T - a)/(sqrt(a) + sqrt(b)).
phi falls from phi(a) to phi(b); with their middle phi_m and half difference h,
E phi(T) >= E phi_m - |E| h, and |E| <= sum_x |e_x - o_x|. Hence

    G(u) <= const + sum_x s(x, u(x)),
    s = r - v d - kappa sl n - e phi_m + |e - o| h,      sl = sqrt(C)/(sqrt a + sqrt b),

which is separable: the best completion of one cell costs O(X A), not A^(X-1). Bands
cover every count T_u that any policy can have; they are narrow around the incumbent's
count, where the bound has to be sharp, and log-spaced elsewhere. Two choices of (kappa,
o) are used, the smaller bound counts: the incumbent's own ratio D*/T* with o its own
residuals (sharp for policies that share its heavy cells), and o = 0. Within a band a
cell with n > b - (least counts of the other contexts) cannot take part.

*Prune.* A cell whose bound is negative in every band is in no policy better than v.
The remaining cells, usually one or two a context, are enumerated. If more than the
static width remain, those trials alone are searched again in 2^X parts (each context's
often or seldom played cells), with the better v just found; if that fails too (rare),
the trial is enumerated in full. Rounding: the bounds carry a margin for float32, so
that only policies within rounding of the maximum can be lost. The result equals brute
force up to a few units in the last place.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

_NEVER = -1e30  # finite "minus infinity": sums of it stay ordered, never NaN
_NEAR = (0.01, 0.02, 0.05, 0.1)  # half-widths (log count) of the bands around T*
_LOW, _HIGH = 16, 6  # log-spaced bands below and above those
_SHARES = (0.25, 0.5, 0.0625)  # thresholds of the successive splits
_WIDTH = 4  # cells a context that are enumerated after pruning
_EVEN = 12  # bands of a split problem, whose range of counts is short
_ROUNDING = 6e-7  # about ten float32 roundings of the largest term


class Tables(NamedTuple):
    """Cell sums of every trial: reward, duration (seconds), count, each [X, A, B]."""

    reward: jax.Array
    duration: jax.Array
    count: jax.Array


class SearchInfo(NamedTuple):
    """How a search ended: trials that needed the second stage, and full enumeration."""

    widened: jax.Array
    enumerated: jax.Array


def penalised_rate(
    reward: jax.Array, duration: jax.Array, count: jax.Array, penalty: jax.Array
) -> jax.Array:
    """f = R/D - sqrt(C/T); -inf where D = 0 or T = 0 (such policies do not count)."""
    valid = (duration > 0) & (count > 0)
    rate = reward / jnp.where(valid, duration, 1.0)
    value = rate - jnp.sqrt(penalty / jnp.where(valid, count, 1.0))
    return jnp.where(valid, value, -jnp.inf)


def first_argmax(values: jax.Array, best: jax.Array) -> jax.Array:
    """First index along axis 0 at which ``values`` reaches ``best``, as int32.

    Much faster than argmax on CPU; an all-NaN column gives the last index, in range.
    """
    size = values.shape[0]
    index = jnp.arange(size, dtype=jnp.int32).reshape((size,) + (1,) * best.ndim)
    return jnp.min(jnp.where(values >= best[None], index, size - 1), axis=0)


def policy_sums(tables: Tables, policy: jax.Array) -> tuple[jax.Array, ...]:
    """R_u, D_u and T_u, each [B], of one policy [X, B] per trial."""
    index = policy[:, None, :]
    return tuple(
        jnp.take_along_axis(table, index, axis=1)[:, 0].sum(axis=0) for table in tables
    )


def coordinate_ascent(
    tables: Tables, penalty: jax.Array, policy: jax.Array, sweeps: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Improve a policy one context at a time: a local maximum's value and policy.

    Args:
      tables: cell sums [X, A, B].
      penalty: C = 2 c1 L, [B].
      policy: where to start, int32 [X, B].
      sweeps: passes over the contexts.

    Returns:
      value [B] (-inf if no policy met counts) and policy [X, B].
    """
    num_contexts = tables.reward.shape[0]
    index = policy[:, None, :]
    chosen = [jnp.take_along_axis(table, index, axis=1)[:, 0] for table in tables]
    value = jnp.full_like(penalty, -jnp.inf)
    for _ in range(sweeps):
        for x in range(num_contexts):
            rest = [c.sum(axis=0) - c[x] for c in chosen]
            if num_contexts == 1:
                rest = [jnp.zeros_like(r) for r in rest]
            sums = [table[x] + r[None] for table, r in zip(tables, rest, strict=True)]
            values = penalised_rate(*sums, penalty[None])
            value = values.max(axis=0)
            arm = first_argmax(values, value)
            policy = policy.at[x].set(arm)
            picked = [
                jnp.take_along_axis(table[x], arm[None], axis=0)[0] for table in tables
            ]
            chosen = [c.at[x].set(p) for c, p in zip(chosen, picked, strict=True)]
    # Differences above may round; the value reported is that of the policy itself.
    return penalised_rate(*policy_sums(tables, policy), penalty), policy


def _pair_lists(lists: Tables) -> tuple[Tables, Tables]:
    """All sums over the first half of the contexts and over the second half."""

    def sums(rows: jax.Array) -> jax.Array:
        out = rows[0]
        for row in rows[1:]:
            out = (out[:, None] + row[None]).reshape(-1, row.shape[-1])
        return out

    half = (lists.reward.shape[0] + 1) // 2
    first = Tables(*(sums(rows[:half]) for rows in lists))
    if lists.reward.shape[0] == half:
        return first, Tables(*(jnp.zeros_like(s[:1]) for s in first))
    return first, Tables(*(sums(rows[half:]) for rows in lists))


def enumerate_product(lists: Tables, penalty: jax.Array) -> tuple[jax.Array, jax.Array]:
    """max of f over all combinations of m listed cells a context, m^X of them.

    Args:
      lists: sums of the listed cells, [X, m, B].
      penalty: C = 2 c1 L, [B].

    Returns:
      value [B] and the position of the best cell in each context's list, int32 [X, B].
    """
    num_contexts, width, _ = lists.reward.shape
    first, second = _pair_lists(lists)

    def body(carry, row):
        best, where = carry
        index, sums = row
        value = penalised_rate(
            *(s + a[None] for s, a in zip(second, sums, strict=True)), penalty[None]
        )
        better = value > best
        return (jnp.maximum(best, value), jnp.where(better, index, where)), None

    start = (
        jnp.full_like(second.reward, -jnp.inf),
        jnp.zeros(second.reward.shape, jnp.int32),
    )
    count = first.reward.shape[0]
    (best, where), _ = jax.lax.scan(
        body,
        start,
        (jnp.arange(count, dtype=jnp.int32), first),
        unroll=min(4, count),
    )
    value = best.max(axis=0)
    column = first_argmax(best, value)
    row = jnp.take_along_axis(where, column[None], axis=0)[0]
    half = (num_contexts + 1) // 2
    digits = []
    for number, length in ((row, half), (column, num_contexts - half)):
        part = []
        for _ in range(length):
            part.append(number % width)
            number = number // width
        digits += part[::-1]
    return value, jnp.stack(digits).astype(jnp.int32)


def _near_edges(low: jax.Array, centre: jax.Array, high: jax.Array) -> jax.Array:
    """Band edges [J + 1, B] that cover [low, high] and crowd around ``centre``."""
    near = jnp.asarray(_NEAR, centre.dtype)[:, None]
    centre = jnp.clip(centre, low, high)[None]

    def side(span, parts):
        steps = jnp.arange(1, parts + 1, dtype=centre.dtype)[:, None] / parts
        span = jnp.maximum(span, _NEAR[-1] + 1e-3)
        far = _NEAR[-1] + steps * (span - _NEAR[-1])
        return jnp.concatenate([jnp.broadcast_to(near, (4, far.shape[1])), far])

    below = side(jnp.log(centre / low[None]) + 1e-5, _LOW)
    above = side(jnp.log(high[None] / centre) + 1e-5, _HIGH)
    return centre * jnp.exp(jnp.concatenate([-below[::-1], above]))


def _even_edges(low: jax.Array, high: jax.Array) -> jax.Array:
    """Log-spaced band edges [J + 1, B] that cover [low, high]."""
    steps = jnp.linspace(0.0, 1.0, _EVEN + 1, dtype=low.dtype)[:, None]
    return (low * (1 - 1e-5))[None] * jnp.exp(
        steps * (jnp.log(high / low) + 3e-5)[None]
    )


def count_range(
    count: jax.Array, allowed: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Least count per context [X, B], and the range of T_u >= 1, each [B]."""
    least = jnp.where(allowed, count, jnp.inf).min(axis=1)
    least = jnp.where(jnp.isfinite(least), least, 0.0)  # a context without cells
    low = jnp.maximum(least.sum(axis=0), 1.0)
    high = jnp.where(allowed, count, 0.0).max(axis=1).sum(axis=0)
    return least, low, jnp.maximum(high, low)


def cell_bounds(
    tables: Tables,
    allowed: jax.Array,
    penalty: jax.Array,
    level: jax.Array,
    ratio: jax.Array,
    edges: jax.Array,
    least: jax.Array,
) -> jax.Array:
    """Upper bound [X, A, B] of G over all policies through each cell.

    A negative entry proves that no policy of allowed cells through that cell has
    f(u) > level (0 is never attained by the rounding margin alone).

    Args:
      tables: cell sums [X, A, B].
      allowed: cells to consider, bool [X, A, B].
      penalty: C = 2 c1 L, [B].
      level: v, the value to beat, [B].
      ratio: a typical duration per decision, seconds, > 0, [B].
      edges: band edges that cover every attainable T_u, [J + 1, B].
      least: smallest allowed count of each context, [X, B].
    """
    reward, duration, count = tables
    a, b = edges[:-1], edges[1:]
    root = jnp.sqrt(penalty)[None]
    phi_a, phi_b = root / jnp.sqrt(a), root / jnp.sqrt(b)
    slope = root / (jnp.sqrt(a) + jnp.sqrt(b))
    middle, half = (phi_a + phi_b) / 2, (phi_a - phi_b) / 2
    linear = reward - level[None, None] * duration
    # n_x <= b - least counts of the others, as n_x - least_x <= limit
    excess = jnp.where(allowed, count - least[:, None], jnp.inf)
    limit = b - least.sum(axis=0)[None]
    rows = tuple(c.swapaxes(0, 1) for c in (linear, duration, count, excess))
    shape = (a.shape[0], count.shape[0], count.shape[2])
    lowest = jnp.full(shape, _NEVER, linear.dtype)
    zeros = jnp.zeros(shape, linear.dtype)

    def find_centre(carry, cells):
        best, d_best, n_best = carry
        lin, d, n, exc = (c[None] for c in cells)
        score = lin - middle[:, None] * d
        score = score + (middle - slope)[:, None] * ratio[None, None] * n
        up = (exc <= limit[:, None]) & (score > best)
        return (
            jnp.where(up, score, best),
            jnp.where(up, d, d_best),
            jnp.where(up, n, n_best),
        ), None

    (_, d_best, n_best), _ = jax.lax.scan(find_centre, (lowest, zeros, zeros), rows)
    total = n_best.sum(axis=1)
    kappa = jnp.where(total > 0, d_best.sum(axis=1) / jnp.maximum(total, 1.0), 1.0)
    offset = d_best - kappa[:, None] * n_best  # adds up to 0 but for rounding
    tilt = kappa * (middle - slope)  # coefficient of n after e = d - kappa n

    tried = count > 0
    weight = jnp.abs(reward) + (jnp.abs(level) + 1e-9)[None, None] * duration
    per_count = jnp.where(tried, 1.0 / jnp.maximum(count, 1.0), 0.0)
    scale = jnp.minimum(
        weight.max(axis=1).sum(axis=0)[None],
        (weight * per_count).max(axis=(0, 1))[None] * b,
    )
    longest = (duration * per_count).max(axis=(0, 1))
    scale = scale + 3 * longest[None] * phi_a * b
    constant = (
        -kappa * (root * jnp.sqrt(a) - slope * a)
        + half * jnp.abs(offset.sum(axis=1))
        + _ROUNDING * scale
    )

    def over_arms(best, cells):
        lin, d, n, exc = (c[None] for c in cells)
        base = (lin - middle[:, None] * d) + tilt[:, None] * n
        away = jnp.abs((d - kappa[:, None] * n) - offset)
        base = base + half[:, None] * away
        return jnp.maximum(best, jnp.where(exc <= limit[:, None], base, _NEVER)), None

    best, _ = jax.lax.scan(over_arms, lowest, rows)
    num = count.shape[0]
    rest = jnp.stack(  # best of the other contexts, summed without cancellation
        [sum((best[:, y] for y in range(num) if y != x), constant) for x in range(num)],
        axis=1,
    )

    def over_bands(bound, band):
        middle, half, tilt, kappa, limit, offset, rest = band
        base = (linear - middle[None, None] * duration) + tilt[None, None] * count
        away = jnp.abs((duration - kappa[None, None] * count) - offset[:, None])
        new = (base + half[None, None] * away) + rest[:, None]
        return jnp.maximum(bound, jnp.where(excess <= limit, new, _NEVER)), None

    bound, _ = jax.lax.scan(
        over_bands,
        jnp.full_like(linear, _NEVER),
        (middle, half, tilt, kappa, limit[:, None, None], offset, rest),
    )
    return bound


def _top_cells(
    tables: Tables, bound: jax.Array, width: int
) -> tuple[Tables, jax.Array, jax.Array]:
    """The ``width`` cells of largest bound in each context, and the next bound."""
    arms = bound.shape[1]
    num_contexts, _, batch = bound.shape
    keys = [jnp.full((num_contexts, batch), _NEVER, bound.dtype)] * (width + 1)
    zeros = jnp.zeros((num_contexts, batch), bound.dtype)
    # An empty slot must not act as a cell: its count makes any policy invalid.
    empty = (zeros, zeros, zeros + _NEVER, zeros.astype(jnp.int32))
    payload = [empty] * width

    def insert(carry, cell):
        keys, payload = carry
        key, item = cell[0], cell[1:]
        keys, payload = list(keys), list(payload)
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
    (keys, payload), _ = jax.lax.scan(insert, (tuple(keys), tuple(payload)), rows)
    stacked = [jnp.stack([p[i] for p in payload], axis=1) for i in range(4)]
    return Tables(*stacked[:3]), stacked[3], keys[width]


def search_round(
    tables: Tables,
    allowed: jax.Array,
    penalty: jax.Array,
    level: jax.Array,
    policy: jax.Array | None,
    width: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Bound all cells, enumerate the best ``width`` a context.

    Args:
      tables: cell sums [X, A, B].
      allowed: cells to consider, bool [X, A, B].
      penalty: C = 2 c1 L, [B].
      level: the value to beat, [B].
      policy: incumbent int32 [X, B] whose count the bands crowd around, or None for
        evenly (log) spaced bands.
      width: cells a context to enumerate.

    Returns:
      value [B] and policy [X, B] of the best enumerated, and proved [B]: no policy of
      allowed cells beats max(level, value).
    """
    width = min(width, tables.reward.shape[1])
    least, low, high = count_range(tables.count, allowed)
    if policy is None:
        totals = [jnp.where(allowed, t, 0.0).sum(axis=(0, 1)) for t in tables]
        edges = _even_edges(low, high)
    else:
        totals = policy_sums(tables, policy)
        edges = _near_edges(low, jnp.maximum(totals[2], 1.0), high)
    usable = (totals[1] > 0) & (totals[2] > 0)
    ratio = jnp.where(usable, totals[1] / jnp.maximum(totals[2], 1.0), 1.0)
    bound = cell_bounds(tables, allowed, penalty, level, ratio, edges, least)
    lists, index, rest = _top_cells(tables, bound, width)
    value, position = enumerate_product(lists, penalty)
    found = jnp.take_along_axis(index, position[:, None], axis=1)[:, 0]
    return value, found, (rest < 0).all(axis=0)


def split_search(
    tables: Tables,
    allowed: jax.Array,
    penalty: jax.Array,
    level: jax.Array,
    share: jax.Array,
    width: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """``search_round`` on 2^X parts: each context's often or seldom played cells.

    Often means more than ``share`` [B] of the count of the context's top cell.

    Two policies that compete from far-apart counts (one with, one without a heavy
    cell) leave a gap in any separable bound at the counts between them, which no
    policy attains. Within a part the range of counts is short and the gap closes.
    """
    num_contexts, arms, batch = tables.reward.shape
    parts = 2**num_contexts
    heavy = tables.count > share[None, None] * tables.count.max(axis=1, keepdims=True)
    bits = (jnp.arange(parts)[None] >> jnp.arange(num_contexts)[:, None]) & 1
    mask = heavy[..., None] == (bits == 1)[:, None, None]

    def repeat(x):
        return jnp.broadcast_to(x[..., None], (*x.shape, parts)).reshape(
            *x.shape[:-1], batch * parts
        )

    value, policy, proved = search_round(
        Tables(*(repeat(t) for t in tables)),
        mask.reshape(num_contexts, arms, -1) & repeat(allowed),
        repeat(penalty),
        repeat(level),
        None,
        width,
    )
    value = value.reshape(batch, parts).T
    best = value.max(axis=0)
    part = first_argmax(value, best)
    policy = policy.reshape(num_contexts, batch, parts)
    policy = jnp.take_along_axis(policy, part[None, :, None], axis=2)[..., 0]
    return best, policy, proved.reshape(batch, parts).all(axis=1)


def brute_force_max(
    sum_r: jax.Array, sum_d: jax.Array, n: jax.Array, c1_L2: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """max over all A^X policies of R_u/D_u - sqrt(2 c1 L/T_u), by enumeration.

    Args:
      sum_r: reward sums [X, A, B].
      sum_d: duration sums [X, A, B], seconds.
      n: counts [X, A, B].
      c1_L2: 2 c1 L, scalar or [B].

    Returns:
      value [B] (-inf where no policy counts) and policy, int32 [X, B].
    """
    tables = Tables(sum_r, sum_d, n)
    penalty = jnp.broadcast_to(jnp.asarray(c1_L2, sum_r.dtype), sum_r.shape[2:])
    return enumerate_product(tables, penalty)


def first_untried_only(count: jax.Array) -> jax.Array:
    """Cells worth listing: all tried ones and one untried a context (all are equal)."""
    untried = count <= 0
    return ~untried | (jnp.cumsum(untried, axis=1, dtype=jnp.int32) <= 1)


def exact_max(
    sum_r: jax.Array,
    sum_d: jax.Array,
    n: jax.Array,
    c1_L2: jax.Array,
    incumbent: jax.Array,
    *,
    floor: float = 1e-9,
    needed: jax.Array | None = None,
    lanes: int = 8,
) -> tuple[jax.Array, jax.Array, SearchInfo]:
    """lambda = max(floor, max_u R_u/D_u - sqrt(2 c1 L/T_u)) over all A^X policies.

    Exact: equal to brute force up to float32 rounding (see the module's proof). Where
    the floor binds, the policy returned is the best one met, not the maximiser.
    Batched by hand: call it on all trials, not under vmap.

    Args:
      sum_r: reward sums [X, A, B], X <= 4.
      sum_d: duration sums [X, A, B], seconds, >= 0.
      n: counts [X, A, B]; untried cells are 0 in all three tables.
      c1_L2: 2 c1 L, scalar or [B].
      incumbent: where to start, int32 [X, B]; best the previous decision's policy.
      floor: least value of lambda.
      needed: trials that need lambda, bool [B]; others may get a lower bound of it.
      lanes: trials handled together in the second stage.

    Returns:
      value [B], policy int32 [X, B], SearchInfo.

    Raises:
      ValueError: X > 4.
    """
    num_contexts, arms, batch = sum_r.shape
    if num_contexts > 4:
        raise ValueError(
            f"exact_max handles at most 4 contexts, got {num_contexts}; use sampled_max"
        )
    tables = Tables(sum_r, sum_d, n)
    penalty = jnp.broadcast_to(jnp.asarray(c1_L2, sum_r.dtype), (batch,))
    floor = jnp.asarray(floor, sum_r.dtype)
    none = jnp.zeros((), jnp.int32)
    if arms**num_contexts <= 1296:  # enumeration is as cheap as the bounds
        value, policy = enumerate_product(tables, penalty)
        return jnp.maximum(value, floor), policy, SearchInfo(none, none)

    allowed = first_untried_only(n)
    value, policy = coordinate_ascent(tables, penalty, incumbent)
    # A start without duration has no ratio to centre on: take the longest cells.
    longest = sum_d.max(axis=1)
    fallback = first_argmax(sum_d.swapaxes(0, 1), longest)
    bad = ~jnp.isfinite(value)
    policy = jnp.where(bad[None], fallback, policy)
    value = penalised_rate(*policy_sums(tables, policy), penalty)
    empty = ~jnp.isfinite(value)  # nothing tried at all: nothing to search

    def level_of(value):
        return jnp.maximum(jnp.where(jnp.isfinite(value), value, 0.0), floor)

    found, candidate, done = search_round(
        tables, allowed, penalty, level_of(value), policy, _WIDTH
    )
    better = found > value
    value = jnp.where(better, found, value)
    policy = jnp.where(better[None], candidate, policy)
    done = done | empty
    if needed is not None:
        done = done | ~needed
    widened = (~done).sum(dtype=jnp.int32)
    lanes = min(lanes, batch)
    shares = jnp.asarray(_SHARES, sum_r.dtype)

    def pick(flags, size):
        index = jnp.nonzero(flags, size=size, fill_value=batch)[0]
        safe = jnp.minimum(index, batch - 1)
        return index, safe, Tables(*(t[:, :, safe] for t in tables))

    def second(carry):
        value, policy, tries, done = carry
        index, safe, part = pick(~done & (tries < 3), lanes)
        old = value[safe]
        found, candidate, proved = split_search(
            part,
            allowed[:, :, safe],
            penalty[safe],
            level_of(old),
            shares[tries[safe]],
            _WIDTH,
        )
        better = found > old
        return (
            value.at[index].set(jnp.where(better, found, old), mode="drop"),
            policy.at[:, index].set(
                jnp.where(better[None], candidate, policy[:, safe]), mode="drop"
            ),
            tries.at[index].add(1, mode="drop"),
            done.at[index].set(proved, mode="drop"),
        )

    tries = jnp.zeros((batch,), jnp.int32)
    value, policy, _, done = jax.lax.while_loop(
        lambda c: (~c[3] & (c[2] < 3)).any(), second, (value, policy, tries, done)
    )
    enumerated = (~done).sum(dtype=jnp.int32)

    def third(carry):
        value, policy, done = carry
        index, safe, part = pick(~done, 1)
        new, best = enumerate_product(part, penalty[safe])
        return (
            value.at[index].set(new, mode="drop"),
            policy.at[:, index].set(best, mode="drop"),
            done.at[index].set(True, mode="drop"),
        )

    value, policy, _ = jax.lax.while_loop(
        lambda c: (~c[2]).any(), third, (value, policy, done)
    )
    return jnp.maximum(value, floor), policy, SearchInfo(widened, enumerated)
