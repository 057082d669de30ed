"""One file format for a price's state: JSON, written whole or not at all.

    {"format": "rpg_jax.rate", "version": 1, "rate": 0.0125, "leaves": [...]}

``rate`` is what the next step is charged, null before data; ``leaves`` are the arrays
of the estimate. The state of ``RelativeReward`` and that of ``RewardRateServer`` are
the same where both keep the policy's own rate.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FORMAT, VERSION = "rpg_jax.rate", 1


def to_plain(state: dict[str, Any]) -> dict[str, Any]:
    """What ``state_dict`` returned, as numbers, lists and strings."""
    leaves = [
        {"dtype": str(leaf.dtype), "shape": list(leaf.shape), "data": leaf.tolist()}
        for leaf in state["leaves"]
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "rate": state["rate"],
        "leaves": leaves,
    }


def from_plain(plain: dict[str, Any]) -> dict[str, Any]:
    """The inverse of ``to_plain``.

    Raises:
        ValueError: no state of a price, or of another version.
    """
    if plain.get("format") != FORMAT or plain.get("version") != VERSION:
        raise ValueError(
            f"want a state of format {FORMAT}, version {VERSION}, got "
            f"{plain.get('format')}, {plain.get('version')}"
        )
    leaves = [
        np.asarray(leaf["data"], leaf["dtype"]).reshape(leaf["shape"])
        for leaf in plain["leaves"]
    ]
    return {"rate": plain["rate"], "leaves": leaves}


def write_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write what ``state_dict`` returned; a reader sees the old file or the new one."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(to_plain(state), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what ``write_state`` wrote.

    Raises:
        ValueError: the file holds something else.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} holds no state of a price: {error}") from None
    if not isinstance(plain, dict):
        raise ValueError(f"{path} holds no state of a price")
    return from_plain(plain)
