"""Every committed run, recomputed from its ledger with NumPy alone.

Formulas are written out here again on purpose: nothing of the loop, of its accounts or
of the report is imported for them.
"""

import csv
import hashlib
import json

import numpy as np
import pytest

from benchmarks import committed_report
from rpg_tasks import get_task

TASKS = ("denoising-docs", "leaf-classif", "nyc-taxi", "spooky-author", "tabular-2022",
         "whale")  # fmt: skip
RECENT, KAPPA = 4, 1e-3  # batches that failures are counted in; the NIW prior's weight


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    found = committed_report.unpack(folder)
    assert [path.name for path in found] == sorted(TASKS)
    return folder


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def by_step(folder, steps):
    """The last record of each chain of each finished step, in the chains' order."""
    last = {(r["step"], r["chain"]): r for r in lines(folder / "attempts.jsonl")}
    return [
        [last[key] for key in sorted(last) if key[0] == step] for step in range(steps)
    ]


class Columns:
    """The numbers of a list of attempts, in its order."""

    def __init__(self, attempts):
        self.reward, self.value, self.seconds = (
            np.array([np.nan if a[n] is None else a[n] for a in attempts], float)
            for n in ("reward", "value", "delta_s")
        )
        self.valid = np.array([a["valid"] for a in attempts], bool)
        self.known = np.array([a["delta_s"] is not None for a in attempts], bool)


def check_attempt(a, task, baseline, folder):
    """Script, reward = gain over the sample submission, seconds."""
    if a["script_sha256"]:
        script = (folder / "scripts" / f"{a['script_sha256']}.py").read_bytes()
        assert hashlib.sha256(script).hexdigest() == a["script_sha256"]
    if a["status"] == "infrastructure":
        assert a["reward"] is a["value"] is a["delta_s"] is None
        return
    assert a["delta_s"] == max(a["execution_s"] + a["generation_s"], 0.1)
    assert a["valid"] == (a["status"] == "valid") == (a["score"] is not None)
    gain = 0.0
    if a["valid"]:
        sign = 1.0 if task.higher_is_better else -1.0
        room = sign * (task.perfect_score - baseline)
        gain = min(max(sign * (a["score"] - baseline), 0.0) / room, 1.0)
    assert a["value"] == a["reward"] == gain


def relative_rewards(c, price):
    """(r - price * charged, charged): a failure costs the slowest valid's seconds."""
    charged = np.zeros(len(c.known))
    charged[c.known] = c.seconds[c.known]
    if (c.valid & c.known).any():
        failed = c.known & ~c.valid
        charged[failed] = np.maximum(charged[failed], c.seconds[c.valid].max())
    relative = np.zeros(len(c.known))
    relative[c.known] = c.reward[c.known] - price * charged[c.known]
    return relative, charged


def leave_one_out(relative, known):
    """Each known attempt's relative reward minus the mean of the others'."""
    out = np.zeros(len(known))
    r = relative[known]
    out[known] = r - (r.sum() - r) / max(len(r) - 1, 1) if len(r) > 1 else 0.0
    return out


def greedy_rate(valid, batches, chains):
    """The estimated reward rate: a fixed point over the best attempts, and failures.

    rho = w_v E[r] / (w_v E[delta | valid] + w_f E[delta | failed]), expectations under
    NIW posteriors (prior mean 0, weight KAPPA) of the ``chains`` best by r - rho delta.
    """
    if not valid:
        return 0.0
    reward, seconds = np.array(valid).T
    attempts = sum(count for count, _ in batches[-RECENT:])
    failed = np.array([s for _, found in batches[-RECENT:] for s in found])
    share = (len(failed) + 0.5) / (attempts + 1.0)
    rho, seen = 0.0, set()
    while True:
        best = np.argsort(-(reward - rho * seconds), kind="stable")[:chains]
        if best.tobytes() in seen:
            return rho
        seen.add(best.tobytes())
        earned = reward[best].sum() / (len(best) + KAPPA)
        time = seconds[best].sum() / (len(best) + KAPPA)
        if len(failed):
            earned *= 1 - share
            time = (1 - share) * time + share * failed.sum() / (len(failed) + KAPPA)
        rho = max(earned / time, 0.0)


def parents(known, price, chains):
    """Chain i goes on from the i-th best by r - price * delta, older first on ties."""
    if not known:
        return [None] * chains
    score = np.array([v - price * s for _, v, s in known])
    ranked = np.argsort(-score, kind="stable")[:chains]
    return [known[ranked[i % len(ranked)]][0] for i in range(chains)]


def mean(values, known):
    return float(values[known].mean()) if known.any() else None


class Replay:
    """What a run knew after each step, from its ledger."""

    def __init__(self, config, task):
        self.arm, self.task = config["arm"], task
        self.chains = config["protocol"]["chains"]
        self.entries, self.valid, self.batches = [], [], []
        self.attempts, self.best, self.on_policy, self.rate = 0, None, 0.0, 0.0
        self.clocks = np.zeros((2, self.chains))

    def price(self, choice, rho):
        return {"none": 0.0, "estimated": rho}[choice]

    def check_prices(self, m):
        """What was charged is the rate before the step; the ranking's price too."""
        held_out = self.rate if self.batches else m["rho_next"]
        assert m["rho"] == held_out
        assert m["price"] == self.price(self.arm["advantage_price"], m["rho"])
        ranking = self.price(self.arm["ranking_price"], self.rate)
        assert m["ranking_price"] == ranking

    def take(self, attempts, m):
        chosen = parents(self.entries[-1280:], m["ranking_price"], self.chains)
        assert m["parents"] == chosen == [a["parent"] for a in attempts]
        self.check_prices(m)
        c = Columns(attempts)
        relative, charged = relative_rewards(c, m["price"])
        assert m["relative"] == relative.tolist()
        assert m["charged_s"] == charged.tolist()
        assert m["weight"] == c.known.astype(float).tolist()
        if c.known.any():
            total = c.seconds[c.known].sum()
            self.on_policy = max(float(c.value[c.known].sum() / total), 0.0)
        assert m["on_policy_rate"] == self.on_policy
        np.testing.assert_allclose(  # the update's are float32
            m["advantage"], leave_one_out(relative, c.known), rtol=1e-5,
            atol=2e-6 * (1 + np.abs(relative).max()),
        )  # fmt: skip
        for name, values in {
            "mean_reward": c.reward, "mean_relative": relative,
            "valid_share": c.valid, "mean_delta_s": c.seconds,
        }.items():  # fmt: skip
            assert m[name] == mean(values, c.known), name
        assert m["infrastructure"] == int((~c.known).sum())
        self.add(attempts, c)
        assert m["attempts"] == self.attempts
        assert m["best_score"] == self.best
        for name, clock in zip(("execution_s", "attempt_s"), self.clocks, strict=True):
            assert m["clock"][name] == float(clock.mean())
        estimate = greedy_rate(self.valid[-1280:], self.batches, self.chains)
        assert m["rho_next"] == pytest.approx(estimate, rel=2e-5)  # float32 on record
        self.rate = m["rho_next"]

    def add(self, attempts, c):
        sign = 1 if self.task.higher_is_better else -1
        for a in attempts:
            self.attempts += 1
            if a["delta_s"] is None:
                continue
            spent = a["execution_s"] + a.get("rerun_s", 0.0)
            self.clocks[0, a["chain"]] += max(spent, 0.1)
            self.clocks[1, a["chain"]] += max(spent + a["generation_s"], 0.1)
            if a["valid"]:
                self.entries.append((a["run_id"], a["value"], a["delta_s"]))
                if self.best is None or sign * a["score"] > sign * self.best:
                    self.best = a["score"]
        good = c.valid & c.known
        self.valid += zip(c.value[good], c.seconds[good], strict=True)
        failed = c.seconds[c.known & ~c.valid].tolist()
        self.batches.append((int(c.known.sum()), failed))


def check_final(folder, replay, attempts):
    """The private test is of the run's best script; medals by the thresholds."""
    scores = {a["run_id"]: a["score"] for a in attempts}
    last = None
    for record in lines(folder / "final.jsonl"):
        assert record["validation_score"] == scores[record["of"]]
        last = record if record["best"] else last
        if record["score"] is None:
            continue
        sign = 1 if replay.task.higher_is_better else -1
        score = sign * round(record["score"], 5)
        reached = [
            name for name in ("gold", "silver", "bronze", "median")
            if score >= sign * round(getattr(replay.task.medals, name), 5)
        ]  # fmt: skip
        won = [name for name in reached if name != "median"]
        assert record["medal"] == (won[0] if won else None)
        assert record["above_median"] == ("median" in reached)
    assert last is not None
    assert last["validation_score"] == replay.best


@pytest.mark.parametrize("name", TASKS)
def test_a_committed_run_recomputes(records, name):
    task, root = get_task(name), records / name
    with (root / "result.csv").open(encoding="utf-8") as file:
        rows = {(r["arm"], r["seed"]): r for r in csv.DictReader(file)}
    folders = sorted(root.glob("*/*/seed-*"))
    assert len(folders) == len(rows) == 9
    for folder in folders:
        config = json.loads((folder / "config.json").read_text("utf-8"))["config"]
        assert config["task"] == name
        metrics = lines(folder / "metrics.jsonl")
        assert [m["step"] for m in metrics] == list(range(len(metrics)))
        steps = by_step(folder, len(metrics))
        replay = Replay(config, task)
        for attempts, m in zip(steps, metrics, strict=True):
            assert [a["chain"] for a in attempts] == list(range(replay.chains))
            for a in attempts:
                check_attempt(a, task, config["baseline"], folder)
            replay.take(attempts, m)
        every = [a for attempts in steps for a in attempts]
        row = rows[config["arm"]["name"], str(config["seed"])]
        known = [a for a in every if a["delta_s"] is not None]
        rate = sum(a["value"] for a in known) / sum(a["delta_s"] for a in known)
        assert float(row["reward_rate"]) == pytest.approx(rate, rel=1e-12)
        assert (int(row["attempts"]), int(row["steps"])) == (len(every), len(steps))
        assert float(row["best_validation_score"]) == replay.best
        check_final(folder, replay, every)


@pytest.mark.slow
def test_the_committed_report_is_what_its_records_give(records, tmp_path):
    import report_help

    from experiments.reporting.build import build

    folders = [records / name for name in TASKS]
    with report_help.undrawn():
        build(folders, tmp_path / "report")
    assert committed_report.differences(tmp_path / "report") == []


def test_the_readme_quotes_the_committed_tables():
    """Its table of rates is that of tables.md."""
    tables = (committed_report.RESULTS / "tables.md").read_text("utf-8")
    readme = (committed_report.RESULTS / "README.md").read_text("utf-8")
    section = readme.partition("## rpg against vanilla")[2].partition("## Is the")[0]
    quoted = [line for line in section.splitlines() if line.startswith("| ")]
    assert len(quoted) == 2 + len(TASKS)
    assert set(quoted) <= set(tables.splitlines())
