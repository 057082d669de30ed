"""Dinkelbach's iteration: its band when rates are approximate, its finite end."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bandit.theory.problems import (
    ROUNDING,
    Check,
    PerProblem,
    exact_rates,
    random_problems,
)
from rpg_jax import dinkelbach

_STEPS = 60
#: Lowest rates of the tails, or proved edges, over rho*, by gamma.
ByGamma = dict[float, PerProblem]

GAMMAS = (0.0, 0.02, 0.1, 0.5, 1.0)


def edge_problem(
    gamma: float, spread: float
) -> tuple[Float[np.ndarray, "1 2"], Float[np.ndarray, "1 2"]]:
    """Two arms on which the band's lower edge is reached (rho* = 1, one context).

    The second arm takes 1 / spread of the best arm's time and is tied with it at the
    highest rate in the band, (1 + gamma) rho*, so the greedy policy errs there as far
    as the proof allows.

    Raises:
      ValueError: gamma < 0 or spread <= 0.
    """
    if not (gamma >= 0 and spread > 0):
        raise ValueError(f"need gamma >= 0 and spread > 0, got {gamma} and {spread}")
    top = 1 + gamma * (1 - 1e-4)  # a hair inside: the tie is broken the wrong way
    return np.array([[1.0, top / spread + (1 - top)]]), np.array([[1.0, 1 / spread]])


def _factors(
    rng: np.random.Generator, number: int
) -> Float[np.ndarray, "problems steps"]:
    """Exponents of 1 + gamma: a third each at random, alternating, and mixtures."""
    exponent = rng.uniform(-1, 1, (number, _STEPS))
    exponent[::3] = (-1.0) ** np.arange(_STEPS)
    exponent[1::3] = rng.choice([-1.0, 1.0], exponent[1::3].shape)
    return exponent


@jax.jit
@jax.vmap
def _measure(
    reward: Array, duration: Array, probs: Array, factors: Array, gamma: Array
) -> tuple[Array, Array]:
    """The second half of a path, and the spread R of its problem."""
    path = dinkelbach.approximate_iteration(
        reward, duration, factors, context_probs=probs
    )
    spread = dinkelbach.duration_spread(reward, duration, gamma, context_probs=probs)
    return path.rate[_STEPS // 2 :], spread


def check_band(seed: int, number: int = 3000) -> tuple[list[Check], ByGamma, ByGamma]:
    """Approximate Dinkelbach stays in its band and reaches the lower edge."""
    problems = random_problems(seed, number)
    best, _ = exact_rates(problems)
    tables = tuple(jnp.asarray(v, jnp.float32) for v in problems)
    exponent = _factors(np.random.default_rng(seed + 1), number)
    lowest: ByGamma = {}
    edges: ByGamma = {}
    rows = []
    for gamma in GAMMAS:
        factors = jnp.asarray((1 + gamma) ** exponent, jnp.float32)
        tail, spread = _measure(*tables, factors, jnp.full(number, gamma, jnp.float32))
        # ``dinkelbach.tolerance_band`` in float64.
        low = (1 - np.asarray(spread, np.float64) * gamma / (1 + gamma)) * best
        high = (1 + gamma) * best
        rates = np.asarray(tail, np.float64)
        below = rates < (low - ROUNDING * best)[:, None]
        outside = below | (rates > high[:, None] * (1 + ROUNDING))
        violations = int(outside.any(1).sum())
        rows.append(
            Check(
                "approximate Dinkelbach",
                f"problems outside the band, gamma = {gamma}, of {number}",
                violations,
                "0",
                violations == 0,
            )
        )
        lowest[gamma], edges[gamma] = rates.min(1) / best, low / best
    return [*rows, _check_edge()], lowest, edges


def _check_edge() -> Check:
    """The lower edge is reached on the worst case."""
    gamma, spread = 0.5, 2.5
    reward, duration = (
        jnp.asarray(v, jnp.float32) for v in edge_problem(gamma, spread)
    )
    factors = jnp.asarray((1 + gamma) ** (-1.0) ** np.arange(_STEPS), jnp.float32)
    low = 1 - spread * gamma / (1 + gamma)
    path = dinkelbach.approximate_iteration(reward, duration, factors)
    reached = float(path.rate[_STEPS // 2 :].min())
    return Check(
        "approximate Dinkelbach",
        f"lowest rate on the worst case, over its edge {low:.4f}",
        reached / low,
        "1 to 1e-3",
        abs(reached / low - 1) < 1e-3,
    )


def check_termination(
    seed: int, number: int = 3000
) -> tuple[list[Check], Int[np.ndarray, " problems"]]:
    """Exact Dinkelbach: finitely many steps, from below after the first."""
    problems = random_problems(seed, number)
    best, _ = exact_rates(problems)
    tables = tuple(jnp.asarray(v, jnp.float32) for v in problems)

    @jax.jit
    @jax.vmap
    def solve(
        reward: Array, duration: Array, probs: Array
    ) -> tuple[dinkelbach.OptimalRate, Array]:
        result = dinkelbach.optimal_rate(reward, duration, context_probs=probs)
        path = dinkelbach.approximate_iteration(
            reward, duration, jnp.ones(12), context_probs=probs, initial_rate=50.0
        )
        return result, path.rate

    result, rates = solve(*tables)
    path = np.asarray(rates, np.float64)
    steps = np.asarray(result.steps)
    error = float(np.abs(np.asarray(result.rate) / best - 1).max())
    falls = int((np.diff(path, axis=1) < -ROUNDING * best[:, None]).any(1).sum())
    above = int((path > best[:, None] * (1 + ROUNDING)).any(1).sum())
    rows = [
        Check(
            "finite termination",
            f"most greedy policies evaluated, {number} problems",
            int(steps.max()),
            "converged, at most 10",
            bool(result.converged.all()) and steps.max() <= 10,
        ),
        Check(
            "finite termination",
            "largest relative error of rho* (float32)",
            error,
            "< 1e-5",
            error < 1e-5,
        ),
        Check(
            "finite termination",
            "paths that fall or exceed rho* after the first step",
            falls + above,
            "0",
            falls + above == 0,
        ),
    ]
    return rows, steps
