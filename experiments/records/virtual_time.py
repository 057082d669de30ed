"""Seconds of a step whose executions come from a table: a function of its records.

Nothing of it is measured, so a run that was killed and resumed, and the same run on
another machine, have the same seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any

from experiments.config.reward_rule import RewardRule
from experiments.config.virtual import Virtual
from experiments.records.phases import PHASES, Seconds
from experiments.records.recorded import is_repeat


def step_seconds(
    virtual: Virtual,
    rule: RewardRule,
    records: Iterable[Mapping[str, Any]],
    *,
    gradient: bool,
) -> Seconds:
    """Seconds of each phase of a step.

    Scripts start in the order of their chains, each on the first slot that is free; the
    step waits for the last of them.

    Args:
        virtual: declared seconds, slots.
        rule: whose clock a script's seconds are on.
        records: of the step, in the order of their chains.
        gradient: whether the arm has an update.
    """
    free = [0.0] * virtual.slots
    for record in records:
        if is_repeat(record):
            continue
        name = "cpu_s" if rule.script_clock == "cpu" else "execution_s"
        seconds = record.get(name) or 0.0  # no script, or none that was measured
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return dict.fromkeys(PHASES, 0.0) | {
        "sample": virtual.sampling_s,
        "execute": max(free),
        "update": virtual.update_s if gradient else 0.0,
    }
