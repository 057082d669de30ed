"""Tuning, cells on disk, result tables and figures."""

import json

import jax
import numpy as np
import pytest
from scipy import stats

from bandit import agents, analysis, claims, figures, registry, sweep

KEY = jax.random.key(0)
WORK = {"num_steps": 300, "num_trials": 6}


def cell(name, *, env="E1", num_arms=3, num_contexts=2):
    return sweep.Cell(env, num_arms, num_contexts, agents.AGENTS[name])


@pytest.fixture(scope="module")
def tuned():
    return sweep.run_cell(cell("npg-cells"), KEY, **WORK, tune="paper", tune_trials=4)


def test_tuning_picks_the_minimum_of_each_score(tuned):
    grid = agents.AGENTS["npg-cells"].settings(2)
    assert tuned.selection == ["median", "mean"]
    assert tuned.tuning.shape == (2, len(grid["lr"]))
    for scores, hyper in zip(tuned.tuning, tuned.hyper, strict=True):
        assert hyper["lr"] == grid["lr"][scores.argmin()]
    assert tuned.regret.shape == (len(tuned.steps), 2, 6)
    assert tuned.steps[-1] == 300


def test_tuning_and_evaluation_seeds_are_apart(tuned):
    """Tuned or not, the evaluation trials of a setting are the same trials."""
    spec = agents.AGENTS["npg-cells"]
    fixed = sweep.Cell("E1", 3, 2, spec._replace(defaults=tuned.hyper[0]))
    alone = sweep.run_cell(fixed, KEY, **WORK, tune="none")
    assert alone.selection == ["default"]
    np.testing.assert_allclose(
        alone.regret[:, 0], tuned.regret[:, 0], rtol=1e-5, atol=1e-4
    )
    assert sweep.TUNE_OFFSET > 900_000


def test_agents_without_a_grid_run_at_their_setting():
    result = sweep.run_cell(cell("uniform"), KEY, **WORK, tune="paper")
    assert result.selection == ["default"]
    assert result.tuning.shape == (2, 0)


def test_work_counts_trial_steps(tuned):
    count = 0

    def progress(n):
        nonlocal count
        count += n

    c = cell("npg-cells")
    sweep.run_cell(c, KEY, **WORK, tune="none", progress=progress)
    assert sweep.work_of(c, **WORK, tune="none") == (0, count) == (0, 300 * 6)
    size = len(agents.AGENTS["npg-cells"].settings(2)["lr"])
    expected = (300 * size * sweep.TUNE_TRIALS, 300 * 2 * 6)
    assert sweep.work_of(c, **WORK, tune="paper") == expected


def test_cells_round_trip_and_damage_is_named(tuned, tmp_path):
    path = tmp_path / "cell.npz"
    sweep.save_cell(path, tuned)
    back = sweep.load_cell(path)
    for name, value in tuned._asdict().items():
        np.testing.assert_array_equal(getattr(back, name), value)
    assert list(tmp_path.iterdir()) == [path]
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"cell\.npz is damaged"):
        sweep.load_cell(path)


@pytest.fixture(scope="module")
def run_folder(tuned, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    rng = np.random.default_rng(0)
    cells = {}
    for num_arms in (3, 5):
        for env in ("E1", "E4"):
            for name in ("npg-cells", "cucb-tuned", "uniform", "oracle"):
                c = cell(name, env=env, num_arms=num_arms)
                factor = {"npg-cells": 1.0, "cucb-tuned": 2.0}.get(name, 30.0)
                noise = rng.normal(0, 0.1, tuned.regret.shape)
                result = tuned._replace(regret=(tuned.regret + noise) * factor)
                if name in ("uniform", "oracle"):
                    result = result._replace(
                        selection=["default"],
                        hyper=[{}],
                        regret=result.regret[:, :1],
                        pseudo_regret=result.pseudo_regret[:, :1],
                        rate=result.rate[:, :1],
                        elapsed=result.elapsed[:, :1],
                    )
                cells[c] = result
    analysis.write_csv(
        folder / "result.csv", analysis.RESULT_FIELDS, analysis.result_rows(cells)
    )
    analysis.write_csv(
        folder / "curves.csv", analysis.CURVE_FIELDS, analysis.curve_rows(cells)
    )
    return folder, cells


def test_result_rows_against_scipy(run_folder):
    folder, cells = run_folder
    rows = analysis.read_csv(folder / "result.csv")
    assert len(rows) == 4 * (2 + 2 + 1 + 1)
    by_key = {(r["env"], r["num_arms"], r["agent"], r["selection"]): r for r in rows}
    for c, result in cells.items():
        for g, selection in enumerate(result.selection):
            row = by_key[c.env, c.num_arms, c.agent.name, selection]
            final = result.regret[-1, g]
            np.testing.assert_allclose(row["regret_mean"], final.mean(), rtol=1e-5)
            np.testing.assert_allclose(row["regret_se"], stats.sem(final), rtol=1e-5)
            assert json.loads(row["hyper"]) == result.hyper[g]
            reference = next(
                r
                for d, r in cells.items()
                if (d.env, d.num_arms) == (c.env, c.num_arms)
                and d.agent.name == "cucb-tuned"
            )
            other = reference.regret[-1, g]
            np.testing.assert_allclose(
                row["diff_mean"], (final - other).mean(), rtol=1e-4, atol=1e-6
            )
            assert row["diff_low"] <= row["diff_mean"] <= row["diff_high"]


def test_bootstrap_interval_covers():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        low, high = analysis.bootstrap_interval(rng.normal(1.0, 2.0, 60))
        hits += low <= 1.0 <= high
    # 95% nominal; binomial sd is 1.5%, the percentile bootstrap a little narrow.
    assert 0.86 <= hits / 200 <= 1.0
    assert analysis.bootstrap_interval(np.full(5, 2.0)) == (2.0, 2.0)
    assert np.isnan(analysis.bootstrap_interval(np.ones(1))).all()


def test_figures_draw_what_the_csv_says(run_folder, tmp_path):
    folder, _ = run_folder
    figure = figures.regret_against_arms(folder / "result.csv")
    assert [axis.get_title() for axis in figure.axes] == [
        registry.ENVS["E1"].title,
        registry.ENVS["E4"].title,
    ]
    rows = analysis.read_csv(folder / "result.csv")
    drawn = {
        line.get_label(): line.lines[0].get_ydata()
        for line in figure.axes[0].containers
    }
    for agent in ("npg-cells", "cucb-tuned", "uniform"):
        label = agents.AGENTS[agent].label
        expected = [
            r["regret_mean"]
            for r in sorted(rows, key=lambda r: r["num_arms"])
            if (r["env"], r["agent"]) == ("E1", agent)
            and r["selection"] in ("median", "default")
        ]
        np.testing.assert_allclose(drawn[label], expected)
    # The oracle's noise around 0 has no place on a log axis.
    assert agents.AGENTS["oracle"].label not in drawn
    paths = figures.save(figure, tmp_path / "arms")
    paths += figures.save(
        figures.regret_against_time(
            folder / "result.csv", folder / "curves.csv", num_arms=3
        ),
        tmp_path / "time",
    )
    assert [p.suffix for p in paths] == [".png", ".pdf"] * 2
    assert all(p.stat().st_size > 3000 for p in paths)


def test_verdicts_against_two_standard_errors():
    noise = np.random.default_rng(0).normal(0, 1, 400)
    noise -= noise.mean()
    error = stats.sem(noise)
    assert claims.verdict(noise) == "tie"
    assert claims.verdict(noise + 1.9 * error) == "tie"
    assert claims.verdict(noise + 2.1 * error) == "higher"
    assert claims.verdict(noise - 2.1 * error) == "lower"
    assert claims.verdict(np.ones(1)) == "unknown"


def test_claims_name_the_cells_where_they_fail(tuned):
    def with_regret(value, selection):
        shape = (len(tuned.steps), len(selection), 6)
        noise = np.random.default_rng(1).normal(0, 0.01, shape)
        return tuned._replace(regret=value + noise, selection=selection)

    both = ["median", "mean"]
    cells = {
        cell("npg-niw"): with_regret(5.0, both),
        cell("cucb-tuned"): with_regret(4.0, both),
        cell("spg-niw"): with_regret(9.0, both),
        cell("npg-niw", env="E4"): with_regret(3.0, both),
        cell("cucb-tuned", env="E4"): with_regret(4.0, both),
        cell("cucb-theory", env="E4"): with_regret(90.0, ["default"]),
    }
    table = list(claims.rows(cells))
    found = {(r["claim"], r["selection"], r["env"]): r for r in table}
    assert len(found) == len(table)
    for selection in both:
        assert found["paper-1", selection, "E1"]["verdict"] == "higher"
        assert found["paper-1", selection, "E1"]["holds"] == "False"
        assert found["paper-1", selection, "E4"]["holds"] == "True"
        assert found["paper-2", selection, "E1"]["holds"] == "True"
        assert found["paper-3", selection, "E4"]["holds"] == "True"
    assert ("paper-2", "median", "E4") not in found
    text = claims.markdown(table)
    assert "E1 K=3 (+1 ± 0)" in text
    alone = {key: r._replace(regret=r.regret[..., :1]) for key, r in cells.items()}
    single = list(claims.rows(alone))
    assert {row["holds"] for row in single} == {"False"}
    assert "0 of 2 | E1 K=3 (one trial: unknown)" in claims.markdown(single)
    assert "1 of 2" in text
