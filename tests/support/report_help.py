"""Small experiments for the tests of the report: scripted policy, no execution.

Folders are those of the training command; only execution and grading are stand-ins.
"""

import contextlib
import dataclasses
import json
import os
import time
from concurrent.futures import Future
from pathlib import Path

import loop_help
import numpy as np
import pytest

from experiments.config.arms import get_arm
from experiments.config.budget import Budget
from experiments.config.protocol import SOUND
from experiments.loop.algorithm import Loop
from experiments.loop.hooks import Hooks
from experiments.loop.turns import run
from experiments.records import rundir
from experiments.records.spec import RunSpec, Scoring, run_config
from experiments.reporting import style
from rpg_tasks import get_task
from rpg_tasks.grading import Grade
from sandbox_exec.protocol import RunRecord, Submission

BODY = """
import pandas as pd
from sklearn.linear_model import LogisticRegression

train = pd.read_csv("input/train.csv")
test = pd.read_csv("input/test.csv")
model = LogisticRegression(C={c}, max_iter={steps})
model.fit(train.iloc[:, 1:-1], train.iloc[:, -1])
out = pd.DataFrame({{"id": test["id"]}})
out["target"] = model.predict_proba(test.iloc[:, 1:])[:, 1]
out.to_csv("submission.csv", index=False)
print("rows", len(out))
"""


class Policy(loop_help.ScriptedPolicy):
    """Writes a line that orders what happens, and a body that looks like a script."""

    def sample(self, step, rows, prompts):
        for group in super().sample(step, rows, prompts):
            texts = [
                t.replace("\n```\n", self.body(step, row) + "```\n")
                for row, t in zip(group.rows, group.texts, strict=True)
            ]
            yield group._replace(texts=tuple(texts))

    def body(self, step, row):
        return BODY.format(c=round(0.1 * (row + 1), 2), steps=100 + step)


def make_execute(task, *, lost=0.02, stdout="rows 100\n", stderr=""):
    """Execution that an order on the script's first line decides."""

    def execute(run_id, script):
        order = loop_help.order_of(script)
        score, seconds = order["score"], order["seconds"]
        rng = np.random.default_rng(list(run_id.encode()))
        seconds = float(seconds * np.exp(0.2 * rng.standard_normal()))
        options = {"run_id": run_id, "delta_s": seconds, "status": "ok"}
        options |= {"stdout_tail": stdout, "stderr_tail": stderr}
        if rng.random() < lost:
            score = "sandbox_error"
        if isinstance(score, str) and score != "missing":
            record = RunRecord(
                **options | {"status": score, "error": f"stopped: {score}"}
            )
        elif score == "missing":
            record = RunRecord(**options, submission=Submission())
        else:
            score += 0.01 * rng.standard_normal()
            score = score if task.higher_is_better else 1.6 * (1 - score)
            record = RunRecord(
                **options,
                submission=Submission("ok", sha256="0" * 64, n_bytes=3),
                submission_bytes=str(score).encode(),
            )
        future = Future()
        future.set_result(record)
        return future

    return execute


def grade(run):
    return Grade(True, float(run.submission_bytes), None, None, None)


class Clock:
    """Seconds that pass by themselves: runs take no time, their phases do."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 0.05
        return self.now


@contextlib.contextmanager
def undrawn():
    """Figures are laid out, not written: that is most of a report's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "save", lambda figure, path: [])
        patch.setattr(
            style,
            "svgs",
            lambda figure, key, label: ["<svg></svg>"] * len(figure.axes),
        )
        yield


def experiment_config(tasks, arms, seeds, protocol, **changes):
    """What the training command keeps of its settings."""
    return {
        "tasks": list(tasks),
        "sources": ["synthetic"] * len(tasks),
        "size": "small",
        "data_seed": 0,
        "arms": [dataclasses.asdict(get_arm_of(a)) for a in arms],
        "seeds": list(seeds),
        "protocol": json.loads(json.dumps(dataclasses.asdict(protocol))),
        "budget": {"seconds": None, "steps": None, "clock": "total"},
        "final": "chains",
        "model": "tiny",
        "slots": 1,
        "isolation": "namespaces",
    } | changes


def get_arm_of(name):
    return get_arm(name, fixed_price=0.01 if name == "fixed-price" else None)


def make_run(
    folder,
    *,
    tasks=("tabular-2022", "spooky-author"),
    arms=("rpg", "vanilla", "search-only"),
    seeds=(0, 1, 2),
    steps=6,
    chains=4,
    final=True,
    protocol=SOUND,
    policy=Policy,
    lr=0.5,
    config=None,
    **execution,
):
    """An experiment's folder, run to its end."""
    folder = Path(folder)
    protocol = dataclasses.replace(protocol, chains=chains)
    settings = experiment_config(tasks, arms, seeds, protocol)
    settings["budget"]["steps"] = steps
    rundir.open_run(folder, settings | (config or {}), resume=False)
    for short in tasks:
        task = get_task(short)
        baseline = 0.5 if task.higher_is_better else 1.0986
        for seed in seeds:
            for arm in arms:
                place = folder / short / arm / f"seed-{seed}"
                cell = RunSpec(
                    arm=get_arm_of(arm),
                    protocol=protocol,
                    scoring=Scoring(task, protocol.rule, baseline),
                    seed=seed,
                    limit_s=60.0,
                    checkpoint_every=10**6,
                )
                rundir.open_run(place, run_config(cell), resume=False)
                hooks = Hooks(
                    policy(place, seed=seed, lr=lr),
                    make_execute(task, **execution),
                    grade,
                    lambda previous: "base" if previous is None else "improve",
                )
                with (
                    pytest.MonkeyPatch.context() as patch,
                    Loop(place, cell, hooks, clock=Clock()) as loop,
                ):
                    # Nobody pulls a plug here; syncing is most of the time.
                    patch.setattr(os, "fsync", lambda file: None)
                    run([loop], Budget(steps=steps))
                if final:
                    score_final(place, task)
    return folder


def score_final(place, task):
    """final.jsonl: each chain's best script, a little worse than on validation."""
    best = {}
    for record in loop_help.records(place):
        if record["score"] is None:
            continue
        sign = 1 if task.higher_is_better else -1
        known = best.get(record["chain"])
        if known is None or sign * record["score"] > sign * known["score"]:
            best[record["chain"]] = record
    with (place / "final.jsonl").open("w", encoding="utf-8") as file:
        for chain, record in sorted(best.items()):
            score = record["score"] + (-0.01 if task.higher_is_better else 0.01)
            failed = chain == 3
            line = {
                "run_id": f"{record['run_id']}-final",
                "of": record["run_id"],
                "chain": chain,
                "status": "failed" if failed else "valid",
                "reason": "timeout" if failed else None,
                "score": None if failed else score,
                "medal": None,
                "above_median": None if failed else False,
                "execution_s": record["execution_s"],
            }
            file.write(json.dumps(line) + "\n")


def attempts_frame(folder):
    """attempts.jsonl of a cell as pandas has it, retries taken out."""
    import pandas as pd

    rows = []
    with open(Path(folder) / "attempts.jsonl", encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                rows.append(json.loads(line))
    frame = pd.DataFrame(rows)
    return frame.drop_duplicates(["step", "chain"], keep="last").sort_values(
        ["step", "chain"]
    )


def main():
    """A demonstration run: FOLDER [STEPS CHAINS]."""
    import sys

    begin = time.monotonic()
    steps, chains = (int(v) for v in (*sys.argv[2:4], *(20, 8)[len(sys.argv) - 2 :]))
    make_run(sys.argv[1], steps=steps, chains=chains)
    print(f"{time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
