"""The compiled parts of the PPO step: forward passes and one pass of training.

Both walk over microbatches with a scan, so that memory is that of one microbatch and
the compiled program does not grow with their number.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from rpg_jax.llm import objective, optim, sharding
from rpg_jax.llm.batch import DeviceBatch, join_rows, split_rows
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.metrics import EpochInfo
from rpg_jax.llm.models import Model
from rpg_jax.llm.objective import Fixed, Scores


class Setup(NamedTuple):
    """Static arguments of the jitted pieces (hashable)."""

    model: Model
    hyper: PPOHyper
    mesh: Mesh | None


def optimizers(hyper: PPOHyper) -> dict[str, Any]:
    """AdamW of the policy and of the critic; each clips its own gradient."""
    common = {"weight_decay": hyper.weight_decay, "grad_clip": hyper.grad_clip}
    return {
        "policy": optim.adamw(hyper.learning_rate, **common),
        "critic": optim.adamw(hyper.critic_learning_rate, **common),
    }


def _split(setup: Setup, tree: Any, pieces: int) -> Any:
    tree = split_rows(tree, pieces)
    if setup.mesh is None:
        return tree
    spec = NamedSharding(setup.mesh, PartitionSpec(None, sharding.AXES))
    return jax.lax.with_sharding_constraint(tree, spec)


@functools.partial(jax.jit, static_argnums=0)
def score_rows(
    setup: Setup, policy: Any, critic: Any, frozen: Any, batch: DeviceBatch
) -> Scores:
    """Forward passes over a prepared batch, a microbatch at a time."""
    rows = batch._replace(mask_table=None)
    pieces = rows.reward.shape[0] // setup.hyper.microbatch

    def one(piece: DeviceBatch) -> Scores:
        return objective.score(
            setup.model, setup.hyper, policy, critic, frozen, piece, batch.mask_table
        )

    scores: Scores = join_rows(jax.lax.map(one, _split(setup, rows, pieces)))
    return scores


class _Constants(NamedTuple):
    """What stays the same during a pass."""

    frozen: Any
    mask_table: Bool[Array, "M V"] | None
    first: Bool[Array, ""]
    normalizer: Float[Array, ""]


def _run_epoch(
    setup: Setup,
    params: Any,
    opt_state: Any,
    frozen: Any,
    batch: DeviceBatch,
    fixed: Fixed,
    key: PRNGKeyArray,
    first: Bool[Array, ""],
) -> tuple[Any, Any, Float[Array, "B L"], EpochInfo]:
    """One pass: a scan over optimizer steps, each a scan over microbatches.

    Returns:
        New parameters and optimizer state, the log-probabilities that the pass saw, and
        its measurements.
    """
    hyper = setup.hyper
    count, length = batch.completion.shape
    data = (batch._replace(mask_table=None), fixed)
    order = jnp.arange(count)
    if hyper.minibatches > 1:
        order = jax.random.permutation(key, count)
        data = jax.tree.map(lambda x: x[order], data)
    alive = jnp.sum(jnp.any(batch.completion_mask, axis=1), dtype=jnp.float32)
    normalizer = (
        jnp.maximum(alive, 1.0)
        * jnp.float32(hyper.loss_length or length)
        / jnp.float32(hyper.minibatches)
    )
    constants = _Constants(frozen, batch.mask_table, first, normalizer)
    xs = (_split(setup, data, hyper.minibatches), jnp.arange(hyper.minibatches))
    (params, opt_state), (sums, steps, log_prob) = jax.lax.scan(
        functools.partial(_minibatch, setup, constants), (params, opt_state), xs
    )
    if setup.mesh is not None:
        params, opt_state = jax.lax.with_sharding_constraint(
            (params, opt_state),
            sharding.tree_shardings((params, opt_state), setup.mesh),
        )
    total = objective.zero_sums()
    for i in range(hyper.minibatches):
        total = objective.add_sums(total, jax.tree.map(lambda x, i=i: x[i], sums))
    log_prob = jnp.zeros_like(fixed.old_log_prob).at[order].set(join_rows(log_prob))
    loss = total.loss / (normalizer * jnp.float32(hyper.minibatches))
    return params, opt_state, log_prob, EpochInfo(total, steps, loss)


def _minibatch(setup: Setup, constants: _Constants, carry: Any, xs: Any) -> Any:
    """One optimizer step; its gradient is summed over microbatches."""
    params, opt_state = carry
    rows, index = xs
    hyper = setup.hyper
    at_start = constants.first & (index == 0)

    def accumulate(total: Any, piece: Any) -> Any:
        grads, sums = total
        new, (new_sums, log_prob) = _gradient(setup, constants, params, piece, at_start)
        grads = jax.tree.map(jnp.add, grads, new)
        return (grads, objective.add_sums(sums, new_sums)), log_prob

    zeros = jax.tree.map(jnp.zeros_like, params)
    pieces = rows[0].completion.shape[0] // hyper.microbatch
    (grads, sums), log_prob = jax.lax.scan(
        accumulate, (zeros, objective.zero_sums()), _split(setup, rows, pieces)
    )
    new_params: dict[str, Any] = {}
    new_state: dict[str, Any] = {}
    steps: dict[str, optim.StepInfo] = {}
    for name, opt in optimizers(hyper).items():
        if params[name] is None:
            new_params[name], new_state[name] = None, None
            continue
        new_params[name], new_state[name], steps[name] = optim.step(
            opt,
            params[name],
            opt_state[name],
            grads[name],
            compute_dtype=jnp.dtype(hyper.compute_dtype),
        )
    return (new_params, new_state), (sums, steps, join_rows(log_prob))


def _gradient(
    setup: Setup, constants: _Constants, params: Any, piece: Any, first: Array
) -> Any:
    """Gradient of one microbatch, and its measurements."""

    def objective_of(p: Any) -> Any:
        return objective.loss(
            setup.model,
            setup.hyper,
            p,
            constants.frozen,
            *(piece[0], constants.mask_table, piece[1]),
            first,
            constants.normalizer,
        )

    return jax.grad(objective_of, has_aux=True)(params)


epoch = jax.jit(_run_epoch, static_argnums=0)
epoch_donating = jax.jit(_run_epoch, static_argnums=0, donate_argnums=(1, 2))
