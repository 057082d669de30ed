"""NPG at greedy rates: a Boltzmann policy whose rate converges as proved."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bandit.theory.problems import (
    Check,
    PerProblem,
    exact_rates,
    greedy_sums,
    random_problems,
)
from rpg_jax import dinkelbach, relative_reward, updates


def boltzmann_error(seed: int, number: int = 200, steps: int = 60) -> float:
    """Largest |pi_k - Boltzmann| over problems and steps, in JAX's default precision.

    k NPG steps at the greedy rates rho_1 .. rho_k from zero logits must give
    pi_k(a|x) proportional to exp(eta k (r - rhobar_k delta)).
    """
    eta = 0.5
    tables = tuple(jnp.asarray(v) for v in random_problems(seed, number))

    def run(reward: Array, duration: Array, probs: Array) -> Array:
        def step(
            carry: tuple[Array, Array], k: Array
        ) -> tuple[tuple[Array, Array], Array]:
            logits, average = carry
            rate = dinkelbach.greedy_rate(
                reward, duration, average, context_probs=probs
            )
            average = average + (rate - average) / k
            priced = relative_reward(reward, duration, rate)
            logits = updates.npg(logits, priced, step_size=eta)
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
    limit = 500 * float(np.finfo(jnp.zeros(()).dtype).eps)
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

    error: Float[np.ndarray, "problems steps"]  # rho* - rhobar_k
    bound: Float[np.ndarray, "problems steps"]
    chi: PerProblem
    best: PerProblem
    optimal_probability: PerProblem  # mean over contexts, after the last step


def run_rates(seed: int, number: int = 500, steps: int = 3000) -> RateRun:
    """rho_k = rate of the greedy policy at rhobar_{k-1}, and its proved bound.

    0 <= rho* - rhobar_k <= (rho* - rhobar_1) prod_{i=2..k} (1 - (1 - chi) / i) with
    chi = 1 - D* / D_{u_0}, u_0 greedy at rate 0.
    """
    problems = random_problems(seed, number)
    best, seconds = exact_rates(problems)
    reward, longest = greedy_sums(problems, np.zeros(number))
    chi = 1 - seconds / longest
    average = reward / longest
    error, bound = np.empty((2, number, steps))
    error[:, 0] = bound[:, 0] = best - average
    for k in range(2, steps + 1):
        reward, duration = greedy_sums(problems, average)
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


def fitted_slopes(run: RateRun) -> PerProblem:
    """Log-log slope of the error over the second half of each problem's path.

    NaN where the error vanished (rho_1 was already optimal).
    """
    steps = run.error.shape[1]
    k = np.unique(np.geomspace(steps // 30, steps, 30).astype(int))
    error = run.error[:, k - 1]
    usable = np.all(error > 1e-9 * run.best[:, None], axis=1)
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
