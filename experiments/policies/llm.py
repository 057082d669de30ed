"""A language model as the loop's policy: its sampler, its PPO step, its checkpoints."""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from experiments.config.errors import LoopError
from experiments.config.protocol import Learning, Sampling
from experiments.policies.base import Signals
from experiments.records.drafts import Generation
from rpg_jax.llm import (
    Checkpoints,
    PPOHyper,
    batch_from_completions,
    fingerprint,
    left_pad,
    make_ppo,
    ppo_items,
    sample,
    with_ppo_items,
)
from rpg_jax.llm.head import MaskTable
from rpg_jax.llm.sampling import bucket
from rpg_jax.llm.tokenizer import chat_ids, decode, stop_ids

# With top-k, top-p or a penalty the sampled distribution is not the trained one, as the
# protocol that asks for them knows.
_NO_WARNING = 1e9
_IMPORTANCE_CAP = 2.0


@dataclasses.dataclass(frozen=True)
class LLMOptions:
    """What a machine can hold; a protocol has no opinion on it.

    Attributes:
        group: answers sampled at one time; scripts of a group run while the next one
            is sampled. 0 samples all of a step at once, before any script runs: on a
            machine without a GPU the two would disturb each other's seconds.
        microbatch: rows per forward pass of the update.
        lora_rank: 0 trains all weights.
        compute_dtype: of matrix products.
        remat: recompute layers in the backward pass.
        keep: checkpoints kept.
        donate: let an update reuse the memory of the state before it: on accelerators,
            where two do not fit.
        unverified: also read a checkpoint whose manifest is gone.
    """

    group: int = 0
    microbatch: int = 8
    lora_rank: int = 0
    compute_dtype: str = "float32"
    remat: bool = True
    keep: int = 2
    donate: bool = False
    unverified: bool = False


def ppo_hyper(
    learning: Learning, sampling: Sampling, options: LLMOptions, **changes: Any
) -> PPOHyper:
    """The PPO step's hyper-parameters of a protocol on a machine."""
    altered = (
        sampling.top_k is not None
        or sampling.top_p is not None
        or sampling.presence_penalty != 0
    )
    fields = dataclasses.asdict(learning)
    for name in ("baseline_batches", "cap_gainless"):  # the loop's
        del fields[name]
    if learning.advantage == "parent" or learning.caps:
        fields["advantage"] = "given"
    fields |= {
        "temperature": sampling.temperature,
        "loss_length": sampling.max_new_tokens,
        "microbatch": options.microbatch,
        "lora_rank": options.lora_rank,
        "compute_dtype": options.compute_dtype,
        "remat": options.remat,
        "mismatch_warn": _NO_WARNING if altered else 0.0,
        # The trainer knows the whole distribution, the sampler a part of it.
        "importance_cap": _IMPORTANCE_CAP if altered else 0.0,
    }
    return PPOHyper(**fields | changes)


class Recorded(NamedTuple):
    """Completions of a step's payloads, as ``batch_from_completions`` reads them.

    Attributes:
        tokens: ids, right-padded.
        mask: True at the tokens of an answer that takes part.
        log_probs: as the sampler reported them, nats.
        logit_mask: what might be sampled; None for scripts.
    """

    tokens: Int[np.ndarray, "B L"]
    mask: Bool[np.ndarray, "B L"]
    log_probs: Float[np.ndarray, "B L"]
    logit_mask: MaskTable[np.ndarray] | None


class LLMPolicy:
    """See ``experiments.policies.base.Policy``.

    Args:
        folder: of the run; checkpoints go to its ``checkpoints``.
        config: model configuration.
        params: start weights; shared by all runs, never changed.
        tokenizer: as ``load_tokenizer`` gives it.
        sampling: the protocol's.
        hyper: from ``ppo_hyper``.
        seed: of the sampler; the same for every arm.
        options: what the machine holds.
        menu: a ``TokenMenu``: answers are choices from it. None: they are scripts.
        mesh: devices of the update; None is the default device.
        clock: seconds, for the time that answers take.
    """

    def __init__(
        self,
        folder: Path | str,
        config: Any,
        params: Any,
        tokenizer: Any,
        *,
        sampling: Sampling,
        hyper: PPOHyper,
        seed: int = 0,
        options: LLMOptions | None = None,
        menu: Any = None,
        mesh: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        if menu is not None and menu.longest > sampling.max_new_tokens:
            raise LoopError(
                f"the longest answer of this menu has {menu.longest} tokens, the limit "
                f"is {sampling.max_new_tokens}: raise --max-new-tokens"
            )
        self.config, self.tokenizer = config, tokenizer
        self.sampling = sampling
        self.options = options or LLMOptions()
        self.menu = menu
        self.seed = seed
        self._clock = clock
        self._stop = stop_ids(config, tokenizer)
        self._given = hyper.advantage == "given"
        self._ppo = make_ppo(config, hyper, mesh=mesh, donate=self.options.donate)
        start = _own_float32(params) if self.options.donate else params
        self._state = self._ppo.init(jax.random.key(seed), start)
        self._start = fingerprint(params)
        self._store = Checkpoints(
            Path(folder) / "checkpoints",
            max_to_keep=self.options.keep,
            unverified=self.options.unverified,
        )

    def count(self, text: str) -> int:
        """Tokens of a prompt as the model will see it, template included."""
        return len(chat_ids(self.tokenizer, text))

    def sample(
        self, step: int, rows: Sequence[int], prompts: Sequence[str]
    ) -> Iterator[Generation]:
        """Answer the prompts in groups; a row's stream of randomness is its own."""
        size = self.options.group or len(rows)
        key = jax.random.fold_in(jax.random.key(self.seed), step)
        for start in range(0, len(rows), size):
            part = [int(row) for row in rows[start : start + size]]
            yield self._answer(key, part, prompts[start : start + size])

    def _answer(
        self, key: jax.Array, rows: Sequence[int], prompts: Sequence[str]
    ) -> Generation:
        settings = self.sampling
        begin = self._clock()
        ids = [chat_ids(self.tokenizer, prompt) for prompt in prompts]
        longest = max(len(row) for row in ids)
        if longest > settings.max_prompt_tokens:
            raise LoopError(
                f"a prompt has {longest} tokens, the limit is "
                f"{settings.max_prompt_tokens}: raise --max-prompt-tokens or use the "
                "compact prompt style"
            )
        tokens, mask = left_pad(ids, length=bucket(longest))
        menu = self.menu
        done = sample(
            key,
            self._ppo.policy_params(self._state),
            self.config,
            tokens,
            mask,
            max_new_tokens=menu.longest if menu else settings.max_new_tokens,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            presence_penalty=settings.presence_penalty,
            logit_mask=menu.grammar_for(prompts) if menu else None,
            stop_ids=self._stop,
            rows=np.array(rows, np.int32),
        )
        payload = {
            "prompt": tokens,
            "prompt_mask": mask,
            "completion": np.asarray(done.tokens),
            "completion_mask": np.asarray(done.mask),
            "log_prob": np.asarray(done.log_probs),
        }
        texts = decode(
            self.tokenizer, payload["completion"], payload["completion_mask"]
        )
        if menu:
            # What was allowed at each place, for the ratio of the update.
            payload["mask_index"] = menu.mask_index(done.logit_mask.which)
        spent = self._clock() - begin
        # Answers are written side by side: each pays by its length.
        length = payload["completion_mask"].sum(axis=1)
        return Generation(
            rows=tuple(rows),
            texts=tuple(texts),
            seconds=spent * length / max(int(length.sum()), 1),
            payload=payload,
        )

    def learn(
        self, step: int, generations: Sequence[Generation], signals: Signals
    ) -> dict[str, float]:
        """One PPO update on the whole step; lost attempts take no part."""
        if not signals.mask.any():
            return {}
        fields = _joined(generations)
        menu = self.menu
        answers = Recorded(
            fields["completion"],
            fields["completion_mask"] & signals.mask[:, None],
            fields["log_prob"],
            menu.mask_table(fields["mask_index"]) if menu else None,
        )
        batch = batch_from_completions(
            fields["prompt"],
            fields["prompt_mask"],
            answers,
            signals.advantage if self._given else signals.relative,
            # Advantages have their weights already.
            weight=None if self._given else signals.weight,
        )
        self._state, metrics = self._ppo.update(self._state, batch)
        return metrics.summary()

    def save(self, step: int, meta: Mapping[str, Any]) -> None:
        """Write a checkpoint in which ``step`` is the next step."""
        meta = {**meta, "next_step": step, "start_weights": self._start}
        meta["menu"] = self.menu and self.menu.digest
        self._store.save(step, ppo_items(self._state), meta)

    def restore(self) -> int:
        """Take up the newest whole checkpoint; its step, 0 without one.

        Raises:
            LoopError: it belongs to other start weights or to another menu.
        """
        snapshot = self._store.restore(ppo_items(self._state))
        if snapshot is None:
            return 0
        if snapshot.meta["start_weights"] != self._start:
            raise LoopError(
                "the checkpoint was trained from other weights than --model names: "
                "give the model that the run began with"
            )
        if snapshot.meta.get("menu") != (self.menu and self.menu.digest):
            raise LoopError(
                "the checkpoint's answers were chosen from other menus than those of "
                "experiments/menus/data: go back to the commit in config.json"
            )
        self._state = with_ppo_items(self._state, snapshot.items)
        return int(snapshot.meta["next_step"])

    def trained(self) -> Any:
        """The policy's weights in float32, adapters merged."""
        return self._ppo.export_params(self._state)

    def park(self) -> None:
        """Keep the training state in the host's memory while another run works.

        The states of two runs of a large model do not fit an accelerator together.
        """
        self._state = self._moved(jax.device_get)

    def wake(self) -> None:
        """Bring a parked state back; one that was not parked stays as it is."""
        self._state = self._moved(jax.device_put)

    def _moved(self, move: Callable[[Any], Any]) -> Any:
        state = self._state
        return state._replace(
            params=move(state.params),
            opt_state=move(state.opt_state),
            frozen=move(state.frozen),
        )

    def close(self) -> None:
        """Release the checkpoint manager."""
        self._store.close()


def _own_float32(params: Any) -> Any:
    """Copies of the leaves that the trainable state might share with the weights."""
    return jax.tree.map(lambda x: jnp.copy(x) if x.dtype == jnp.float32 else x, params)


def _joined(generations: Sequence[Generation]) -> dict[str, np.ndarray]:
    """Payloads of a step as one batch, in the order of the rows."""
    width = max(g.payload["prompt"].shape[1] for g in generations)

    def wide(g: Generation, name: str) -> np.ndarray:
        value = g.payload[name]
        if not name.startswith("prompt"):
            return value
        return np.pad(value, ((0, 0), (width - value.shape[1], 0)))

    order = np.argsort(np.concatenate([g.rows for g in generations]), kind="stable")
    return {
        name: np.concatenate([wide(g, name) for g in generations])[order]
        for name in generations[0].payload
    }
