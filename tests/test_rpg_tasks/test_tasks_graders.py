"""Graders against MLE-Bench's verdicts, and under changes that must (not) matter."""

import io
import itertools

import numpy as np
import pandas as pd
import pytest
from grader_cases import TASKS, cases, content, good_case
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpg_tasks import TaskError, get_task, grade, load_tasks
from rpg_tasks.graders import score_tables
from rpg_tasks.grading import Grader
from rpg_tasks.submission import (
    InvalidSubmission,
    Table,
    distinct_ids,
    parse_csv,
)

FILE_ORDER = {"nomad2018"}
POSITIONAL = {"jigsaw-toxic"}
ID_FIRST = {"spooky-author"}
EXACT_COLUMNS = {"leaf-classif", "spooky-author", "plant-pathology", "jigsaw-toxic"}
UNCHECKED_IDS = {"nyc-taxi", "nomad2018"}
TEXT = {"textnorm-en", "textnorm-ru"}

few = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def score_bytes(task: str, submission: bytes, answers: bytes) -> float:
    table = Table(parse_csv(submission, "submission.csv"), submission)
    truth = Table(parse_csv(answers, "answers.csv"), answers)
    table, truth = distinct_ids(table, truth, get_task(task).id_column)
    return score_tables(get_task(task), table.frame, truth.frame)


def verdict(task: str, submission: bytes, answers: bytes) -> float | None:
    try:
        return score_bytes(task, submission, answers)
    except InvalidSubmission:
        return None


def as_text(task: str, name: str) -> pd.DataFrame:
    """The file with every field as the text that was written."""
    data = content(task, name)
    return pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)


def to_bytes(frame: pd.DataFrame, **options) -> bytes:
    return frame.to_csv(index=False, **options).encode()


@pytest.fixture(scope="module", params=TASKS)
def good(request):
    """Task, its answers, a middling submission as text, and its score."""
    case = good_case(request.param)
    answers = content(case.task, case.answers)
    return case.task, answers, as_text(case.task, case.submission), case.score


def test_every_task_has_cases():
    assert sorted(load_tasks()) == TASKS
    assert len(cases()) == 256


@pytest.mark.parametrize("task", TASKS)
def test_verdicts_equal_mle_bench(task, tmp_path):
    graders = {}
    for case in cases():
        if case.task != task:
            continue
        for name in (case.answers, case.submission):
            (tmp_path / name).write_bytes(content(task, name))
        if case.answers not in graders:
            graders[case.answers] = Grader(task, tmp_path / case.answers)
        result = graders[case.answers].grade(tmp_path / case.submission)
        if case.status == "score":
            assert result.valid, (case.id, result.reason)
            assert result.score == pytest.approx(case.score, abs=1e-9), case.id
            assert result.reason is None
        else:
            assert not result.valid, case.id
            assert result.score is None
            assert result.reason, case.id
            assert result.medal is None
            assert not result.gain


@few
@given(data=st.data())
def test_row_order_matters_only_where_rows_go_by_position(good, data):
    task, answers, frame, score = good
    order = data.draw(st.permutations(range(len(frame))))
    moved = verdict(task, to_bytes(frame.iloc[list(order)]), answers)
    if task in FILE_ORDER:
        assert moved is not None
        if order != sorted(order):
            return
    assert moved == pytest.approx(score, abs=1e-9)


def test_file_order_counts_for_nomad():
    case = good_case("nomad2018")
    frame = as_text(case.task, case.submission)
    answers = content(case.task, case.answers)
    assert verdict(case.task, to_bytes(frame[::-1]), answers) > 2 * case.score


@few
@given(data=st.data())
def test_column_order(good, data):
    task, answers, frame, score = good
    order = data.draw(st.permutations(list(frame.columns)))
    moved = verdict(task, to_bytes(frame[order]), answers)
    if task in ID_FIRST and order[0] != "id":
        assert moved is None
    elif task in POSITIONAL:
        same = [c for c in order if c != "id"] == [c for c in frame if c != "id"]
        assert moved is not None
        assert not same or moved == pytest.approx(score, abs=1e-9)
    else:
        assert moved == pytest.approx(score, abs=1e-9)


def test_positional_columns_are_misread_as_in_mle_bench():
    case = good_case("jigsaw-toxic")
    frame = as_text(case.task, case.submission)
    answers = parse_csv(content(case.task, case.answers), "a")
    order = ["id", "severe_toxic", "toxic", "obscene", "threat", "insult"]
    order.append("identity_hate")
    swapped = score_tables(
        get_task(case.task), parse_csv(to_bytes(frame[order]), "s"), answers
    )
    relabelled = frame.rename(
        columns={"toxic": "severe_toxic", "severe_toxic": "toxic"}
    )
    by_hand = score_tables(
        get_task(case.task), parse_csv(to_bytes(relabelled), "s"), answers
    )
    assert swapped != pytest.approx(case.score)
    swapped_back = relabelled[frame.columns]
    assert by_hand == pytest.approx(case.score)
    assert verdict(
        case.task, to_bytes(swapped_back), content(case.task, case.answers)
    ) == pytest.approx(swapped)


def test_extra_column(good):
    task, answers, frame, score = good
    extra = verdict(task, to_bytes(frame.assign(extra="7")), answers)
    if task in EXACT_COLUMNS:
        assert extra is None
    else:
        assert extra == pytest.approx(score, abs=1e-9)


def test_every_graded_column_is_needed(good):
    task, answers, frame, score = good
    record = get_task(task)
    targets = record.targets or [c for c in frame if c != record.id_column][:5]
    for name in targets:
        assert verdict(task, to_bytes(frame.drop(columns=name)), answers) is None
    without_id = verdict(task, to_bytes(frame.drop(columns=record.id_column)), answers)
    if task in FILE_ORDER:  # that grader never looks at ids
        assert without_id == pytest.approx(score, abs=1e-9)
    else:
        assert without_id is None


@few
@given(data=st.data())
def test_missing_and_duplicate_rows(good, data):
    task, answers, frame, score = good
    drop = data.draw(st.integers(0, len(frame) - 1))
    keep = data.draw(st.integers(0, len(frame) - 2))
    rest = frame.drop(index=drop).reset_index(drop=True)
    assert verdict(task, to_bytes(rest), answers) is None
    twice = pd.concat([frame, frame.iloc[[drop]]])
    assert verdict(task, to_bytes(twice), answers) is None
    column = get_task(task).id_column
    replaced = frame.copy()
    replaced.loc[drop, column] = rest.loc[keep, column]
    graded = verdict(task, to_bytes(replaced), answers)
    if task in FILE_ORDER:
        assert graded == pytest.approx(score, abs=1e-9)
    elif task in UNCHECKED_IDS:
        assert graded is not None
    elif task not in POSITIONAL:
        assert graded is None


@few
@given(data=st.data())
def test_bad_values_are_refused(good, data):
    task, answers, frame, _ = good
    record = get_task(task)
    column = data.draw(
        st.sampled_from(record.targets or [c for c in frame if c != record.id_column])
    )
    rows = range(len(frame))
    if task == "jigsaw-toxic":  # rows marked -1 are not scored
        truth = parse_csv(answers, "a").set_index("id")
        rows = [i for i in rows if truth.loc[frame.loc[i, "id"]].min() >= 0]
    row = data.draw(st.sampled_from(list(rows)))
    for value in ("", "NaN", "x", "0.5.1", "--1", "inf"):
        broken = frame.copy()
        broken.loc[row, column] = value
        graded = verdict(task, to_bytes(broken), answers)
        assert (graded is not None) == (task in TEXT), value


@pytest.mark.parametrize("value", ["1e308", "-1e308", "9" * 40, "-1e-300", "1e-320"])
def test_huge_and_tiny_values_never_give_a_score_that_is_not_finite(good, value):
    task, answers, frame, _ = good
    record = get_task(task)
    name = (record.targets or [c for c in frame if c != record.id_column])[0]
    changed = frame.copy()
    changed.loc[0, name] = value
    graded = verdict(task, to_bytes(changed), answers)
    assert graded is None or np.isfinite(graded)


def test_encodings_and_line_ends(good):
    task, answers, frame, score = good
    plain = to_bytes(frame)
    same = [
        b"\xef\xbb\xbf" + plain,
        to_bytes(frame, lineterminator="\r\n"),
        to_bytes(frame, quoting=1),
        plain + b"\n\n",
        plain.rstrip(b"\n"),
    ]
    for data in same:
        assert verdict(task, data, answers) == pytest.approx(score, abs=1e-9)
    latin = frame.assign(note="é").to_csv(index=False).encode("latin-1", "replace")
    wide = [plain.decode().encode(encoding) for encoding in ("utf-16", "utf-32")]
    for data in (latin, *wide):
        with pytest.raises(InvalidSubmission, match="not UTF-8"):
            score_bytes(task, data, answers)


def test_equal_ids_are_paired_by_the_sort_even_in_the_answers_order():
    # The same comment twice: MLE-Bench pairs them as its sort leaves them.
    answers = content("insults", "answers_dup_comment.csv")
    truth = parse_csv(answers, "a")
    ids = truth["Comment"]
    assert not ids.is_unique
    swapped = truth.copy()
    first, second = np.flatnonzero(ids.duplicated(keep=False))[:2]
    order = list(range(len(truth)))
    order[first], order[second] = order[second], order[first]
    swapped = truth.iloc[order]
    assert (swapped["Comment"].to_numpy() == ids.to_numpy()).all()
    perfect = verdict("insults", answers, answers)
    assert perfect == 1.0
    assert verdict("insults", to_bytes(swapped), answers) < 1.0


def test_separators_and_headers(good):
    task, answers, frame, _ = good
    assert verdict(task, to_bytes(frame, sep=";"), answers) is None
    assert verdict(task, to_bytes(frame, header=False), answers) is None
    shout = frame.rename(columns=lambda name: f"{name} ")
    assert verdict(task, to_bytes(shout), answers) is None


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf", b"id\n", b'"', b"\0\0"])
def test_hardly_a_file(good, data):
    task, answers, _, _ = good
    assert verdict(task, data, answers) is None


HEX_IDS = ["007", "7", "1e5", "100000", "0x1f", "00", "0", "1E5", "a7", "1e400", "-0"]


@pytest.mark.parametrize(
    ("task", "column", "target"),
    [
        ("aerial-cactus", "id", "has_cactus"),
        ("histopathologic", "id", "label"),
        ("aptos2019", "id_code", "diagnosis"),
    ],
)
def test_ids_that_look_like_numbers_survive(task, column, target):
    # Also where the whole column is numeric, and numbers would merge "007" and "7".
    numeric = [i for i in HEX_IDS if not i.startswith(("0x", "a"))]
    for ids in (HEX_IDS, numeric, ["007", "1e5", "012"], ["1e5", "100000"]):
        truth = pd.DataFrame({column: ids, target: [i % 2 for i in range(len(ids))]})
        for order in itertools.islice(itertools.permutations(range(len(ids))), 6):
            moved = truth.iloc[list(order)]
            assert verdict(task, to_bytes(moved), to_bytes(truth)) == 1.0
        wrong = truth.copy()
        wrong[target] = 1 - wrong[target]
        assert verdict(task, to_bytes(wrong), to_bytes(truth)) < 0.1


def test_colliding_ids_are_compared_as_they_are_written():
    truth = pd.DataFrame({"id": ["007", "7", "08"], "has_cactus": [1, 0, 1]})
    merged = truth.assign(id=["7", "7", "8"])
    assert verdict("aerial-cactus", to_bytes(merged), to_bytes(truth)) is None
    # Without a collision a number is a number, as for MLE-Bench: 8.0 is 08.
    truth = pd.DataFrame({"id": ["007", "08"], "has_cactus": [1, 0]})
    floats = truth.assign(id=["7.0", "8"])
    assert verdict("aerial-cactus", to_bytes(floats), to_bytes(truth)) == 1.0


def test_text_is_compared_character_by_character():
    truth = pd.DataFrame({"id": ["0_0", "0_1", "0_2"], "after": ["1.0", "NA", "é x"]})
    answers = to_bytes(truth, quoting=2)
    assert verdict("textnorm-en", answers, answers) == 1.0
    for change in ("é  x", "e x", "é x ", "É x", "e\u0301 x"):
        other = truth.assign(after=["1.0", "NA", change])
        graded = verdict("textnorm-en", to_bytes(other, quoting=2), answers)
        assert graded == pytest.approx(2 / 3)


def test_answers_of_another_task_are_not_the_submissions_fault(tmp_path):
    (tmp_path / "answers.csv").write_text("id,label\n1,0\n2,1\n")
    (tmp_path / "submission.csv").write_text("id,label\n1,0\n2,1\n")
    with pytest.raises(TaskError, match="not answers of spooky-author"):
        grade("spooky-author", tmp_path / "submission.csv", tmp_path / "answers.csv")
    with pytest.raises(TaskError, match="no answers file"):
        grade("spooky-author", tmp_path / "submission.csv", tmp_path / "none.csv")
    (tmp_path / "answers.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match="cannot be read"):
        grade("spooky-author", tmp_path / "submission.csv", tmp_path / "answers.csv")


def test_grading_shows_no_warning_and_leaves_filters_alone(tmp_path):
    import warnings

    before = list(warnings.filters)
    answers = b"id_code,diagnosis\na,1\nb,1\n"
    assert verdict("aptos2019", answers, answers) is None  # kappa of one class: 0/0
    assert list(warnings.filters) == before
