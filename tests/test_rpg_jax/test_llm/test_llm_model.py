"""The models by themselves: sizes, configurations, padding, caches, dtypes."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpg_jax.llm import layers
from rpg_jax.llm.config import ConfigError
from rpg_jax.llm.families import config_from_hf_json
from rpg_jax.llm.llama import LlamaConfig
from rpg_jax.llm.models import count_parameters, model_for
from rpg_jax.llm.qwen3_5 import Qwen35Config, qwen3_5_4b
from rpg_jax.llm.transformer import unstack

TEXT = {
    "model_type": "qwen3_5_text",
    "vocab_size": 53,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 6,
    "initializer_range": 0.2,
    "rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5},
}
CONFIG = Qwen35Config.from_hf_json(TEXT)
MODEL = model_for(CONFIG)


@pytest.fixture(scope="module")
def params():
    return MODEL.init(jax.random.key(1))


@pytest.fixture(scope="module")
def forward():
    return jax.jit(
        lambda p, t, m: MODEL.forward(p, t, m)[0],
    )


def test_the_4b_model_has_the_published_number_of_parameters():
    config = qwen3_5_4b()
    shapes = jax.eval_shape(
        lambda k: model_for(config).init(k, jnp.bfloat16), jax.random.key(0)
    )
    total = sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))
    assert total == count_parameters(config) == 4_205_751_296
    assert [i for i, t in enumerate(config.layer_types) if t == "full_attention"] == [
        *range(3, 32, 4)
    ]


def test_random_parameters_have_the_declared_dtypes(params):
    low = MODEL.init(jax.random.key(1), jnp.bfloat16)
    for leaf in jax.tree.leaves(low["layers"]["blocks"]["0"]["mlp"]):
        assert leaf.dtype == jnp.bfloat16
    delta = low["layers"]["blocks"]["0"]["linear_attn"]
    assert delta["A_log"].dtype == delta["dt_bias"].dtype == jnp.float32
    step = jax.nn.softplus(delta["dt_bias"])
    assert bool(jnp.all((step > 0.9e-3) & (step < 0.11)))
    assert count_parameters(CONFIG) == sum(x.size for x in jax.tree.leaves(params))


def test_the_published_form_of_the_configuration():
    raw = {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "tie_word_embeddings": True,
        "text_config": TEXT | {"eos_token_id": 5, "full_attention_interval": 4},
        "vision_config": {"depth": 3},
    }
    config = config_from_hf_json(raw)
    assert config == dataclasses.replace(
        CONFIG, tie_word_embeddings=True, eos_token_id=(5,)
    )
    assert config_from_hf_json(config.to_hf_json()) == config
    assert hash(config) == hash(config_from_hf_json(config.to_hf_json()))


def test_defaults_are_those_of_the_architecture():
    config = Qwen35Config.from_hf_json(
        {k: TEXT[k] for k in ("model_type", "vocab_size", "hidden_size")}
        | {"intermediate_size": 8, "num_hidden_layers": 8, "num_attention_heads": 4}
    )
    assert config.layer_types.count("full_attention") == 2
    assert (config.head_dim, config.rotary_dim) == (256, 64)


def test_llama_configuration_round_trip():
    raw = {
        "model_type": "llama",
        "vocab_size": 11,
        "hidden_size": 12,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "rope_theta": 5e4,
        "eos_token_id": [1, 2],
    }
    config = config_from_hf_json(raw)
    assert isinstance(config, LlamaConfig)
    assert (config.num_key_value_heads, config.head_dim) == (3, 4)
    assert config.rope_theta == 5e4
    assert config_from_hf_json(config.to_hf_json()) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gemma3"}, "unsupported architecture"),
        ({"model_type": None}, "unsupported architecture"),
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type"),
        ({"num_key_value_heads": 3}, "multiple"),
        ({"linear_num_value_heads": 3}, "multiple"),
        ({"head_dim": 0}, "positive"),
        ({"rope_parameters": {"partial_rotary_factor": 0.2}}, "rotary"),
        ({"num_hidden_layers": 4}, "layer_types"),
        ({"layer_types": ["full_attention", "mamba", "mamba"]}, "unknown layer"),
    ],
)
def test_configurations_that_cannot_run(change, message):
    with pytest.raises(ConfigError, match=message):
        config_from_hf_json(TEXT | change)


def rows(lengths, total):
    rng = np.random.default_rng(2)
    tokens = np.zeros((len(lengths), total), np.int32)
    mask = np.arange(total)[None] >= total - np.asarray(lengths)[:, None]
    for row, length in enumerate(lengths):
        tokens[row, total - length :] = rng.integers(0, 53, length)
    return jnp.asarray(tokens), jnp.asarray(mask)


def test_padding_order_and_company_change_no_row(params, forward):
    tokens, mask = rows([30, 11, 1], 30)
    base = forward(params, tokens, mask)
    more = ((0, 0), (10, 0))
    # What stands at a pad must not matter, so put a real id there.
    padded = forward(
        params, jnp.pad(tokens, more, constant_values=7), jnp.pad(mask, more)
    )
    order = jnp.asarray([2, 0, 1])
    shuffled = forward(params, tokens[order], mask[order])
    alone = forward(params, tokens[1:2], mask[1:2])
    for other in (padded[:, 10:], shuffled[jnp.argsort(order)]):
        error = jnp.where(mask[..., None], jnp.abs(other - base), 0.0)
        assert float(error.max()) < 5e-5
    error = jnp.where(mask[1:2, :, None], jnp.abs(alone - base[1:2]), 0.0)
    assert float(error.max()) < 5e-5
    assert bool(jnp.isfinite(base).all())


def test_pads_get_no_gradient_and_no_nan():
    # A layer of each kind: the gradient of more takes long to compile.
    kinds = CONFIG.layer_types[:2]
    config = dataclasses.replace(CONFIG, num_hidden_layers=2, layer_types=kinds)
    model = model_for(config)
    params = model.init(jax.random.key(1))
    tokens, mask = rows([7, 1], 12)

    def loss(p):
        hidden, _ = model.forward(p, tokens, mask, remat=True)
        return jnp.sum(jnp.where(mask[..., None], hidden, 0.0) ** 2)

    grads = jax.jit(jax.grad(loss))(params)
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(grads))
    # Only ids at real positions are read: id 0 fills the pads.
    read = np.unique(np.asarray(tokens)[np.asarray(mask)])
    unread = np.setdiff1d(np.arange(53), read)
    assert 0 in unread
    assert not np.asarray(grads["embed"])[unread].any()
    assert np.asarray(grads["embed"])[read].any(axis=1).all()


def test_prefill_in_pieces_and_decode_match(params, forward):
    tokens, mask = rows([29, 5], 29)
    want = forward(params, tokens, mask)
    step = jax.jit(lambda p, t, m, c: MODEL.forward(p, t, m, cache=c))
    for weights in (params, MODEL.unstack(params)):
        cache = MODEL.init_cache(2, 31, jnp.float32)
        parts = []
        for piece in (slice(0, 14), slice(14, 28), slice(28, 29)):
            out, cache = step(weights, tokens[:, piece], mask[:, piece], cache)
            parts.append(out)
        got = jnp.concatenate(parts, axis=1)
        error = jnp.where(mask[..., None], jnp.abs(got - want), 0.0)
        assert float(error.max()) < 1e-5
        assert cache.number.tolist() == [29, 5]
        assert int(cache.slot) == 29


def test_low_rank_updates_equal_merged_weights(params, forward):
    key = jax.random.key(9)

    def low_rank(w):
        a = 0.1 * jax.random.normal(key, (*w.shape[:-1], 3))
        b = 0.1 * jax.random.normal(key, (*w.shape[:-2], 3, w.shape[-1]))
        return {"kernel": w, "lora_a": a, "lora_b": b}, w + a @ b

    tuned, merged = dict(params), dict(params)
    for tree, pick in ((tuned, 0), (merged, 1)):
        blocks = {
            i: {**p, "mlp": {n: low_rank(w)[pick] for n, w in p["mlp"].items()}}
            for i, p in params["layers"]["blocks"].items()
        }
        tree["layers"] = {**params["layers"], "blocks": blocks}
    tokens, mask = rows([9], 9)
    np.testing.assert_allclose(
        forward(tuned, tokens, mask), forward(merged, tokens, mask), atol=1e-5
    )


def test_blocks_of_queries_change_nothing(monkeypatch):
    q = jax.random.normal(jax.random.key(0), (2, 37, 4, 8))
    k, v = jax.random.normal(jax.random.key(1), (2, 2, 2, 37, 8))
    allowed = jnp.broadcast_to(jnp.tril(jnp.ones((37, 37), bool)), (2, 37, 37))
    want = layers.attention(q, k, v, allowed)
    monkeypatch.setattr(layers, "QUERY_BLOCK", 16)
    np.testing.assert_allclose(layers.attention(q, k, v, allowed), want, atol=1e-6)


def test_unstacking_keeps_the_order(params):
    trees = unstack(CONFIG, params["layers"])
    kinds = ["linear_attn" in tree for tree in trees]
    assert kinds == [t == "linear_attention" for t in CONFIG.layer_types]
    assert unstack(CONFIG, trees) == trees
