"""Guides of an estimator and of a model family: a reader's files, written and run."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from loop_help import make_loop
from repo_paths import ROOT

from experiments.config import rate
from experiments.config.plugins import load_plugins
from experiments.config.rate import RateOptions, register_estimator
from experiments.loop.price import RateModel

TITLED = re.compile(
    r'^```python title="(\w+\.py)"\n(.*?)^```$', re.DOTALL | re.MULTILINE
)


def write(guide, folder):
    """The files that a guide shows, in a folder; returns their names."""
    text = (ROOT / "docs" / "parts" / guide).read_text("utf-8")
    for name, code in TITLED.findall(text):
        (folder / name).write_text(code, "utf-8")
    return [name for name, _ in TITLED.findall(text)]


def python(*arguments, folder=ROOT):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def plan(*flags):
    command = ("-m", "experiments.mle_bench", "--task=spooky-author", "--dry_run")
    return python(*command, *flags)


@pytest.fixture
def windowed(tmp_path, monkeypatch):
    """The guide's estimator as a plugin; nothing stays registered."""
    monkeypatch.setattr(rate, "ESTIMATORS", dict(rate.ESTIMATORS))
    write("add_an_estimator.md", tmp_path)
    load_plugins([str(tmp_path / "my_rate.py")])
    yield sys.modules["rpg_plugin_my_rate"]
    del sys.modules["rpg_plugin_my_rate"]


def test_the_guides_estimator_runs_on_arrays(tmp_path):
    assert write("add_an_estimator.md", tmp_path) == ["my_rate.py", "try_my_rate.py"]
    done = python("try_my_rate.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0.30 reward per second\n"


def test_the_guides_estimator_in_the_loop(windowed, tmp_path):
    """Three steps are charged at its rate."""
    with make_loop(tmp_path, rate={"estimator": "windowed"}) as loop:
        rates = [loop.step()["rho_next"] for _ in range(3)]
    assert 0 < rates[-1] < 1


@pytest.mark.parametrize("data", rate.DATA)
def test_the_guides_estimator_forgets(windowed, data):
    options = RateOptions(estimator="windowed", data=data, recent_batches=2)
    model = RateModel(options, chains=2)
    every = np.ones(2, bool)
    for reward in (9.0, 1.0, 1.0):
        model.observe(np.full(2, reward), np.full(2, 5.0), every, every, range(2))
    # The greedy part keeps the best attempts of its own, longer, window.
    assert model.rate == pytest.approx(0.2 if data == "slots" else 1.8)


def test_an_estimator_is_named_by_its_plugin(tmp_path):
    write("add_an_estimator.md", tmp_path)
    done = plan(f"--plugins={tmp_path / 'my_rate.py'}", "--rate=windowed")
    assert done.returncode == 0, done.stderr
    assert '"windowed"' in done.stdout
    done = plan("--rate=windowed")
    assert done.returncode != 0
    assert "choose from niw, robbins-monro, neural, empirical" in done.stderr


def test_names_of_estimators_are_taken_once(monkeypatch):
    monkeypatch.setattr(rate, "ESTIMATORS", dict(rate.ESTIMATORS))
    register_estimator("other", "experiments.loop.estimators:empirical")
    register_estimator("other", "experiments.loop.estimators:empirical")
    with pytest.raises(ValueError, match="'other' already"):
        register_estimator("other", "experiments.loop.estimators:niw")
    register_estimator("nothing", lambda options, chains: None)
    with pytest.raises(TypeError, match="'nothing' must return a RateEstimator"):
        RateModel(RateOptions(estimator="nothing"), chains=2)
    with pytest.raises(ValueError, match="no estimator 'kalman'"):
        RateModel(RateOptions(estimator="kalman"), chains=2)


def test_names_of_estimators_need_no_jax():
    code = "import sys, experiments.config.rate; print('jax' in sys.modules)"
    assert python("-c", code).stdout == "False\n"


def test_the_guides_family_and_its_test_run(tmp_path):
    """As a reader would: both files in a folder, pytest on the second."""
    files = write("add_a_model_family.md", tmp_path)
    assert files == ["my_family.py", "test_my_family.py"]
    (tmp_path / "conftest.py").touch()
    done = python("-m", "pytest", "-q", f"--rootdir={tmp_path}", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout
