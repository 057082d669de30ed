"""The study's own arithmetic, on ledgers whose numbers are known."""

import json

import numpy as np
import pytest
from scipy import stats

from benchmarks import improvement, inheritance

BASE = "# form: model\n# model: ridge C=1\nimport numpy\na = 1\nb = 2\nc = 3\nd = 4\n"


def write(folder, steps, *, task="whale", arm="search-only", seed=0, ended=None):
    """Steps of (value or None, script, parent's (step, chain) or None) rows."""
    run = folder / task / arm / f"seed-{seed}"
    (run / "scripts").mkdir(parents=True)
    rows, metrics = [], []
    for step, made in enumerate(steps):
        for chain, (value, text, parent) in enumerate(made):
            name = f"scripts/{step}-{chain}.py"
            (run / name).write_text(text, encoding="utf-8")
            rows.append(
                {
                    "run_id": f"r{step}-{chain}",
                    "task": task,
                    "arm": arm,
                    "step": step,
                    "chain": chain,
                    "parent": parent and "r{}-{}".format(*parent),
                    "script_file": name if text else None,
                    "valid": value is not None,
                    "reason": None if text else "no-op edit: nothing would change",
                    "value": value or 0.0,
                }
            )
        total = float(step + 1) if ended is None else ended[step]
        metrics.append({"step": step, "used": {"total": total}})
    for name, records in (("attempts", rows), ("metrics", metrics)):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (run / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return run


def values(*steps):
    """Steps of attempts without parents."""
    return [[(value, BASE, None) for value in step] for step in steps]


def test_thirds_and_draws_are_paired_by_seed(tmp_path):
    for seed, shift in ((0, 0.0), (1, 0.1), (2, 0.3)):
        steps = [[0.9, 0.9], [0.1, 0.3], [0.5, 0.5], [0.5, None], [0.6, 0.8], [1, 1]]
        late = [[v if v is None else v + shift for v in step] for step in steps[4:]]
        write(tmp_path / "s", values(*steps[:4], *late), seed=seed)
        draws = [[0.2, None], [0.4, 0.2]]
        write(tmp_path / "i", values(*draws), arm="independent", seed=seed)
    (row,) = improvement.table(
        improvement.runs(tmp_path / "s", "search-only"),
        improvement.runs(tmp_path / "i", "independent"),
        improvement.of_search,
    )
    shifts = np.array([0.0, 0.1, 0.3])
    half = stats.t.ppf(0.975, 2) * shifts.std(ddof=1) / 3**0.5
    assert (row["task"], row["seeds"]) == ("whale", 3)
    assert row["rise_mean"] == pytest.approx(0.85 - 0.2 + shifts.mean())
    assert row["rise_best"] == pytest.approx(0.9 - 0.3 + shifts.mean())
    assert row["above_mean"] == pytest.approx(0.85 - 0.2 + shifts.mean())
    assert row["above_best"] == pytest.approx(0.9 - 0.3 + shifts.mean())
    for name in ("rise_mean", "rise_best", "above_mean", "above_best"):
        assert row[f"{name}_half"] == pytest.approx(half)
    said = improvement.verdict([row], ("rise_mean",))
    assert said == "rise_mean above 0 on 1 of 1 tasks: whale"
    weak = row | {"rise_mean": 0.9 * half}
    assert "on 0 of 1 tasks" in improvement.verdict([weak], ("rise_mean",))


def test_learning_is_compared_over_the_same_span_of_time(tmp_path):
    steps = [[0.1]] * 2 + [[0.5]] * improvement.LAST
    ended = [10.0 * (k + 1) for k in range(len(steps))]
    write(tmp_path, values(*steps), arm="vanilla", ended=ended)
    drawn = [[0.0], [0.2], [0.3], [0.4], [0.9]]
    times = [15.0, 20.0, 60.0, 100.0, 101.0]  # of 20 < t <= 100: two steps
    write(tmp_path, values(*drawn), arm="random-edits", ended=times)
    first, second = (
        improvement.runs(tmp_path, arm)["whale", 0]
        for arm in ("vanilla", "random-edits")
    )
    found = improvement.of_learning(first, second)
    assert found["vanilla"] == pytest.approx(0.5)
    assert found["random"] == pytest.approx(0.35)
    assert found["best_ahead"] == pytest.approx(0.5 - 0.4)
    assert (found["updates"], found["seconds"]) == (10, 100.0)
    rare = second._replace(ended=np.array([1.0, 2.0, 3.0, 19.0, 200.0]))
    assert improvement.of_learning(first, rare)["random"] == pytest.approx(0.4)
    short = first._replace(mean=first.mean[: improvement.LAST])
    assert improvement.of_learning(short, second) == {}


def test_what_children_have_from_their_parents(tmp_path):
    other = BASE.replace("ridge", "forest").replace("a = 1", "a = 7\ne = 5")
    child = BASE.replace("d = 4", "d = 5")
    cosmetic = BASE.replace("# form: model\n", "")
    jump = other.replace("b = 2", "b = 9")
    steps = [
        [(0.2, BASE, None), (0.8, other, None)],
        [
            (0.3, child, (0, 0)),
            (0.9, jump, (0, 1)),
            (0.2, cosmetic, (0, 0)),
            (0.5, jump, (0, 0)),
            (None, "broken", (0, 1)),
            (None, "", (0, 1)),
        ],
    ]
    write(tmp_path, steps)
    (row,) = inheritance.table([tmp_path])
    assert row["pairs"] == 4
    assert row["noop"] == pytest.approx(2 / 6)  # one is refused, one changes a comment
    assert row["model_kept"] == pytest.approx(2 / 3)  # one names no model

    share = inheritance.similar
    made = [(child, BASE), (jump, other), (jump, BASE), ("broken", other)]
    own = [share(text, parent) for text, parent in made]
    swapped = [share(text, {BASE: other, other: BASE}[parent]) for text, parent in made]
    assert share(child, BASE) == pytest.approx(2 * 6 / 14)
    assert row["similar_own"] == pytest.approx(np.mean(own))
    assert row["similar_other"] == pytest.approx(np.mean(swapped))
    r = np.corrcoef([0.3, 0.9, 0.5], [0.2, 0.8, 0.2])[0, 1]
    assert row["r"] == pytest.approx(r)
    assert row["valid"] == pytest.approx(6 / 8)


def test_commands_print_and_write(tmp_path, capsys):
    assert improvement.main([f"--search={tmp_path}", f"--independent={tmp_path}"]) == 1
    assert "no runs of both arms" in capsys.readouterr().err
    for seed in (0, 1):
        steps = [[0.1 * k + 0.01 * seed] for k in range(6)]
        write(tmp_path / "s", values(*steps), seed=seed)
        write(tmp_path / "i", values([0.1]), arm="independent", seed=seed)
    table = tmp_path / "out.csv"
    flags = [f"--search={tmp_path / 's'}", f"--independent={tmp_path / 'i'}"]
    assert improvement.main([*flags, f"--csv={table}"]) == 0
    assert "rise_mean above 0 on 1 of 1 tasks: whale" in capsys.readouterr().out
    assert table.read_text().startswith("task,seeds,rise_mean,")
