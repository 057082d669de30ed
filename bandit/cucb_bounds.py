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

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bandit.cucb_policies import Column, Table, Tables

NEVER = -1e30  # finite "minus infinity": sums of it stay ordered, never NaN
_NEAR = (0.01, 0.02, 0.05, 0.1)  # half-widths (log count) of the bands around T*
_LOW, _HIGH = 16, 6  # log-spaced bands below and above those
_EVEN = 12  # bands of a split problem, whose range of counts is short
_ROUNDING = 6e-7  # about ten float32 roundings of the largest term

Edges = Float[Array, "edges trials"]
Bands = Float[Array, "bands trials"]
Mask = Bool[Array, "contexts actions trials"]
#: Best cells of each band and context.
Best = Float[Array, "bands contexts trials"]
_Row = tuple[Array, ...]


def near_edges(low: Column, centre: Column, high: Column) -> Edges:
    """Band edges that cover [low, high] and crowd around ``centre``."""
    near = jnp.asarray(_NEAR, centre.dtype)[:, None]
    centre = jnp.clip(centre, low, high)[None]

    def side(span: Array, parts: int) -> Edges:
        steps = jnp.arange(1, parts + 1, dtype=centre.dtype)[:, None] / parts
        span = jnp.maximum(span, _NEAR[-1] + 1e-3)
        far = _NEAR[-1] + steps * (span - _NEAR[-1])
        return jnp.concatenate([jnp.broadcast_to(near, (4, far.shape[1])), far])

    below = side(jnp.log(centre / low[None]) + 1e-5, _LOW)
    above = side(jnp.log(high[None] / centre) + 1e-5, _HIGH)
    return centre * jnp.exp(jnp.concatenate([-below[::-1], above]))


def even_edges(low: Column, high: Column) -> Edges:
    """Log-spaced band edges that cover [low, high]."""
    steps = jnp.linspace(0.0, 1.0, _EVEN + 1, dtype=low.dtype)[:, None]
    return (low * (1 - 1e-5))[None] * jnp.exp(
        steps * (jnp.log(high / low) + 3e-5)[None]
    )


def count_range(
    count: Table, allowed: Mask
) -> tuple[Float[Array, "contexts trials"], Column, Column]:
    """Least count per context, and the range of T_u >= 1."""
    least = jnp.where(allowed, count, jnp.inf).min(axis=1)
    least = jnp.where(jnp.isfinite(least), least, 0.0)  # a context without cells
    low = jnp.maximum(least.sum(axis=0), 1.0)
    high = jnp.where(allowed, count, 0.0).max(axis=1).sum(axis=0)
    return least, low, jnp.maximum(high, low)


class _Band(NamedTuple):
    """phi over the bands a <= T <= b, each [J, B].

    Attributes:
      lower: a.
      upper: b.
      root: sqrt(C), [1, B].
      phi_a: phi(a), the largest phi.
      slope: sl, of sqrt(C T) over the band.
      middle: phi_m.
      half: h.
      limit: largest n - least count that a cell of the band can have.
    """

    lower: Bands
    upper: Bands
    root: Float[Array, "1 trials"]
    phi_a: Bands
    slope: Bands
    middle: Bands
    half: Bands
    limit: Bands


def _bands(
    edges: Edges, penalty: Column, least: Float[Array, "contexts trials"]
) -> _Band:
    a, b = edges[:-1], edges[1:]
    root = jnp.sqrt(penalty)[None]
    phi_a, phi_b = root / jnp.sqrt(a), root / jnp.sqrt(b)
    return _Band(
        lower=a,
        upper=b,
        root=root,
        phi_a=phi_a,
        slope=root / (jnp.sqrt(a) + jnp.sqrt(b)),
        middle=(phi_a + phi_b) / 2,
        half=(phi_a - phi_b) / 2,
        # n_x <= b - least counts of the others, as n_x - least_x <= limit
        limit=b - least.sum(axis=0)[None],
    )


def _centres(band: _Band, ratio: Column, rows: _Row, lowest: Best) -> tuple[Best, Best]:
    """Seconds and counts of the maximiser of the surrogate with h = 0, by band."""
    zeros = jnp.zeros_like(lowest)

    def find(
        carry: tuple[Best, Best, Best], cells: _Row
    ) -> tuple[tuple[Best, Best, Best], None]:
        best, d_best, n_best = carry
        lin, d, n, exc = (c[None] for c in cells)
        score = lin - band.middle[:, None] * d
        score = score + (band.middle - band.slope)[:, None] * ratio[None, None] * n
        up = (exc <= band.limit[:, None]) & (score > best)
        return (
            jnp.where(up, score, best),
            jnp.where(up, d, d_best),
            jnp.where(up, n, n_best),
        ), None

    (_, seconds, counts), _ = jax.lax.scan(find, (lowest, zeros, zeros), rows)
    return seconds, counts


def _margin(tables: Tables, level: Column, band: _Band) -> Bands:
    """What float32 rounding of a bound may amount to."""
    reward, duration, count = tables
    tried = count > 0
    weight = jnp.abs(reward) + (jnp.abs(level) + 1e-9)[None, None] * duration
    per_count = jnp.where(tried, 1.0 / jnp.maximum(count, 1.0), 0.0)
    scale = jnp.minimum(
        weight.max(axis=1).sum(axis=0)[None],
        (weight * per_count).max(axis=(0, 1))[None] * band.upper,
    )
    longest = (duration * per_count).max(axis=(0, 1))
    scale = scale + 3 * longest[None] * band.phi_a * band.upper
    return _ROUNDING * scale


def _best_cells(
    band: _Band, tilt: Bands, kappa: Bands, offset: Best, rows: _Row, lowest: Best
) -> Best:
    """Largest s of each context in each band."""

    def over_arms(best: Best, cells: _Row) -> tuple[Best, None]:
        lin, d, n, exc = (c[None] for c in cells)
        base = (lin - band.middle[:, None] * d) + tilt[:, None] * n
        away = jnp.abs((d - kappa[:, None] * n) - offset)
        base = base + band.half[:, None] * away
        inside = exc <= band.limit[:, None]
        return jnp.maximum(best, jnp.where(inside, base, NEVER)), None

    best, _ = jax.lax.scan(over_arms, lowest, rows)
    return best


def cell_bounds(
    tables: Tables,
    allowed: Mask,
    penalty: Column,
    level: Column,
    ratio: Column,
    edges: Edges,
    least: Float[Array, "contexts trials"],
) -> Table:
    """Upper bound of G over all policies through each cell.

    A negative entry proves that no policy of allowed cells through that cell has
    f(u) > level (0 is never attained by the rounding margin alone).

    Args:
      tables: cell sums.
      allowed: cells to consider.
      penalty: C = 2 c1 L.
      level: v, the value to beat.
      ratio: a typical duration per decision, seconds, > 0.
      edges: band edges that cover every attainable T_u.
      least: smallest allowed count of each context.
    """
    reward, duration, count = tables
    band = _bands(edges, penalty, least)
    linear = reward - level[None, None] * duration
    excess = jnp.where(allowed, count - least[:, None], jnp.inf)
    rows = tuple(c.swapaxes(0, 1) for c in (linear, duration, count, excess))
    shape = (band.lower.shape[0], count.shape[0], count.shape[2])
    lowest = jnp.full(shape, NEVER, linear.dtype)
    d_best, n_best = _centres(band, ratio, rows, lowest)
    total = n_best.sum(axis=1)
    kappa = jnp.where(total > 0, d_best.sum(axis=1) / jnp.maximum(total, 1.0), 1.0)
    offset = d_best - kappa[:, None] * n_best  # adds up to 0 but for rounding
    # coefficient of n after e = d - kappa n
    tilt = kappa * (band.middle - band.slope)
    constant = (
        -kappa * (band.root * jnp.sqrt(band.lower) - band.slope * band.lower)
        + band.half * jnp.abs(offset.sum(axis=1))
        + _margin(tables, level, band)
    )
    best = _best_cells(band, tilt, kappa, offset, rows, lowest)
    num = count.shape[0]
    rest = jnp.stack(  # best of the other contexts, summed without cancellation
        [sum((best[:, y] for y in range(num) if y != x), constant) for x in range(num)],
        axis=1,
    )

    def over_bands(bound: Table, band: _Row) -> tuple[Table, None]:
        middle, half, tilt, kappa, limit, offset, rest = band
        base = (linear - middle[None, None] * duration) + tilt[None, None] * count
        away = jnp.abs((duration - kappa[None, None] * count) - offset[:, None])
        new = (base + half[None, None] * away) + rest[:, None]
        return jnp.maximum(bound, jnp.where(excess <= limit, new, NEVER)), None

    limit = band.limit[:, None, None]
    xs = (band.middle, band.half, tilt, kappa, limit, offset, rest)
    bound, _ = jax.lax.scan(over_bands, jnp.full_like(linear, NEVER), xs)
    return bound
