"""What a reward function returned, as columns of rows.

A function returns rewards alone, rewards and seconds, or a dict with more of them. A
row without a reward (None, NaN) or without seconds is masked out: it is not charged and
the estimate does not see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from rpg_jax.checks import MIN_SECONDS

Lists = Sequence[Sequence[float | None]] | Mapping[str, Sequence[float | None]]


def has_seconds(found: Any) -> bool:
    """Whether a function returned several lists, or a dict, and not rewards alone."""
    if isinstance(found, Mapping):
        return True
    if isinstance(found, np.ndarray) or not isinstance(found, Sequence):
        return False
    return bool(len(found)) and all(
        isinstance(each, Sequence | np.ndarray) for each in found
    )


def measured(found: Lists, number: int) -> dict[str, Any]:
    """What an adapter's ``execute`` returned, as arguments of ``RelativeReward``.

    Args:
      found: (rewards, seconds[, contexts[, actions]]), or a dict with ``reward`` and
        ``duration`` and, optionally, ``context``, ``action``, ``charged`` and ``mask``.
      number: completions.

    Raises:
      ValueError: another number of lists, or of entries, or other keys.
    """
    names = ("reward", "duration", "context", "action")
    if isinstance(found, Mapping):
        fields = {name: value for name, value in found.items() if value is not None}
        if not {"reward", "duration"} <= set(fields) <= {*names, "charged", "mask"}:
            raise ValueError(
                f"execute returned a dict of {sorted(fields)}: want reward, duration "
                "and, if there is need, context, action, charged and mask"
            )
    elif not 2 <= len(found) <= len(names):
        raise ValueError(
            f"execute returned {len(found)} lists: want rewards, seconds and, if the "
            "estimator needs them, contexts and actions"
        )
    else:
        fields = dict(zip(names, found, strict=False))
    for name, values in fields.items():
        if len(values) != number:
            raise ValueError(
                f"execute returned {len(values)} {name}s for {number} completions"
            )
    return fields


def usable(fields: dict[str, Any]) -> dict[str, Any]:
    """Columns without gaps: rows that lack a reward or seconds are masked out.

    0 seconds become a nanosecond: an answer that ran nothing is charged nothing.

    Args:
      fields: as ``measured`` returned them.

    Returns:
      The arguments of ``RelativeReward.priced``, float64 and bool.
    """
    reward, seconds = numbers(fields["reward"]), numbers(fields["duration"])
    keep = np.isfinite(reward) & np.isfinite(seconds)
    if "mask" in fields:
        keep &= np.asarray(fields["mask"], bool)
    columns = fields | {
        "reward": reward,
        "duration": np.maximum(seconds, MIN_SECONDS),
        "mask": keep,
    }
    if "charged" in fields:
        columns["charged"] = numbers(fields["charged"])
        columns["mask"] = keep & np.isfinite(columns["charged"])
    return columns


def numbers(values: Any) -> Float[np.ndarray, " B"]:
    """A list with None as float64 with NaN."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values.astype(np.float64)
    return np.array(
        [np.nan if value is None else float(value) for value in values], np.float64
    )
