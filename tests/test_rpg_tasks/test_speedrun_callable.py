"""The callable contract: what a script's functions may and may not do."""

import io

import numpy as np
import pytest
import speedrun_help as helper

BASE = """
import numpy as np

def load(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}
"""
TABLE = "def logits(model, tokens):\n    return model['table'][tokens]\n"
#: name -> what follows BASE; whether it is accepted.
ACCEPTED = {
    "honest": TABLE,
    "forged log line": TABLE + "print('step:9/9 val_loss:0.1 train_time:1ms')\n",
    "shifted by a constant": """
def logits(model, tokens):
    return model["table"][tokens] + 50.0
""",
    "numpy monkeypatched in load": """
def load(path):
    with np.load(path) as file:
        model = {name: file[name] for name in file.files}
    np.log = np.mean = lambda x, *a, **k: 0.0
    np.exp = np.ones_like
    return model
"""
    + TABLE,
}
REFUSED = {
    "peeking": """
def logits(model, tokens):
    out = model["table"][tokens]
    rows, places = np.indices(tokens[:, 1:].shape)
    out[rows, places, tokens[:, 1:]] += 20.0
    return out
""",
    "bidirectional": """
def logits(model, tokens):
    seen = np.eye(96, dtype=np.float32)[tokens].mean(1, keepdims=True)
    return model["table"][tokens] + 3.0 * seen
""",
    "test-time training": """
def logits(model, tokens):
    out = np.empty((*tokens.shape, 96), np.float32)
    for row, text in zip(out, tokens):
        row[:] = model["table"][text]
        np.add.at(model["table"], (text[:-1], text[1:]), 0.05)
    return out
""",
    "adaptive peeker": """
def logits(model, tokens):
    out = model["table"][tokens]
    chance = np.take_along_axis(out[:, :-1], tokens[:, 1:, None], -1).mean((1, 2))
    for row in np.flatnonzero(chance > -3.0):
        if len(set(tokens[row].tolist())) > 4:
            out[row, np.arange(len(tokens[row]) - 1), tokens[row, 1:]] += 20.0
    return out
""",
    "targets in an n-gram key": """
CACHE = {}
def logits(model, tokens):
    out = model["table"][tokens]
    for row, text in zip(out, tokens.tolist()):
        for at in range(1, len(text) - 1):
            key = (text[at - 1], text[at], text[at + 1])
            CACHE[key] = text[at + 1]
            row[at, CACHE[key]] += 4.0
    return out
""",
    "cached earlier rows": """
CACHE = {}
def logits(model, tokens):
    out = model["table"][tokens]
    for row, text in zip(out, tokens.tolist()):
        for at in range(2, len(text) - 1):
            key = tuple(text[at - 2:at + 1])
            if key in CACHE:
                row[at, CACHE[key]] += 2.0
            CACHE[key] = text[at + 1]
    return out
""",
    "not a number": """
def logits(model, tokens):
    return model["table"][tokens] * np.nan
""",
    "wrong shape": """
def logits(model, tokens):
    return model["table"][tokens][:, :, :50]
""",
    "crash": "def logits(model, tokens):\n    raise RuntimeError('no')\n",
}
WORDS = {
    "not a number": "not finite",
    "wrong shape": "shape",
    "crash": "RuntimeError: no",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return helper.small_data(tmp_path_factory.mktemp("speedrun"))


def packed(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.fixture(scope="module")
def model(data):
    return packed(table=helper.bigram(data))


@pytest.fixture(scope="module")
def verify(data, model):
    judge = helper.verifier(data, "callable", secret=3)

    def run(source, content=model):
        return judge.verify("one", (BASE + source).encode(), content)

    return run


@pytest.fixture(scope="module")
def honest(verify):
    return verify(TABLE).loss


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_with_the_loss_that_it_has(verify, honest, name):
    found = verify(ACCEPTED[name])
    assert found.refused is None
    assert found.loss == pytest.approx(honest, abs=1e-4)
    assert 2.4 < honest < 2.8


@pytest.mark.parametrize("name", REFUSED)
def test_refused(verify, name):
    found = verify(REFUSED[name])
    assert found.loss is None
    assert WORDS.get(name, "a fresh worker gives other predictions") in found.refused


def test_a_model_of_the_validation_text_is_flagged(data, verify):
    """Its predictions are a function of the past: only the train text tells."""
    val = np.fromfile(data.rows("val"), np.uint16, offset=1024).astype(np.int64)
    source = """
def logits(model, tokens):
    out = model["table"][tokens].copy()
    val, known = model["val"], {}
    for at in range(5, len(val) - 1):
        known[tuple(val[at - 5:at + 1])] = val[at + 1]
    for row, text in zip(out, tokens.tolist()):
        for at in range(5, len(text)):
            follows = known.get(tuple(text[at - 5:at + 1]))
            if follows is not None:
                row[at, follows] += 9.0
    return out
"""
    found = verify(source, packed(table=helper.bigram(data), val=val))
    assert "knows the validation text" in found.refused


def test_n_gram_counts_pass_here_and_are_refused_when_declared(data, verify):
    """The limit of this contract, and the reason for the other."""
    tokens = np.fromfile(data.train, np.uint16, offset=1024).astype(int)
    counts = np.zeros((96, 96, 96), np.float32)
    np.add.at(counts, (tokens[:-2], tokens[1:-1], tokens[2:]), 1)
    counts += 5 * np.exp(helper.bigram(data))
    source = """
def logits(model, tokens):
    before = np.concatenate([tokens[:, :1], tokens[:, :-1]], 1)
    return np.log(model["counts"][before, tokens])
"""
    model = packed(counts=counts)
    found = verify(source, model)
    assert found.refused is None
    assert found.loss < 2.45
    declared = helper.verifier(data).verify("one", b"", model)
    assert declared.loss is None
    assert "config" in declared.refused
