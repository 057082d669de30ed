"""Notebooks are scripts that run from top to bottom and show what they say."""

import json
import os
import subprocess
import sys

import pytest
from repo_paths import ROOT

FOLDER = ROOT / "notebooks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))

#: What a notebook's text says, checked on its own variables; others have a test file.
CLAIMS = {
    "01_the_idea": """
assert int(best.policy[0]) == 1
rates = {}
for name, (r, d, rho) in runs.items():
    rates[name] = float(r[-200:].sum() / d[-200:].sum())
assert rates["reward rate"] > 1.3 * rates["reward alone"], rates
assert abs(float(runs["reward rate"][2][-1]) / float(best.rate) - 1) < 0.15
""",
    "02_bandit_panel": """
for name in panel:
    last = {agent: results[agent, name][1][-1].mean() for agent in NAMES}
    others = [value for agent, value in last.items() if agent != "npg-reward"]
    assert last["npg-reward"] > 5 * max(others), (name, last)
""",
    "03_your_own_bandit": """
assert list(greedy) == [1, 2]
free = final.pop("policy gradient, time is free")
assert free > 10 * max(final.values()), (free, final)
""",
    "04_estimator_in_your_trainer": """
last = {n: h[-100:].sum(axis=0) for n, (h, _) in runs.items()}
rate = {n: reward / seconds for n, (reward, seconds) in last.items()}
alone, priced = rate["reward alone"], rate["reward − rate · seconds"]
assert priced > 1.5 * alone, rate
assert priced > 0.85 * true_rate.max(), rate
assert abs(relative.rate / priced - 1) < 0.1, (relative.rate, priced)
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_notebook_is_in_percent_format(name):
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    head, first, *rest = text.split("\n# %%")
    assert "format_name: percent" in head
    assert first.startswith(' [markdown]\n"""\n# '), "begins with a title"
    assert any(not cell.startswith(" [markdown]") for cell in rest)
    for path in ("/root", "/home", "/tmp"):
        assert path not in text


def test_the_notebook_with_outputs_is_its_script():
    tool = ROOT / "docs" / "tools" / "notebook.py"
    done = subprocess.run(
        [sys.executable, str(tool), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_idea_was_saved_executed_in_ten_cells():
    text = (FOLDER / "01_the_idea.ipynb").read_text(encoding="utf-8")
    book = json.loads(text)
    assert book["nbformat"] == 4
    assert len(book["cells"]) == 10
    code = [c for c in book["cells"] if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in code] == list(range(1, len(code) + 1))
    outputs = [o for c in code for o in c["outputs"]]
    assert any("image/png" in o.get("data", {}) for o in outputs)
    for path in ("/root", "/home", "/tmp"):
        assert path not in text


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_a_notebook_runs_and_its_claims_hold(name, tmp_path):
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    script = tmp_path / f"{name}.py"
    script.write_text(
        f"{source}\n{CLAIMS[name]}\nprint('claims hold')\n", encoding="utf-8"
    )
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error::DeprecationWarning:__main__"),
            str(script),
        ],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "MPLBACKEND": "Agg",
            "JAX_PLATFORMS": "cpu",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("claims hold")
