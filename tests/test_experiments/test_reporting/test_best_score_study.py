"""The arithmetic of the best-score study, on ledgers whose numbers are known."""

import json

import numpy as np
import pytest

from benchmarks import best_score

MEAN = 1.0  # seconds of an attempt: arms are judged at 32


def write(folder, arm, seed, chains, *, task="whale"):
    """Chains of (value or None, CPU seconds or None) attempts, a step each."""
    run = folder / task / arm / f"seed-{seed}"
    run.mkdir(parents=True)
    rows = [
        {
            "task": task,
            "arm": arm,
            "seed": seed,
            "step": step,
            "chain": chain,
            "valid": value is not None,
            "value": value or 0.0,
        }
        | ({} if seconds is None else {"cpu_s": seconds})
        for chain, made in enumerate(chains)
        for step, (value, seconds) in enumerate(made)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run / "attempts.jsonl").write_text(text, encoding="utf-8")


def test_a_chains_best_is_of_what_it_could_pay_for():
    def rows(*made):
        return [
            {
                "chain": 0,
                "step": at,
                "cpu_s": s,
                "value": v or 0.0,
                "valid": v is not None,
            }
            for at, (v, s) in enumerate(made)
        ]

    spent = rows((0.2, 10.0), (0.9, 25.0), (0.3, 1.0))
    assert best_score.best_at(spent, 32.0) == 0.2
    assert best_score.best_at(spent, 35.0) == 0.9
    assert best_score.best_at(rows((None, 1.0)), 32.0) == 0.0
    without = rows((0.1, 1.0), (None, 1.0), (0.5, 30.05))
    without[1].pop("cpu_s")  # an answer that gave no script: a tenth of a second
    assert best_score.best_at(without, 31.16) == 0.5
    assert best_score.best_at(without, 31.14) == 0.1


def test_leads_are_paired_by_seed_and_pooled_by_spread(tmp_path):
    pilot = {
        "whale": best_score.Pilot(2.0, 1.5, 2.5, MEAN),
        "pizza": best_score.Pilot(8.0, 7.0, 9.0, MEAN),
        "insults": best_score.Pilot(4.5, 4.0, 5.0, MEAN),
    }
    leads = {"whale": [0.1, 0.3], "pizza": [0.2, 0.4], "insults": [9.0, 9.0]}
    for task, lead in leads.items():
        for seed, ahead in enumerate(lead):
            base = [[(0.1, 31.0), (0.9, 2.0)], [(0.3, 1.0)]]
            write(tmp_path, "vanilla", seed, base, task=task)
            better = [[(0.1 + 2 * ahead, 1.0)], [(0.3, 1.0)]]
            write(tmp_path, "rpg", seed, better, task=task)
    found = best_score.differences(best_score.load(tmp_path), pilot)
    assert found["rpg", "vanilla"]["whale"] == pytest.approx({0: 0.1, 1: 0.3})
    rows = {row["task"]: row for row in best_score.rows_of(found, pilot)}
    assert rows["whale"]["ahead"] == pytest.approx(0.2)
    assert rows["whale"]["state"] == "not settled"  # two seeds, t = 12.7
    assert rows["pool W < 4"]["ahead"] == pytest.approx(0.2)
    assert rows["pool W >= 5"]["ahead"] == pytest.approx(0.3)
    assert rows["insults"]["wins"] == rows["insults"]["seeds"] == 2
    (line,) = best_score.dose([*rows.values()])
    assert "3 tasks" in line
    assert "Spearman 0.50" in line


def test_the_pilot_gives_seconds_and_spread(tmp_path, capsys):
    rng = np.random.default_rng(0)
    seconds = rng.choice([1.0, 10.0], size=400)
    chain = [
        (float(v), float(s)) for v, s in zip(rng.random(400), seconds, strict=True)
    ]
    write(tmp_path / "pilot", "independent", 0, [chain])
    (one,) = best_score.pilots(best_score.load(tmp_path / "pilot")).values()
    assert one.seconds == pytest.approx(seconds.mean())
    assert one.spread == pytest.approx(10.0)
    assert best_score.main([f"--pilot={tmp_path / 'pilot'}"]) == 0
    assert f"{32 * seconds.mean():.3g}" in capsys.readouterr().out
    assert best_score.main([f"--pilot={tmp_path / 'nowhere'}"]) == 1
