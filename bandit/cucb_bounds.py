"""Upper bounds that prove cells useless for C-UCB's maximum: the exact search's core.

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
cover every count T_u that any policy can have. In each, kappa and o are the ratio D/T
and the residuals of one policy that is good there (the maximiser of the surrogate with
h = 0): the bound is then sharp for the policies that share its heavy cells. Within a
band a cell with n > b - (least counts of the other contexts) cannot take part.

*Where it is loose.* A convex mixture of two policies with far-apart counts may look
feasible at counts in between, where no policy is. ``cucb_exact`` then splits the cells
into often and seldom played ones.
"""

import jax
import jax.numpy as jnp

from bandit.cucb_policies import Tables

NEVER = -1e30  # finite "minus infinity": sums of it stay ordered, never NaN
_NEAR = (0.01, 0.02, 0.05, 0.1)  # half-widths (log count) of the bands around T*
_LOW, _HIGH = 16, 6  # log-spaced bands below and above those
_EVEN = 12  # bands of a split problem, whose range of counts is short
_ROUNDING = 6e-7  # about ten float32 roundings of the largest term


def near_edges(low: jax.Array, centre: jax.Array, high: jax.Array) -> jax.Array:
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


def even_edges(low: jax.Array, high: jax.Array) -> jax.Array:
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
    lowest = jnp.full(shape, NEVER, linear.dtype)
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
        return jnp.maximum(best, jnp.where(exc <= limit[:, None], base, NEVER)), None

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
        return jnp.maximum(bound, jnp.where(excess <= limit, new, NEVER)), None

    bound, _ = jax.lax.scan(
        over_bands,
        jnp.full_like(linear, NEVER),
        (middle, half, tilt, kappa, limit[:, None, None], offset, rest),
    )
    return bound
