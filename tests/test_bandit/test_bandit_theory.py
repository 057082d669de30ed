"""The paper's propositions as checks, and that the checks can fail."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bandit import theory
from bandit.theory import npg, summary
from rpg_jax import dinkelbach, updates


def failing(rows):
    return [row for row in rows if not row.held]


def test_the_band_holds_and_its_edge_is_reached():
    rows, lowest, edges = theory.check_band(seed=11, number=300)
    assert len(rows) == len(theory.GAMMAS) + 1
    assert not failing(rows)
    # With errors the tail really moves: the statement is not about constants.
    assert lowest[1.0].min() < 0.9
    assert (lowest[0.0] > 1 - 1e-5).all()
    assert (edges[1.0] < edges[0.1]).all()


def test_the_band_needs_its_factor():
    # With R = 1 in place of the true spread the lower edge would be violated.
    gamma, spread = 0.5, 2.5
    reward, duration = (
        jnp.asarray(v, jnp.float32) for v in theory.edge_problem(gamma, spread)
    )
    measured = dinkelbach.duration_spread(reward, duration, gamma)
    np.testing.assert_allclose(measured, spread, rtol=1e-5)
    factors = jnp.asarray((1 + gamma) ** (-1.0) ** np.arange(20), jnp.float32)
    lowest = dinkelbach.approximate_iteration(reward, duration, factors).rate.min()
    assert lowest < dinkelbach.tolerance_band(1.0, gamma, 1.0)[0] - 0.4
    np.testing.assert_allclose(
        lowest, dinkelbach.tolerance_band(1.0, gamma, spread)[0], rtol=2e-3
    )


def test_errors_beyond_the_tolerance_leave_the_band():
    problems = theory.random_problems(3, 1)
    best, _ = theory.exact_rates(problems)
    reward, duration, probs = (jnp.asarray(v[0], jnp.float32) for v in problems)
    path = dinkelbach.approximate_iteration(
        reward, duration, jnp.full(20, 1.5), context_probs=probs
    )
    assert path.rate[-1] > dinkelbach.tolerance_band(best[0], 0.4, 1.0)[1]


def test_exact_iteration_terminates():
    rows, steps = theory.check_termination(seed=12, number=300)
    assert not failing(rows)
    assert steps.min() >= 2


def test_npg_is_boltzmann_to_float32_rounding():
    # To 1e-13 in float64: see x64_checks.py.
    assert not failing(theory.check_boltzmann(seed=13))


def test_rates_converge_within_their_bound():
    run = theory.run_rates(seed=14, number=60, steps=400)
    slack = 1e-10 * run.best[:, None]
    assert (run.error >= -slack).all()
    assert (run.error <= run.bound + slack).all()
    assert (np.diff(run.bound, axis=1) <= 0).all()
    slope = theory.fitted_slopes(run)
    moving = np.isfinite(slope)
    assert moving.sum() > 30
    assert (slope[moving] <= -(1 - run.chi[moving]) + 0.01).all()
    # The bound is not vacuous: some problem uses a good part of it.
    assert (run.error[moving, -1] / run.bound[moving, -1]).max() > 0.2


def test_the_rate_run_is_what_npg_steps_do():
    """The shortcut of ``run_rates`` (greedy at the average rate) against real steps."""
    steps, number = 40, 8
    problems = theory.random_problems(15, number)
    run = theory.run_rates(15, number, steps)
    for i in range(number):
        reward, duration, probs = (jnp.asarray(v[i], jnp.float32) for v in problems)
        logits, rates = jnp.zeros_like(reward), []
        for _ in range(steps):
            # The policy that is greedy for the logits; at zero logits, for the reward.
            policy = jnp.argmax(logits if rates else reward, axis=-1)
            r, d = dinkelbach.policy_totals(
                policy, reward, duration, context_probs=probs
            )
            rates.append(float(r / d))
            logits = updates.npg(logits, reward - rates[-1] * duration, step_size=1.0)
        average = np.cumsum(rates) / np.arange(1, steps + 1)
        np.testing.assert_allclose(
            run.best[i] - average, run.error[i], atol=2e-5 * run.best[i]
        )
        greedy = dinkelbach.greedy_policy(reward, duration, run.best[i])
        policy = jax.nn.softmax(logits)
        chosen = jnp.take_along_axis(policy, greedy[:, None], axis=-1).mean()
        np.testing.assert_allclose(chosen, run.optimal_probability[i], atol=2e-3)


def test_cucbs_rate_is_inconsistent_and_the_plug_in_is_not():
    rows, run = theory.check_rate_of_sums()
    assert not failing(rows)
    np.testing.assert_allclose(run.best_rate, 0.701491269, atol=1e-8)
    assert (np.diff(run.sums_rate) > -1e-12).all()


@pytest.mark.slow
def test_all_checks_at_full_size():
    rows, _ = theory.run(seed=1)
    assert not failing(rows)


def smaller(check, *size):
    return lambda seed: check(seed, *size)


def test_report_writes_what_it_found(tmp_path, monkeypatch, capsys):
    for module, name, size in (
        (summary, "check_band", (60,)),
        (summary, "check_termination", (60,)),
        (npg, "run_rates", (40, 300)),
    ):
        monkeypatch.setattr(module, name, smaller(getattr(module, name), *size))
    assert theory.report(tmp_path / "new", seed=2) == 0
    folder = tmp_path / "new"
    with (folder / "theory.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len(table) >= 15
    assert {row["held"] for row in table} == {"True"}
    assert (folder / "theory.png").stat().st_size > 10_000
    assert (folder / "theory.pdf").read_bytes().startswith(b"%PDF")
    assert "FAILED" not in capsys.readouterr().out
    wrong = theory.Check("a", "b", 1.0, "0", False)
    monkeypatch.setattr(summary, "run", lambda seed: ([wrong], None))
    monkeypatch.setattr(summary, "draw", lambda curves, path: None)
    assert theory.report(folder, seed=2) == 1
    assert "FAILED a: b" in capsys.readouterr().out
