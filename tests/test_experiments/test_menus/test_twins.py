"""Options that waste time: their plain twins, found, drawn, and of the same answers."""

import io
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from synthetic_helpers import SHORTS, one_slot, shared_cache

from experiments.menus import ChosenScript, MenuError, Pick, draw, recipes, task_menu
from experiments.menus.recipe import Option, Recipe
from experiments.menus.twins import plain_pick, plain_script, waste_share, wasteful
from rpg_tasks import prepare_task
from sandbox_exec import Limits, ScriptJob

# One task of each menu file with features of its own; all draw from common, models.
SAMPLE = ("leaf-classif", "insults", "aerial-cactus", "whale", "textnorm-en")
# Quick models whose fits repeat exactly.
QUICK = ("classifier.bayes", "sparse.naive", "regressor.ridge")
# What else makes a script quick.
FIRST = ("rows.fraction", "method.background", "table.frequent")


def _pick(option: Option) -> Pick:
    return Pick(option.name, tuple((k, v[0]) for k, v in option.domains.items()))


def _quick(options: tuple[Option, ...]) -> Option:
    named = [o for o in options if o.name in QUICK + FIRST]
    return [*named, *options][0]


def wasting(recipe: Recipe) -> Iterator[ChosenScript]:
    """Few scripts that have, between them, every exact twin; as wasteful as can be."""
    exact = {
        slot: [o for o in options if o.twin and not o.near]
        for slot, options in recipe.slots.items()
    }
    for k in range(max(map(len, exact.values()))):
        yield ChosenScript(
            recipe,
            {
                slot: _pick(exact[slot][k] if exact[slot][k:] else _quick(options))
                for slot, options in recipe.slots.items()
            },
        )


@pytest.fixture(scope="module")
def submission(tmp_path_factory):
    """A function from a task and scripts to what they submit, and their seconds."""
    cache = shared_cache(tmp_path_factory)
    limits = Limits(wall_s=300.0, memory_mb=4096)
    with one_slot() as pool:

        def run(short: str, chosen: ChosenScript) -> tuple[pd.DataFrame, float]:
            record = pool.submit(
                ScriptJob(
                    script=chosen.script.encode(),
                    inputs=prepare_task(short, cache_dir=cache).public,
                    task_id=short,
                    limits=limits,
                )
            ).result()
            assert record.submission_bytes is not None, (
                record.stderr_head + record.stderr_tail,
                chosen.script,
            )
            frame = pd.read_csv(
                io.BytesIO(record.submission_bytes), keep_default_na=False
            )
            return frame, record.cpu_s

        yield run


def _assert_same(submission, short: str, chosen: ChosenScript) -> tuple[float, float]:
    """Seconds of a wasteful script and of its plain twin, which submit the same."""
    waste = wasteful(chosen)
    assert waste
    plain = plain_script(chosen)
    assert not wasteful(plain)
    (slow, slow_s), (quick, quick_s) = (submission(short, c) for c in (chosen, plain))
    options = [chosen.choices[slot].option for slot in waste]
    print(f"{short} {' '.join(options)}: {slow_s:.1f} s, plain {quick_s:.1f} s")
    pd.testing.assert_frame_equal(slow, quick, check_dtype=False, rtol=1e-6, atol=1e-9)
    return slow_s, quick_s


@pytest.mark.parametrize("short", SAMPLE)
def test_a_wasteful_script_submits_what_its_plain_twin_does(submission, short):
    first = next(wasting(recipes(short)[0]))
    slow_s, quick_s = _assert_same(submission, short, first)
    assert slow_s > quick_s


@pytest.mark.slow
@pytest.mark.parametrize("short", SHORTS)
def test_every_exact_twin_of_a_task_submits_the_same(submission, short):
    # Fits of a quick model cost nothing: seconds say little here.
    for recipe in recipes(short):
        if recipe.name != "constant":
            for chosen in wasting(recipe):
                _assert_same(submission, short, chosen)


@pytest.mark.parametrize("short", SHORTS)
def test_every_twin_is_a_plain_option_of_its_slot(short):
    for recipe in recipes(short):
        for slot, options in recipe.slots.items():
            plain = {option.name: option for option in options if not option.twin}
            for option in options:
                if not option.twin:
                    assert not option.near
                    continue
                twin = plain[option.twin]
                # One edit of the option alone takes the waste away.
                shared = set(twin.domains) & set(option.domains)
                assert shared == set(twin.domains)
                for name in shared:
                    assert option.near or (
                        set(option.domains[name]) <= set(twin.domains[name])
                    ), (slot, option.name, name)


@pytest.mark.parametrize("short", SHORTS)
def test_the_main_form_wastes_in_three_ways_and_not_too_often(short):
    forms = recipes(short)
    kinds = [s for s, options in forms[0].slots.items() if any(o.twin for o in options)]
    assert len(kinds) >= 3, kinds
    weights = [form.weight for form in forms]
    share = np.average([waste_share(form, _real) for form in forms], weights=weights)
    assert 0.25 <= share <= 0.45, share
    rng = np.random.default_rng(0)
    drawn = [
        any(_real(c.recipe.option(s, c.choices[s])) for s in wasteful(c))
        for c in (draw(short, rng) for _ in range(400))
    ]
    assert abs(np.mean(drawn) - share) < 0.1


def _real(option: Option) -> bool:
    """Waste beyond the holdout or the few folds that most real scripts print."""
    usual = ("holdout", "cv", "seen", "accuracy", "error")
    return bool(option.twin) and option.name.partition(".")[2] not in usual


def test_a_plain_pick_keeps_the_values_that_its_twin_takes():
    (main, *_) = recipes("siim-isic")
    slow = Pick(
        "classifier.hist_slow", (("trees", "60"), ("rate", "0.1"), ("leaves", "7"))
    )
    assert plain_pick(main, "model", slow) == Pick("classifier.hist", slow.values)
    many = Pick(
        "classifier.forest_many", (("trees", "1000"), ("leaf", "5"), ("seed", "1"))
    )
    plain = plain_pick(main, "model", many)
    assert dict(plain.values) == {"trees": "400", "leaf": "5", "seed": "1"}
    assert plain_pick(main, "model", plain) is plain
    chosen = draw("siim-isic", np.random.default_rng(0))
    assert wasteful(plain_script(chosen)) == ()


def test_what_drops_the_plain_option_drops_its_twins():
    names = {o.name for o in recipes("leaf-classif")[0].slots["model"]}
    assert "classifier.hist_slow" not in names
    assert "classifier.forest_many" in names


@pytest.mark.parametrize(
    "table",
    [
        {"a": {"twin": "b"}},
        {"a": {"twin": "a"}},
        {"a": {}, "b": {"twin": "a"}, "c": {"twin": "b"}},
    ],
)
def test_a_twin_that_is_no_plain_option_is_refused(table):
    with pytest.raises(MenuError, match="is no plain option of part"):
        task_menu._slots({"part": table})


def test_a_twin_takes_the_values_that_it_does_not_list():
    slots = task_menu._slots(
        {
            "part": {
                "slow": {"twin": "quick", "values": {"size": [1]}},
                "quick": {"values": {"k": [1, 2]}},
            }
        }
    )
    row = {"values": {"part.quick": {"k": [3]}}}
    quick, slow = task_menu._allowed(row, "here", iter(slots["part"]))
    assert quick.domains == {"k": ("3",)}
    assert slow.domains == {"k": ("3",), "size": ("1",)}
    assert slow.twin == "part.quick"
