"""The PPO batch: checked once on the host, then split into equal pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rpg_jax import checks
from rpg_jax.llm.head import MaskTable
from rpg_jax.llm.sampling import bucket
from rpg_jax.llm.sharding import to_host

# nats; a sampler's rounding may leave a little above 0, and below this an update's
# ratio says nothing.
_LOG_PROBABILITY = (-1e4, 1e-2)

T = TypeVar("T", Array, np.ndarray)


class PPOBatch(NamedTuple, Generic[T]):
    """Prompts, completions and what they earned; one row per attempt.

    NumPy arrays as `make_batch` returns them, JAX arrays inside an update.

    Attributes:
        prompt: ids, left-padded.
        prompt_mask: True at real tokens.
        completion: ids, right-padded, the stop token included.
        completion_mask: a row without a token takes no part.
        sampler_log_prob: as reported by the sampler, nats.
        reward: the (relative) reward of the whole completion.
        group: rows of a group are each other's baseline.
        weight: factor on the row's advantage.
        mask_table: the different logit masks of this batch, or None.
        mask_index: which of them held at each token, or None.
    """

    prompt: Int[T, "B P"]
    prompt_mask: Bool[T, "B P"]
    completion: Int[T, "B L"]
    completion_mask: Bool[T, "B L"]
    sampler_log_prob: Float[T, "B L"]
    reward: Float[T, " B"]
    group: Int[T, " B"]
    weight: Float[T, " B"]
    mask_table: Bool[T, "M V"] | None = None
    mask_index: Int[T, "B L"] | None = None


HostBatch = PPOBatch[np.ndarray]
DeviceBatch = PPOBatch[Array]


class Answers(Protocol):
    """Completions as they were sampled: `sampling.Completions`, or a record of them."""

    @property
    def tokens(self) -> Int[ArrayLike, "B L"]:
        """Ids, right-padded, the stop token included."""

    @property
    def mask(self) -> Bool[ArrayLike, "B L"]:
        """True at the tokens of a completion."""

    @property
    def log_probs(self) -> Float[ArrayLike, "B L"]:
        """As reported by the sampler, nats."""

    @property
    def logit_mask(self) -> MaskTable[Any] | None:
        """What might be sampled at each token; None: anything."""


def batch_from_completions(
    prompt: Int[ArrayLike, "P T"],
    prompt_mask: Bool[ArrayLike, "P T"],
    completions: Answers,
    reward: Float[ArrayLike, " B"],
    *,
    group: Int[ArrayLike, " B"] | None = None,
    weight: Float[ArrayLike, " B"] | None = None,
    trim: bool = False,
) -> HostBatch:
    """A batch from sampled or recorded completions, their logit masks included.

    The prompts' width is rounded up to the sampler's buckets, so that a run whose
    prompts grow compiles a few updates and not one per step.

    Args:
        prompt: ids as handed to the sampler.
        prompt_mask: True at real tokens.
        completions: of `B = P * num_samples` rows, prompts outermost; a row whose mask
            is all False takes no part.
        reward: any unit.
        group: see `make_batch`. By default the samples of a prompt are one, or all
            rows if there is one sample per prompt.
        weight: factors on the advantage; default 1.
        trim: cut the completions to the bucket of the longest. Cheaper where most are
            short; set `PPOHyper.loss_length` then, so that its constant stays one.
    """
    tokens, mask, log_probs = (
        to_host(x)
        for x in (completions.tokens, completions.mask, completions.log_probs)
    )
    ids, real = np.asarray(prompt), np.asarray(prompt_mask)
    samples = len(tokens) // max(1, len(ids))
    if samples > 1 and group is None:
        group = np.arange(len(tokens)) // samples
    ids, real = np.repeat(ids, samples, axis=0), np.repeat(real, samples, axis=0)
    left = ((0, 0), (bucket(ids.shape[1]) - ids.shape[1], 0))
    width = tokens.shape[1]
    if trim:
        width = min(width, bucket(max(1, int(mask.sum(axis=1).max()))))
    table: MaskTable[np.ndarray] | None = None
    if completions.logit_mask is not None:
        table = completions.logit_mask
        table = MaskTable(to_host(table.table), to_host(table.which)[:, :width])
    return make_batch(
        np.pad(ids, left),
        np.pad(real, left),
        tokens[:, :width],
        mask[:, :width],
        log_probs[:, :width],
        reward,
        group=group,
        weight=weight,
        logit_mask=table,
    )


def make_batch(
    prompt: Int[ArrayLike, "B P"],
    prompt_mask: Bool[ArrayLike, "B P"],
    completion: Int[ArrayLike, "B L"],
    completion_mask: Bool[ArrayLike, "B L"],
    sampler_log_prob: Float[ArrayLike, "B L"],
    reward: Float[ArrayLike, " B"],
    *,
    group: Int[ArrayLike, " B"] | None = None,
    weight: Float[ArrayLike, " B"] | None = None,
    logit_mask: Bool[ArrayLike, "*BL V"] | MaskTable[Any] | None = None,
) -> HostBatch:
    """Check one batch on the host and give it the types that the update wants.

    Args:
        prompt: ids, left-padded; pads may hold any id.
        prompt_mask: True at real tokens.
        completion: ids, right-padded; pads may hold any id.
        completion_mask: all False takes a row out.
        sampler_log_prob: nats; values at masked-out tokens are ignored.
        reward: any unit; ignored in rows that are out.
        group: integers; default: all rows are one group.
        weight: factors on the advantage; default 1.
        logit_mask: None, `[V]` or `[B, L, V]` bool, or a `MaskTable`: what the sampler
            was allowed to say at each token.

    Returns:
        `PPOBatch` of NumPy arrays.

    Raises:
        ValueError: wrong shapes, a mask with holes, a reward, weight or log-probability
            that is NaN, infinite or out of bounds (log-probabilities from -1e4 to a
            rounding above 0, the others 1e12 in size), a token that its logit mask
            forbids, or one whose id is negative or beyond that mask.
    """
    batch = _shaped_batch(
        np.asarray(prompt),
        prompt_mask,
        np.asarray(completion),
        completion_mask,
        sampler_log_prob,
        reward,
        group,
        weight,
    )
    alive = np.any(batch.completion_mask, axis=1)
    _check_numbers(batch, alive)
    table, index = _mask_table(logit_mask, *batch.completion.shape)
    _check_ids(batch, table, index)
    return batch._replace(
        prompt=batch.prompt.astype(np.int32),
        completion=batch.completion.astype(np.int32),
        sampler_log_prob=_zeroed(batch.sampler_log_prob, batch.completion_mask),
        reward=_zeroed(batch.reward, alive),
        weight=_zeroed(batch.weight, alive),
        mask_table=table,
        mask_index=index,
    )


def _shaped_batch(
    prompt: np.ndarray,
    prompt_mask: Any,
    completion: np.ndarray,
    completion_mask: Any,
    log_prob: Any,
    reward: Any,
    group: Any,
    weight: Any,
) -> HostBatch:
    """Everything but ids in its type; an error where shapes or masks are wrong."""
    if prompt.ndim != 2 or completion.ndim != 2 or len(prompt) != len(completion):
        raise ValueError(
            f"prompt {prompt.shape} and completion {completion.shape} must be [B, P] "
            "and [B, L]."
        )
    rows = len(completion)
    group = np.zeros(rows) if group is None else group
    weight = np.ones(rows) if weight is None else weight
    batch = PPOBatch(
        prompt,
        _shaped("prompt_mask", prompt_mask, prompt.shape, np.bool_),
        completion,
        _shaped("completion_mask", completion_mask, completion.shape, np.bool_),
        _shaped("sampler_log_prob", log_prob, completion.shape, np.float32),
        _shaped("reward", reward, (rows,), np.float32),
        _shaped("group", group, (rows,), np.int32),
        _shaped("weight", weight, (rows,), np.float32),
    )
    mask, real = batch.completion_mask, batch.prompt_mask
    if np.any(mask[:, 1:] & ~mask[:, :-1]):
        raise ValueError("completion_mask must be True from the first token on.")
    if np.any(real[:, :-1] & ~real[:, 1:]) or not np.all(real[:, -1]):
        raise ValueError("Prompts must be left-padded and have at least one token.")
    return batch


def _check_numbers(batch: HostBatch, alive: Bool[np.ndarray, " B"]) -> None:
    for name, values, (low, high) in (
        ("reward", batch.reward[alive], checks.ANY),
        ("weight", batch.weight[alive], checks.ANY),
        (
            "sampler_log_prob",
            batch.sampler_log_prob[batch.completion_mask],
            _LOG_PROBABILITY,
        ),
    ):
        if not np.isfinite(values).all():
            raise ValueError(
                f"{name} has {np.sum(~np.isfinite(values))} values that are NaN or "
                "infinite; take such rows out with an all-False completion_mask."
            )
        if np.any((values < low) | (values > high)):
            worst = values[np.argmax(np.abs(values))]
            raise ValueError(
                f"{name} must be within {low:g} and {high:g}, got {worst:g}; take such "
                "rows out with an all-False completion_mask."
            )


def _check_ids(
    batch: HostBatch,
    table: Bool[np.ndarray, "M V"] | None,
    index: Int[np.ndarray, "B L"] | None,
) -> None:
    """Ids within the vocabulary, and tokens that their logit masks allow."""
    vocabulary = 2**31 if table is None else table.shape[1]
    completion, mask = batch.completion, batch.completion_mask
    _outside("prompt", batch.prompt, batch.prompt_mask, vocabulary)
    _outside("completion", completion, mask, vocabulary)
    if table is None or index is None:
        return
    allowed = table[index, np.where(mask, completion, 0)]
    # Rows first: a gather of whole rows would hold [B, L, V] on the host.
    nothing: np.ndarray = np.logical_not(table.any(axis=-1))
    allowed |= nothing[index]
    if np.any(mask & ~allowed):
        row, column = np.argwhere(mask & ~allowed)[0]
        raise ValueError(
            f"Row {row}, token {column} (id {completion[row, column]}) is "
            "forbidden by its logit mask: the sampler used another one."
        )


def _zeroed(values: np.ndarray, keep: np.ndarray) -> Float[np.ndarray, "*shape"]:
    return np.where(keep, values, 0).astype(np.float32)


def pad_rows(batch: PPOBatch[Any], multiple: int) -> PPOBatch[Any]:
    """Append rows that take no part until the number of rows is a multiple."""
    rows = len(batch.reward)
    extra = -rows % multiple
    if not extra:
        return batch

    def pad(x: Any) -> Any:
        xp = np if isinstance(x, np.ndarray) else jnp
        return xp.concatenate([x, xp.repeat(x[:1], extra, axis=0)])

    padded = {
        name: pad(value)
        for name, value in batch._asdict().items()
        if value is not None and name != "mask_table"
    }
    dead = np.arange(rows + extra) < rows
    padded["completion_mask"] = padded["completion_mask"] & dead[:, None]
    return batch._replace(**padded)


def in_vocabulary(batch: PPOBatch[Any], size: int) -> PPOBatch[Any]:
    """The batch with 0 for pads that the model has no embedding for.

    Those would be read as NaN, and an attention weight of 0 times NaN is NaN.

    Args:
        batch: from `make_batch`.
        size: V, of the vocabulary.

    Raises:
        ValueError: a token that is not a pad lies outside `[0, V)`.
    """
    changes: dict[str, Any] = {}
    for name in ("prompt", "completion"):
        ids = to_host(getattr(batch, name))
        outside = _outside(name, ids, to_host(getattr(batch, f"{name}_mask")), size)
        if outside.any():
            # Only these: scores at other pads are reported too, and keep their bits.
            changes[name] = np.where(outside, 0, ids).astype(np.int32)
    return batch._replace(**changes)


def split_rows(tree: Any, pieces: int) -> Any:
    """`[B, ...]` -> `[pieces, B / pieces, ...]`, row i in piece i mod `pieces`.

    Interleaved, so that a batch sharded along its rows stays where it is.
    """
    return jax.tree.map(
        lambda x: jnp.swapaxes(x.reshape(-1, pieces, *x.shape[1:]), 0, 1), tree
    )


def join_rows(tree: Any) -> Any:
    """Undo `split_rows`."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), tree)


def _shaped(name: str, value: Any, shape: Sequence[int], dtype: Any) -> np.ndarray:
    value = np.asarray(value)
    if value.shape != tuple(shape):
        raise ValueError(f"{name} has shape {value.shape}, want {tuple(shape)}.")
    cast: np.ndarray = value.astype(dtype)
    return cast


def _outside(
    name: str, ids: np.ndarray, mask: np.ndarray, size: int
) -> Bool[np.ndarray, "*shape"]:
    """Which ids lie outside `[0, size)`: an error unless all are masked out."""
    wide = np.asarray(ids, np.int64)  # a narrow type may not hold the size
    outside: np.ndarray = (wide < 0) | (wide >= size)
    if np.any(outside & mask):
        row, column = np.argwhere(outside & mask)[0]
        raise ValueError(
            f"{name}: row {row}, token {column} has id {ids[row, column]}, outside "
            f"the vocabulary [0, {size})."
        )
    return outside


def _mask_table(
    mask: Any, rows: int, length: int
) -> tuple[Bool[np.ndarray, "M V"] | None, Int[np.ndarray, "B L"] | None]:
    """Any form of logit mask as a table of distinct rows and an index into it."""
    if mask is None:
        return None, None
    if isinstance(mask, MaskTable):
        table, index = np.asarray(mask.table, bool), np.asarray(mask.which)
    else:
        mask = np.asarray(mask, bool)
        if mask.ndim == 1:
            table, index = mask[None], np.zeros((rows, length), np.int64)
        else:
            flat = np.packbits(mask.reshape(-1, mask.shape[-1]), axis=1)
            _, first, index = np.unique(
                flat, axis=0, return_index=True, return_inverse=True
            )
            table = mask.reshape(-1, mask.shape[-1])[first]
            index = index.reshape(mask.shape[:2])
    if index.shape != (rows, length) or index.min() < 0 or index.max() >= len(table):
        raise ValueError(
            f"Logit mask with {len(table)} rows and index {index.shape} does not fit "
            f"completions [{rows}, {length}]."
        )
    # A power of two, so that batches with a few masks more or less share a compilation.
    size = 1 << (len(table) - 1).bit_length()
    spare = np.ones((size - len(table), table.shape[1]), bool)
    return np.concatenate([table, spare]), index.astype(np.int32)
