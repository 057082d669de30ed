# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
"""
# Reading a run

A training run leaves records: one line per attempt, one line per step, and every
script. Everything that a report says is computed from them. This notebook reads one
run that is committed in this repository, recomputes what it earned per second, draws
its best score against time, and shows three scripts with what they changed.

Run it as `python notebooks/05_reading_a_run.py`, or open it in Jupyter with jupytext.
"""

# %%
import difflib
import itertools
import json
import sys
import tarfile
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()
ROOT = next(p for p in (HERE, *HERE.parents) if (p / "results").is_dir())
sys.path.insert(0, str(ROOT))

# %% [markdown]
# ## The records
#
# The archive of a task holds three arms with three seeds each. We read the arm `rpg`,
# seed 0, of `denoising-docs`: clean up scanned pages; the score is an error, so lower
# is better.

# %%
folder = tempfile.TemporaryDirectory()
archive = ROOT / "results" / "mle_bench" / "records" / "denoising-docs.tar.xz"
with tarfile.open(archive) as file:
    file.extractall(folder.name, filter="data")
run_folder = Path(folder.name, "denoising-docs", "denoising-docs", "rpg", "seed-0")
print(sorted(path.name for path in run_folder.iterdir()))

# %% [markdown]
# One attempt is one line of `attempts.jsonl`: who wrote which script from which parent,
# what became of it, and how long it took.

# %%
with (run_folder / "attempts.jsonl").open(encoding="utf-8") as lines:
    first = json.loads(next(lines))
for name in ("run_id", "parent", "status", "score", "reward", "generation_s",
             "execution_s", "delta_s"):  # fmt: skip
    print(f"{name:>14}: {first[name]}")

# %% [markdown]
# `load` reads all of it as columns.

# %%
from experiments.reporting.load import load  # noqa: E402

(run,) = load([run_folder]).runs
attempts = run.attempts
print(f"{run.name}: {len(attempts)} attempts in {run.steps} steps")
print(f"{attempts.valid.mean():.0%} got a score; sample submission {run.baseline:.4f}")

# %% [markdown]
# ## What it earned per second
#
# The reward rate is the sum of rewards over the sum of seconds. Failures earn 0 and
# cost their time. The loop logs the rate of each step's batch; it is the same sum over
# the attempts of that step.

# %%
known = attempts.known
rate = attempts.value[known].sum() / attempts.delta_s[known].sum()
print(f"reward rate of the run: {rate:.4f} per second")

by_step = []
for step in range(run.steps):
    rows = known & (attempts.step == step)
    by_step.append(attempts.value[rows].sum() / attempts.delta_s[rows].sum())
assert np.array_equal(by_step, run.metrics["on_policy_rate"])
print("rate of each step:", np.round(by_step, 3))

# %% [markdown]
# The price of a second is the run's own estimate of what it can earn per second. It
# rises while the policy improves, so slow scripts become more and more expensive. At
# the end this run writes scripts that earn less each, in much less time.

# %%
print("price of a second:", np.round(run.metrics["rho"], 3))
for step in (0, run.steps - 1):
    rows = attempts.valid & (attempts.step == step)
    reward, seconds = attempts.value[rows].mean(), attempts.delta_s[rows].mean()
    print(f"step {step:2}: mean reward {reward:.3f} in {seconds:.1f} s, if valid")

# %% [markdown]
# ## Best score against time
#
# Eight chains run side by side. A chain's best score is a step function of the seconds
# that its attempts took; before its first valid attempt it has the score of the sample
# submission.

# %%
figure, axis = plt.subplots(figsize=(6, 3.8))
for chain in np.unique(attempts.chain):
    rows = known & (attempts.chain == chain)
    time = np.cumsum(attempts.delta_s[rows])
    score = np.where(attempts.valid[rows], attempts.score[rows], run.baseline)
    best = np.minimum.accumulate(np.minimum(score, run.baseline))
    axis.step([0, *time], [run.baseline, *best], where="post", alpha=0.7)
axis.axhline(run.baseline, color="black", linewidth=0.8, linestyle=":")
axis.set_xlabel("seconds of generation and execution")
axis.set_ylabel("best score so far (lower is better)")
axis.set_title(f"{run.name}: each chain")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## Three scripts and their parents
#
# Each attempt goes on from a parent: one of the best earlier scripts by reward minus
# price times seconds. We take the best script of the run by that measure, at the last
# price, and follow its parents back to a script written from the base prompt.

# %%
price = run.metrics["rho"][-1]
worth = np.where(attempts.valid, attempts.value - price * attempts.delta_s, -np.inf)
row_of = {name: row for row, name in enumerate(attempts.run_id)}
line = [int(np.argmax(worth))]
while (parent := attempts.parent[line[0]]) is not None:
    line.insert(0, row_of[parent])


def summary(row):
    """Where an attempt stands, on one line."""
    return (
        f"step {attempts.step[row]}: score {attempts.score[row]:.4f}, reward "
        f"{attempts.value[row]:.3f} in {attempts.delta_s[row]:.1f} s"
    )


print("\n".join(map(summary, line)))

# %% [markdown]
# The first of the last three scripts as it is, then what each child changed.


# %%
def script_of(row):
    """The script of an attempt, as it was run."""
    path = run_folder / "scripts" / f"{attempts.script[row]}.py"
    return path.read_text(encoding="utf-8")


print("#", summary(line[-3]))
print(script_of(line[-3]))

# %%
for before, after in itertools.pairwise(line[-3:]):
    change = difflib.unified_diff(
        script_of(before).splitlines(), script_of(after).splitlines(), lineterm="", n=1
    )
    print("#", summary(after))
    print("\n".join(list(change)[2:]))

# %%
folder.cleanup()
