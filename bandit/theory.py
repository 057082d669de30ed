"""The paper's propositions for the bandit as executable checks.

Each check draws random problems, measures, and returns ``Check`` rows that say what
was required; ``report`` runs them all, writes ``theory.csv`` and a figure (PNG, PDF),
and says which held. Iterations are the library's own (float32); statements about rates
over thousands of steps are evaluated in float64 with NumPy.
"""

import csv
import itertools
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bandit import envs
from rpg_jax import dinkelbach, updates

GAMMAS = (0.0, 0.02, 0.1, 0.5, 1.0)
# Relative room for float32 rounding in a comparison of two rates.
ROUNDING = 1e-5


class Check(NamedTuple):
    """One measured statement."""

    name: str
    quantity: str
    value: float
    required: str
    held: bool


class Problems(NamedTuple):
    """N random problems of X contexts and A actions, float64."""

    reward: np.ndarray  # [N, X, A] >= 0
    duration: np.ndarray  # [N, X, A] seconds
    probs: np.ndarray  # [N, X]


class Curves(NamedTuple):
    """What ``report`` draws."""

    band: dict[float, np.ndarray]  # gamma -> [N] lowest tail rate over rho*
    edges: dict[float, np.ndarray]  # gamma -> [N] proved lower edge over rho*
    steps: np.ndarray  # [N] Dinkelbach steps
    error: np.ndarray  # [N, k] rho* - running average rate, over rho*
    bound: np.ndarray  # [N, k] its bound, over rho*
    visits: np.ndarray  # [T] decisions
    sums_rate: np.ndarray  # [T] C-UCB's rate
    plug_in_rate: np.ndarray  # [T]
    best_rate: float


def random_problems(seed: int, number: int, contexts: int = 4, arms: int = 6):
    """Problems whose arms differ widely in reward and in seconds."""
    rng = np.random.default_rng(seed)
    shape = (number, contexts, arms)
    spread = rng.uniform(0.1, 1.2, (number, 1, 1))
    return Problems(
        reward=rng.gamma(1.0, 1.0, shape),
        duration=np.exp(spread * rng.normal(size=shape)),
        probs=rng.dirichlet(np.ones(contexts), number),
    )


def _greedy(problems: Problems, rate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expected reward and seconds of the policies greedy at ``rate`` [N]."""
    value = problems.reward - rate[:, None, None] * problems.duration
    pick = np.argmax(value, axis=-1)[..., None]
    reward = np.take_along_axis(problems.reward, pick, -1)[..., 0]
    duration = np.take_along_axis(problems.duration, pick, -1)[..., 0]
    return (problems.probs * reward).sum(-1), (problems.probs * duration).sum(-1)


def exact_rates(problems: Problems) -> tuple[np.ndarray, np.ndarray]:
    """Best rate and the expected seconds D* of its policy, [N] each, in float64."""
    rate = np.zeros(len(problems.reward))
    for _ in range(100):
        reward, duration = _greedy(problems, rate)
        if np.array_equal(reward / duration, rate):
            return rate, duration
        rate = reward / duration
    raise RuntimeError("Dinkelbach's iteration did not terminate in 100 steps")


def edge_problem(gamma: float, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Two arms on which the band's lower edge is reached (rho* = 1, one context).

    The second arm takes 1 / spread of the best arm's time and is tied with it at the
    highest rate in the band, (1 + gamma) rho*, so the greedy policy errs there as far
    as the proof allows.
    """
    top = 1 + gamma * (1 - 1e-4)  # a hair inside: the tie is broken the wrong way
    return np.array([[1.0, top / spread + (1 - top)]]), np.array([[1.0, 1 / spread]])


def check_band(seed: int, number: int = 3000) -> tuple[list[Check], dict, dict]:
    """Approximate Dinkelbach stays in its band and reaches the lower edge."""
    problems = random_problems(seed, number)
    best, _ = exact_rates(problems)
    tables = tuple(jnp.asarray(v, jnp.float32) for v in problems)
    rng = np.random.default_rng(seed + 1)
    steps = 60
    # A third each: errors at random, alternating between the band's ends, and mixtures.
    exponent = rng.uniform(-1, 1, (number, steps))
    exponent[::3] = (-1.0) ** np.arange(steps)
    exponent[1::3] = rng.choice([-1.0, 1.0], exponent[1::3].shape)

    @jax.jit
    @jax.vmap
    def measure(reward, duration, probs, factors, gamma):
        path = dinkelbach.approximate_iteration(
            reward, duration, factors, context_probs=probs
        )
        spread = dinkelbach.duration_spread(
            reward, duration, gamma, context_probs=probs
        )
        return path.rate[steps // 2 :], spread

    lowest, edges, rows = {}, {}, []
    for gamma in GAMMAS:
        factors = jnp.asarray((1 + gamma) ** exponent, jnp.float32)
        tail, spread = measure(*tables, factors, jnp.full(number, gamma, jnp.float32))
        low, high = dinkelbach.tolerance_band(
            best, gamma, np.asarray(spread, np.float64)
        )
        tail = np.asarray(tail, np.float64)
        outside = (tail < (low - ROUNDING * best)[:, None]) | (
            tail > high[:, None] * (1 + ROUNDING)
        )
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
        lowest[gamma], edges[gamma] = tail.min(1) / best, low / best
    gamma, spread = 0.5, 2.5
    reward, duration = (
        jnp.asarray(v, jnp.float32) for v in edge_problem(gamma, spread)
    )
    factors = jnp.asarray((1 + gamma) ** (-1.0) ** np.arange(steps), jnp.float32)
    low = 1 - spread * gamma / (1 + gamma)
    path = dinkelbach.approximate_iteration(reward, duration, factors)
    reached = float(path.rate[steps // 2 :].min())
    rows.append(
        Check(
            "approximate Dinkelbach",
            f"lowest rate on the worst case, over its edge {low:.4f}",
            reached / low,
            "1 to 1e-3",
            abs(reached / low - 1) < 1e-3,
        )
    )
    return rows, lowest, edges


def check_termination(seed: int, number: int = 3000) -> tuple[list[Check], np.ndarray]:
    """Exact Dinkelbach: finitely many steps, from below after the first."""
    problems = random_problems(seed, number)
    best, _ = exact_rates(problems)
    tables = tuple(jnp.asarray(v, jnp.float32) for v in problems)

    @jax.jit
    @jax.vmap
    def solve(reward, duration, probs):
        result = dinkelbach.optimal_rate(reward, duration, context_probs=probs)
        path = dinkelbach.approximate_iteration(
            reward, duration, jnp.ones(12), context_probs=probs, initial_rate=50.0
        )
        return result, path.rate

    result, path = solve(*tables)
    path = np.asarray(path, np.float64)
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


def boltzmann_error(seed: int, number: int = 200, steps: int = 60) -> float:
    """Largest |pi_k - Boltzmann| over problems and steps, in JAX's default precision.

    k NPG steps at the greedy rates rho_1 .. rho_k from zero logits must give
    pi_k(a|x) proportional to exp(eta k (r - rhobar_k delta)).
    """
    eta = 0.5
    tables = tuple(jnp.asarray(v) for v in random_problems(seed, number))

    def run(reward, duration, probs):
        def step(carry, k):
            logits, average = carry
            rate = dinkelbach.greedy_rate(
                reward, duration, average, context_probs=probs
            )
            average = average + (rate - average) / k
            logits = updates.npg(logits, reward - rate * duration, step_size=eta)
            want = jax.nn.softmax(eta * k * (reward - average * duration))
            return (logits, average), jnp.abs(jax.nn.softmax(logits) - want).max()

        start = (jnp.zeros_like(reward), jnp.zeros((), reward.dtype))
        counts = jnp.arange(1, steps + 1, dtype=reward.dtype)
        return jax.lax.scan(step, start, counts)[1].max()

    return float(jax.jit(jax.vmap(run))(*tables).max())


def check_boltzmann(seed: int) -> list[Check]:
    """NPG is Boltzmann at the running average rate, to rounding."""
    error = boltzmann_error(seed)
    # 60 steps of logits up to about 100, each rounded to eps: random, not additive.
    limit = 500 * float(jnp.finfo(jnp.zeros(()).dtype).eps)
    return [
        Check(
            "NPG is Boltzmann",
            "largest difference of a probability",
            error,
            f"< {limit:.1e}",
            error < limit,
        )
    ]


class RateRun(NamedTuple):
    """Exact NPG with greedy rates on N problems, k = 1 .. steps."""

    error: np.ndarray  # [N, k] rho* - rhobar_k
    bound: np.ndarray  # [N, k]
    chi: np.ndarray  # [N]
    best: np.ndarray  # [N]
    optimal_probability: np.ndarray  # [N] mean over contexts, after the last step


def run_rates(seed: int, number: int = 500, steps: int = 3000) -> RateRun:
    """rho_k = rate of the greedy policy at rhobar_{k-1}, and its proved bound.

    0 <= rho* - rhobar_k <= (rho* - rhobar_1) prod_{i=2..k} (1 - (1 - chi) / i) with
    chi = 1 - D* / D_{u_0}, u_0 greedy at rate 0.
    """
    problems = random_problems(seed, number)
    best, seconds = exact_rates(problems)
    reward, longest = _greedy(problems, np.zeros(number))
    chi = 1 - seconds / longest
    average = reward / longest
    error, bound = np.empty((2, number, steps))
    error[:, 0] = bound[:, 0] = best - average
    for k in range(2, steps + 1):
        reward, duration = _greedy(problems, average)
        average = average + (reward / duration - average) / k
        error[:, k - 1] = best - average
        bound[:, k - 1] = bound[:, k - 2] * (1 - (1 - chi) / k)
    # NPG's policy is Boltzmann (checked above), so it is known without its steps.
    eta = 1.0
    value = problems.reward - average[:, None, None] * problems.duration
    weight = np.exp(eta * steps * (value - value.max(-1, keepdims=True)))
    policy = weight / weight.sum(-1, keepdims=True)
    final = problems.reward - best[:, None, None] * problems.duration
    pick = np.argmax(final, axis=-1)[..., None]
    chosen = np.take_along_axis(policy, pick, -1)[..., 0].mean(-1)
    return RateRun(error, bound, chi, best, chosen)


def fitted_slopes(run: RateRun) -> np.ndarray:
    """Log-log slope of the error over the second half of each problem's path.

    NaN where the error vanished (rho_1 was already optimal).
    """
    steps = run.error.shape[1]
    k = np.unique(np.geomspace(steps // 30, steps, 30).astype(int))
    error = run.error[:, k - 1]
    usable = (error > 1e-9 * run.best[:, None]).all(1)
    x = np.log(k) - np.log(k).mean()
    y = np.log(np.where(usable[:, None], error, 1.0))
    slope = (x * (y - y.mean(1, keepdims=True))).sum(1) / (x * x).sum()
    return np.where(usable, slope, np.nan)


def check_rate(seed: int) -> tuple[list[Check], RateRun]:
    """The running average rate converges as proved; the optimal arm takes over."""
    run = run_rates(seed)
    slack = 1e-10 * run.best[:, None]
    low = int((run.error < -slack).any(1).sum())
    high = int((run.error > run.bound + slack).any(1).sum())
    slope = fitted_slopes(run)
    number = int(np.isfinite(slope).sum())
    steep = int((slope > -(1 - run.chi) + 0.01).sum())
    chosen = float(run.optimal_probability.mean())
    rows = [
        Check(
            "rate of NPG",
            f"problems outside [0, bound], of {len(slope)}",
            low + high,
            "0",
            low + high == 0,
        ),
        Check(
            "rate of NPG",
            f"log-log slopes above -(1 - chi), of {number}",
            steep,
            "0",
            steep == 0 and number > 0,
        ),
        Check(
            "rate of NPG",
            "mean probability of the optimal arm after 3,000 steps",
            chosen,
            "> 0.99",
            chosen > 0.99,
        ),
    ]
    return rows, run


class RateOfSums(NamedTuple):
    """C-UCB's rate estimate beside the consistent one as visits grow."""

    visits: np.ndarray  # [T]
    sums_rate: np.ndarray  # [T] max over policies of R_u / D_u from cells' sums
    plug_in_rate: np.ndarray  # [T] Dinkelbach on the cells' means
    best_rate: float
    subset_rate: float  # best rate over subsets of contexts


def rate_of_sums(num_arms: int = 5) -> RateOfSums:
    """On E1's means: sums weigh a policy's contexts by how often its cells were played.

    The greedy arm of a context has been played t / X times, every other arm 20 log t
    times. A policy that takes a rare arm in a poor context all but leaves that context
    out, so the maximum tends to the best rate over subsets of contexts; cells' means
    have no such weights. No noise: the difference is bias.
    """
    env = envs.make_env("E1", num_arms)
    reward = np.asarray(env.mean_reward, np.float64)
    duration = np.asarray(env.mean_duration, np.float64)
    size, arms = reward.shape
    best = envs.optimal_rate(reward, duration)
    greedy = np.argmax(reward - best * duration, axis=1)
    own = np.arange(size)
    policies = np.array(list(itertools.product(range(arms), repeat=size)))
    cells = (own[None, :], policies)
    visits = np.geomspace(1e3, 1e9, 25)
    sums = []
    for t in visits:
        count = np.full((size, arms), 20 * np.log(t))
        count[own, greedy] = t / size
        rates = (count * reward)[cells].sum(1) / (count * duration)[cells].sum(1)
        sums.append(rates.max())
    subsets = [
        list(s) for n in range(1, size + 1) for s in itertools.combinations(own, n)
    ]
    subset = max(
        reward[s, greedy[s]].sum() / duration[s, greedy[s]].sum() for s in subsets
    )
    plug_in = dinkelbach.optimal_rate(
        jnp.asarray(reward, jnp.float32), jnp.asarray(duration, jnp.float32)
    )
    return RateOfSums(
        visits=visits,
        sums_rate=np.array(sums),
        plug_in_rate=np.full(len(visits), float(plug_in.rate)),
        best_rate=float(best),
        subset_rate=float(subset),
    )


def check_rate_of_sums() -> tuple[list[Check], RateOfSums]:
    """C-UCB's rate is inconsistent with more than one context."""
    run = rate_of_sums()
    excess = run.sums_rate[-1] / run.best_rate - 1
    gap = abs(run.sums_rate[-1] / run.subset_rate - 1)
    plug_in = abs(run.plug_in_rate[-1] / run.best_rate - 1)
    return [
        Check(
            "C-UCB's rate",
            f"excess over rho* = {run.best_rate:.4f} after 1e9 decisions, no noise",
            excess,
            "> 0.05: inconsistent",
            excess > 0.05,
        ),
        Check(
            "C-UCB's rate",
            f"distance to the best rate over subsets, {run.subset_rate:.4f}",
            gap,
            "< 0.01",
            gap < 0.01,
        ),
        Check(
            "C-UCB's rate",
            "relative error of the plug-in rate on the same counts",
            plug_in,
            "< 1e-6",
            plug_in < 1e-6,
        ),
    ], run


def run(seed: int = 0) -> tuple[list[Check], Curves]:
    """All checks and what the figure needs."""
    band, lowest, edges = check_band(seed)
    termination, steps = check_termination(seed)
    rate, path = check_rate(seed)
    sums, growth = check_rate_of_sums()
    rows = [*band, *termination, *check_boltzmann(seed), *rate, *sums]
    scale = path.best[:, None]
    return rows, Curves(
        band=lowest,
        edges=edges,
        steps=steps,
        error=path.error / scale,
        bound=path.bound / scale,
        visits=growth.visits,
        sums_rate=growth.sums_rate,
        plug_in_rate=growth.plug_in_rate,
        best_rate=growth.best_rate,
    )


def draw(curves: Curves, path: Path) -> None:
    """Four panels: band, steps, error against bound, C-UCB's rate; PNG and PDF."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    band, steps, error, sums = figure.subplots(2, 2).ravel()
    for gamma, lowest in curves.band.items():
        band.scatter(
            curves.edges[gamma], lowest, s=3, label=f"γ = {gamma}", rasterized=True
        )
    limits = [min(0.0, *(e.min() for e in curves.edges.values())), 1.05]
    limits[0] = max(limits[0], -1.0)
    band.plot(limits, limits, color="black", linewidth=0.8)
    band.set(
        xlim=limits,
        xlabel="proved lower edge / ρ*",
        ylabel="lowest rate of the tail / ρ*",
        title="Approximate Dinkelbach stays above its edge",
    )
    band.legend(markerscale=3, frameon=False)
    values, counts = np.unique(curves.steps, return_counts=True)
    steps.bar(values, counts, color="#1b5e9b")
    steps.set(
        xlabel="greedy policies evaluated",
        ylabel="problems",
        title="Exact Dinkelbach ends after a few steps",
    )
    k = np.arange(1, curves.error.shape[1] + 1)
    moving = curves.error[:, -1] > 1e-9
    for row in np.flatnonzero(moving)[:8]:
        line = error.loglog(k, curves.error[row], linewidth=1.2)[0]
        error.loglog(k, curves.bound[row], "--", linewidth=0.8, color=line.get_color())
    error.set(
        xlabel="NPG steps k",
        ylabel="(ρ* − running average rate) / ρ*",
        title="Error (solid) and its bound (dashed), 8 problems",
    )
    sums.semilogx(curves.visits, curves.sums_rate, label="C-UCB: cells' sums")
    sums.semilogx(curves.visits, curves.plug_in_rate, label="plug-in: cells' means")
    sums.axhline(curves.best_rate, color="black", linestyle=":", label="ρ*")
    sums.set(
        xlabel="decisions",
        ylabel="estimate of the optimal rate",
        title="E1 without noise: C-UCB's rate is inconsistent",
    )
    sums.legend(frameon=False)
    for suffix in (".png", ".pdf"):
        figure.savefig(path.with_suffix(suffix), dpi=150)


def report(folder: Path | str, *, seed: int = 0) -> int:
    """Run the checks, write ``theory.csv`` and the figure, print a table.

    Returns:
      0 if every statement held, else 1.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows, curves = run(seed)
    with (folder / "theory.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Check._fields)
        writer.writerows(rows)
    draw(curves, folder / "theory")
    for row in rows:
        mark = "held  " if row.held else "FAILED"
        print(f"{mark} {row.name}: {row.quantity}: {row.value:.6g} ({row.required})")
    failed = sum(not row.held for row in rows)
    if failed:
        print(f"{failed} of {len(rows)} statements failed")
    return 1 if failed else 0
