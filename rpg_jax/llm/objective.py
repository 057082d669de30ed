"""What PPO minimises on one microbatch, and what it measures on the way."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rpg_jax import losses
from rpg_jax.llm import lora, optim
from rpg_jax.llm.batch import DeviceBatch
from rpg_jax.llm.head import MaskTable, token_log_probs
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import Model


class Scores(NamedTuple):
    """Per-token outputs of one forward pass."""

    log_prob: Float[Array, "b L"]
    entropy: Float[Array, "b L"]
    value: Float[Array, "b L"]


class Fixed(NamedTuple):
    """What a batch is judged against: constants of the update."""

    old_log_prob: Float[Array, "B L"]
    ref_log_prob: Float[Array, "B L"]
    old_value: Float[Array, "B L"]
    advantage: Float[Array, "B L"]
    target: Float[Array, "B L"]


class Sums(NamedTuple):
    """Sums over tokens (or maxima), so that microbatches add up to the batch."""

    tokens: Float[Array, ""]
    loss: Float[Array, ""]
    kl_ref: Float[Array, ""]
    entropy: Float[Array, ""]
    value_loss: Float[Array, ""]
    ratio: Float[Array, ""]
    clipped: Float[Array, ""]
    approx_kl: Float[Array, ""]
    mismatch: Float[Array, ""]
    nonfinite: Float[Array, ""]
    ratio_max: Float[Array, ""]
    mismatch_max: Float[Array, ""]
    mismatch_sequence: Float[Array, ""]


_MAXIMA = ("ratio_max", "mismatch_max", "mismatch_sequence")


def add_sums(a: Sums, b: Sums) -> Sums:
    """Combine the measurements of two microbatches."""
    return Sums(
        *(
            jnp.maximum(x, y) if name in _MAXIMA else x + y
            for name, x, y in zip(Sums._fields, a, b, strict=True)
        )
    )


def zero_sums() -> Sums:
    """The neutral element of `add_sums`."""
    return Sums(*(jnp.float32(0) for _ in Sums._fields))


def policy_tree(hyper: PPOHyper, policy: Any, frozen: Any) -> Any:
    """Model parameters of a policy: the masters, or frozen weights with adapters."""
    if hyper.lora_rank:
        return lora.attach(frozen, policy, alpha=hyper.lora_alpha)
    return policy


def score(
    model: Model,
    hyper: PPOHyper,
    policy: Any,
    critic: Any,
    frozen: Any,
    rows: DeviceBatch,
    mask_table: Bool[Array, "M V"] | None,
) -> Scores:
    """Log-probability, entropy and value at each completion token.

    Args:
        model: functions of the architecture.
        hyper: hyper-parameters.
        policy: model parameters as `forward` takes them.
        critic: `{"head": ..., "trunk": ... or None}`, or None for values of 0.
        frozen: start weights that an own critic trunk with adapters stands on.
        rows: some rows of a batch.
        mask_table: the batch's logit masks, or None.
    """
    hidden = _features(model, hyper, policy, rows)
    mask = None
    if mask_table is not None and rows.mask_index is not None:
        mask = MaskTable(mask_table, rows.mask_index)
    head = token_log_probs(
        hidden,
        model.head_weight(policy),
        rows.completion,
        temperature=hyper.temperature,
        logit_mask=mask,
        chunk=hyper.head_chunk or None,
    )
    if critic is None:
        value = jnp.zeros_like(head.log_prob)
    else:
        if critic["trunk"] is None:
            features = jax.lax.stop_gradient(hidden)
        else:
            trunk = policy_tree(hyper, critic["trunk"], frozen)
            features = _features(model, hyper, trunk, rows)
        kernel, bias = critic["head"]["kernel"], critic["head"]["bias"]
        value = jnp.einsum("btd,d->bt", features.astype(jnp.float32), kernel) + bias
    return Scores(head.log_prob, head.entropy, value)


def init_critic(hyper: PPOHyper, trunk: Any, width: int) -> Any:
    """A critic whose values start at 0: a linear head, perhaps on its own trunk."""
    head = {"kernel": jnp.zeros(width, jnp.float32), "bias": jnp.zeros((), jnp.float32)}
    return {"head": head, "trunk": trunk if hyper.critic_trunk == "own" else None}


def _features(
    model: Model, hyper: PPOHyper, params: Any, rows: DeviceBatch
) -> Float[Array, "b L D"]:
    """Hidden states from which each completion token is predicted."""
    tokens = jnp.concatenate([rows.prompt, rows.completion], axis=1)
    mask = jnp.concatenate([rows.prompt_mask, rows.completion_mask], axis=1)
    hidden, _ = model.forward(
        params,
        tokens,
        mask,
        remat=hyper.remat,
        compute_dtype=jnp.dtype(hyper.compute_dtype),
    )
    start = rows.prompt.shape[1] - 1
    return hidden[:, start : start + rows.completion.shape[1]]


def row_rewards(
    hyper: PPOHyper, rows: DeviceBatch, fixed: Fixed
) -> Float[Array, "B L"]:
    """Reward per token: all on the last one, less the KL if it is charged."""
    mask = rows.completion_mask
    last = mask & ~jnp.pad(mask[:, 1:], ((0, 0), (0, 1)))
    reward = jnp.where(last, rows.reward[:, None], 0.0)
    if hyper.kl_in_reward:
        kl = losses.kl_estimate(fixed.old_log_prob, fixed.ref_log_prob, mask, kind="k1")
        reward = reward - hyper.kl_coef * kl
    return reward


def advantages(hyper: PPOHyper, rows: DeviceBatch, fixed: Fixed) -> Fixed:
    """Advantages and value targets of a whole batch.

    Leave-one-out: A_i = R_i - mean of the other members of the group, the same for each
    token (0 for a group of one). Critic: GAE with gamma = lambda = 1. Given: R_i as it
    is.
    """
    mask = rows.completion_mask
    reward = row_rewards(hyper, rows, fixed)
    if hyper.uses_critic:
        result = losses.gae(reward, fixed.old_value, mask, discount=1.0, trace=1.0)
        advantage, target = result.advantage, result.target
    elif hyper.advantage == "given":
        total = jnp.sum(reward, axis=1, keepdims=True)
        advantage = jnp.broadcast_to(total, mask.shape)
        target = jnp.zeros_like(advantage)
    else:
        total = jnp.sum(reward, axis=1)
        alive = jnp.any(mask, axis=1)
        same = (rows.group[:, None] == rows.group[None, :]) & alive[None, :]
        table = losses.leave_one_out_advantage(
            jnp.broadcast_to(total[None, :], same.shape), same
        )
        advantage = jnp.broadcast_to(jnp.diagonal(table)[:, None], mask.shape)
        target = jnp.zeros_like(advantage)
    if hyper.whiten:
        advantage = losses.whiten(advantage, mask)
    advantage = jnp.where(mask, advantage * rows.weight[:, None], 0.0)
    return fixed._replace(advantage=advantage, target=target)


def loss(
    model: Model,
    hyper: PPOHyper,
    trainable: Any,
    frozen: Any,
    rows: DeviceBatch,
    mask_table: Bool[Array, "M V"] | None,
    fixed: Fixed,
    first: Bool[Array, ""],
    normalizer: Float[Array, ""],
) -> tuple[Float[Array, ""], tuple[Sums, Float[Array, "b L"]]]:
    r"""PPO's loss on one microbatch.

    .. math:: \frac{1}{N L} \sum_{i,t} -\min(w A, \mathrm{clip}(w) A)
              + \beta k_3(\pi \| \pi_0) - \eta H

    Args:
        model: functions of the architecture.
        hyper: hyper-parameters.
        trainable: `{"policy": ..., "critic": ... or None}`.
        frozen: start weights (LoRA, reference) or None.
        rows: the microbatch.
        mask_table: the batch's logit masks, or None.
        fixed: constants of the update for these rows.
        first: True while the weights are those that sampled: then the old
            log-probabilities are this pass's own, and the ratio is exactly 1.
        normalizer: N * L of the whole optimizer step, so that microbatches add up.

    Returns:
        Loss and `(Sums, log_prob)`.
    """
    policy = policy_tree(hyper, trainable["policy"], frozen)
    scores = score(model, hyper, policy, trainable["critic"], frozen, rows, mask_table)
    constant = jax.lax.stop_gradient(scores)
    old = jnp.where(first, constant.log_prob, fixed.old_log_prob)
    total, info = losses.ppo_clip_loss(
        scores.log_prob,
        old,
        _weighted(hyper, fixed.advantage, old, rows),
        rows.completion_mask,
        clip_eps=hyper.clip_eps,
        clip_eps_high=hyper.clip_eps_high,
        normalizer=normalizer,
    )
    terms = _terms(hyper, scores, rows.completion_mask, fixed)
    if hyper.uses_reference and not hyper.kl_in_reward:
        total = total + hyper.kl_coef * terms.kl_ref / normalizer
    if hyper.entropy_coef:
        total = total - hyper.entropy_coef * terms.entropy / normalizer
    sums = _sums(rows, old, info, total * normalizer, terms)
    # Policy and critic share no trained weight, so one sum has both their gradients.
    return total + terms.value_loss / normalizer, (
        jax.lax.stop_gradient(sums),
        constant.log_prob,
    )


def _weighted(
    hyper: PPOHyper,
    advantage: Float[Array, "b L"],
    old: Float[Array, "b L"],
    rows: DeviceBatch,
) -> Float[Array, "b L"]:
    """Advantages for answers that another distribution than ``old`` has sampled.

    Source: truncated importance sampling, Ionides (2008); per token as in Yao et al.
    (2025), "Your efficient RL framework secretly brings you off-policy RL training".
    """
    if not hyper.importance_cap:
        return advantage
    gap = jnp.where(rows.completion_mask, old - rows.sampler_log_prob, 0.0)
    cap = jnp.float32(hyper.importance_cap)
    return advantage * jnp.exp(jnp.minimum(gap, jnp.log(cap)))


class _Terms(NamedTuple):
    """What is added to the clipped surrogate, summed over tokens."""

    entropy: Float[Array, ""]
    kl_ref: Float[Array, ""]
    value_loss: Float[Array, ""]


def _terms(
    hyper: PPOHyper, scores: Scores, mask: Bool[Array, "b L"], fixed: Fixed
) -> _Terms:
    entropy = losses.masked_sum(scores.entropy, mask)
    kl: Array = jnp.float32(0)
    if hyper.uses_reference:
        per_token = losses.kl_estimate(scores.log_prob, fixed.ref_log_prob, mask)
        kl = losses.masked_sum(per_token, mask)
    value_loss: Array = jnp.float32(0)
    if hyper.uses_critic:
        value_loss = losses.value_clip_loss(
            scores.value,
            fixed.old_value,
            fixed.target,
            mask,
            clip_eps=hyper.value_clip,
            normalizer=1.0,
        )
    return _Terms(entropy, kl, value_loss)


def _sums(
    rows: DeviceBatch,
    old: Float[Array, "b L"],
    info: losses.PPOInfo,
    total: Float[Array, ""],
    terms: _Terms,
) -> Sums:
    mask = rows.completion_mask
    tokens = jnp.sum(mask, dtype=jnp.float32)
    gap = jnp.where(mask, old - rows.sampler_log_prob, 0.0)
    return Sums(
        tokens=tokens,
        loss=total,
        kl_ref=terms.kl_ref,
        entropy=terms.entropy,
        value_loss=terms.value_loss,
        ratio=info.ratio_mean * tokens,
        clipped=info.clip_fraction * tokens,
        approx_kl=info.approx_kl * tokens,
        mismatch=jnp.sum(jnp.abs(gap)),
        nonfinite=info.nonfinite.astype(jnp.float32),
        ratio_max=info.ratio_max,
        mismatch_max=jnp.max(jnp.abs(gap), initial=0.0),
        mismatch_sequence=jnp.max(jnp.abs(jnp.sum(gap, axis=1)), initial=0.0),
    )


def compute_view(hyper: PPOHyper, params: Any) -> Any:
    """Parameters in the compute type, as the forward pass would see them."""
    return optim.compute_view(params, jnp.dtype(hyper.compute_dtype))
