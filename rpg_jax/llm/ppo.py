"""The PPO step of a language-model policy, as an `init` / `update` pair.

    ppo = make_ppo(config, PPOHyper(learning_rate=1e-4))
    state = ppo.init(key, params)
    state, metrics = ppo.update(state, batch)

An action is one completion, so its (relative) reward is shared by its tokens. `update`
is a function of `(state, batch)` alone: a recorded batch replays it bit for bit. All of
it runs under jit on one device or on a mesh; microbatches bound its memory.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rpg_jax.llm import lora, objective, optim, sharding
from rpg_jax.llm.batch import PPOBatch, join_rows, pad_rows, split_rows
from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.metrics import (
    EpochInfo,
    PPOMetrics,
    collect,
    nothing,
    row_totals,
    warn_if_wrong,
)
from rpg_jax.llm.models import Model, model_for
from rpg_jax.llm.objective import Fixed, Scores


class PPOState(NamedTuple):
    """Everything that an update changes, and the frozen weights that it does not.

    Attributes:
        step: int32 [], updates done.
        key: typed PRNG key, split once per update.
        params: `{"policy": float32 masters or adapters, "critic": ... or None}`.
        opt_state: AdamW state, `{"policy": ..., "critic": ... or None}`.
        frozen: start weights in the compute type (LoRA's base, the KL's reference), or
            None. Checkpoints leave it out: it comes back with the pretrained weights.
    """

    step: jax.Array
    key: jax.Array
    params: Any
    opt_state: Any
    frozen: Any


class PPO(NamedTuple):
    """Functions of one configuration.

    Attributes:
        init: `(key, params) -> PPOState`.
        update: `(state, batch) -> (PPOState, PPOMetrics)`.
        policy_params: `(state) -> params` for the sampler, in the compute type, with
            adapters attached.
        export_params: `(state) -> params`, plain float32, adapters merged.
        score: `(state, batch) -> Scores`, the trainer's own forward pass.
    """

    init: Callable[[jax.Array, Any], PPOState]
    update: Callable[[PPOState, PPOBatch], tuple[PPOState, PPOMetrics]]
    policy_params: Callable[[PPOState], Any]
    export_params: Callable[[PPOState], Any]
    score: Callable[[PPOState, PPOBatch], Scores]


class _Setup(NamedTuple):
    """Static arguments of the jitted pieces (hashable)."""

    model: Model
    hyper: PPOHyper
    mesh: Mesh | None


def make_ppo(
    config: ModelConfig,
    hyper: PPOHyper,
    *,
    mesh: Mesh | None = None,
    donate: bool = False,
) -> PPO:
    """Build the PPO step of one model.

    Args:
        config: model configuration.
        hyper: hyper-parameters.
        mesh: from `sharding.make_mesh`; None runs on the default device.
        donate: let `update` reuse the memory of the state that it is given, which must
            then not be used again; neither may what shares its float32 arrays, the
            start weights and an earlier `policy_params`. Needed where two copies do
            not fit.

    Raises:
        ValueError: the microbatch cannot be split over the mesh.
    """
    if mesh is not None and hyper.microbatch % mesh.size:
        raise ValueError(
            f"microbatch {hyper.microbatch} must be a multiple of the mesh's "
            f"{mesh.size} devices: rows are split over all of them."
        )
    setup = _Setup(model_for(config), hyper, mesh)
    run = _epoch_donating if donate else _epoch
    return PPO(
        init=functools.partial(_init, setup),
        update=functools.partial(_update, setup, run),
        policy_params=functools.partial(_policy_params, setup),
        export_params=functools.partial(_export_params, setup),
        score=functools.partial(_score, setup),
    )


def optimizers(hyper: PPOHyper) -> dict[str, Any]:
    """AdamW of the policy and of the critic; each clips its own gradient."""
    common = {"weight_decay": hyper.weight_decay, "grad_clip": hyper.grad_clip}
    return {
        "policy": optim.adamw(hyper.learning_rate, **common),
        "critic": optim.adamw(hyper.critic_learning_rate, **common),
    }


def _init(setup: _Setup, key: jax.Array, params: Any) -> PPOState:
    """State at the start policy; see `PPO.init`."""
    hyper, mesh = setup.hyper, setup.mesh

    def build(key: jax.Array, params: Any) -> PPOState:
        key, policy_key, critic_key = jax.random.split(key, 3)

        def fresh(k: jax.Array) -> Any:
            if hyper.lora_rank:
                return lora.init(
                    k, params, rank=hyper.lora_rank, targets=hyper.lora_targets
                )
            return optim.to_masters(params)

        policy, critic = fresh(policy_key), None
        if hyper.uses_critic:
            width = setup.model.head_weight(params).shape[1]
            critic = objective.init_critic(hyper, fresh(critic_key), width)
        keeps = hyper.lora_rank or hyper.uses_reference
        trainable = {"policy": policy, "critic": critic}
        opt_state = {
            name: None if trainable[name] is None else opt.init(trainable[name])
            for name, opt in optimizers(hyper).items()
        }
        return PPOState(
            step=jnp.int32(0),
            key=key,
            params=trainable,
            opt_state=opt_state,
            frozen=objective.compute_view(hyper, params) if keeps else None,
        )

    if mesh is None:
        return jax.jit(build)(key, params)
    shardings = sharding.tree_shardings(jax.eval_shape(build, key, params), mesh)
    params = sharding.place(params, sharding.tree_shardings(params, mesh))
    key = sharding.place(key, sharding.replicated(mesh))
    return jax.jit(build, out_shardings=shardings)(key, params)


def _policy_params(setup: _Setup, state: PPOState) -> Any:
    return _viewed(setup.hyper, state.params["policy"], state.frozen)


@functools.partial(jax.jit, static_argnums=0)
def _viewed(hyper: PPOHyper, policy: Any, frozen: Any) -> Any:
    params = objective.policy_tree(hyper, policy, frozen)
    return objective.compute_view(hyper, params)


def _export_params(setup: _Setup, state: PPOState) -> Any:
    return _merged(setup.hyper, state.params["policy"], state.frozen)


@functools.partial(jax.jit, static_argnums=0)
def _merged(hyper: PPOHyper, policy: Any, frozen: Any) -> Any:
    if not hyper.lora_rank:
        return policy
    return lora.merge(optim.to_masters(frozen), policy, alpha=hyper.lora_alpha)


def _prepare(setup: _Setup, batch: PPOBatch) -> PPOBatch:
    """Whole minibatches of whole microbatches, on the devices."""
    hyper, mesh = setup.hyper, setup.mesh
    batch = pad_rows(batch, hyper.microbatch * hyper.minibatches)
    if mesh is None:
        return jax.tree.map(jnp.asarray, batch)
    table = batch.mask_table
    rows = sharding.place(
        batch._replace(mask_table=None), sharding.batch_sharding(mesh)
    )
    if table is not None:
        table = sharding.place(table, sharding.replicated(mesh))
    return rows._replace(mask_table=table)


def _split(setup: _Setup, tree: Any, pieces: int) -> Any:
    tree = split_rows(tree, pieces)
    if setup.mesh is None:
        return tree
    spec = NamedSharding(setup.mesh, PartitionSpec(None, sharding.AXES))
    return jax.lax.with_sharding_constraint(tree, spec)


@functools.partial(jax.jit, static_argnums=0)
def _score_rows(
    setup: _Setup, policy: Any, critic: Any, frozen: Any, batch: PPOBatch
) -> Scores:
    """Forward passes over a prepared batch, a microbatch at a time."""
    rows = batch._replace(mask_table=None)
    pieces = rows.reward.shape[0] // setup.hyper.microbatch

    def one(piece: PPOBatch) -> Scores:
        return objective.score(
            setup.model, setup.hyper, policy, critic, frozen, piece, batch.mask_table
        )

    return join_rows(jax.lax.map(one, _split(setup, rows, pieces)))


def _score(setup: _Setup, state: PPOState, batch: PPOBatch) -> Scores:
    rows = batch.reward.shape[0]
    policy = _policy_params(setup, state)
    scores = _score_rows(
        setup, policy, state.params["critic"], state.frozen, _prepare(setup, batch)
    )
    return jax.tree.map(lambda x: x[:rows], scores)


@functools.partial(jax.jit, static_argnums=0)
def _advantages(setup: _Setup, batch: PPOBatch, fixed: Fixed) -> Fixed:
    return objective.advantages(setup.hyper, batch, fixed)


def _fixed(setup: _Setup, state: PPOState, batch: PPOBatch) -> Fixed:
    """Everything that stays constant while the weights move."""
    hyper = setup.hyper
    blank = jnp.zeros_like(batch.sampler_log_prob)
    fixed = Fixed(blank, blank, blank, blank, blank)
    if hyper.uses_reference:
        reference = _score_rows(setup, state.frozen, None, None, batch)
        fixed = fixed._replace(ref_log_prob=reference.log_prob)
    # One minibatch measures its own old log-probabilities in its first pass.
    if hyper.minibatches > 1 or hyper.kl_in_reward or hyper.uses_critic:
        policy = _policy_params(setup, state)
        scores = _score_rows(setup, policy, state.params["critic"], state.frozen, batch)
        fixed = fixed._replace(old_log_prob=scores.log_prob, old_value=scores.value)
    return _advantages(setup, batch, fixed)


def _run_epoch(
    setup: _Setup,
    params: Any,
    opt_state: Any,
    frozen: Any,
    batch: PPOBatch,
    fixed: Fixed,
    key: jax.Array,
    first: jax.Array,
) -> tuple[Any, Any, jax.Array, EpochInfo]:
    """One pass: a scan over optimizer steps, each a scan over microbatches.

    Returns:
        New parameters and optimizer state, the log-probabilities `[B, L]` that the pass
        saw, and its measurements.
    """
    hyper = setup.hyper
    opts = optimizers(hyper)
    count, length = batch.completion.shape
    pieces = count // (hyper.microbatch * hyper.minibatches)
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

    def gradient(params: Any, piece: Any, first: jax.Array) -> Any:
        def objective_of(p: Any) -> Any:
            return objective.loss(
                setup.model,
                hyper,
                p,
                frozen,
                *(piece[0], batch.mask_table, piece[1]),
                first,
                normalizer,
            )

        return jax.grad(objective_of, has_aux=True)(params)

    def minibatch(carry: Any, xs: Any) -> Any:
        params, opt_state = carry
        rows, index = xs
        at_start = first & (index == 0)

        def accumulate(total: Any, piece: Any) -> Any:
            grads, sums = total
            new, (new_sums, log_prob) = gradient(params, piece, at_start)
            grads = jax.tree.map(jnp.add, grads, new)
            return (grads, objective.add_sums(sums, new_sums)), log_prob

        zeros = jax.tree.map(jnp.zeros_like, params)
        (grads, sums), log_prob = jax.lax.scan(
            accumulate, (zeros, objective.zero_sums()), _split(setup, rows, pieces)
        )
        new_params, new_state, steps = {}, {}, {}
        for name, opt in opts.items():
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

    xs = (_split(setup, data, hyper.minibatches), jnp.arange(hyper.minibatches))
    (params, opt_state), (sums, steps, log_prob) = jax.lax.scan(
        minibatch, (params, opt_state), xs
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


_epoch = jax.jit(_run_epoch, static_argnums=0)
_epoch_donating = jax.jit(_run_epoch, static_argnums=0, donate_argnums=(1, 2))


def _update(
    setup: _Setup, run: Callable[..., Any], state: PPOState, batch: PPOBatch
) -> tuple[PPOState, PPOMetrics]:
    """One PPO update; see `PPO.update`.

    Warns when the sampler's log-probabilities are not the trainer's, and when a
    gradient was not finite and its step was skipped.
    """
    hyper = setup.hyper
    batch = _prepare(setup, batch)
    key, shuffle_key = _split_key(state.key)
    if not int(row_totals(batch)[0]):
        # Not even momentum or weight decay may act on no evidence.
        return state._replace(step=state.step + 1, key=key), nothing()
    fixed = _fixed(setup, state, batch)
    params, opt_state = state.params, state.opt_state
    infos = []
    for epoch in range(hyper.epochs):
        params, opt_state, log_prob, info = run(
            setup,
            params,
            opt_state,
            state.frozen,
            batch,
            fixed,
            _fold_in(shuffle_key, jnp.uint32(epoch)),
            jnp.bool_(epoch == 0),
        )
        infos.append(info)
        if epoch == 0 and hyper.minibatches == 1:
            fixed = fixed._replace(old_log_prob=log_prob)
        if hyper.max_kl and float(info.sums.approx_kl / info.sums.tokens) > (
            hyper.max_kl
        ):
            break
    metrics = collect(batch, infos)
    warn_if_wrong(hyper, metrics)
    state = PPOState(state.step + 1, key, params, opt_state, state.frozen)
    return state, metrics


_fold_in = jax.jit(jax.random.fold_in)


@jax.jit
def _split_key(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    new, sub = jax.random.split(key)
    return new, sub
