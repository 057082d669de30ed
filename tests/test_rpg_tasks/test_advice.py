"""Refused submissions say what to do; verdicts stay what they are."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_helpers import shared_cache, small_data

from rpg_tasks import Grader, get_task
from rpg_tasks.advice import advice


@pytest.fixture(scope="module")
def graders(tmp_path_factory):
    cache = shared_cache(tmp_path_factory)

    def of(short):
        data = small_data(cache, short)
        grader = Grader(data.task, data.answers, data.sample)
        return grader, pd.read_csv(data.sample), pd.read_csv(data.test_sample)

    return of


def _cell(value):
    def change(table):
        table = table.astype(object)
        table.iloc[2, 1] = value
        return table

    return change


def _lower(table):
    return table.rename(columns={table.columns[1]: table.columns[1].lower() + "x"})


CASES = {
    "text": (_cell("cat"), "error", r"^put numbers in column 'EAP' \(line 4, id '"),
    "empty": (_cell(np.nan), "invalid", r"sum to 1.*: fill column 'EAP' \(line 4"),
    "missing": (lambda t: t.iloc[5:], "invalid", r"add the rows of 5 ids: 'id\w+', "),
    "doubled": (
        lambda t: pd.concat([t, t.iloc[:2]]),
        "invalid",
        r"give each id once \(2 stand again: 'id\w+', 'id\w+'\)",
    ),
    "unknown": (
        lambda t: t.assign(id=["x", *t["id"][1:]]),
        "invalid",
        r"add the rows of 1 ids: .*leave out 1 ids that are not asked for: 'x'",
    ),
    "column": (_lower, "invalid", r"rename column 'eapx' to 'EAP'"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_to_do_is_said_with_an_example(graders, name):
    change, status, words = CASES[name]
    grader, sample, _ = graders("spooky-author")
    verdict = grader.grade_bytes(change(sample).to_csv(index=False).encode())
    assert (verdict.valid, verdict.status) == (False, status)
    assert pd.Series([verdict.reason]).str.contains(words).all(), verdict.reason
    assert "\n" not in verdict.reason


@pytest.mark.parametrize("short", ["spooky-author", "insults", "leaf-classif"])
def test_predictions_for_the_other_split_are_recognised(graders, short):
    grader, _, other = graders(short)
    verdict = grader.grade_bytes(other.to_csv(index=False).encode())
    assert not verdict.valid
    assert "graded with --split=test" in verdict.reason
    assert "\n" not in verdict.reason  # an id of insults is a comment


@pytest.mark.parametrize(
    ("short", "column"), [("leaf-classif", "Acer_Capillipes"), ("nomad2018", None)]
)
@pytest.mark.parametrize(("value", "todo"), [("cat", "put numbers"), (np.nan, "fill")])
def test_one_bad_number_is_found_among_many_columns(
    graders, short, column, value, todo
):
    grader, sample, _ = graders(short)
    verdict = grader.grade_bytes(_cell(value)(sample).to_csv(index=False).encode())
    assert not verdict.valid
    assert f"{todo} in column" in verdict.reason or f"{todo} column" in verdict.reason
    assert repr(column or sample.columns[1]) in verdict.reason


def test_thousands_of_columns_are_refused_before_they_are_read(graders):
    grader, sample, _ = graders("leaf-classif")
    header = ",".join([*sample.columns, *(f"x{i}" for i in range(19_000))])
    verdict = grader.grade_bytes(f"{header}\n1\n".encode())
    assert "too long for a header" in verdict.reason


_CELLS = st.one_of(st.none(), st.floats(), st.text(max_size=5), st.integers())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["id", "EAP", "HPL", "eap", "\n", ""]), unique=True),
    st.data(),
)
def test_any_table_gets_one_line_of_advice(names, data):
    rows = data.draw(st.lists(st.lists(_CELLS, min_size=6, max_size=6), max_size=4))
    table = pd.DataFrame([row[: len(names)] for row in rows], columns=names)
    answers = pd.DataFrame({"id": ["a", "b"], "EAP": [1.0, 0.0], "HPL": [0.0, 1.0]})
    text = advice(get_task("spooky-author"), table, answers)
    assert "\n" not in text
