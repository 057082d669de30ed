"""What one PPO update measured, and the warnings that follow from it."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rpg_jax.llm import optim
from rpg_jax.llm.batch import DeviceBatch
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.objective import Sums


class PPOMetrics(NamedTuple):
    """One update, measured. Arrays are per pass over the batch, `[epochs done]`.

    Nats are per token unless it says sequence. `ratio_mean`, `ratio_max`, `clip_share`
    and `approx_kl` compare with the policy that sampled; the first pass of an update
    with one minibatch has ratio 1 exactly.
    """

    loss: Float[np.ndarray, " passes"]
    kl_ref: Float[np.ndarray, " passes"]
    entropy: Float[np.ndarray, " passes"]
    value_loss: Float[np.ndarray, " passes"]
    ratio_mean: Float[np.ndarray, " passes"]
    ratio_max: Float[np.ndarray, " passes"]
    clip_share: Float[np.ndarray, " passes"]
    approx_kl: Float[np.ndarray, " passes"]
    grad_norm: Float[np.ndarray, " passes"]
    critic_grad_norm: Float[np.ndarray, " passes"]
    changed: Float[np.ndarray, " passes"]
    changed_compute: Float[np.ndarray, " passes"]
    skipped: Float[np.ndarray, " passes"]
    nonfinite: Float[np.ndarray, " passes"]
    mismatch_mean: float
    mismatch_max: float
    mismatch_sequence: float
    reward_mean: float
    rows: int
    tokens: int

    def summary(self) -> dict[str, float]:
        """Scalars for a log: the last pass, and totals of what should never happen."""
        out = {}
        for name, value in self._asdict().items():
            value = np.asarray(value)
            if name in ("skipped", "nonfinite"):
                value = value.sum()
            out[name] = float(value if value.ndim == 0 else value[-1])
        return out | {"epochs": float(len(self.loss))}


class EpochInfo(NamedTuple):
    """One pass, still on the devices; `steps` per network, each `[minibatches]`."""

    sums: Sums
    steps: dict[str, optim.StepInfo]
    loss: Float[Array, ""]


@jax.jit
def row_totals(batch: DeviceBatch) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Number of rows that take part, and their mean reward."""
    alive = jnp.any(batch.completion_mask, axis=1)
    rows = jnp.sum(alive, dtype=jnp.float32)
    return rows, jnp.sum(jnp.where(alive, batch.reward, 0)) / jnp.maximum(rows, 1)


def collect(batch: DeviceBatch, infos: list[EpochInfo]) -> PPOMetrics:
    """Bring the measurements of an update's passes to the host."""
    rows, reward_mean = row_totals(batch)
    stacked = jax.tree.map(
        lambda *x: np.stack([np.asarray(v, np.float64) for v in x]), *infos
    )
    sums = stacked.sums
    tokens = np.maximum(sums.tokens, 1)
    policy = stacked.steps["policy"]
    critic = stacked.steps.get("critic")
    zeros = np.zeros(len(infos))
    return PPOMetrics(
        loss=stacked.loss,
        kl_ref=sums.kl_ref / tokens,
        entropy=sums.entropy / tokens,
        value_loss=sums.value_loss / tokens,
        ratio_mean=sums.ratio / tokens,
        ratio_max=sums.ratio_max,
        clip_share=sums.clipped / tokens,
        approx_kl=sums.approx_kl / tokens,
        grad_norm=policy.grad_norm.mean(axis=1),
        critic_grad_norm=zeros if critic is None else critic.grad_norm.mean(axis=1),
        changed=policy.changed.mean(axis=1),
        changed_compute=policy.changed_compute.mean(axis=1),
        skipped=policy.skipped.sum(axis=1)
        + (zeros if critic is None else critic.skipped.sum(axis=1)),
        nonfinite=sums.nonfinite,
        mismatch_mean=float(sums.mismatch[0] / tokens[0]),
        mismatch_max=float(sums.mismatch_max[0]),
        mismatch_sequence=float(sums.mismatch_sequence[0]),
        reward_mean=float(reward_mean),
        rows=int(rows),
        tokens=int(sums.tokens[0]),
    )


def nothing() -> PPOMetrics:
    """Metrics of an update without a single row that takes part, and a warning."""
    warnings.warn(
        "No row of this batch takes part: the weights stay as they are.",
        RuntimeWarning,
        stacklevel=3,
    )
    zeros = (np.zeros(1) for _ in PPOMetrics._fields[:-6])
    return PPOMetrics._make([*zeros, *(0 for _ in PPOMetrics._fields[-6:])])


def warn_if_wrong(hyper: PPOHyper, metrics: PPOMetrics) -> None:
    """Warn of a sampler that is not the policy and of gradients that are not finite."""
    if not metrics.mismatch_mean <= hyper.mismatch_limit:  # NaN must warn too
        warnings.warn(
            f"The sampler's log-probabilities differ from the trainer's by "
            f"{metrics.mismatch_mean:.2g} nats per token on average (at most "
            f"{metrics.mismatch_max:.2g}, {metrics.mismatch_sequence:.2g} over a "
            f"sequence; expected below {hyper.mismatch_limit:.2g}). Check that both "
            "use the same weights, temperature, logit masks and stop tokens, and that "
            "there is no top-k, top-p or presence penalty.",
            RuntimeWarning,
            stacklevel=3,
        )
    skipped, nonfinite = int(metrics.skipped.sum()), int(metrics.nonfinite.sum())
    if skipped or nonfinite:
        warnings.warn(
            f"{skipped} optimizer steps were skipped because their gradient was not "
            f"finite; {nonfinite} tokens had a log-probability or advantage that is "
            "NaN or infinite.",
            RuntimeWarning,
            stacklevel=3,
        )
