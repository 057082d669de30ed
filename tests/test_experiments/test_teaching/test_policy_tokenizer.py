"""The embedded policy's tokenizer: every text comes back, turns, lengths."""

import pytest
from synthetic_helpers import SHORTS

from experiments.teaching.examples import corpus
from experiments.teaching.tokenizer import save, train_tokenizer
from rpg_jax.llm import load_tokenizer
from rpg_jax.llm.tokenizer import chat_ids, stop_ids

# Of the policy: prompt, answer and end together.
CONTEXT = 1024
ANSWER = 96


@pytest.fixture(scope="module")
def examples():
    return list(corpus(SHORTS, per_task=60))


@pytest.fixture(scope="module")
def tokenizer(examples, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    made = train_tokenizer(t for e in examples for t in (e.prompt, e.completion))
    return load_tokenizer(save(made, folder))


def test_texts_come_back_from_the_tokenizer(tokenizer, examples):
    strange = (
        "  \n\n\ttab \x00\x7f \u00e9\u4e2d\U0001f600 \ufeff 0123456789 ``` 3.14e-7"
    )
    for text in [strange, *(t for e in examples for t in (e.prompt, e.completion))]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
    assert 1000 <= len(tokenizer) <= 4096


def test_prompt_and_answer_fit_the_context(tokenizer, examples):
    for e in examples:
        asked = len(chat_ids(tokenizer, e.prompt))
        answer = len(tokenizer.encode(e.completion, add_special_tokens=False)) + 1
        assert answer <= ANSWER
        assert asked + answer <= CONTEXT, (e.task, e.kind, asked, answer)


def test_chat_template_is_that_of_the_turns(tokenizer):
    ids = chat_ids(tokenizer, "Hello")
    vocabulary = tokenizer.get_vocab()
    assert ids[0] == vocabulary["<|im_start|>"]
    assert vocabulary["<|im_end|>"] in ids
    assert tokenizer.eos_token_id == vocabulary["<|im_end|>"]
    assert tokenizer.pad_token_id == vocabulary["<|endoftext|>"]
    messages = [{"role": "user", "content": "Hello"}]
    text = [
        tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
        for thinking in (False, True)
    ]
    expected = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert text == [expected, expected]


def test_end_of_turn_stops_the_sampler(tokenizer):
    class Config:
        eos_token_id = ()

    vocabulary = tokenizer.get_vocab()
    assert set(stop_ids(Config, tokenizer)) == {
        vocabulary["<|im_end|>"],
        vocabulary["<|endoftext|>"],
    }
