"""Keyed randomness and ids: equal seeds give equal data on every platform."""

import binascii

import numpy as np


def make_rng(name: str, seed: int) -> np.random.Generator:
    """Independent stream per (name, seed), equal on every platform.

    Args:
        name: what the stream is for, e.g. a task's short name.
        seed: non-negative integer.
    """
    return np.random.default_rng([binascii.crc32(name.encode()), seed])


def hex_ids(rng: np.random.Generator, n: int, width: int) -> list[str]:
    """`n` distinct lower-case hexadecimal ids of `width` characters."""
    ids: dict[str, None] = {}
    while len(ids) < n:
        ids[rng.bytes((width + 1) // 2).hex()[:width]] = None
    return list(ids)


def numbered_ids(rng: np.random.Generator, n: int, form: str, top: int) -> list[str]:
    """`n` distinct ids `form.format(k)` with k drawn from range(top), unordered."""
    return [form.format(k) for k in rng.choice(top, n, replace=False)]
