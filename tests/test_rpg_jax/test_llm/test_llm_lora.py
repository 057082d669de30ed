"""Low-rank adapters: the same start, the same maths merged or not."""

import jax
import jax.numpy as jnp
import llm_tiny as tiny
import numpy as np
import pytest

from rpg_jax.llm import lora, make_ppo, optim
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import model_for

CONFIG = tiny.llama()
MODEL = model_for(CONFIG)


@pytest.fixture(scope="module")
def params():
    return MODEL.init(jax.random.key(0))


@pytest.fixture(scope="module")
def adapters(params):
    fresh = lora.init(jax.random.key(1), params, rank=3)
    return jax.tree_util.tree_map_with_path(
        lambda path, x: x + 0.1 * jnp.cos(jnp.arange(x.size)).reshape(x.shape), fresh
    )


@jax.jit
def logits(params, tokens):
    hidden, _ = MODEL.forward(params, tokens, jnp.ones(tokens.shape, bool))
    return MODEL.logits(params, hidden)


TOKENS = jnp.arange(12).reshape(2, 6) % 8


def test_every_projection_gets_an_adapter_and_nothing_else(params):
    fresh = lora.init(jax.random.key(1), params, rank=3)
    names = {path.split("/")[-1] for path in fresh}
    assert names == {
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    }
    only = lora.init(jax.random.key(1), params, rank=3, targets="^q_proj$")
    (adapter,) = only.values()
    assert adapter["lora_a"].shape == (2, 16, 3)
    assert adapter["lora_b"].shape == (2, 3, 16)


def test_fresh_adapters_change_nothing(params):
    fresh = lora.init(jax.random.key(1), params, rank=3)
    with_them = logits(lora.attach(params, fresh, alpha=8.0), TOKENS)
    np.testing.assert_array_equal(with_them, logits(params, TOKENS))


def test_attached_and_merged_agree(params, adapters):
    attached = logits(lora.attach(params, adapters, alpha=8.0), TOKENS)
    merged = lora.merge(params, adapters, alpha=8.0)
    assert jax.tree.structure(merged) == jax.tree.structure(params)
    np.testing.assert_allclose(attached, logits(merged, TOKENS), atol=2e-5)
    assert np.abs(attached - logits(params, TOKENS)).max() > 0.1


def test_the_scale_is_alpha_over_rank(params, adapters):
    """By hand for one kernel: W + (alpha / r) A B."""
    path = next(p for p in adapters if p.endswith("q_proj"))
    merged = lora.merge(params, adapters, alpha=6.0)
    kernel, new = params, merged
    for part in path.split("/"):
        kernel, new = kernel[part], new[part]
    a, b = (np.asarray(adapters[path][k], np.float64) for k in ("lora_a", "lora_b"))
    np.testing.assert_allclose(new, np.asarray(kernel) + 2.0 * a @ b, atol=1e-6)


def test_training_moves_the_adapters_alone_and_exports_plain_weights(params):
    batch = tiny.random_batch(CONFIG, params)
    hyper = PPOHyper(learning_rate=1e-2, lora_rank=2, microbatch=8, remat=False)
    ppo = make_ppo(CONFIG, hyper)
    state = ppo.init(jax.random.key(1), params)
    new, metrics = ppo.update(state, batch)
    jax.tree.map(np.testing.assert_array_equal, new.frozen, params)
    assert 0.5 < metrics.changed[-1] <= 1
    # The sampler's view, the export and the trainer are one policy.
    exported = ppo.export_params(new)
    assert jax.tree.structure(exported) == jax.tree.structure(params)
    sampled = logits(ppo.policy_params(new), TOKENS)
    np.testing.assert_allclose(sampled, logits(exported, TOKENS), atol=2e-5)
    assert np.abs(sampled - logits(params, TOKENS)).max() > 1e-4
    count = sum(x.size for x in jax.tree.leaves(new.params["policy"]))
    moments = sum(x.size for x in jax.tree.leaves(new.opt_state["policy"]))
    assert moments < 2 * count + 10


def test_a_view_in_bfloat16_rounds_matrices_and_keeps_norms(params):
    view = optim.compute_view(params, jnp.bfloat16)
    layer = view["layers"]["blocks"]["0"]
    assert layer["self_attn"]["q_proj"].dtype == jnp.bfloat16
    assert layer["input_layernorm"].dtype == view["norm"].dtype == jnp.float32
    mask = optim.decay_mask(params)
    assert mask["embed"] is True
    assert mask["norm"] is False
    assert mask["layers"]["blocks"]["0"]["input_layernorm"] is False


def test_misfits_are_refused(params, adapters):
    with pytest.raises(ValueError, match="at least 1"):
        lora.init(jax.random.key(0), params, rank=0)
    with pytest.raises(ValueError, match="No layer kernel"):
        lora.init(jax.random.key(0), params, rank=1, targets="nothing")
    with pytest.raises(KeyError, match="another model"):
        lora.attach({"embed": params["embed"]}, adapters, alpha=1.0)
