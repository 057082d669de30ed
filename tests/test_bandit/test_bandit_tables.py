"""Published tables are those of their records, and say how settings were chosen."""

import io

import pytest
from repo_paths import ROOT

from bandit import analysis, claims, tables

FOLDERS = ("small", "large", "fine_e4")
RESULTS = ROOT / "results" / "bandit"


@pytest.mark.parametrize("name", FOLDERS)
def test_published_claims_are_those_of_their_csv(name):
    table = analysis.read_csv(RESULTS / name / "claims.csv")
    text = (RESULTS / name / "claims.md").read_text(encoding="utf-8")
    assert claims.markdown(table) == text
    readme = (RESULTS / "README.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        assert line in readme


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("selection", ["median", "mean"])
def test_published_tables_are_those_of_their_csv(name, selection):
    rows = analysis.read_csv(RESULTS / name / "result.csv")
    readme = (RESULTS / "README.md").read_text(encoding="utf-8")
    for line in tables.markdown(rows, selection=selection).splitlines():
        assert line in readme


@pytest.mark.parametrize("name", FOLDERS)
def test_published_files_are_rewritten_as_they_are(name, tmp_path):
    for file in ("result.csv", "curves.csv", "claims.csv"):
        rows = analysis.read_csv(RESULTS / name / file)
        analysis.write_csv(tmp_path / file, list(rows[0]), rows)
        written = (tmp_path / file).read_bytes()
        assert written == (RESULTS / name / file).read_bytes()


def row(agent="cucb-tuned", selection="median", hyper='{"c1": 1.0, "c2": 0.1}', **more):
    return {
        "env": "E1", "num_arms": 5, "num_contexts": 4, "agent": agent,
        "label": agent, "selection": selection, "hyper": hyper, "steps": 1000,
        "trials": 10, "regret_mean": 10.0, "regret_se": 1.0, "diff_mean": -3.0,
        "diff_low": -4.0, "diff_high": -2.0, "pseudo_regret_mean": 9.0,
        "last_rate": 0.7, "rho_star": 0.7, "tune_seconds": 1.0, "eval_seconds": 1.0,
        **more,
    }  # fmt: skip


def test_picks_at_an_edge_are_marked():
    inside = row()
    edge = row(hyper='{"c1": 0.01, "c2": 0.1}')
    assert tables.at_edge(inside) == []
    assert tables.at_edge(edge) == ["c1"]
    assert tables.at_edge({**edge, "at_edge": "c1 c2"}) == ["c1", "c2"]
    assert tables.at_edge({**edge, "selection": "default"}) == []
    assert "10 ± 1†" in tables.markdown([edge])
    assert tables.EDGE_NOTE in tables.markdown([edge])
    assert "†" not in tables.markdown([inside])
    with pytest.raises(ValueError, match="mean"):
        tables.markdown([edge], selection="mean")


def test_the_terminal_says_default_unless_tuning_ran():
    from rich.console import Console

    rows = [
        row(selection="default", label="C-UCB (default)"),
        row("npg-niw", "default", '{"lr": 0.3, "age": 1000.0}', label="NPG-NIW"),
    ]
    console = Console(width=140, record=True, file=io.StringIO())
    for table in tables.terminal(rows):
        console.print(table)
    text = console.export_text()
    assert "tuned" not in text
    assert "− C-UCB (default), 95%" in text
    assert "-3 [-4, -2]" in text
