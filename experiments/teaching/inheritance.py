"""What a child has from its parent, each figure beside its chance level.

Two scripts of a task share most of their lines whether or not one is made from the
other. So every share is taken twice: for a child and the parent that its prompt showed,
and for the same child and the other parents of the task.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.loop.repeats import program_digest
from experiments.teaching.survey_summary import Sample

#: A draw of this z-score lies outside of all but 1 in 20 chance draws.
_TWO_SIDED = 1.96
_MODEL = re.compile(r"^# model: (\S+)", re.MULTILINE)


class Inheritance(NamedTuple):
    """Figures of the improve answers of one task; NaN where there is nothing to take.

    Attributes:
        pairs: children with a script that changes something.
        similar: mean share of equal lines of a child and its own parent.
        similar_chance: of a child and the other parents shown.
        family: share of children that keep the parent's model, where both have one.
        family_chance: share of other parents that have the child's model.
        correlation: of the child's and the parent's gain.
        correlation_band: what chance alone stays within in 95% of draws, about 0.
        beats: share of valid children whose gain is above their parent's.
        beats_chance: share of base samples whose gain is above a shown parent's.
        noop: share of improve answers that change nothing of the program.
        nats: mean log-probability that an answer loses when its prompt shows another
            parent, nats.
    """

    pairs: int
    similar: float
    similar_chance: float
    family: float
    family_chance: float
    correlation: float
    correlation_band: float
    beats: float
    beats_chance: float
    noop: float
    nats: float


def inheritance(samples: Sequence[Sample]) -> Inheritance:
    """Of the samples of one task."""
    base = [s for s in samples if s.kind == "base" and s.status == "valid"]
    gains = {s.script: s.gain for s in base if s.gain is not None}
    improve = [s for s in samples if s.kind == "improve"]
    idle = [s for s in improve if not _changes(s)]
    children = [s for s in improve if s.script and _changes(s)]
    parents = list(dict.fromkeys(s.previous for s in improve))
    valid = [s for s in children if s.gain is not None and s.previous in gains]
    pairs = [(float(s.gain or 0.0), float(gains[s.previous] or 0.0)) for s in valid]
    kept = [_same_family(s.script, s.previous) for s in children]
    others = [(s, p) for s in children for p in parents if p != s.previous]
    return Inheritance(
        pairs=len(children),
        similar=_mean([similarity(s.script, s.previous) for s in children]),
        similar_chance=_mean([similarity(s.script, p) for s, p in others]),
        family=_mean([k for k in kept if k is not None]),
        family_chance=_mean(
            [k for s, p in others if (k := _same_family(s.script, p)) is not None]
        ),
        correlation=correlation(pairs),
        correlation_band=_TWO_SIDED / max(len(pairs) - 1, 1) ** 0.5,
        beats=_mean([child > parent for child, parent in pairs]),
        beats_chance=_mean(
            [b > parent for b in gains.values() if b is not None for _, parent in pairs]
        ),
        noop=len(idle) / max(len(improve), 1),
        nats=_mean([s.nats for s in improve if s.nats is not None]),
    )


def similarity(a: str, b: str) -> float:
    """Share of equal lines, in order: 2 * matches / all lines of both."""
    first, second = a.strip().splitlines(), b.strip().splitlines()
    return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio()


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Pearson's; NaN of fewer than three pairs, or where one side does not vary."""
    if len(pairs) < 3:
        return float("nan")
    x, y = np.array(pairs, float).T
    if x.std() < 1e-12 or y.std() < 1e-12:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _changes(sample: Sample) -> bool:
    """Whether an answer changes the program; one refused for another reason might."""
    if not sample.script:
        return not sample.reason.startswith("no-op")
    scripts = sample.script, sample.previous
    made, shown = (program_digest(s.encode()) for s in scripts)
    return made != shown


def _same_family(a: str, b: str) -> bool | None:
    first, second = _MODEL.search(a), _MODEL.search(b)
    return first[1] == second[1] if first and second else None


def _mean(values: Sequence[float | bool]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
