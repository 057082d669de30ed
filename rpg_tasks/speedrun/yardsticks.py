"""How runs are compared: our two margins, and the community's yardsticks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

#: The record rule of modded-nanogpt: mean loss below 3.28 with this much evidence.
RECORD_TARGET, RECORD_BOUND = 3.28, 0.004


class OtherMachine(ValueError):
    """Seconds of two CPU models are not compared."""


def margin_time(seconds: float, vanilla: float) -> float:
    """T_vanilla / T_rpg - 1; ``margin_time(7, 13)`` is 6/7, the paper's 85.7%.

    The paper gives no formula; that this is its number is our reading.

    Args:
        seconds: to the target, of rpg.
        vanilla: of its rival.
    """
    if not (seconds > 0 and vanilla > 0):
        raise ValueError(f"seconds must be positive, got {seconds} and {vanilla}")
    return (vanilla - seconds) / seconds


def margin_loss(loss: float, vanilla: float, target: float) -> float:
    """(L* - L_rpg) / (L* - L_vanilla) - 1, the other reading.

    Raises:
        ValueError: the rival did not get below the target.
    """
    if not vanilla < target:
        raise ValueError(f"the rival's loss {vanilla} is not below {target}")
    return (vanilla - loss) / (target - vanilla)


def same_machine(cpu_models: Sequence[str]) -> str:
    """The CPU model that all seconds were measured on.

    Raises:
        OtherMachine: there are several.
    """
    found = sorted(set(cpu_models))
    if len(found) > 1:
        raise OtherMachine(
            f"seconds of {' and '.join(found)} are not compared: measure all arms on "
            "one machine"
        )
    return found[0] if found else ""


def is_record(losses: Sequence[float], target: float = RECORD_TARGET) -> bool:
    """(target - mean) sqrt(n) >= 0.004: enough runs, far enough below the target."""
    if not losses:
        return False
    gap = target - statistics.fmean(losses)
    return gap * math.sqrt(len(losses)) >= RECORD_BOUND


def recovered(before: float, after: float, reached: float) -> float:
    """Share of the speedup between consecutive records that was recovered.

        (T_before - T_reached) / (T_before - T_after)

    Args:
        before: seconds of the record that the search began with.
        after: of the next record.
        reached: of the best script that was found.
    """
    if not before > after > 0:
        raise ValueError(f"the next record must be faster: {before}, {after}")
    return (before - reached) / (before - after)


def noise_floor(seconds: Sequence[float]) -> float:
    """Relative spread of one script's seconds over seeds: (max - min) / mean."""
    if len(seconds) < 2:
        raise ValueError("a noise floor needs at least two runs")
    return (max(seconds) - min(seconds)) / statistics.fmean(seconds)


def new_bests(
    scripts: Sequence[str], seconds: Sequence[float], floor: float
) -> list[int]:
    """Attempts that are a new best: another script, faster by more than the noise.

    A script that is run again has the mean of its runs, and is never a new best: the
    fastest of 50 copies of one script is luck. The first attempt has nothing to beat.

    Args:
        scripts: name or digest of each attempt's script, in order.
        seconds: of each attempt, all at the target.
        floor: the noise floor, a share.
    """
    runs: dict[str, list[float]] = {}
    best, found = "", []
    for at, (script, second) in enumerate(zip(scripts, seconds, strict=True)):
        new = script not in runs
        runs.setdefault(script, []).append(second)
        if not best:
            best = script
        elif new and second < statistics.fmean(runs[best]) * (1.0 - floor):
            best = script
            found.append(at)
    return found


def within_noise(best: float, other: float, floor: float) -> bool:
    """Whether a best differs from another by less than the noise floor."""
    return abs(best - other) <= floor * max(best, other)
