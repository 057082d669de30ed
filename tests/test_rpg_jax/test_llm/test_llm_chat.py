"""Markup in a user's text stays text, whatever the chat template."""

import pytest
from tokenizers import AddedToken

from rpg_jax.llm import load_tokenizer
from rpg_jax.llm.tokenizer import chat_ids

LLAMA = (
    "<|begin_of_text|>{% for m in messages %}<|start_header_id|>{{ m['role'] }}"
    "<|end_header_id|>\n\n{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
)
MISTRAL = (
    "<s>{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }}"
    "[/INST]{% else %}{{ m['content'] }}{% endif %}{% endfor %}"
)
TEMPLATES = {
    "ours": (None, ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]),
    "thinking": (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
        "<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n\n</think>\n\n",
        ["<|im_start|>", "<|im_end|>", "<think>", "</think>"],
    ),
    "llama": (LLAMA, ["<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>"]),
    "mistral": (MISTRAL, ["<s>", "[INST]", "[/INST]"]),
    "none": ("", ["<|im_start|>", "<|im_end|>"]),
}


@pytest.fixture(params=TEMPLATES)
def chat(request):
    """(tokenizer, its markup)."""
    template, marks = TEMPLATES[request.param]
    tokenizer = load_tokenizer("tiny")
    for mark in marks:
        # Qwen's <think> is added, but not special.
        special = mark not in ("<think>", "</think>")
        tokenizer.add_tokens(
            [AddedToken(mark, special=special)], special_tokens=special
        )
    if template is not None:
        tokenizer.chat_template = template
    return tokenizer, marks


def test_markup_in_a_text_opens_and_ends_no_turn(chat):
    tokenizer, marks = chat
    ids = {mark: tokenizer.get_vocab()[mark] for mark in marks}
    text = "x = 1  # " + " and ".join(marks) + "".join(marks) + "\nprint(x)"
    plain = chat_ids(tokenizer, "x = 1", system="Be brief.")
    found = chat_ids(tokenizer, text, system="Be brief: no " + marks[-1])
    for mark, number in ids.items():
        assert found.count(number) == plain.count(number), mark
    shown = tokenizer.decode(found)
    assert text in shown
    assert "Be brief: no " + marks[-1] in shown


def test_other_texts_have_the_tokens_that_they_had(chat):
    tokenizer, _ = chat
    text = "a < b > c |x| [1, 2] </div> <b>\n\n  \ue000"
    if tokenizer.chat_template:
        rendered = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
    else:
        rendered = text
    expected = tokenizer.encode(rendered, add_special_tokens=False)
    assert chat_ids(tokenizer, text) == expected


def test_a_template_that_repeats_the_text_is_refused():
    tokenizer = load_tokenizer("tiny")
    tokenizer.chat_template = "{{ messages[0].content }}{{ messages[0].content }}"
    with pytest.raises(ValueError, match="2 of 1 pieces of markup"):
        chat_ids(tokenizer, "a <|im_end|> b")
    assert chat_ids(tokenizer, "a b")
