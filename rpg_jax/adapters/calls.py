"""Calling a reward function of a user, and whose seconds its rows are charged.

In this order: seconds that the function returns; a column named ``seconds``, such as a
rollout function adds; the attribute ``seconds`` of the rows' environments; else the
function is called row by row and timed, async ones all at once.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rpg_jax.adapters.rows import has_seconds, measured, usable

Seconds = str | Callable[..., Sequence[float]] | None


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call gives a coroutine, partials and callable objects included."""
    while isinstance(function, functools.partial):
        function = function.func
    called = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def call(
    function: Callable[..., Any],
    columns: dict[str, Any],
    *,
    seconds: Seconds = None,
    pairs: bool = False,
) -> dict[str, Any]:
    """Rows of a call, as ``RelativeReward.priced`` takes them.

    Args:
        function: keyword lists -> rewards, or rewards and seconds as in ``measured``.
        columns: keyword arguments; lists of one length are columns of rows.
        seconds: name of a column, or a function of the columns; None: see the module.
        pairs: the function is known to return seconds, and is called once.

    Raises:
        ValueError: another number of rewards than rows, or no such column.
    """
    known = given_seconds(columns, seconds)
    if known is not None or pairs:
        return columns_of(function(**columns), known, rows_in(columns))
    parts = []
    for row in range(rows_in(columns)):
        start = time.perf_counter()
        found = function(**_row(columns, row))
        parts.append(columns_of(found, [time.perf_counter() - start], 1))
    return _joined(parts)


async def call_async(
    function: Callable[..., Any],
    columns: dict[str, Any],
    *,
    seconds: Seconds = None,
    pairs: bool = False,
) -> dict[str, Any]:
    """``call`` for an async function; its rows run at once where they are timed."""
    known = given_seconds(columns, seconds)
    if known is not None or pairs:
        return columns_of(await function(**columns), known, rows_in(columns))

    async def timed(row: int) -> dict[str, Any]:
        start = time.perf_counter()
        found = await function(**_row(columns, row))
        return columns_of(found, [time.perf_counter() - start], 1)

    return _joined(await asyncio.gather(*map(timed, range(rows_in(columns)))))


def rows_in(columns: dict[str, Any]) -> int:
    """Number of rows of a call."""
    return len(columns["completions"])


def given_seconds(columns: dict[str, Any], seconds: Seconds) -> list[float] | None:
    """Seconds that a call comes with; None if it has to be timed.

    Raises:
        ValueError: the column that was named is not there.
    """
    if callable(seconds):
        return list(seconds(**columns))
    if seconds is not None and seconds not in columns:
        raise ValueError(
            f"no column {seconds!r} with the seconds of each completion, only "
            f"{sorted(columns)}"
        )
    if isinstance(columns.get(seconds or "seconds"), list):
        return list(columns[seconds or "seconds"])
    environments = columns.get("environments") or [None]
    spent = [getattr(each, "seconds", None) for each in environments]
    known = [each for each in spent if each is not None]
    return known if len(known) == len(spent) else None


def columns_of(
    found: Any, seconds: Sequence[float] | None, number: int
) -> dict[str, Any]:
    """What a function returned, with seconds from elsewhere if it has none."""
    if has_seconds(found) or seconds is None:
        return usable(measured(found, number))
    return usable(measured({"reward": found, "duration": seconds}, number))


def _row(columns: dict[str, Any], row: int) -> dict[str, Any]:
    number = rows_in(columns)
    return {
        name: value[row : row + 1]
        if isinstance(value, list) and len(value) == number
        else value
        for name, value in columns.items()
    }


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    if not parts:
        return usable({"reward": [], "duration": []})
    names = set(parts[0]).intersection(*parts)
    return {n: np.concatenate([np.asarray(p[n]) for p in parts]) for n in sorted(names)}
