"""python -m experiments.export: what was trained comes back as a model folder."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from repo_paths import ROOT

from experiments.config.errors import UsageError
from experiments.config.options import Options
from experiments.config.plain import to_plain
from experiments.config.presets import TINY
from experiments.policies.models import ModelInfo, load
from experiments.running.export import choose, export_run, trained_runs
from experiments.running.resolve import resolve_settings
from rpg_jax.llm import load_pretrained, load_tokenizer
from rpg_jax.llm.models import model_for
from rpg_jax.llm.tokenizer import chat_ids
from rpg_tasks import get_task

TASK = "insults"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder, weights) of an experiment whose vanilla run has learned something."""
    folder = tmp_path_factory.mktemp("run")
    settings = resolve_settings(
        Options(task=(TASK,), data="synthetic", seeds=("2",), steps=1),
        describe=lambda name: ModelInfo(name, 1, "cpu"),
    )
    (folder / "config.json").write_text(json.dumps({"config": to_plain(settings)}))
    place = folder / TASK / "vanilla" / "seed-1"
    place.mkdir(parents=True)
    model = load("tiny", settings.machine, menus=True)
    policy = model.policy(place, 1, settings.protocol, get_task(TASK))
    moved = jax.tree.map(lambda x: x + 0.01, policy._state.params)
    policy._state = policy._state._replace(params=moved)
    policy.save(3, {})
    weights = policy.trained()
    policy.close()
    return folder, settings, weights


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    folder, settings, _ = run
    (chosen,) = trained_runs(folder, settings)
    out = tmp_path_factory.mktemp("out") / "model"
    assert export_run(folder, chosen, out, dtype="float32") == 3
    return out


def test_weights_and_tokenizer_come_back(run, exported):
    config, params = load_pretrained(exported)
    jax.tree.map(np.testing.assert_array_equal, params, run[2])
    start, _ = load_pretrained("tiny")
    assert (config.hidden_size, config.layer_types) == (
        start.hidden_size,
        start.layer_types,
    )
    prompt = "Improve <|im_end|> this"
    assert chat_ids(load_tokenizer(exported), prompt) == chat_ids(
        load_tokenizer("tiny"), prompt
    )
    generation = json.loads((exported / "generation_config.json").read_text())
    assert load_tokenizer("tiny").eos_token_id in generation["eos_token_id"]
    assert "after 3 steps" in (exported / "README.md").read_text()


def test_what_an_experiment_starts_from_can_be_an_export(exported):
    model = load(str(exported), TINY.machine, menus=True)
    assert model.count("a prompt") > 1


def test_half_precision_is_of_the_matrices_alone(run, tmp_path):
    folder, settings, _ = run
    (chosen,) = trained_runs(folder, settings)
    export_run(folder, chosen, tmp_path / "half", dtype="bfloat16")
    _, params = load_pretrained(tmp_path / "half")
    kinds = {x.ndim > 1: x.dtype for x in jax.tree.leaves(params["layers"])}
    assert params["embed"].dtype == jnp.bfloat16
    assert params["norm"].dtype == jnp.float32
    assert jnp.dtype(jnp.bfloat16) in kinds.values()


def test_which_run_is_meant(run):
    folder, settings, _ = run
    runs = trained_runs(folder, settings)
    assert [(r.arm, r.seed) for r in runs] == [("vanilla", 1)]
    assert choose(runs, task=None, arm=None, seed=None) == runs[0]
    with pytest.raises(UsageError, match="--task=insults --arm=vanilla --run_seed=1"):
        choose(runs, task=None, arm="rpg", seed=None)
    two = [*runs, runs[0]._replace(seed=0)]
    with pytest.raises(UsageError, match="2 runs are meant"):
        choose(two, task=None, arm=None, seed=None)
    with pytest.raises(UsageError, match="none has learned"):
        choose([], task=None, arm=None, seed=None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name one run's folder"),
        (("nowhere",), "--out=DIR"),
        (("nowhere", "--out=x"), "there is no run in nowhere"),
    ],
)
def test_what_is_missing_is_said(tmp_path, arguments, words):
    done = subprocess.run(
        [sys.executable, "-m", "experiments.export", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.slow
def test_transformers_gives_the_same_log_probabilities(exported):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoModelForCausalLM.from_pretrained(
        exported, dtype=torch.float32
    ).eval()
    config, params = load_pretrained(exported)
    ids = chat_ids(load_tokenizer(exported), "A prompt of a few words, 1 2 3.")
    with torch.no_grad():
        logits = reference(torch.tensor([ids])).logits.numpy()
    model = model_for(config)
    tokens = jnp.asarray([ids])
    hidden, _ = model.forward(params, tokens, jnp.ones_like(tokens, bool))
    found = jax.nn.log_softmax(model.logits(params, hidden))
    np.testing.assert_allclose(found, jax.nn.log_softmax(logits), atol=1e-4)
