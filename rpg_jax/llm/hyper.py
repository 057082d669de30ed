"""Hyper-parameters of the PPO step."""

import dataclasses
from typing import Literal

import optax

from rpg_jax.llm.lora import DEFAULT_TARGETS


@dataclasses.dataclass(frozen=True)
class PPOHyper:
    """Hyper-parameters of the PPO step; hashable, so that they are static under jit.

    Attributes:
        advantage: "loo", the leave-one-out mean of the group as baseline, "critic", a
            learned value per token with GAE(1, 1) (the paper's), or "given": the
            batch's rewards are the advantages, and no baseline is taken off.
        epochs: passes over the batch.
        minibatches: optimizer steps per pass.
        microbatch: rows per forward pass; gradients are accumulated over them. A
            batch is padded with empty rows to a multiple of it (and of minibatches).
        clip_eps: PPO's trust region for the token's ratio.
        clip_eps_high: another upper bound, or None.
        max_kl: stop the passes once the mean KL from the sampling policy exceeds this,
            nats per token; 0 never stops.
        kl_coef: price of a nat of KL to the start policy.
        kl_in_reward: charge it inside the reward (the paper's) instead of in the loss.
        entropy_coef: reward for a nat of entropy.
        whiten: whiten advantages over the batch's tokens (the paper's).
        temperature: of the sampler; the ratio is between tempered distributions.
        loss_length: constant L that sums over tokens are divided by; 0 takes the width
            of the batch's completions.
        learning_rate: AdamW step size of the policy, or an optax schedule over its
            optimizer steps (hashed by identity: each new one compiles again).
        weight_decay: decoupled weight decay.
        grad_clip: largest global gradient norm; 0 turns the clip off.
        critic_trunk: "shared" puts a linear value head on the policy's detached
            features; "own" trains a trunk of its own beside it.
        critic_learning_rate: AdamW step size of the critic.
        value_clip: how far a value may move per batch, units of reward.
        lora_rank: rank of the adapters; 0 trains all weights.
        lora_alpha: LoRA scale; the update is alpha / rank times A B.
        lora_targets: regular expression for the names of adapted kernels.
        compute_dtype: "float32" or "bfloat16", for the matrix products.
        remat: recompute layers in the backward pass instead of storing them.
        head_chunk: positions per chunk of the head; 0 chooses.
        mismatch_warn: mean |trainer - sampler| log-probability, nats, above which the
            update warns; 0 takes 5e-4 for float32 and 0.05 for bfloat16.
        importance_cap: each token's advantage is multiplied by min(pi_trainer /
            pi_sampler, cap) at the start of the update (truncated importance sampling:
            for a sampler with top-p, a penalty or another implementation); 0: by 1.
    """

    advantage: Literal["loo", "critic", "given"] = "loo"
    epochs: int = 2
    minibatches: int = 1
    microbatch: int = 8
    clip_eps: float = 0.2
    clip_eps_high: float | None = None
    max_kl: float = 0.0
    kl_coef: float = 0.001
    kl_in_reward: bool = False
    entropy_coef: float = 0.001
    whiten: bool = False
    temperature: float = 1.0
    loss_length: int = 0
    learning_rate: float | optax.Schedule = 1e-6
    weight_decay: float = 0.01
    grad_clip: float = 1.0
    critic_trunk: Literal["shared", "own"] = "shared"
    critic_learning_rate: float = 1e-5
    value_clip: float = 0.5
    lora_rank: int = 0
    lora_alpha: float = 32.0
    lora_targets: str = DEFAULT_TARGETS
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = True
    head_chunk: int = 0
    mismatch_warn: float = 0.0
    importance_cap: float = 0.0

    def __post_init__(self) -> None:
        # Each comparison is one that NaN fails.
        for name in ("epochs", "minibatches", "microbatch"):
            if not getattr(self, name) >= 1:
                raise ValueError(
                    f"{name} must be at least 1, got {getattr(self, name)}"
                )
        for name, allowed in (
            ("advantage", ("loo", "critic", "given")),
            ("critic_trunk", ("shared", "own")),
            ("compute_dtype", ("float32", "bfloat16")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {allowed}, got {getattr(self, name)!r}"
                )
        positive = ["temperature", "clip_eps", "value_clip", "lora_alpha"]
        if self.clip_eps_high is not None:
            positive.append("clip_eps_high")
        if not callable(self.learning_rate):
            positive.append("learning_rate")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in (
            *("max_kl", "kl_coef", "entropy_coef", "weight_decay", "grad_clip"),
            *("critic_learning_rate", "loss_length", "lora_rank", "head_chunk"),
            *("mismatch_warn", "importance_cap"),
        ):
            if not getattr(self, name) >= 0:
                raise ValueError(
                    f"{name} must not be negative, got {getattr(self, name)}"
                )

    @property
    def uses_reference(self) -> bool:
        """Whether the start policy's log-probabilities are needed."""
        return self.kl_coef > 0

    @property
    def uses_critic(self) -> bool:
        """Whether there is a learned value."""
        return self.advantage == "critic"

    @property
    def mismatch_limit(self) -> float:
        """Mean sampler/trainer difference that is worth a warning, nats per token."""
        if self.mismatch_warn:
            return self.mismatch_warn
        return 5e-4 if self.compute_dtype == "float32" else 0.05
