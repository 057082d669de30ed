"""Next-token training of a small policy on the corpus."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from experiments.teaching.batches import TokenBatch
from rpg_jax.llm import model_for
from rpg_jax.llm.head import token_log_probs
from rpg_jax.llm.optim import global_norm, is_matrix
from rpg_jax.llm.qwen3_5 import Qwen35Config


@dataclasses.dataclass(frozen=True)
class TeachOptions:
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
REFRESH = TeachOptions(steps=200, matrix_rate=0.012, other_rate=2.5e-3, decay=0.97)


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


def schedule(options: TeachOptions, peak: float) -> optax.Schedule:
    """A line up, a plateau, a line down to zero."""
    up = max(int(options.steps * options.warmup), 1)
    down = max(int(options.steps * options.decay), 1)
    flat = max(options.steps - up - down, 0)
    return optax.join_schedules(
        [
            optax.linear_schedule(peak / up, peak, up),
            optax.constant_schedule(peak),
            optax.linear_schedule(peak, 0.0, down),
        ],
        [up, up + flat],
    )


def optimizer(options: TeachOptions) -> optax.GradientTransformation:
    """Muon for the matrices of the layers, Adam for everything else.

    Muon (Jordan et al., 2024) as optax has it; matrices of stacked layers carry their
    layer on the first axis.
    """

    def dimensions(params: Any) -> Any:
        def one(path: tuple[Any, ...], leaf: Any) -> Any:
            names = [str(getattr(entry, "key", entry)) for entry in path]
            inside = "layers" in names and is_matrix(path) and "conv1d" not in names
            if not inside:
                return None
            axis = leaf.ndim - 2
            return optax.contrib.MuonDimensionNumbers(axis, axis + 1)

        return jax.tree_util.tree_map_with_path(one, params)

    return optax.chain(
        optax.clip_by_global_norm(options.clip),
        optax.contrib.muon(
            schedule(options, options.matrix_rate),
            adam_learning_rate=schedule(options, options.other_rate),
            adam_b2=0.99,
            muon_weight_dimension_numbers=dimensions,
        ),
    )


def losses(
    config: Qwen35Config, params: Any, batch: TokenBatch
) -> tuple[jax.Array, jax.Array]:
    """-sum w_t log p(y_t | y_<t) / sum w_t: of all tokens, and of those of weight 1.

    Weight 1 have completions.

    Args:
        config: of the model.
        params: its parameters.
        batch: see ``TokenBatch``.
    """
    model = model_for(config)
    hidden, _ = model.forward(params, batch.tokens, batch.mask)
    out = token_log_probs(
        hidden[:, :-1], model.head_weight(params), jnp.asarray(batch.tokens[:, 1:])
    )
    weight = batch.weight[:, 1:]
    answer = (weight == 1.0).astype(jnp.float32)
    return (
        -(out.log_prob * weight).sum() / jnp.maximum(weight.sum(), 1.0),
        -(out.log_prob * answer).sum() / jnp.maximum(answer.sum(), 1.0),
    )


def make_teacher(
    config: Qwen35Config, options: TeachOptions
) -> tuple[
    Callable[[jax.Array], TeachState],
    Callable[[TeachState, TokenBatch], tuple[TeachState, TeachInfo]],
]:
    """(init, update): init(key) -> state; update(state, batch) -> (state, info)."""
    rule = optimizer(options)

    def init(key: jax.Array) -> TeachState:
        params = model_for(config).init(key)
        return TeachState(params, rule.init(params), jnp.zeros((), jnp.int32))

    def objective(params: Any, batch: TokenBatch) -> tuple[jax.Array, jax.Array]:
        return losses(config, params, batch)

    @jax.jit
    def update(state: TeachState, batch: TokenBatch) -> tuple[TeachState, TeachInfo]:
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


def held_out(config: Qwen35Config, params: Any, batches: Iterable[TokenBatch]) -> float:
    """Nats per token of weight 1 of batches that were not trained on."""
    loss = jax.jit(lambda p, b: losses(config, p, b)[1])
    total, count = 0.0, 0.0
    for batch in batches:
        number = float((batch.weight == 1.0).sum())
        total += float(loss(params, batch)) * number
        count += number
    return total / max(count, 1.0)
