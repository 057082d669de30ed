"""Memory plans: sizes of the state are exact, less is planned where less is held."""

import dataclasses

import jax
import jax.numpy as jnp
import llm_tiny
import pytest

from rpg_jax.llm import CheckpointError, count_parameters, load_pretrained, make_ppo
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.known import NAMES, known_config
from rpg_jax.llm.memory import size_of, step_memory
from rpg_jax.llm.models import model_for

CONFIG = llm_tiny.llama()
HYPER = PPOHyper(microbatch=4, epochs=1, kl_coef=0.0, remat=False)
SIZES = {"rows": 8, "prompt": 32, "completion": 32, "dtype": jnp.float32}


@pytest.mark.parametrize("rank", [0, 2])
def test_the_state_is_what_it_is(rank):
    hyper = dataclasses.replace(HYPER, lora_rank=rank)
    found = step_memory(CONFIG, hyper, **SIZES)
    params = model_for(CONFIG).init(jax.random.key(0))
    state = make_ppo(CONFIG, hyper).init(jax.random.key(0), params)
    assert found.resident == size_of(state)
    if not rank:  # weights in float32, two moments
        assert found.resident >= 3 * 4 * count_parameters(CONFIG)
        # Beside it goes the batch in; new weights take the place of the old.
        batch = 8 * (32 * 5 + 32 * 29 + 12)
        assert 0 < found.update.arguments - found.resident < batch
        assert found.update.results < batch
    assert found.peak == max(found.peaks.values()) >= found.resident


def test_adapters_and_smaller_pieces_need_less():
    whole = step_memory(CONFIG, HYPER, **SIZES)
    adapters = step_memory(CONFIG, dataclasses.replace(HYPER, lora_rank=2), **SIZES)
    pieces = step_memory(CONFIG, dataclasses.replace(HYPER, microbatch=1), **SIZES)
    groups = step_memory(CONFIG, HYPER, **SIZES, group=2)
    assert adapters.resident < whole.resident
    assert pieces.update.temporary < whole.update.temporary
    assert groups.prefill.peak < whole.prefill.peak
    assert groups.update == whole.update


@pytest.mark.parametrize(
    ("name", "parameters"),
    # The 4B's text parameters as published; the others as their names say.
    [("Qwen3.5-4B", 4_205_751_296), ("Qwen3.5-0.8B", 0.75e9), ("Qwen3.5-9B", 8.95e9)],
)
def test_known_models_have_their_size(name, parameters):
    assert name in NAMES
    assert count_parameters(known_config(name)) == pytest.approx(parameters, rel=5e-3)
    assert known_config(f"Qwen/{name}") == known_config(name)


def test_fresh_weights_of_a_known_model(monkeypatch):
    monkeypatch.setattr("rpg_jax.llm.weights.known_config", lambda name: CONFIG)
    config, params = load_pretrained("random:any", dtype=jnp.float32)
    assert config == CONFIG
    expected = model_for(CONFIG).init(jax.random.key(0))
    assert jax.tree.all(jax.tree.map(jnp.array_equal, params, expected))
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    _, placed = load_pretrained(
        "random:any",
        dtype=jnp.float32,
        shardings=lambda tree: jax.tree.map(lambda _: device, tree),
    )
    assert jax.tree.all(
        jax.tree.map(lambda a, b: jnp.allclose(a, b, atol=1e-6), placed, expected)
    )


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(CheckpointError, match=r"no model 'Qwen9'.*Qwen3.5-4B"):
        load_pretrained("random:Qwen9")
