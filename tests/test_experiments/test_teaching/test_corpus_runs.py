"""Scripts of the corpus, really run in the sandbox and graded."""

import os
import re

import numpy as np
import pytest
from synthetic_helpers import SHORTS, one_slot, shared_cache

from experiments.menus import draw, recipes
from experiments.teaching.run_scripts import run_scripts, summary
from rpg_tasks import prepare_task

# Cheap tasks: a script of theirs is mostly the imports.
FAST = ("insults", "nyc-taxi", "textnorm-en")
# Fits that take more than a moment; importing scikit-learn takes a few as well.
SLOW = "Boosting|LGBM|Forest|Extra|Network|cross_val|Grid"
IMPORTS = "sklearn|scipy|lightgbm"


@pytest.fixture(scope="module")
def pool():
    with one_slot() as pool:
        yield pool


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)
    return lambda short: prepare_task(short, cache_dir=cache)


def _cheap(short: str, number: int, *, slow: str = SLOW) -> list[str]:
    """Scripts without what is ``slow``."""
    rng = np.random.default_rng(0)
    found = []
    while len(found) < number:
        script = draw(short, rng).script
        if not re.search(slow, script):
            found.append(script)
    return found


#: Every option of every task takes half an hour: run by hand.
LONG = pytest.mark.skipif(
    "RPG_LONG_TESTS" not in os.environ, reason="takes long: set RPG_LONG_TESTS=1"
)


@pytest.mark.parametrize("short", FAST)
def test_scripts_run_and_are_valid(pool, data, short):
    scripts = _cheap(short, 2, slow=f"{SLOW}|{IMPORTS}")
    outcomes = list(run_scripts(pool, data(short), scripts, wall_s=300))
    for o in outcomes:
        assert o.status == "valid", (o.reason, o.script)
        assert 0.0 <= o.gain <= 1.0
        assert o.cpu_s > 0.0
    assert "valid 100%" in summary(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("short", SHORTS)
def test_ten_random_scripts_of_each_task_run(pool, data, short):
    """220 in all, as they are drawn: cheap and expensive ones, good and bad."""
    rng = np.random.default_rng(7)
    scripts = [draw(short, rng).script for _ in range(10)]
    outcomes = list(run_scripts(pool, data(short), scripts, wall_s=120))
    print(summary(outcomes))
    valid = [o for o in outcomes if o.status == "valid"]
    # A combination may ask for more than the data hold, as real scripts do.
    assert len(valid) >= 8, [(o.status, o.reason) for o in outcomes]
    assert all(0.0 <= o.gain <= 1.0 for o in valid)
    assert max(o.gain for o in valid) > 0.1
    assert max(o.cpu_s for o in valid) > 1.5 * min(o.cpu_s for o in valid)


@LONG
@pytest.mark.slow
@pytest.mark.parametrize("short", SHORTS)
def test_every_option_runs(pool, data, short):
    """Scripts chosen so that each option of each slot is in one at least."""
    rng = np.random.default_rng(0)
    open_ = {
        (r.name, o.name)
        for r in recipes(short)
        for options in r.slots.values()
        for o in options
    }
    scripts = []
    while open_:
        drafts = [draw(short, rng) for _ in range(60)]
        new = [
            open_ & {(d.recipe.name, p.option) for p in d.choices.values()}
            for d in drafts
        ]
        best = max(range(60), key=lambda k: len(new[k]))
        if new[best]:
            open_ -= new[best]
            scripts.append(drafts[best].script)
    bad = [
        (o.status, o.reason, o.script)
        for o in run_scripts(pool, data(short), scripts, wall_s=300)
        if o.status != "valid"
    ]
    # A combination may fail as scripts do; an option that always fails may not.
    assert len(bad) <= 0.1 * len(scripts), bad
