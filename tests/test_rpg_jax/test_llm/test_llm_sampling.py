"""The sampler: streams per row, masks, stops, log-probabilities, menus."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax.llm import sampling
from rpg_jax.llm.decoding import decode_until, prefill
from rpg_jax.llm.grammar import mask_table
from rpg_jax.llm.head import token_log_probs
from rpg_jax.llm.models import model_for
from rpg_jax.llm.qwen3_5 import Qwen35Config
from rpg_jax.llm.sampling import Grammar, choice_grammar, left_pad, sample

VOCAB = 61
NEW = 24
SAMPLES = 4  # per prompt, in (almost) every test: one shape, few compilations
CONFIG = Qwen35Config.from_hf_json(
    {
        "model_type": "qwen3_5_text",
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "partial_rotary_factor": 0.5,
        "initializer_range": 0.25,
        "eos_token_id": [7, 11],
    }
)
MODEL = model_for(CONFIG)
PROMPTS = [[1, 2, 3], [4, 5, 6, 8, 9, 10, 12], [13], [14, 15]]


@pytest.fixture(scope="module")
def params():
    return MODEL.init(jax.random.key(5))


@pytest.fixture(scope="module")
def padded():
    return left_pad(PROMPTS)


def run(params, padded, key=0, **kwargs):
    kwargs = {"max_new_tokens": NEW, "num_samples": SAMPLES} | kwargs
    return sample(jax.random.key(key), params, CONFIG, *padded, **kwargs)


def trainer_log_probs(params, padded, out, **kwargs):
    """Log-probabilities from one plain forward over prompt and completion."""
    tokens, mask = (np.repeat(x, SAMPLES, axis=0) for x in padded)
    tokens = jnp.concatenate([tokens, out.tokens], axis=1)
    mask = jnp.concatenate([mask, out.mask], axis=1)
    hidden, _ = jax.jit(MODEL.forward)(params, tokens, mask)
    start = padded[0].shape[1]
    return token_log_probs(
        hidden[:, start - 1 : -1],
        MODEL.head_weight(params),
        tokens[:, start:],
        **kwargs,
    ).log_prob


def test_log_probs_are_those_of_a_plain_forward(params, padded):
    out = run(params, padded, temperature=0.7)
    want = trainer_log_probs(params, padded, out, temperature=0.7)
    error = jnp.where(out.mask, jnp.abs(want - out.log_probs), 0.0)
    assert float(error.max()) < 5e-4
    assert not np.asarray(out.log_probs)[~np.asarray(out.mask)].any()


def test_both_stop_ids_end_rows_and_truncation_is_flagged(params, padded):
    out = run(params, padded)
    seen = set()
    for row in range(len(PROMPTS) * SAMPLES):
        tokens = np.asarray(out.tokens[row])
        length = int(out.mask[row].sum())
        assert out.mask[row, :length].all()
        body = tokens[: length - 1]
        assert not np.isin(body, [7, 11]).any()
        if out.finished[row]:
            assert tokens[length - 1] in (7, 11)
            seen.add(int(tokens[length - 1]))
        else:
            assert length == NEW
            assert tokens[-1] not in (7, 11)
    assert seen == {7, 11}
    assert bool(jnp.any(out.truncated))
    np.testing.assert_array_equal(out.truncated, ~out.finished)


def test_pad_may_equal_a_stop_or_an_ordinary_id(params, padded):
    base = run(params, padded, pad_id=0)
    for pad in (7, 1):
        out = run(params, (np.where(padded[1], padded[0], pad), padded[1]), pad_id=pad)
        np.testing.assert_array_equal(out.mask, base.mask)
        np.testing.assert_array_equal(
            jnp.where(out.mask, out.tokens, -1), jnp.where(base.mask, base.tokens, -1)
        )
        assert bool(jnp.all(jnp.where(out.mask, pad, out.tokens) == pad))


def test_a_row_samples_the_same_alone_in_any_order_and_padding(params, padded):
    whole = run(params, padded)
    order = [2, 0, 3, 1]
    rows = [SAMPLES * p + j for p in order for j in range(SAMPLES)]
    shuffled = run(params, left_pad([PROMPTS[p] for p in order], length=40), rows=rows)
    np.testing.assert_array_equal(shuffled.tokens, whole.tokens[jnp.asarray(rows)])
    for p in (1, 2):
        row = SAMPLES * p
        alone = run(params, left_pad([PROMPTS[p]]), rows=[row], num_samples=1)
        np.testing.assert_array_equal(alone.tokens[0], whole.tokens[row])
        np.testing.assert_allclose(alone.log_probs[0], whole.log_probs[row], atol=5e-4)


def test_samples_of_a_prompt_differ_and_keys_matter(params, padded):
    first = run(params, padded)
    assert not np.array_equal(first.tokens[0], first.tokens[1])
    np.testing.assert_array_equal(first.tokens, run(params, padded).tokens)
    other = run(params, padded, key=1)
    assert not np.array_equal(first.tokens, other.tokens)


def _stops(out):
    return out.mask & ((out.tokens == 7) | (out.tokens == 11))


def test_shorter_limit_is_a_prefix(params, padded):
    long = run(params, padded)
    short = run(params, padded, max_new_tokens=17)
    assert short.tokens.shape == (len(PROMPTS) * SAMPLES, 17)
    np.testing.assert_array_equal(short.tokens, long.tokens[:, :17])
    np.testing.assert_array_equal(short.truncated, ~jnp.any(_stops(short), axis=1))


def test_greedy_takes_the_most_probable_token(params, padded):
    out = run(params, padded, temperature=0.0)
    near = run(params, padded, temperature=1e-4)
    np.testing.assert_array_equal(out.tokens, near.tokens)
    assert float(jnp.abs(out.log_probs).max()) == 0.0


def test_masks_hold_and_come_back_for_the_trainer(params, padded):
    allowed = np.zeros((len(PROMPTS), VOCAB), bool)
    for row in range(len(PROMPTS)):
        allowed[row, 3 * row : 3 * row + 9] = True
    out = run(params, padded, logit_mask=allowed)
    rows = np.repeat(allowed, SAMPLES, axis=0)
    picked = np.take_along_axis(rows, np.asarray(out.tokens), axis=1)
    assert picked[np.asarray(out.mask)].all()
    want = trainer_log_probs(params, padded, out, logit_mask=out.logit_mask)
    assert float(jnp.where(out.mask, jnp.abs(want - out.log_probs), 0).max()) < 5e-4


def test_one_mask_may_serve_every_row():
    made = mask_table(np.arange(VOCAB) < 9, VOCAB, prompts=3, samples=2)
    assert made["allowed"].shape == (1, VOCAB)
    assert made["next_state"] is None
    assert made["start"].tolist() == [0] * 6
    starts = Grammar(np.ones((5, VOCAB), bool), np.zeros((5, VOCAB), int), [4, 0, 2])
    assert mask_table(starts, VOCAB, 3, 2)["start"].tolist() == [4, 4, 0, 0, 2, 2]


def test_a_menu_spells_its_choices_and_nothing_else(params, padded):
    menu = [[20, 21, 22], [20, 21], [30]]
    grammar = choice_grammar(menu, VOCAB, stop_id=7)
    out = run(params, padded, logit_mask=grammar)
    assert bool(out.finished.all())
    written = {
        tuple(t[m][:-1].tolist()) for t, m in zip(out.tokens, out.mask, strict=True)
    }
    assert written <= {tuple(c) for c in menu}
    assert len(written) > 1
    want = trainer_log_probs(params, padded, out, logit_mask=out.logit_mask)
    assert float(jnp.where(out.mask, jnp.abs(want - out.log_probs), 0).max()) < 5e-4


def test_presence_penalty_forbids_repeats_when_large(params, padded):
    out = run(params, padded, presence_penalty=1e4)
    for row, mask in zip(np.asarray(out.tokens), np.asarray(out.mask), strict=True):
        assert len(set(row[mask].tolist())) == mask.sum()


def test_progress_changes_nothing_and_counts(params, padded):
    calls = []
    out = run(params, padded, progress=calls.append, progress_every=5)
    np.testing.assert_array_equal(out.tokens, run(params, padded).tokens)
    assert [c.step for c in calls][:2] == [5, 10]
    assert calls[-1].rows == len(PROMPTS) * SAMPLES
    assert calls[-1].finished == int(out.finished.sum())


def test_no_compilation_for_lengths_of_the_same_bucket(params):
    short = left_pad([[1] * 9, [2] * 3, [3], [4]])
    run(params, short, max_new_tokens=20)
    before = decode_until._cache_size(), prefill._cache_size()
    run(params, left_pad([[1] * 16] * 4), max_new_tokens=31, temperature=0.3)
    assert (decode_until._cache_size(), prefill._cache_size()) == before


def test_damaged_weights_are_reported(params, padded):
    broken = {**params, "norm": params["norm"] * jnp.nan}
    with pytest.raises(FloatingPointError, match="not finite"):
        run(broken, padded)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_new_tokens": 0}, "at least 1"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"rows": [0]}, "rows"),
        ({"progress_every": 0, "progress": print}, "progress_every"),
        ({"presence_penalty": float("nan")}, "presence_penalty must be finite"),
        ({"logit_mask": np.zeros(VOCAB, bool)}, "forbids every token"),
        ({"logit_mask": np.ones(VOCAB + 1, bool)}, "vocabulary"),
        ({"logit_mask": np.ones((3, VOCAB), bool)}, "logit_mask"),
        (
            {"logit_mask": Grammar(np.ones((2, VOCAB), bool), np.zeros((2, 3), int))},
            "differ in shape",
        ),
    ],
)
def test_arguments_that_cannot_work(params, padded, change, message):
    with pytest.raises(ValueError, match=message):
        run(params, padded, **change)


@pytest.mark.parametrize(
    ("tokens", "mask", "message"),
    [
        ([[1, 2]], [[True, False]], "left"),
        ([[1, 2, 3]], [[True, False, True]], "left"),
        ([[1, 2]], [[False, False]], "empty"),
        ([[1, VOCAB]], [[True, True]], "ids"),
        ([[1, 2]], [[True]], "must both"),
    ],
)
def test_prompts_that_cannot_work(params, tokens, mask, message):
    with pytest.raises(ValueError, match=message):
        run(params, (np.asarray(tokens), np.asarray(mask)))


def test_left_pad_and_menu_reject_nonsense():
    with pytest.raises(ValueError, match="at least one token"):
        left_pad([[1], []])
    with pytest.raises(ValueError, match="limit"):
        left_pad([[1, 2, 3]], length=2)
    with pytest.raises(ValueError, match="grammar"):
        choice_grammar([], VOCAB, 7)
    with pytest.raises(ValueError, match="ids must lie"):
        choice_grammar([[VOCAB]], VOCAB, 7)


def test_buckets_are_few_and_never_too_small():
    sizes = [sampling.bucket(n) for n in range(1, 5000)]
    assert all(size >= n for n, size in enumerate(sizes, 1))
    assert all(size <= max(16, 1.25 * n) + 16 for n, size in enumerate(sizes, 1))
    assert len(set(sizes)) < 35
