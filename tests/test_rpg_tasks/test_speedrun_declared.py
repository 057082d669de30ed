"""The declared contract: which model files have a loss."""

import importlib.util
import io
import json
import zipfile

import numpy as np
import pytest
import speedrun_help as helper

from experiments.menus import menu_of
from experiments.menus.recipe import ChosenScript, Pick, first_script
from rpg_tasks.speedrun import declared

CONFIG = {
    "width": 16,
    "layers": 2,
    "heads": 2,
    "hidden": 64,
    "context": 64,
    "activation": "gelu",
    "lookback": False,
}


def weights_of(config, seed=0):
    rng = np.random.default_rng(seed)
    shapes = declared.shapes_of(config, 96)
    return {k: rng.normal(0, 0.2, s).astype(np.float32) for k, s in shapes.items()}


def packed(config=None, weights=None, **changes):
    config = CONFIG if config is None else config
    weights = weights_of(CONFIG) if weights is None else weights
    arrays = {**weights, **changes}
    text = np.frombuffer(json.dumps(config).encode(), np.uint8)
    file = io.BytesIO()
    np.savez(file, config=text, **{k: v for k, v in arrays.items() if v is not None})
    return file.getvalue()


def judge(tmp_path, content):
    path = tmp_path / "model.npz"
    path.write_bytes(content)
    rows = np.random.default_rng(1).integers(0, 96, (5, 65)).astype(np.int32)
    return declared.judge(path, rows, 96)


def test_a_model_has_the_loss_of_its_logits(tmp_path):
    found = judge(tmp_path, packed())
    assert set(found) == {"loss"}
    assert 3.0 < found["loss"] < 8.0
    shifted = judge(tmp_path, packed(weights=weights_of(CONFIG)))
    assert shifted == found


def _twice():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("config.npy", b"x")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("config.npy", b"x")
    return file.getvalue()


REFUSED = {
    "no file of arrays": (lambda: b"hello", "cannot be read"),
    "two of one name": (_twice, "two arrays"),
    "no config": (lambda: packed(config=None)[:-40], "cannot be read"),
    "config of another form": (lambda: packed(config=[1]), "must have the keys"),
    "unknown key": (lambda: packed(config=CONFIG | {"table": 1}), "must have the keys"),
    "too wide": (lambda: packed(config=CONFIG | {"width": 512}), "width must be"),
    "true for one": (lambda: packed(config=CONFIG | {"layers": True}), "layers must"),
    "heads": (lambda: packed(config=CONFIG | {"heads": 3}), "multiple of heads"),
    "short context": (lambda: packed(config=CONFIG | {"context": 32}), "context"),
    "activation": (lambda: packed(config=CONFIG | {"activation": "x"}), "activation"),
    "a weight is missing": (lambda: packed(head=None), "not of the model: head"),
    "another weight": (lambda: packed(ngrams=np.ones(9)), "not of the model: ngrams"),
    "shape": (lambda: packed(head=np.ones((3, 3))), "shape"),
    "whole numbers": (lambda: packed(head=np.ones((16, 96), int)), "floats are"),
    "objects": (lambda: packed(head=np.array([{}], object)), "floats are wanted"),
    "not finite": (lambda: packed(head=np.full((16, 96), np.nan)), "not finite"),
    "too large": (
        lambda: packed(big=np.zeros((3000, 3000))), "larger than"
    ),
    "column order": (
        lambda: packed(head=np.asfortranarray(np.ones((16, 96)))), "C order"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    make, words = REFUSED[name]
    assert words in judge(tmp_path, make())["refused"]


@pytest.mark.parametrize("activation", ["gelu", "relu2"])
@pytest.mark.parametrize("lookback", ["none", "one"])
def test_the_script_s_forward_is_the_harness_s(tmp_path, activation, lookback):
    chosen = first_script(menu_of("tiny-gpt").forms["gpt"])
    picks = dict(chosen.choices)
    picks["activation"] = Pick(f"activation.{activation}")
    picks["lookback"] = Pick(f"lookback.{lookback}")
    path = tmp_path / "script.py"
    path.write_text(ChosenScript(chosen.recipe, picks).script)
    spec = importlib.util.spec_from_file_location("script", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    config = CONFIG | {
        "width": 64, "hidden": 256, "activation": activation,
        "lookback": lookback == "one",
    }  # fmt: skip
    weights = weights_of(config)
    tokens = np.random.default_rng(2).integers(0, 96, (3, 64))
    ours = declared.forward(config, weights, tokens)
    np.testing.assert_allclose(ours, script.logits(weights, tokens), atol=2e-3)


def test_gradients_of_the_script(tmp_path):
    """Against finite differences, in the direction of a random change."""
    chosen = first_script(menu_of("tiny-gpt").forms["gpt"])
    picks = dict(chosen.choices) | {"lookback": Pick("lookback.one")}
    source = ChosenScript(chosen.recipe, picks).script
    module = {"__name__": "script"}
    exec(compile(source, "script", "exec"), module)  # in float64, where it can be
    rng = np.random.default_rng(3)
    config = CONFIG | {"width": 64, "hidden": 256, "lookback": True}
    weights = {k: v.astype(np.float64) for k, v in weights_of(config).items()}
    rows = rng.integers(0, 96, (2, 65))
    _, grads = module["loss_and_grads"](weights, rows)
    for name in weights:
        change = rng.standard_normal(weights[name].shape)
        ends = []
        for sign in (1, -1):
            moved = weights | {name: weights[name] + sign * 1e-5 * change}
            ends.append(module["loss_and_grads"](moved, rows)[0])
        slope = (ends[0] - ends[1]) / 2e-5
        assert slope == pytest.approx((grads[name] * change).sum(), rel=2e-3, abs=1e-5)


def test_verification_in_a_job(tmp_path):
    data = helper.small_data(tmp_path)
    found = helper.verifier(data).verify("one", b"", packed())
    assert found.refused is None
    assert found.loss > 3.0
    assert helper.verifier(data, part="final").verify("one", b"", packed()).loss > 3.0
