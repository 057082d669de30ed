"""A speedrun's noise floor and its baseline, as the last test measured them."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

from experiments.config.reward_rule import RewardRule
from rpg_tasks.speedrun.record import Speedrun

FILE = "noise.json"


@dataclasses.dataclass(frozen=True)
class Noise:
    """The baseline on fresh seeds, on the machine of the runs.

    Attributes:
        seconds: of each seed.
        losses: of each seed, nats a token.
        floor: (max - min) / mean of the seconds.
    """

    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    floor: float


def read_noise(root: Path) -> Noise | None:
    """What an experiment's folder says; None where it was not measured."""
    try:
        found = json.loads((root / FILE).read_text("utf-8"))
        return Noise(
            tuple(map(float, found["seconds"])),
            tuple(map(float, found["losses"])),
            float(found["floor_share"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def baseline_score(root: Path, speedrun: Speedrun, rule: RewardRule) -> float:
    """The baseline's score: measured beside the runs, else as the record has it.

    Args:
        root: the experiment's folder.
        speedrun: the record.
        rule: under the published rewards a score is a loss, else seconds.
    """
    noise = read_noise(root)
    if rule.kind.startswith("paper"):
        return statistics.fmean(noise.losses) if noise else speedrun.target
    return statistics.fmean(noise.seconds) if noise else speedrun.baseline_s
