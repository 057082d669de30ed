"""Pretraining runs: settings, stopping and resuming, going on from a model."""

import csv
import dataclasses

import jax
import numpy as np
import pytest

from experiments.teaching.pretrain import make_settings, pretrain
from experiments.teaching.teacher import REFRESH, TeachOptions
from experiments.teaching.tiny_model import (
    TrainingError,
    start_digest,
    start_model,
    tiny_config,
)
from experiments.teaching.training import SMOKE, PretrainSettings, Training
from rpg_jax.llm import load_pretrained

TASKS = ("insults", "nyc-taxi")


@pytest.mark.slow
def test_a_stopped_training_gives_the_same_weights(tmp_path):
    settings = dataclasses.replace(
        SMOKE,
        teach=TeachOptions(steps=4),
        checkpoint_every=2,
        vocabulary=512,
        tasks=TASKS,
    )

    class Kill(Exception):
        pass

    def kill(step, row):
        if step == 3:
            raise Kill

    def train(folder, on_step):
        folder.mkdir(exist_ok=True)
        run = Training(folder, settings)
        start = run.step
        try:
            run.run(on_step)
        finally:
            run.close()
        return run, start

    whole, _ = train(tmp_path / "whole", lambda step, row: None)
    with pytest.raises(Kill):
        train(tmp_path / "cut", kill)
    with (tmp_path / "cut" / "losses.csv").open("a") as file:
        file.write("4,0.5\n\0\0\0\0")  # what a crash leaves
    resumed, start = train(tmp_path / "cut", lambda step, row: None)
    assert start == 2
    for a, b in zip(
        jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    with (tmp_path / "cut" / "losses.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]


@pytest.mark.slow
def test_a_run_goes_on_from_anothers_weights(tmp_path):
    settings = dataclasses.replace(
        SMOKE,
        teach=TeachOptions(steps=1),
        checkpoint_every=2,
        vocabulary=512,
        tasks=TASKS,
    )
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first = Training(folders[0], settings)
    first.run(lambda step, row: None)
    first.export()
    first.close()
    start = start_model(folders[0])
    changed = dataclasses.replace(settings, seed=1, start=start_digest(start))
    second = Training(folders[1], changed, start=start)
    assert second.step == 0
    for a, b in zip(
        jax.tree.leaves(first.state.params),
        jax.tree.leaves(second.state.params),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert second.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    second.close()
    with pytest.raises(TrainingError, match="no finished run"):
        start_model(tmp_path)
    wide = dataclasses.replace(settings, width=128)
    with pytest.raises(TrainingError, match="does not fit"):
        Training(folders[1], wide, start=start)


def test_the_embedded_policy_fits_the_default_settings():
    """Else ``--init=tiny`` would refuse it."""
    config, _ = load_pretrained(start_model("tiny"))
    settings = PretrainSettings()
    assert config == tiny_config(
        settings.vocabulary,
        width=settings.width,
        depth=settings.depth,
        hidden=settings.hidden,
    )


def test_settings_of_flags(tmp_path):
    assert make_settings() == PretrainSettings()
    small = make_settings(smoke=True, steps=3, tokens=2000, seed=5)
    teach = dataclasses.replace(SMOKE.teach, steps=3)
    assert small == dataclasses.replace(SMOKE, teach=teach, tokens=2000, seed=5)
    again = make_settings(init="tiny")
    assert again.teach == REFRESH
    assert again.start == start_digest(start_model("tiny"))
    with pytest.raises(TrainingError, match="no finished run"):
        make_settings(init=str(tmp_path))


@pytest.mark.slow
def test_a_whole_run_leaves_a_model_that_writes(tmp_path):
    settings = dataclasses.replace(
        SMOKE, teach=TeachOptions(steps=2), vocabulary=512, tasks=TASKS
    )
    lines = []
    done = pretrain(tmp_path, settings, say=lines.append)
    assert "2 updates" in lines[0]
    assert "step 2 of 2: answers" in lines[-1]
    assert done.held_out_loss > 1
    assert (tmp_path / "held_out.txt").read_text() == f"{done.held_out_loss:.4f}\n"
    assert [sample.task for sample in done.samples] == [t for t in TASKS for _ in "ab"]
    load_pretrained(done.model)
