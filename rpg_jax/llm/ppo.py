"""The PPO step of a language-model policy, as an `init` / `update` pair.

    ppo = make_ppo(config, PPOHyper(learning_rate=1e-4))
    state = ppo.init(key, params)
    state, metrics = ppo.update(state, batch)

An action is one completion, so its (relative) reward is shared by its tokens. `update`
is a function of `(state, batch)` alone: a recorded batch replays it bit for bit. All of
it runs under jit on one device or on a mesh; microbatches bound its memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from rpg_jax.llm import lora, objective, optim, sharding
from rpg_jax.llm.batch import DeviceBatch, PPOBatch, in_vocabulary, pad_rows
from rpg_jax.llm.config import ModelConfig
from rpg_jax.llm.epoch import (
    Setup,
    epoch,
    epoch_donating,
    optimizers,
    score_rows,
)
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.metrics import (
    PPOMetrics,
    collect,
    nothing,
    row_totals,
    warn_if_wrong,
)
from rpg_jax.llm.models import model_for
from rpg_jax.llm.objective import Fixed, Scores


class PPOState(NamedTuple):
    """Everything that an update changes, and the frozen weights that it does not.

    Attributes:
        step: updates done.
        key: typed PRNG key, split once per update.
        params: `{"policy": float32 masters or adapters, "critic": ... or None}`.
        opt_state: AdamW state, `{"policy": ..., "critic": ... or None}`.
        frozen: start weights in the compute type (LoRA's base, the KL's reference), or
            None. Checkpoints leave it out: it comes back with the pretrained weights.
    """

    step: Int[Array, ""]
    key: PRNGKeyArray
    params: PyTree
    opt_state: PyTree
    frozen: PyTree


class PPO(NamedTuple):
    """Functions of one configuration.

    Attributes:
        init: `(key, params) -> PPOState`.
        update: `(state, batch) -> (PPOState, PPOMetrics)`. A token outside the
            vocabulary is a ValueError, here and in `score`; a pad may be any id.
        policy_params: `(state) -> params` for the sampler, in the compute type, with
            adapters attached.
        export_params: `(state) -> params`, plain float32, adapters merged.
        score: `(state, batch) -> Scores`, the trainer's own forward pass.
    """

    init: Callable[[PRNGKeyArray, PyTree], PPOState]
    update: Callable[[PPOState, PPOBatch[Any]], tuple[PPOState, PPOMetrics]]
    policy_params: Callable[[PPOState], PyTree]
    export_params: Callable[[PPOState], PyTree]
    score: Callable[[PPOState, PPOBatch[Any]], Scores]


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
    setup = Setup(model_for(config), hyper, mesh)
    run = epoch_donating if donate else epoch
    return PPO(
        init=functools.partial(start, setup),
        update=functools.partial(_update, setup, run),
        policy_params=functools.partial(policy_view, setup),
        export_params=functools.partial(_export_params, setup),
        score=functools.partial(_score, setup),
    )


def start(setup: Setup, key: PRNGKeyArray, params: Any) -> PPOState:
    """State at the start policy; see `PPO.init`."""
    hyper, mesh = setup.hyper, setup.mesh

    def build(key: PRNGKeyArray, params: Any) -> PPOState:
        key, policy_key, critic_key = jax.random.split(key, 3)

        def fresh(k: PRNGKeyArray) -> Any:
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

    state: PPOState
    if mesh is None:
        state = jax.jit(build)(key, params)
        return state
    shardings = sharding.tree_shardings(jax.eval_shape(build, key, params), mesh)
    params = sharding.place(params, sharding.tree_shardings(params, mesh))
    key = sharding.place(key, sharding.replicated(mesh))
    state = jax.jit(build, out_shardings=shardings)(key, params)
    return state


def policy_view(setup: Setup, state: PPOState) -> Any:
    """Weights for the sampler; see `PPO.policy_params`."""
    return _viewed(setup.hyper, state.params["policy"], state.frozen)


@functools.partial(jax.jit, static_argnums=0)
def _viewed(hyper: PPOHyper, policy: Any, frozen: Any) -> Any:
    params = objective.policy_tree(hyper, policy, frozen)
    return objective.compute_view(hyper, params)


def _export_params(setup: Setup, state: PPOState) -> Any:
    return _merged(setup.hyper, state.params["policy"], state.frozen)


@functools.partial(jax.jit, static_argnums=0)
def _merged(hyper: PPOHyper, policy: Any, frozen: Any) -> Any:
    if not hyper.lora_rank:
        return policy
    return lora.merge(optim.to_masters(frozen), policy, alpha=hyper.lora_alpha)


def _prepare(setup: Setup, batch: PPOBatch[Any]) -> DeviceBatch:
    """Whole minibatches of whole microbatches, on the devices."""
    hyper, mesh = setup.hyper, setup.mesh
    batch = in_vocabulary(batch, setup.model.config.vocab_size)
    batch = pad_rows(batch, hyper.microbatch * hyper.minibatches)
    rows: DeviceBatch
    if mesh is None:
        rows = jax.tree.map(jnp.asarray, batch)
        return rows
    table = batch.mask_table
    rows = sharding.place(
        batch._replace(mask_table=None), sharding.batch_sharding(mesh)
    )
    if table is not None:
        table = sharding.place(table, sharding.replicated(mesh))
    return rows._replace(mask_table=table)


def _score(setup: Setup, state: PPOState, batch: PPOBatch[Any]) -> Scores:
    rows = batch.reward.shape[0]
    policy = policy_view(setup, state)
    scores = score_rows(
        setup, policy, state.params["critic"], state.frozen, _prepare(setup, batch)
    )
    kept: Scores = jax.tree.map(lambda x: x[:rows], scores)
    return kept


@functools.partial(jax.jit, static_argnums=0)
def _advantages(setup: Setup, batch: DeviceBatch, fixed: Fixed) -> Fixed:
    return objective.advantages(setup.hyper, batch, fixed)


def _fixed(setup: Setup, state: PPOState, batch: DeviceBatch) -> Fixed:
    """Everything that stays constant while the weights move."""
    hyper = setup.hyper
    blank = jnp.zeros_like(batch.sampler_log_prob)
    fixed = Fixed(blank, blank, blank, blank, blank)
    if hyper.uses_reference:
        reference = score_rows(setup, state.frozen, None, None, batch)
        fixed = fixed._replace(ref_log_prob=reference.log_prob)
    # One minibatch measures its own old log-probabilities in its first pass.
    if hyper.minibatches > 1 or hyper.kl_in_reward or hyper.uses_critic:
        policy = policy_view(setup, state)
        scores = score_rows(setup, policy, state.params["critic"], state.frozen, batch)
        fixed = fixed._replace(old_log_prob=scores.log_prob, old_value=scores.value)
    judged: Fixed = _advantages(setup, batch, fixed)
    return judged


def _update(
    setup: Setup, run: Callable[..., Any], state: PPOState, given: PPOBatch[Any]
) -> tuple[PPOState, PPOMetrics]:
    """One PPO update; see `PPO.update`.

    Warns when the sampler's log-probabilities are not the trainer's, and when a
    gradient was not finite and its step was skipped.
    """
    hyper = setup.hyper
    batch = _prepare(setup, given)
    key, shuffle_key = _split_key(state.key)
    if not int(row_totals(batch)[0]):
        # Not even momentum or weight decay may act on no evidence.
        return state._replace(step=state.step + 1, key=key), nothing()
    fixed = _fixed(setup, state, batch)
    params, opt_state = state.params, state.opt_state
    infos = []
    for index in range(hyper.epochs):
        params, opt_state, log_prob, info = run(
            setup,
            params,
            opt_state,
            state.frozen,
            batch,
            fixed,
            _fold_in(shuffle_key, jnp.uint32(index)),
            jnp.bool_(index == 0),
        )
        infos.append(info)
        if index == 0 and hyper.minibatches == 1:
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
def _split_key(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    new, sub = jax.random.split(key)
    return new, sub
