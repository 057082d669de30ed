"""A scripted policy, a fake sandbox and a fake grader for the tests of the loop.

A script says in one assignment what happens when it is run, so that every number of a
run is a function of the texts alone.
"""

import dataclasses
import json
from concurrent.futures import Future

import numpy as np

from experiments.config.arms import get_arm
from experiments.config.protocol import SOUND
from experiments.config.rate import RateOptions
from experiments.loop.algorithm import Loop
from experiments.loop.hooks import Hooks
from experiments.records.drafts import Generation
from experiments.records.spec import RunSpec, Scoring
from rpg_tasks import get_task
from rpg_tasks.grading import Grade
from sandbox_exec.protocol import RunRecord, Submission

TASK = get_task("tabular-2022")  # AUC: higher is better, perfect 1
BASELINE = 0.5
ORDER = "order = "
# (score or a failure, seconds): what the scripted policy chooses from.
MENU = (
    (0.6, 1.0),
    (0.75, 2.5),
    (0.9, 8.0),
    (0.95, 30.0),
    (0.4, 3.0),
    ("nonzero_exit", 0.1),
    ("timeout", 60.0),
    ("missing", 2.0),
)


def answer(score, seconds, salt=""):
    """What a model would write: a plan and one block."""
    order = json.dumps({"score": score, "seconds": seconds, "salt": salt})
    return f"The plan.\n```python\n{ORDER}{order}\n```\n"


def order_of(script):
    """What a script orders: score, seconds, salt."""
    line = next(s for s in script.decode().splitlines() if s.startswith(ORDER))
    return json.loads(line.removeprefix(ORDER))


class ScriptedPolicy:
    """A softmax over the menu, trained by plain policy gradient; state in one file."""

    def __init__(self, folder, *, seed=0, menu=MENU, groups=2, lr=0.5):
        self.folder, self.seed, self.menu = folder, seed, menu
        self.groups, self.lr = groups, lr
        self.theta = np.zeros(len(menu))
        self.sampled = []

    def _probs(self):
        weights = np.exp(self.theta - self.theta.max())
        return weights / weights.sum()

    def sample(self, step, rows, prompts):
        for part in np.array_split(np.array(rows), min(self.groups, len(rows))):
            picks, texts, seconds = [], [], []
            for row in part.tolist():
                rng = np.random.default_rng([self.seed, step, row])
                pick = int(rng.choice(len(self.menu), p=self._probs()))
                picks.append(pick)
                texts.append(answer(*self.menu[pick], salt=f"{step}.{row}"))
                seconds.append(0.2 + 0.3 * rng.random())
            self.sampled.extend((step, row) for row in part.tolist())
            yield Generation(
                rows=tuple(part.tolist()),
                texts=tuple(texts),
                seconds=np.array(seconds),
                payload={"pick": np.array(picks)},
            )

    def learn(self, step, generations, signals):
        probs = self._probs()
        gradient = np.zeros_like(self.theta)
        for group in generations:
            for row, pick in zip(group.rows, group.payload["pick"], strict=True):
                score = -probs.copy()
                score[pick] += 1
                gradient += signals.advantage[row] * score
        self.theta = self.theta + self.lr * gradient / len(signals.mask)
        return {"norm": float(np.linalg.norm(gradient)), "theta0": self.theta[0]}

    def save(self, step, meta):
        np.savez(self.folder / "policy.partial.npz", step=step, theta=self.theta)
        (self.folder / "policy.partial.npz").replace(self.folder / "policy.npz")

    def restore(self):
        path = self.folder / "policy.npz"
        if not path.exists():
            return 0
        with np.load(path) as file:
            self.theta = file["theta"]
            return int(file["step"])


class Unsalted(ScriptedPolicy):
    """Writes the same few programs over and over, each with another comment."""

    def sample(self, step, rows, prompts):
        for group in super().sample(step, rows, prompts):
            picks = group.payload["pick"].tolist()
            texts = [
                answer(*self.menu[pick]).replace("order", f"# {row}\norder", 1)
                for row, pick in zip(group.rows, picks, strict=True)
            ]
            yield group._replace(texts=tuple(texts))


def run_record(run_id, script):
    """The sandbox's record of a script, by what its comment orders."""
    order = order_of(script)
    score, seconds = order["score"], order["seconds"]
    options = {"run_id": run_id, "delta_s": seconds, "status": "ok"}
    if score in ("nonzero_exit", "timeout", "sandbox_error", "oom"):
        return RunRecord(**options | {"status": score, "error": "it was so ordered"})
    if score == "missing":
        return RunRecord(**options, submission=Submission())
    return RunRecord(
        **options,
        submission=Submission("ok", sha256="0" * 64, n_bytes=3),
        submission_bytes=str(score).encode(),
    )


def execute(run_id, script):
    future = Future()
    future.set_result(run_record(run_id, script))
    return future


def grade(run):
    score = float(run.submission_bytes)
    return Grade(True, score, None, None, None)


def describe(previous):
    return (
        "base" if previous is None else f"improve {previous.score}\n{previous.script}"
    )


def spec(arm="rpg", *, chains=6, protocol=SOUND, rate=None, seed=0, **options):
    protocol = dataclasses.replace(protocol, chains=chains)
    if rate is not None:
        protocol = dataclasses.replace(protocol, rate=RateOptions(**rate))
    price = 0.01 if arm == "fixed-price" else None
    return RunSpec(
        arm=get_arm(arm, fixed_price=price),
        protocol=protocol,
        scoring=Scoring(TASK, protocol.rule, BASELINE),
        seed=seed,
        limit_s=60.0,
        **options,
    )


def hooks(policy, **changes):
    return Hooks(policy, execute, grade, describe)._replace(**changes)


def make_loop(folder, policy=None, *, resume=False, changes=None, **options):
    """A run with the scripted policy; ``changes`` are to its hooks."""
    policy = policy or ScriptedPolicy(folder)
    parts = hooks(policy, **(changes or {}))
    return Loop(folder, spec(**options), parts, resume=resume)


def records(folder, name="attempts.jsonl"):
    """A file of records, parsed by nothing of the loop; by step and chain."""
    with open(folder / name, encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    return sorted(found, key=lambda r: (r["step"], r.get("chain", 0)))
