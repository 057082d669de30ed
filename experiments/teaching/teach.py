"""Next-token training of a small policy on the corpus."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from experiments.teaching.batches import Batch
from rpg_jax.llm import model_for
from rpg_jax.llm.config import FULL, LINEAR
from rpg_jax.llm.head import token_log_probs
from rpg_jax.llm.optim import global_norm, is_matrix
from rpg_jax.llm.qwen3_5 import Qwen35Config


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Hyper-parameters of the training.

    Attributes:
        steps: number of updates; the learning rate falls to zero over the last part.
        matrix_rate: Muon's step size, for matrices inside the layers.
        other_rate: Adam's, for the embedding, norms, decays and convolutions.
        warmup: share of the steps in which the rates rise.
        decay: share of the steps in which they fall.
        clip: limit of the gradient's norm.
    """

    steps: int = 1100
    matrix_rate: float = 0.02
    other_rate: float = 4e-3
    warmup: float = 0.03
    decay: float = 0.6
    clip: float = 1.0


# For a model that has learned nearly the same scripts.
REFRESH = Recipe(steps=200, matrix_rate=0.012, other_rate=2.5e-3, decay=0.97)


class TeachState(NamedTuple):
    """Parameters, optimizer state and number of updates."""

    params: Any
    optimizer: Any
    step: jax.Array


class TeachInfo(NamedTuple):
    """Of one update: losses in nats per token, and the gradient's norm."""

    loss: jax.Array  # weighted, what is minimised
    answer_loss: jax.Array  # tokens of weight 1
    grad_norm: jax.Array


def tiny_config(
    vocabulary: int, *, width: int = 256, depth: int = 4, hidden: int = 640
) -> Qwen35Config:
    """Qwen3.5's architecture at the size of a laptop: every other layer attends.

    With so few layers and heads the recurrent state does not carry the task's name to
    the end of a script; one layer that attends has nothing after it to use what it
    reads. Hence two of four, where the large models have one of four.
    """
    interval = 2
    types = tuple(FULL if (i + 1) % interval == 0 else LINEAR for i in range(depth))
    return Qwen35Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=depth,
        num_attention_heads=max(width // 64, 1),
        num_key_value_heads=max(width // 128, 1),
        head_dim=min(64, width),
        linear_num_key_heads=max(width // 128, 1),
        linear_num_value_heads=max(width // 128, 1),
        linear_key_head_dim=min(64, width),
        linear_value_head_dim=min(64, width),
        layer_types=types,
        partial_rotary_factor=0.5,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        pad_token_id=0,
        eos_token_id=(2,),
    )


def schedule(recipe: Recipe, peak: float) -> optax.Schedule:
    """A line up, a plateau, a line down to zero."""
    up = max(int(recipe.steps * recipe.warmup), 1)
    down = max(int(recipe.steps * recipe.decay), 1)
    flat = max(recipe.steps - up - down, 0)
    return optax.join_schedules(
        [
            optax.linear_schedule(peak / up, peak, up),
            optax.constant_schedule(peak),
            optax.linear_schedule(peak, 0.0, down),
        ],
        [up, up + flat],
    )


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    """Muon for the matrices of the layers, Adam for everything else.

    Muon (Jordan et al., 2024) as optax has it; matrices of stacked layers carry their
    layer on the first axis.
    """

    def dimensions(params: Any) -> Any:
        def one(path: tuple, leaf: Any) -> Any:
            names = [str(getattr(entry, "key", entry)) for entry in path]
            inside = "layers" in names and is_matrix(path) and "conv1d" not in names
            if not inside:
                return None
            axis = leaf.ndim - 2
            return optax.contrib.MuonDimensionNumbers(axis, axis + 1)

        return jax.tree_util.tree_map_with_path(one, params)

    return optax.chain(
        optax.clip_by_global_norm(recipe.clip),
        optax.contrib.muon(
            schedule(recipe, recipe.matrix_rate),
            adam_learning_rate=schedule(recipe, recipe.other_rate),
            adam_b2=0.99,
            muon_weight_dimension_numbers=dimensions,
        ),
    )


def losses(config: Qwen35Config, params: Any, batch: Batch) -> tuple[Any, Any]:
    """-sum w_t log p(y_t | y_<t) / sum w_t: of all tokens, and of those of weight 1.

    Weight 1 have completions and the scripts that improve prompts show.

    Args:
        config: of the model.
        params: its parameters.
        batch: see ``Batch``.
    """
    model = model_for(config)
    hidden, _ = model.forward(params, batch.tokens, batch.mask)
    out = token_log_probs(
        hidden[:, :-1], model.head_weight(params), batch.tokens[:, 1:]
    )
    weight = batch.weight[:, 1:]
    answer = (weight == 1.0).astype(jnp.float32)
    return (
        -(out.log_prob * weight).sum() / jnp.maximum(weight.sum(), 1.0),
        -(out.log_prob * answer).sum() / jnp.maximum(answer.sum(), 1.0),
    )


def make_teacher(
    config: Qwen35Config, recipe: Recipe
) -> tuple[
    Callable[[jax.Array], TeachState],
    Callable[[TeachState, Batch], tuple[TeachState, TeachInfo]],
]:
    """(init, update): init(key) -> state; update(state, batch) -> (state, info)."""
    rule = optimizer(recipe)

    def init(key: jax.Array) -> TeachState:
        params = model_for(config).init(key)
        return TeachState(params, rule.init(params), jnp.zeros((), jnp.int32))

    def objective(params: Any, batch: Batch):
        return losses(config, params, batch)

    @jax.jit
    def update(state: TeachState, batch: Batch) -> tuple[TeachState, TeachInfo]:
        (loss, answer), grads = jax.value_and_grad(objective, has_aux=True)(
            state.params, batch
        )
        # optax's Muon mixes dtypes, which a program that is strict about them refuses.
        with jax.numpy_dtype_promotion("standard"):
            change, optimizer_state = rule.update(grads, state.optimizer, state.params)
        params = optax.apply_updates(state.params, change)
        info = TeachInfo(loss, answer, global_norm(grads))
        return TeachState(params, optimizer_state, state.step + 1), info

    return init, update


def sharpened(params: Any, factor: float) -> Any:
    """The same policy with logits ``factor`` times as large: temperature 1 / factor.

    A small model spreads a little probability over tokens that no script has there.
    Several hundred tokens add up: a factor above 1 takes that mass away and leaves
    equally likely choices equally likely.

    Args:
        params: of a model whose final norm scales by 1 + weight.
        factor: positive.
    """
    return {**params, "norm": (1.0 + params["norm"]) * factor - 1.0}


def held_out(config: Qwen35Config, params: Any, batches: Iterable[Batch]) -> float:
    """Nats per token of weight 1 of batches that were not trained on."""
    loss = jax.jit(lambda p, b: losses(config, p, b)[1])
    total, count = 0.0, 0.0
    for batch in batches:
        number = float((batch.weight == 1.0).sum())
        total += float(loss(params, batch)) * number
        count += number
    return total / max(count, 1.0)
