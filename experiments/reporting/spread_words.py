"""What the spread of seconds says: first lines, a prediction, a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from experiments.reporting.sheet import (
    BLANK,
    Column,
    Row,
    Sheet,
    number,
    percent,
    span,
    text_column,
)
from experiments.reporting.spread import ABOVE, BELOW, FEW, OPEN, TaskSpread

#: So many tasks have their own numbers in a sentence.
_NAMED = 3


def headline(found: Sequence[TaskSpread]) -> str:
    """What happened, and whether it is settled: the first line of the command."""
    if len(found) == 1:
        return _one(found[0])
    arms = {one.arm for one in found}
    said = {BELOW: "settled below 5", ABOVE: "settled above 5", OPEN: OPEN, FEW: FEW}
    parts = []
    for state, words in said.items():
        here = [one for one in found if one.state == state]
        names = [one.task if len(arms) == 1 else one.where for one in here]
        if here:
            parts.append(f"{words} on {len(here)} ({', '.join(names)})")
    text = f"W, the spread of seconds that buy no score, of {len(found)} "
    text += "tasks" if len(arms) == 1 else "pairs of task and arm"
    text += f": {'; '.join(parts)}."
    more = [one.measured.needed for one in found if one.state == FEW]
    if more:
        text += f" W needs up to {max(more):,} more valid attempts there."
    return text


def _one(one: TaskSpread) -> str:
    count = one.measured.attempts
    if one.state == FEW:
        return (
            f"{one.where}: no verdict: {count:,} valid attempts are too few, W needs "
            f"about {one.measured.needed:,} more."
        )
    said = {
        BELOW: "settled: the interval is below 5",
        ABOVE: "settled: the interval is above 5",
        OPEN: "not settled: the interval includes 5",
    }[one.state]
    return (
        f"{one.where}: W = {one.shown}, the spread of seconds that buy no score, from "
        f"{count:,} valid attempts; {said}."
    )


def prediction(found: Sequence[TaskSpread]) -> str:
    """What a simulation predicts for these rows, in plain words."""
    states = {one.state for one in found if one.state != FEW}
    if not states:
        return ""
    loses = "a price of a second loses best score where the score is the reward"
    wins = "a price of a second wins best score even where the score is the reward"
    said = {BELOW: loses, ABOVE: wins}
    if len(states) == 1 and (state := states.pop()) in said:
        text = f"{said[state]} (W {state})"
    else:
        text = "with the score as reward a price of a second loses best score where W "
        text += "is below about 5 and wins above"
    return (
        f"A simulation predicts: {text}; with max@k as reward it never lost. It is a "
        "prediction, not a result."
    )


def line(found: Sequence[TaskSpread]) -> str:
    """One sentence for a report's first screen; empty without any attempt."""
    if not found:
        return ""
    known = [one for one in found if one.state != FEW]
    if not known:
        more = min(one.measured.needed for one in found)
        return (
            "Seconds that buy no score: no verdict, W needs at least "
            f"{more:,} more valid attempts."
        )
    measured = [one.measured for one in known]
    if len(known) <= _NAMED:
        text = ", ".join(f"{one.shown} on {one.task}" for one in known)
    else:
        ends = (min(m.low for m in measured), max(m.high for m in measured))
        text = (
            f"{number(min(m.spread for m in measured), 2)} to "
            f"{number(max(m.spread for m in measured), 2)} on {len(known)} tasks (95% "
            f"intervals within {span(*ends, 2)})"
        )
    arms = ", ".join(dict.fromkeys(one.arm for one in known))
    text = f"Seconds that buy no score ({arms}): W = {text}. "
    if left := len(found) - len(known):
        text += f"Too few attempts on {left} more. "
    return text + (
        "A simulation predicts that a price loses best score where W is below about "
        "5 and the score is the reward."
    )


def sheet(found: Sequence[TaskSpread]) -> Sheet:
    """The table: one row a task and arm."""
    return Sheet(
        "spread",
        "Seconds that buy no score",
        (
            text_column("task"),
            text_column("arm"),
            Column("valid / attempts", lambda r: f"{r['valid']:,} / {r['attempts']:,}"),
            Column("W", lambda r: number(r["W"], 2)),
            Column("95% interval", lambda r: span(r["W_low"], r["W_high"], 2)),
            Column("p95/p5", lambda r: number(r["p95_p5"], 2)),
            Column("correlation", lambda r: _hundredths(r["rank_correlation"])),
            Column("wasted", lambda r: percent(r["wasted_share"])),
            Column("against 5", lambda r: r["verdict"], left=True),
            Column("more needed", lambda r: number(r["needed"]) if r["needed"] else ""),
        ),
        [_row(one) for one in found],
        note="W: p90/p10 of seconds among attempts of about equal value, median over "
        "bins. p95/p5: of all valid attempts. Correlation: ranks of value and log "
        "seconds. Wasted: share of seconds of attempts that neither set a new best nor "
        "were needed for it.",
    )


def _hundredths(value: float) -> str:
    return BLANK if math.isnan(value) else f"{value:.2f}".replace("-", "−")


def _row(one: TaskSpread) -> Row:
    found = one.measured
    return {
        "task": one.task,
        "arm": one.arm,
        "attempts": one.attempts,
        "valid": found.attempts,
        "W": found.spread,
        "W_low": found.low,
        "W_high": found.high,
        "bins": len(found.ratios),
        "p95_p5": found.overall,
        "rank_correlation": found.correlation,
        "wasted_share": one.wasted,
        "verdict": one.state,
        "needed": found.needed,
    }
