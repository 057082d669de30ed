"""Teaching the embedded policy: batches, loss, optimizer, resuming, the survey."""

import csv
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiments.teaching.run import placeless
from experiments.teaching.teach import (
    Recipe,
    losses,
    optimizer,
    schedule,
    sharpened,
    tiny_config,
)
from synthetic_helpers import shared_cache

from experiments.teaching import survey_report
from experiments.teaching.batches import Stream
from experiments.teaching.survey import Sample, changed_share, summarise
from experiments.teaching.tokenizer import corpus, save, train_tokenizer
from experiments.teaching.training import (
    SMOKE,
    Settings,
    Training,
    TrainingError,
    start_digest,
    start_model,
    write_sums,
)
from rpg_jax.llm import load_pretrained, load_tokenizer, model_for
from rpg_jax.llm.embedded import check_sums, embedded_folder
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.tokenizer import chat_ids
from rpg_tasks import prepare_task

TASKS = ("insults", "nyc-taxi")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    return [prepare_task(short, cache_dir=cache) for short in TASKS]


@pytest.fixture(scope="module")
def tokenizer(data, tmp_path_factory):
    texts = [e.prompt + e.completion for e in corpus(data, per_task=20)]
    folder = tmp_path_factory.mktemp("tokenizer")
    return load_tokenizer(save(train_tokenizer(texts, vocabulary=512), folder))


@pytest.fixture
def stream(data, tokenizer):
    return Stream(data, tokenizer, tokens=4096, per_task=3, lengths=(1024, 2048))


def test_batches_hold_every_example_once_with_its_weights(stream, tokenizer):
    rows = {}
    for batch in stream.block(0):
        assert batch.tokens.shape[1] in stream.lengths
        for tokens, mask, weight in zip(*batch, strict=True):
            if not mask.any():
                assert weight.sum() == 0
                continue
            first = int(mask.argmax())
            assert mask[first:].all()
            ids, weights = tokens[first:], weight[first:]
            assert ids[-1] == tokenizer.eos_token_id
            # Nothing predicts the first token.
            assert weights[0] == 0
            low = weights[1:] == np.float32(stream.prompt_weight)
            assert np.all(low | (weights[1:] == 1.0))
            rows[tokenizer.decode(ids)] = [
                tokenizer.decode(part)
                for part in np.split(ids[1:], np.flatnonzero(np.diff(low)) + 1)
            ]
    assert len(rows) == len(TASKS) * stream.per_task
    for e in stream.examples(0):
        (text,) = [t for t in rows if e.prompt in t and e.completion in t]
        pieces = rows[text]
        # Header, and answer with its end; an improve prompt has a script between.
        assert pieces[-1] == f"{e.completion}<|im_end|>"
        assert len(pieces) == (2 if e.previous is None else 4)
        if e.previous is not None:
            assert e.previous.startswith(pieces[1])
            assert len(e.previous) - len(pieces[1]) < 20


def test_a_stream_goes_on_from_any_place(stream):
    first = [pair for pair, _ in zip(stream.batches(), range(6), strict=False)]
    assert {place.block for _, place in first} != {0}
    for k in (1, 3, 4):
        again, _ = next(stream.batches(first[k - 1][1]))
        for a, b in zip(again, first[k][0], strict=True):
            np.testing.assert_array_equal(a, b)


def test_losses_against_float64(stream):
    config = tiny_config(512, width=32, depth=2, hidden=48)
    model = model_for(config)
    params = model.init(jax.random.key(0))
    batch = stream.block(0)[0]
    batch = type(batch)(*(field[:2, -160:] for field in batch))
    loss, answer = losses(config, params, batch)
    hidden, _ = model.forward(params, batch.tokens, batch.mask)
    logits = np.asarray(model.logits(params, hidden), np.float64)[:, :-1]
    logits -= logits.max(-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(log_p, batch.tokens[:, 1:, None], -1)[..., 0]
    weight = batch.weight[:, 1:].astype(np.float64)
    assert float(loss) == pytest.approx(-(picked * weight).sum() / weight.sum(), 1e-5)
    only = weight == 1
    assert float(answer) == pytest.approx(-picked[only].mean(), 1e-5)


def test_sharpening_multiplies_the_logits():
    config = tiny_config(64, width=32, depth=2, hidden=48)
    model = model_for(config)
    params = model.init(jax.random.key(0))
    tokens = jnp.arange(24, dtype=jnp.int32).reshape(2, 12)
    mask = jnp.ones((2, 12), bool)

    def logits(p):
        return np.asarray(model.logits(p, model.forward(p, tokens, mask)[0]))

    plain = logits(params)
    np.testing.assert_allclose(
        logits(sharpened(params, 1.5)), 1.5 * plain, rtol=1e-4, atol=1e-6
    )


def test_rates_rise_stay_and_fall_to_zero():
    recipe = Recipe(steps=100, warmup=0.1, decay=0.5)
    rate = schedule(recipe, 2.0)
    values = np.array([float(rate(k)) for k in range(101)])
    assert 0 < values[0] < values[5] < 2.0
    np.testing.assert_allclose(values[10:50], 2.0)
    assert np.all(np.diff(values[50:]) < 0)
    assert values[-1] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_matrices_of_layers_are_orthogonalised_and_the_rest_is_not():
    config = tiny_config(64, width=32, depth=4, hidden=48)
    params = model_for(config).init(jax.random.key(0))
    rule = optimizer(Recipe(steps=10, warmup=0.1))
    keys = iter(jax.random.split(jax.random.key(1), 200))
    grads = jax.tree.map(lambda p: jax.random.normal(next(keys), p.shape), params)
    with jax.numpy_dtype_promotion("standard"):  # optax's Muon counts on it
        updates, _ = jax.jit(rule.update)(grads, rule.init(params), params)

    def spread(matrix):
        values = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)
        return values[0] / values[-1]

    # A Gaussian matrix 48 x 32 has a condition number near 8; Newton-Schulz leaves its
    # singular values within a factor of two of each other.
    up = updates["layers"]["blocks"]["0"]["mlp"]["up_proj"][0]
    assert spread(up) < 2.5 < spread(updates["embed"])
    # Adam's first step has one size everywhere.
    sizes = np.abs(np.asarray(updates["embed"]))
    np.testing.assert_allclose(sizes, sizes.mean(), rtol=1e-3)


@pytest.mark.slow
def test_a_stopped_training_gives_the_same_weights(data, tmp_path):
    settings = dataclasses.replace(
        SMOKE, recipe=Recipe(steps=4), checkpoint_every=2, vocabulary=512
    )

    class Kill(Exception):
        pass

    def kill(step, row):
        if step == 3:
            raise Kill

    def train(folder, on_step):
        folder.mkdir(exist_ok=True)
        run = Training(folder, data, settings)
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
def test_a_run_goes_on_from_anothers_weights(data, tmp_path):
    settings = dataclasses.replace(
        SMOKE, recipe=Recipe(steps=1), checkpoint_every=2, vocabulary=512
    )
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first = Training(folders[0], data, settings)
    first.run(lambda step, row: None)
    first.export()
    first.close()
    start = start_model(folders[0])
    changed = dataclasses.replace(settings, seed=1, start=start_digest(start))
    second = Training(folders[1], data, changed, start=start)
    assert second.step == 0
    for a, b in zip(
        jax.tree.leaves(first.state.params),
        jax.tree.leaves(second.state.params),
        strict=True,
    ):
        # The exported norm is multiplied and divided again.
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert second.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    second.close()
    with pytest.raises(TrainingError, match="no finished run"):
        start_model(tmp_path)
    wide = dataclasses.replace(settings, width=128)
    with pytest.raises(TrainingError, match="does not fit"):
        Training(folders[1], data, wide, start=start)


def test_the_embedded_policy_fits_the_default_settings():
    """Else ``--init=tiny`` would refuse it."""
    config, _ = load_pretrained(start_model("tiny"))
    settings = Settings()
    assert config == tiny_config(
        settings.vocabulary,
        width=settings.width,
        depth=settings.depth,
        hidden=settings.hidden,
    )


# --- the embedded policy's files ------------------------------------------------------


@pytest.fixture
def shipped(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    write_sums(folder)
    return folder


def test_a_card_may_change_and_a_list_may_not_be_cut(shipped):
    (shipped / "README.md").write_text("card")
    assert "README.md" not in write_sums(shipped).read_text()
    assert embedded_folder(shipped) == shipped
    lines = (shipped / "SHA256SUMS").read_text().splitlines()
    (shipped / "SHA256SUMS").write_text(lines[0] + "\n")
    with pytest.raises(CheckpointError, match=r"does not list model\.safetensors"):
        embedded_folder(shipped)


def test_whole_files_pass(shipped):
    assert embedded_folder(shipped) == shipped


def test_damage_is_one_line_that_names_the_file(shipped):
    (shipped / "model.safetensors").write_bytes(b"weighty")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged") as e:
        check_sums(shipped)
    assert "\n" not in str(e.value)
    (shipped / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
        check_sums(shipped)
    (shipped / "SHA256SUMS").write_text("nonsense\n")
    with pytest.raises(CheckpointError, match="SHA256SUMS cannot be read"):
        check_sums(shipped)
    with pytest.raises(CheckpointError, match=r"experiments\.pretrain"):
        embedded_folder(shipped / "nowhere")


def test_the_short_way_to_the_embedded_tokenizer_gives_the_same():
    short, long = load_tokenizer("tiny"), load_tokenizer(embedded_folder())
    assert short.eos_token_id == long.eos_token_id
    assert short.pad_token_id == long.pad_token_id
    for text in ("def f(x):\n\treturn x", "caf\u00e9 <|im_end|>"):
        assert chat_ids(short, text) == chat_ids(long, text)
        assert short.decode(chat_ids(short, text)) == long.decode(chat_ids(long, text))


# --- the survey -----------------------------------------------------------------------


def _sample(script="a\nb\nc\nd", status="valid", gain=0.5, wall=1.0, **changes):
    fields = {
        "task": "insults",
        "kind": "base",
        "parses": True,
        "status": status,
        "gain": gain if status == "valid" else None,
        "score": 0.1 if status == "valid" else None,
        "wall_s": wall,
        "cpu_s": wall,
        "tokens": 10,
        "reason": "" if status == "valid" else "KeyError: 'x'",
        "changed": None,
        "script": script,
        "previous": "",
        "plan": "Plan: nothing.",
    }
    return Sample(**(fields | changes))


def test_reasons_do_not_tell_where_this_machine_keeps_its_packages():
    text = "cannot import name 'A' (/home/me/env/lib/site-packages/sklearn/a.py)"
    assert placeless(text) == "cannot import name 'A' (sklearn/a.py)"
    assert placeless("No such file: 'input/x.csv'") == "No such file: 'input/x.csv'"


def test_changed_share_counts_lines():
    assert changed_share("a\nb\nc\nd", "a\nb\nc\nd") == 0.0
    assert changed_share("a\nb\nc\nd", "a\nx\nc\nd") == 0.25
    assert changed_share("a\nb", "a\nb\nc\nd") == 0.5
    assert changed_share("a\nb", "c\nd") == 1.0


def _four():
    return [
        _sample("s1", gain=0.2, wall=1.0),
        _sample("s1", gain=0.4, wall=9.0),
        _sample("s2", status="failed", kind="improve", changed=0.25, previous="s"),
        _sample("", status="no_script", parses=False),
    ]


def test_summary_against_hand_counts():
    row = summarise("insults", _four())
    assert (row.samples, row.parse, row.run, row.valid) == (4, 0.75, 0.5, 0.5)
    # One script of four had been seen; answers without a script do not count.
    assert row.duplicates == 0.25
    assert row.best == pytest.approx(0.4)
    assert row.mean == pytest.approx(0.3)
    assert row.gain[1] == pytest.approx(0.3)
    assert row.spread == pytest.approx(8.6 / 1.4)
    assert (row.changed, row.edits) == (0.25, 1.0)


def test_report_round_trip_and_torn_line(tmp_path):
    run = {
        "config": {"model": "tiny", "data": "synthetic, small", "sandbox": "FULL"},
        "command": ["python", "-m", "experiments.survey"],
        "started": "2026-01-01T00:00:00Z",
        "machine": {"cpu": "some", "cores": 2},
    }
    (tmp_path / "config.json").write_text(json.dumps(run))
    known = survey_report.append(tmp_path, _four(), "insults", 0.35)
    survey_report.write(tmp_path, known)
    page = (tmp_path / "README.md").read_text()
    assert "4 samples: 75.0% parse" in page
    assert "on 1 of 1 tasks" in page
    assert "1 x `failed: KeyError`" in page
    with (tmp_path / "samples.jsonl").open("a") as file:
        file.write('{"task": "nyc-ta')
    assert list(survey_report.read(tmp_path).tasks) == ["insults"]
    with (tmp_path / "result.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["task"] for row in rows] == ["insults", "all"]
    assert float(rows[0]["cheap_reference"]) == 0.35
