"""What tests recompute of a report, from the raw attempts.jsonl."""

import csv
import math

import numpy as np
import pytest

from rpg_tasks import get_task

TASKS = ("tabular-2022", "spooky-author")
ARMS = ("rpg", "vanilla", "search-only")
SEEDS = (0, 1, 2)
BASE = {"tabular-2022": 0.5, "spooky-author": 1.0986}
STEPS = 7


def rows(report, name):
    """A CSV file of the report by (task, arm) or by task."""
    with (report.page.parent / f"{name}.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    return {(r["task"], r["arm"]) if "arm" in r else r["task"]: r for r in found}


def close(text, value):
    assert (
        math.isnan(value)
        if text == ""
        else float(text) == pytest.approx(value, rel=1e-9, abs=1e-12)
    )


def three(values):
    """Mean and standard error of the seeds' values."""
    values = np.array(values, float)
    return values.mean(), values.std(ddof=1) / math.sqrt(len(values))


def best_by_time(frame, metrics, task, clock, time, baseline):
    """Mean over chains of the best score after so many seconds, by the definition."""
    better = max if get_task(task).higher_is_better else min
    values = []
    for _, part in frame[frame.status != "infrastructure"].groupby("chain"):
        seconds = part.execution_s.to_numpy().copy()
        if clock == "total":
            update = part.step.map(lambda s: metrics[s]["seconds"]["update"] / 4)
            seconds += (part.generation_s + part.grading_s + update).to_numpy()
        done = np.cumsum(np.maximum(seconds, 0.1)) <= time
        scores = part.score[done & part.valid.to_numpy()]
        values.append(better(scores) if len(scores) else baseline)
    return np.mean(values), len(values)


def relative(frame, price):
    """reward - price * charged; failures at least the slowest valid of their step."""
    frame = frame[frame.status != "infrastructure"].copy()
    slowest = frame[frame.valid].groupby("step").delta_s.max()
    floor = frame.step.map(slowest).fillna(0.0)
    charged = frame.delta_s.where(frame.valid, np.maximum(frame.delta_s, floor))
    return frame.assign(relative=frame.reward - price * charged)
