"""The PPO batch: checked once on the host, then split into equal pieces."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rpg_jax.llm.head import MaskTable
from rpg_jax.llm.sampling import bucket
from rpg_jax.llm.sharding import to_host


class PPOBatch(NamedTuple):
    """Prompts, completions and what they earned; one row per attempt.

    Attributes:
        prompt: `[B, P]` int32, left-padded.
        prompt_mask: `[B, P]` bool, True at real tokens.
        completion: `[B, L]` int32, right-padded, the stop token included.
        completion_mask: `[B, L]` bool; a row without a token takes no part.
        sampler_log_prob: `[B, L]` float32, as reported by the sampler, nats.
        reward: `[B]` float32, the (relative) reward of the whole completion.
        group: `[B]` int32; rows of a group are each other's baseline.
        weight: `[B]` float32, factor on the row's advantage.
        mask_table: `[M, V]` bool, the different logit masks of this batch, or None.
        mask_index: `[B, L]` int32, which of them held at each token, or None.
    """

    prompt: jax.Array
    prompt_mask: jax.Array
    completion: jax.Array
    completion_mask: jax.Array
    sampler_log_prob: jax.Array
    reward: jax.Array
    group: jax.Array
    weight: jax.Array
    mask_table: jax.Array | None = None
    mask_index: jax.Array | None = None


def make_batch(
    prompt: Any,
    prompt_mask: Any,
    completion: Any,
    completion_mask: Any,
    sampler_log_prob: Any,
    reward: Any,
    *,
    group: Any = None,
    weight: Any = None,
    logit_mask: Any = None,
) -> PPOBatch:
    """Check one batch on the host and give it the types that the update wants.

    Args:
        prompt: `[B, P]` ids, left-padded; pads may hold any id.
        prompt_mask: `[B, P]` bool.
        completion: `[B, L]` ids, right-padded; pads may hold any id.
        completion_mask: `[B, L]` bool; all False takes a row out.
        sampler_log_prob: `[B, L]` nats; values at masked-out tokens are ignored.
        reward: `[B]`, any unit; ignored in rows that are out.
        group: `[B]` integers; default: all rows are one group.
        weight: `[B]` factors on the advantage; default 1.
        logit_mask: None, `[V]` or `[B, L, V]` bool, or a `MaskTable`: what the sampler
            was allowed to say at each token.

    Returns:
        `PPOBatch` of NumPy arrays.

    Raises:
        ValueError: wrong shapes, a mask with holes, a reward, weight or log-probability
            that is NaN or infinite, a token that its logit mask forbids, or one whose
            id is negative or beyond that mask.
    """
    prompt, completion = np.asarray(prompt), np.asarray(completion)
    if prompt.ndim != 2 or completion.ndim != 2 or len(prompt) != len(completion):
        raise ValueError(
            f"prompt {prompt.shape} and completion {completion.shape} must be [B, P] "
            "and [B, L]."
        )
    rows, length = completion.shape
    prompt_mask = _shaped("prompt_mask", prompt_mask, prompt.shape, np.bool_)
    mask = _shaped("completion_mask", completion_mask, completion.shape, np.bool_)
    log_prob = _shaped(
        "sampler_log_prob", sampler_log_prob, completion.shape, np.float32
    )
    reward = _shaped("reward", reward, (rows,), np.float32)
    group = _shaped("group", np.zeros(rows) if group is None else group, (rows,), int)
    weight = _shaped(
        "weight", np.ones(rows) if weight is None else weight, (rows,), np.float32
    )
    alive = mask.any(axis=1)
    if np.any(mask[:, 1:] & ~mask[:, :-1]):
        raise ValueError("completion_mask must be True from the first token on.")
    if np.any(prompt_mask[:, :-1] & ~prompt_mask[:, 1:]) or not np.all(
        prompt_mask[:, -1]
    ):
        raise ValueError("Prompts must be left-padded and have at least one token.")
    for name, values in (
        ("reward", reward[alive]),
        ("weight", weight[alive]),
        ("sampler_log_prob", log_prob[mask]),
    ):
        if not np.isfinite(values).all():
            raise ValueError(
                f"{name} has {np.sum(~np.isfinite(values))} values that are NaN or "
                "infinite; take such rows out with an all-False completion_mask."
            )
    table, index = _mask_table(logit_mask, rows, length)
    vocabulary = 2**31 if table is None else table.shape[1]
    _outside("prompt", prompt, prompt_mask, vocabulary)
    _outside("completion", completion, mask, vocabulary)
    if table is not None:
        allowed = table[index, np.where(mask, completion, 0)]
        # Rows first: a gather of whole rows would hold [B, L, V] on the host.
        allowed |= ~table.any(axis=-1)[index]
        if np.any(mask & ~allowed):
            row, column = np.argwhere(mask & ~allowed)[0]
            raise ValueError(
                f"Row {row}, token {column} (id {completion[row, column]}) is "
                "forbidden by its logit mask: the sampler used another one."
            )
    return PPOBatch(
        prompt=prompt.astype(np.int32),
        prompt_mask=prompt_mask,
        completion=completion.astype(np.int32),
        completion_mask=mask,
        sampler_log_prob=np.where(mask, log_prob, 0).astype(np.float32),
        reward=np.where(alive, reward, 0).astype(np.float32),
        group=group.astype(np.int32),
        weight=np.where(alive, weight, 0).astype(np.float32),
        mask_table=table,
        mask_index=index,
    )


def batch_from_completions(
    prompt: Any,
    prompt_mask: Any,
    completions: Any,
    reward: Any,
    *,
    trim: bool = False,
    **options: Any,
) -> PPOBatch:
    """A batch from what `sampling.sample` returned, its logit masks included.

    Widths are rounded up to the sampler's buckets, so that a run whose prompts grow
    compiles a few updates and not one per step.

    Args:
        prompt: `[P, T]` ids as handed to the sampler.
        prompt_mask: `[P, T]` bool.
        completions: `sampling.Completions` of `B = P * num_samples` rows.
        reward: `[B]`.
        trim: cut the completions to the bucket of the longest. Cheaper where most are
            short; set `PPOHyper.loss_length` then, so that its constant stays one.
        **options: `group`, `weight` of `make_batch`. Without a group the samples of a
            prompt are one, or all rows if there is one sample per prompt.
    """
    rows, prompts = len(completions.tokens), len(prompt)
    samples = rows // max(1, prompts)
    if samples > 1:
        options.setdefault("group", np.arange(rows) // samples)
    prompt = np.repeat(np.asarray(prompt), samples, axis=0)
    prompt_mask = np.repeat(np.asarray(prompt_mask), samples, axis=0)
    left = ((0, 0), (bucket(prompt.shape[1]) - prompt.shape[1], 0))
    tokens, mask, log_probs = (
        to_host(x)
        for x in (completions.tokens, completions.mask, completions.log_probs)
    )
    table = index = None
    if completions.logit_mask is not None:
        index = to_host(completions.logit_mask.index)
        table = to_host(completions.logit_mask.table)
    full = bucket(tokens.shape[1])
    width = bucket(max(1, int(mask.sum(axis=1).max()))) if trim else full

    def fit(x: np.ndarray) -> np.ndarray:
        return np.pad(x, ((0, 0), (0, full - x.shape[1])))[:, :width]

    return make_batch(
        np.pad(prompt, left),
        np.pad(prompt_mask, left),
        fit(tokens),
        fit(mask),
        fit(log_probs),
        reward,
        logit_mask=(None if index is None else MaskTable(table, fit(index))),
        **options,
    )


def pad_rows(batch: PPOBatch, multiple: int) -> PPOBatch:
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


def in_vocabulary(batch: PPOBatch, size: int) -> PPOBatch:
    """The batch with 0 for pads that the model has no embedding for.

    Those would be read as NaN, and an attention weight of 0 times NaN is NaN.

    Args:
        batch: from `make_batch`.
        size: V, of the vocabulary.

    Raises:
        ValueError: a token that is not a pad lies outside `[0, V)`.
    """
    changes = {}
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
    return value.astype(dtype)


def _outside(name: str, ids: np.ndarray, mask: np.ndarray, size: int) -> np.ndarray:
    """Which ids lie outside `[0, size)`: an error unless all are masked out."""
    wide = np.asarray(ids, np.int64)  # a narrow type may not hold the size
    outside = (wide < 0) | (wide >= size)
    if np.any(outside & mask):
        row, column = np.argwhere(outside & mask)[0]
        raise ValueError(
            f"{name}: row {row}, token {column} has id {ids[row, column]}, outside "
            f"the vocabulary [0, {size})."
        )
    return outside


def _mask_table(
    mask: Any, rows: int, length: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Any form of logit mask as a table of distinct rows and an index into it."""
    if mask is None:
        return None, None
    if isinstance(mask, MaskTable):
        table, index = np.asarray(mask.table, bool), np.asarray(mask.index)
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
