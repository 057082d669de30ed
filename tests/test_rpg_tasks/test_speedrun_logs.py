"""Logs of speedruns: what counts, what is flagged; yardsticks."""

import math

import pytest

from rpg_tasks.speedrun import yardsticks
from rpg_tasks.speedrun.logs import Point, read_log

RULER = "=" * 100
SOURCE = (
    'print0(f"step:{step}/{n} val_loss:{x:.4f}")\nstep:9/9 val_loss:1.0 train_time:1ms'
)
GOOD = [
    "step:0/20 val_loss:10.8258 train_time:0ms step_avg:nanms",
    "step:5/20 train_time:900ms step_avg:180.0ms",
    "step:10/20 val_loss:4.5 train_time:2000ms step_avg:200.00ms",
    "step:20/20 val_loss:3.27 train_time:4000ms step_avg:200.00ms lr:0.0 peak_mb:30000",
]


def log(lines, end="\n"):
    return "\n".join([SOURCE, RULER, "Running Python", RULER, *lines]) + end


def test_a_clean_log():
    found = read_log(log(GOOD), wall_s=30.0)
    assert found.points == (
        Point(0, 10.8258, 0.0), Point(10, 4.5, 2.0), Point(20, 3.27, 4.0)
    )  # fmt: skip
    assert (found.steps, found.flags) == (20, ())
    assert found.reached(3.28).seconds == 4.0
    assert found.reached(3.0) is None
    assert found.final.loss == 3.27


def test_seconds_and_milliseconds_say_the_same():
    in_s = [line.replace("4000ms", "4.0s").replace("2000ms", "2.0s") for line in GOOD]
    assert read_log(log(in_s)) == read_log(log(GOOD))


def test_repeated_lines_count_once():
    assert read_log(log([*GOOD, GOOD[-1]])) == read_log(log(GOOD))


@pytest.mark.parametrize(
    ("lines", "flag"),
    [
        ([*GOOD, "step:20/20 val_loss:3.1 train_time:4000ms"], "forged: two values"),
        ([*GOOD[:3], GOOD[3].replace("/20", "/21")], "forged: the number of steps"),
        ([GOOD[2], GOOD[0], GOOD[3]], "non-monotone: a step"),
        ([*GOOD[:3], GOOD[3].replace("4000", "1000")], "non-monotone: time"),
        ([*GOOD[:3], GOOD[3].replace("3.27", "nan")], "non-finite"),
        (GOOD[:3], "unfinished"),
        ([], "empty"),
        ([*GOOD, "step:20/20 val_loss:3."], "torn"),
    ],
)
def test_odd_logs_are_flagged(lines, flag):
    assert any(one.startswith(flag) for one in read_log(log(lines)).flags)


def test_a_line_cut_in_its_last_number_does_not_count():
    found = read_log(log([*GOOD[:3], "step:20/20 val_loss:3.2 train_time:4s"], end=""))
    assert found.final.step == 10
    assert any(flag.startswith("torn") for flag in found.flags)


def test_a_claimed_time_above_the_harness_s_is_flagged():
    assert any("wall time" in flag for flag in read_log(log(GOOD), wall_s=3.0).flags)


def test_validation_lines_inside_the_header_are_flagged():
    text = "\n".join([SOURCE, RULER, *GOOD, RULER, GOOD[-1], ""])
    found = read_log(text)
    assert any("header" in flag for flag in found.flags)
    assert [p.step for p in found.points] == [20]


def test_the_source_alone_is_an_empty_log():
    assert read_log(f"{SOURCE}\n{RULER}\n").points == ()


def test_the_paper_s_margin():
    assert yardsticks.margin_time(7, 13) == 6 / 7
    assert math.isclose(yardsticks.margin_loss(3.267, 3.273, 3.28), 6 / 7)
    with pytest.raises(ValueError, match="not below"):
        yardsticks.margin_loss(3.2, 3.3, 3.28)


def test_machines_are_not_mixed():
    assert yardsticks.same_machine(["EPYC", "EPYC"]) == "EPYC"
    with pytest.raises(yardsticks.OtherMachine, match="EPYC and Xeon"):
        yardsticks.same_machine(["EPYC", "Xeon"])


def test_the_record_rule_needs_evidence():
    assert not yardsticks.is_record([3.279])
    assert yardsticks.is_record([3.279] * 17)
    assert not yardsticks.is_record([])
    assert not yardsticks.is_record([3.29] * 100)


def test_speedup_recovered():
    assert yardsticks.recovered(10.0, 8.0, 9.0) == 0.5


def test_copies_of_a_noisy_script_are_within_its_noise():
    floor = yardsticks.noise_floor([14.1, 14.5, 15.1])
    assert yardsticks.within_noise(14.0, 14.5, floor)
    assert not yardsticks.within_noise(7.5, 14.5, floor)
