"""When a report gives no verdict: too few updates, or unequal contention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from experiments.reporting.runs import RunRecords
from experiments.reporting.sheet import percent

#: Updates (without a gradient: steps) that every run of both arms must have made.
MIN_UPDATES = 10
#: Shares of contended attempts, or of disturbed seconds, that differ by more are
#: unequal.
APART = 0.1
#: Smaller differences of the shares of contended attempts are unequal if they exceed
#: SLIGHT, Fisher's exact test gives less than RARE, and as many are contended.
SLIGHT, RARE, ENOUGH = 0.02, 0.01, 5


class Gate(NamedTuple):
    """Why two arms are not judged: in a few words, and in a clause with numbers."""

    kind: str
    reason: str


def updates(run: RunRecords) -> tuple[int, str]:
    """How many updates a run has made; its steps where its arm makes none."""
    arm = run.config.get("arm")
    if isinstance(arm, dict) and not arm.get("gradient", True):
        return run.steps, "step"
    return run.steps - run.skipped, "update"


def why_no_verdict(
    first: Sequence[RunRecords], second: Sequence[RunRecords]
) -> Gate | None:
    """Why the runs of two arms are not judged against each other; None if they are.

    1. A run of either arm has made fewer than ``MIN_UPDATES`` updates. Arms without a
       gradient (search-only) make none: their steps count.
    2. Contention was unequal: of at least ``ENOUGH`` contended attempts, the arms'
       shares differ by more than ``APART``, or by more than ``SLIGHT`` with a Fisher
       exact p below ``RARE``; or their shares of disturbed seconds differ by more than
       ``APART``.
    """
    return _too_short([*first, *second]) or _unequal(first, second)


def _too_short(runs: Sequence[RunRecords]) -> Gate | None:
    shortest = min(runs, key=lambda run: updates(run)[0])
    made, unit = updates(shortest)
    if made >= MIN_UPDATES:
        return None
    many = "" if made == 1 else "s"
    return Gate(
        f"fewer than {MIN_UPDATES} updates",
        f"a run of {shortest.arm} made {made} {unit}{many}, and a verdict needs "
        f"{MIN_UPDATES}",
    )


def _contended(runs: Sequence[RunRecords]) -> tuple[int, int]:
    """(contended attempts, executed attempts)."""
    return (
        sum(run.attempts.contended for run in runs),
        sum(run.attempts.executed for run in runs),
    )


def _disturbed(runs: Sequence[RunRecords]) -> float:
    """Share of the execution seconds that other work disturbed."""
    spent = sum(run.attempts.spent_s for run in runs)
    return sum(run.attempts.disturbed_s for run in runs) / spent if spent else 0.0


def _unequal(first: Sequence[RunRecords], second: Sequence[RunRecords]) -> Gate | None:
    pair = (first, second)
    counts = [_contended(runs) for runs in pair]
    shares = [some / whole if whole else 0.0 for some, whole in counts]
    if _apart(counts, shares):
        return _gate(pair, shares, "scripts")
    seconds = [_disturbed(runs) for runs in pair]
    if abs(seconds[0] - seconds[1]) > APART:
        return _gate(pair, seconds, "execution seconds")
    return None


def _apart(counts: Sequence[tuple[int, int]], shares: Sequence[float]) -> bool:
    if sum(some for some, _ in counts) < ENOUGH:
        return False
    gap = abs(shares[0] - shares[1])
    if gap <= SLIGHT or gap > APART:
        return gap > APART
    from scipy.stats import fisher_exact

    table = [[some, whole - some] for some, whole in counts]
    return bool(fisher_exact(table).pvalue < RARE)


def _gate(
    pair: Sequence[Sequence[RunRecords]], shares: Sequence[float], what: str
) -> Gate:
    names = [runs[0].arm for runs in pair]
    return Gate(
        "unequal contention",
        f"other work disturbed {percent(shares[0])} of {names[0]}'s {what} and "
        f"{percent(shares[1])} of {names[1]}'s",
    )


def by_kind(found: Sequence[tuple[Gate, str]]) -> str:
    """Names of tasks without a verdict, by the reason."""
    kinds = dict.fromkeys(gate.kind for gate, _ in found)
    return "; ".join(
        f"{kind}: {', '.join(name for gate, name in found if gate.kind == kind)}"
        for kind in kinds
    )
