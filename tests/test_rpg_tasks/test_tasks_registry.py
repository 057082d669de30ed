"""The registry is complete and consistent; names are found or explained."""

import subprocess
import sys

import pytest
from repo_paths import ROOT

from rpg_tasks import (
    TaskError,
    get_task,
    graders,
    load_tasks,
    metrics,
    registry,
    task_folder,
)

# In the order of the paper's table.
SHORTS = """
ranzcr-clip aptos2019 mlsp-birds siim-isic textnorm-en textnorm-ru tabular-2021
insults jigsaw-toxic histopathologic aerial-cactus plant-pathology pizza
tabular-2022 whale leaf-classif spooky-author nyc-taxi dog-breed dogs-vs-cats
nomad2018 denoising-docs
"""


def test_the_22_tasks_in_the_papers_order():
    assert list(load_tasks()) == SHORTS.split()


@pytest.mark.parametrize("task", load_tasks().values(), ids=lambda t: t.short)
def test_records_are_consistent(task):
    assert task.grading.metric in metrics.METRICS
    assert task.grading.columns in graders.COLUMNS
    assert task.grading.rows in graders.ROWS
    assert task.grading.values in graders.VALUES
    assert task.grading.align in graders.ALIGN
    assert task.traps
    assert task.from_mle_bench
    graders.check_grading(task)
    assert task.sample_file in task.files
    assert task.wall_limit_s in (600, 1200)
    assert task.memory_mb == 16 * 1024
    assert set(task.sample) <= {"all", *task.targets}
    assert not set(task.targets) - set(task.sample) or "all" in task.sample
    medals = task.medals
    order = [medals.gold, medals.silver, medals.bronze, medals.median]
    assert order == sorted(order, reverse=task.higher_is_better)
    # The better the arm, the larger the improvement, in the task's own orientation.
    sign = 1 if task.higher_is_better else -1
    paper = task.paper
    change = 100 * sign * (paper.rpg - paper.vanilla) / abs(paper.vanilla)
    assert change * paper.improv_pct >= 0
    assert change == pytest.approx(paper.improv_pct, rel=0.12, abs=1.5)


def test_the_papers_average_can_be_recomputed():
    rows = sorted(task.paper.improv_pct for task in load_tasks().values())
    assert sum(rows[1:-1]) / 20 == pytest.approx(19.2, abs=0.1)
    assert sum(row > 0 for row in rows) == 20


def test_limits_that_differ():
    longer = {t.short for t in load_tasks().values() if t.wall_limit_s == 1200}
    assert longer == {"nomad2018", "pizza", "tabular-2021", "tabular-2022"}


def test_names():
    task = get_task("spooky-author")
    assert get_task(task) is task
    assert get_task("spooky-author-identification") is task
    assert get_task(" Spooky_Author ") is task


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("spooky-autor", "did you mean spooky-author?"),
        ("spooky", "spooky-author"),
        ("taxi", "nyc-taxi"),
        ("leaf-classification-2", "leaf-classif"),
        ("textnorm", "textnorm-en"),
        ("zzzzzz", "the tasks are: ranzcr-clip, aptos2019"),
        ("", "the tasks are"),
    ],
)
def test_a_wrong_name_gets_suggestions(name, hint):
    with pytest.raises(TaskError) as caught:
        get_task(name)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_records_cannot_be_changed():
    task = get_task("pizza")
    with pytest.raises(AttributeError):
        task.direction = "min"
    with pytest.raises(TypeError):
        task.sample["requester_received_pizza"] = 1
    with pytest.raises(TypeError):
        load_tasks()["mine"] = task


def _loaded(code: str, *names: str) -> set[str]:
    """Which of these modules a new process has imported after some code."""
    code += f"; import sys; print(*(m for m in {names} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(done.stdout.split())


def test_listing_tasks_loads_no_heavy_library():
    code = "from rpg_tasks import load_tasks; load_tasks()"
    assert _loaded(code, "pandas", "sklearn", "jax", "numpy", "PIL") == set()


def test_the_tasks_code_needs_neither_jax_nor_the_loop():
    code = (
        "from rpg_tasks import load_tasks, taskcode;"
        "[taskcode.load_code(task) for task in load_tasks().values()]"
    )
    assert _loaded(code, "numpy", "jax", "rpg_jax", "experiments") == {"numpy"}


def test_a_tasks_folder_has_its_name():
    for short in SHORTS.split():
        folder = task_folder(short)
        assert folder == registry.TASKS / short.replace("-", "_")
        assert (folder / "data.py").is_file()
        assert get_task(short).record == folder / "task.toml"
