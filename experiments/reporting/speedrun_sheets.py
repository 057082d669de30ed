"""A speedrun's result in words and tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from experiments.reporting.sheet import (
    BLANK,
    Column,
    Row,
    Sheet,
    bounded,
    number,
    percent,
    percent_change,
    text_column,
)
from experiments.reporting.speedruns import (
    CONFIRMED,
    MIN_RUNS,
    MIN_STEPS,
    NOT_CONFIRMED,
    ArmResult,
    Margin,
    Result,
)
from rpg_tasks.speedrun import yardsticks


def sentence(result: Result) -> str:
    """The first line of a speedrun's report."""
    begin = f"{result.task.short}: seconds to {result.target:g} nats a token: "
    parts = [_said(one) for one in result.arms]
    if result.noise is not None:
        parts.append(f"baseline {number(result.baseline)} s")
    text = begin + "; ".join(parts) + "."
    for one in result.margins:
        text += f" {_margin_said(one)}"
    if result.demonstration:
        text += (
            f" A demonstration: a result needs {MIN_RUNS} seeds of {MIN_STEPS} steps "
            "of each arm."
        )
    return text


def _said(one: ArmResult) -> str:
    if one.verdict == CONFIRMED:
        return (
            f"{one.arm} {number(one.seconds)} s ({one.seeds[1]} of {one.seeds[0]} "
            "fresh seeds cross: confirmed)"
        )
    if not one.crossed:
        return f"{one.arm} never"
    if not one.tested:
        return f"{one.arm} {number(one.best)} s in its best attempt (not tested)"
    few = f"{one.confirmed} of {one.runs} runs confirmed"
    if one.confirmed:
        return f"{one.arm} {number(one.seconds)} s ({few})"
    return (
        f"{one.arm} not confirmed ({one.seeds[1]} of {one.seeds[0]} fresh seeds cross)"
    )


def _margin_said(one: Margin) -> str:
    if one.reason:
        return f"No margin of {one.first} over {one.second}: {one.reason}."
    text = f"Margin of {one.first} over {one.second}: {_percents(one)}% in time"
    if math.isfinite(one.loss):
        text += f", {percent_change(100 * one.loss)}% in loss"
    if one.within_noise:
        text += "; in time it is within the noise floor, so it shows nothing"
    return f"{text}."


def _percents(one: Margin) -> str:
    """The margin in time with its interval, per cent."""
    value, low, high = (100 * x for x in one.time)
    return bounded(value, low, high, percent_change)


def noise_line(result: Result) -> str:
    """The noise floor in words."""
    if result.noise is None:
        return (
            "The noise floor was not measured (--final=none): how much one script's "
            "seconds differ is not known."
        )
    seconds = result.noise.seconds
    return (
        f"Noise floor: the baseline with {len(seconds)} fresh seeds takes "
        f"{number(min(seconds))} to {number(max(seconds))} {result.clock} seconds, a "
        f"spread of {percent(result.noise.floor)}. A smaller difference of two "
        "scripts shows nothing."
    )


def _row(result: Result, one: ArmResult) -> Row:
    base = result.baseline
    near: bool | None = None
    if result.noise is not None and math.isfinite(one.seconds):
        near = yardsticks.within_noise(one.seconds, base, result.noise.floor)
    return {
        "task": result.task.short,
        "arm": one.arm,
        "crossed_share": one.crossed / one.attempts if one.attempts else math.nan,
        "attempts": one.attempts,
        "best_attempt_s": one.best,
        "fresh_s": one.seconds,
        "baseline_s": base,
        "speedup": base / one.seconds if math.isfinite(one.seconds) else math.nan,
        "within_noise_of_baseline": "" if near is None else near,
        "new_bests": one.new_bests,
        "fresh_seeds": one.seeds[0],
        "fresh_crossed": one.seeds[1],
        "runs": one.runs,
        "runs_confirmed": one.confirmed,
        "verdict": one.verdict,
        "loss": one.loss,
        "final_loss": one.final_loss,
        "record_rule": (
            yardsticks.is_record(one.losses, result.target) if one.losses else ""
        ),
    }


def _yes(value: object) -> str:
    return BLANK if value == "" else "yes" if value else "no"


def result_sheet(found: Sequence[Result]) -> Sheet:
    """Seconds to the target of each arm, the baseline's first."""
    rows: list[Row] = []
    for result in found:
        if result.noise is not None:
            rows.append(_baseline_row(result))
        rows += [_row(result, one) for one in result.arms]
    columns = (
        text_column("task"),
        text_column("arm"),
        Column("attempts that cross", lambda r: percent(r["crossed_share"])),
        Column("best attempt, s", lambda r: number(r["best_attempt_s"])),
        Column("fresh seeds, s", lambda r: number(r["fresh_s"])),
        Column("baseline / fresh", lambda r: number(r["speedup"])),
        Column("within noise", lambda r: _yes(r["within_noise_of_baseline"]), True),
        Column("new bests", lambda r: number(r["new_bests"])),
        Column(
            "fresh seeds that cross",
            lambda r: f"{r['fresh_crossed']} of {r['fresh_seeds']}",
        ),
        Column("verdict", lambda r: r["verdict"] or BLANK, left=True),
        Column("runs confirmed", lambda r: _of(r["runs_confirmed"], r["runs"])),
        Column("loss", lambda r: number(r["loss"], 4)),
        Column("final text", lambda r: number(r["final_loss"], 4)),
        Column("record rule", lambda r: _yes(r["record_rule"]), left=True),
    )
    return Sheet(
        "speedrun",
        "Seconds to the target (lower is better ↓)",
        columns,
        rows,
        note=" ".join(noise_line(result) for result in found),
        about=(
            "Best attempt: the luckiest of many, mean over runs. Fresh seeds: the "
            "same script trained again with seeds that the run has never seen, mean "
            "over confirmed runs; a run is confirmed where every fresh seed reaches "
            "the target. Within noise: the seconds differ from the baseline's by no "
            "more than the noise floor. New bests: scripts that beat every script "
            "before them by more than that; the same script again is none. Record "
            "rule: modded-nanogpt's, (target − mean loss) √n ≥ 0.004 over the n "
            "fresh seeds.",
        ),
    )


def _of(some: object, whole: object) -> str:
    return BLANK if whole == "" else f"{some} of {whole}"


def _baseline_row(result: Result) -> Row:
    assert result.noise is not None
    losses = result.noise.losses
    crossed = sum(loss <= result.target for loss in losses)
    whole = crossed == len(result.noise.seconds)
    return {
        "task": result.task.short,
        "arm": "baseline",
        "crossed_share": math.nan,
        "attempts": 0,
        "best_attempt_s": math.nan,
        "fresh_s": result.baseline,
        "baseline_s": result.baseline,
        "speedup": 1.0,
        "within_noise_of_baseline": "",
        "new_bests": math.nan,
        "fresh_seeds": len(result.noise.seconds),
        "fresh_crossed": crossed,
        "runs": "",
        "runs_confirmed": "",
        "verdict": CONFIRMED if whole else NOT_CONFIRMED,
        "loss": statistics.fmean(losses),
        "final_loss": math.nan,
        "record_rule": yardsticks.is_record(losses, result.target),
    }


def _time_cell(r: Row) -> str:
    names = ("margin_time", "margin_time_low", "margin_time_high")
    value, low, high = (100 * r[name] for name in names)
    return bounded(value, low, high, percent_change)


def margin_sheet(found: Sequence[Result]) -> Sheet:
    """Margins of the arm in question over each other arm."""
    rows: list[Row] = [
        {
            "task": result.task.short,
            "first": one.first,
            "second": one.second,
            "margin_time": one.time.value,
            "margin_time_low": one.time.low,
            "margin_time_high": one.time.high,
            "margin_loss": one.loss,
            "within_noise": "" if one.within_noise is None else one.within_noise,
            "no_margin": one.reason,
        }
        for result in found
        for one in result.margins
    ]
    return Sheet(
        "margins",
        "Margins on fresh seeds",
        (
            text_column("task"),
            text_column("first"),
            text_column("second"),
            Column("margin_time, %", _time_cell),
            Column("margin_loss, %", lambda r: percent_change(100 * r["margin_loss"])),
            Column("within noise", lambda r: _yes(r["within_noise"]), left=True),
            Column("no margin", lambda r: r["no_margin"] or BLANK, left=True),
        ),
        rows,
        note="margin_time = T_second / T_first − 1, margin_loss = (L* − L_first) / "
        "(L* − L_second) − 1; above 0 the first arm is better.",
        about=(
            "The paper prints one margin, 85.7%, without a formula: 7 s against 13 s "
            "gives 6/7 as a margin in time. That this is its meaning is our reading. "
            "Intervals: bootstrap over confirmed runs.",
            "Seconds of two CPU models are never compared.",
        ),
    )
