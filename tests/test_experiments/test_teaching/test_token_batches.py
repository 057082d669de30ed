"""Batches of the teacher: every example once, weights, going on from any place."""

import numpy as np
import pytest

from experiments.teaching.batches import Stream
from rpg_jax.llm import load_tokenizer

TASKS = ("insults", "nyc-taxi")


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("tiny")


@pytest.fixture(scope="module")
def stream(tokenizer):
    return Stream(TASKS, tokenizer, tokens=2048, per_task=3, lengths=(256, 1024))


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
        # The prompt, and the answer with its end.
        assert pieces[-1] == f"{e.completion}<|im_end|>"
        assert len(pieces) == 2


def test_a_stream_goes_on_from_any_place(stream):
    first = [pair for pair, _ in zip(stream.batches(), range(6), strict=False)]
    assert {place.block for _, place in first} != {0}
    for k in (1, 3, 4):
        again, _ = next(stream.batches(first[k - 1][1]))
        for a, b in zip(again, first[k][0], strict=True):
            np.testing.assert_array_equal(a, b)
