"""The notebook on a run's records runs as a script and shows what it says."""

import os
import re
import subprocess
import sys

import pytest
from repo_paths import ROOT

NOTEBOOK = ROOT / "notebooks" / "05_reading_a_run.py"


def test_it_is_paired_text():
    text = NOTEBOOK.read_text("utf-8")
    assert "formats: py:percent" in text
    assert 10 <= text.count("\n# %%") <= 25


@pytest.mark.slow
def test_it_runs_and_recomputes_the_rate(tmp_path):
    done = subprocess.run(
        [sys.executable, str(NOTEBOOK)],
        env=os.environ | {"MPLBACKEND": "Agg"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "reward rate of the run: 0.2312 per second" in done.stdout
    # A script, and what its two successors changed in it.
    assert done.stdout.count("submission.csv") >= 1
    assert len(re.findall(r"^@@ ", done.stdout, re.M)) >= 2
    assert done.stderr == ""
