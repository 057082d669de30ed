"""Names of arms by scheme, and that each comparison turns one switch alone."""

import dataclasses
import itertools

import pytest

from experiments.config import parse
from experiments.config.arms import ARMS, SYSTEMATIC, Arm, get_arm, register_arm
from experiments.config.errors import UsageError
from experiments.config.objective import MaxAtK
from experiments.config.options import Options
from experiments.config.plain import from_plain, to_plain
from experiments.config.presets import TINY
from experiments.config.protocol import PAPER, SOUND, Learning, Protocol
from experiments.policies.llm import LLMOptions, ppo_hyper
from experiments.running.resolve import resolve_settings


def _resolved(*names):
    options = Options(task=("spooky-author",), arms=names)
    return resolve_settings(options, describe=lambda _: None).arms


def _switches(a, b):
    return {
        field.name
        for field in dataclasses.fields(Arm)
        if field.name != "name" and getattr(a, field.name) != getattr(b, field.name)
    }


@pytest.mark.parametrize("rate", ["own", "greedy"])
@pytest.mark.parametrize(
    ("place", "first", "then"),
    [
        ("advantage", "advantage_price", "ranking_price"),
        ("ranking", "ranking_price", "advantage_price"),
    ],
)
def test_each_step_from_vanilla_to_the_whole_turns_one_switch(rate, place, first, then):
    """vanilla, max-at-k without a price, with one in one place, with one in both."""
    whole = f"max-at-k+{rate}"
    ladder = _resolved("vanilla", "max-at-k", f"{whole}-{place}", whole)
    turned = [_switches(a, b) for a, b in itertools.pairwise(ladder)]
    assert turned == [{"objective"}, {first}, {then}]


def test_the_names_are_all_combinations():
    assert len(SYSTEMATIC) == 14
    assert list(SYSTEMATIC)[7:10] == [
        "max-at-k",
        "max-at-k+greedy",
        "max-at-k+greedy-advantage",
    ]
    whole = {
        (a.objective, a.advantage_price, a.ranking_price) for a in SYSTEMATIC.values()
    }
    assert len(whole) == 14
    for name, arm in SYSTEMATIC.items():
        assert arm.name == name
        assert _resolved(name) == (arm,)
        rate = {"estimated", "own"} & {arm.advantage_price, arm.ranking_price}
        assert len(rate) <= 1
        base = SYSTEMATIC[name.partition("+")[0]]
        assert _switches(arm, base) <= {"advantage_price", "ranking_price"}
    assert not set(SYSTEMATIC) & set(ARMS)


@pytest.mark.parametrize(
    ("name", "twin"),
    [
        ("vanilla", "reward"),
        ("rpg", "reward+greedy"),
        ("rpg-best", "max-at-k+own"),
    ],
)
def test_old_names_are_presets(name, twin):
    assert _switches(ARMS[name], SYSTEMATIC[twin]) == set()


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"choose from rpg.* max-at-k\+own-ranking"):
        get_arm("max-at-k+mine")
    with pytest.raises(UsageError, match="choose from rpg"):
        parse.arms_of(["max-at-k+own-nowhere"], None)
    with pytest.raises(ValueError, match="already"):
        register_arm(Arm("max-at-k"))
    with pytest.raises(ValueError, match="objective"):
        Arm("x", objective="best")
    assert [a.name for a in parse.arms_of(["all"], None)] == [
        name for name in ARMS if name != "fixed-price"
    ]


def test_records_from_before_these_switches_mean_what_they_meant():
    old = {"name": "rpg", "advantage_price": "estimated", "ranking_price": "estimated"}
    assert from_plain(Arm, old) == ARMS["rpg"]
    assert "objective" not in to_plain(ARMS["rpg"])
    stored = to_plain(SOUND)
    assert "max_at_k" not in stored
    assert "own_decay" not in stored["rate"]
    assert stored["learning"].pop("cap_gainless") is True
    assert from_plain(Protocol, stored).learning.cap_gainless is False
    for value in (dataclasses.replace(SOUND, max_at_k=MaxAtK(k_start=2)), PAPER):
        assert from_plain(Protocol, to_plain(value)) == value
    for arm in (*ARMS.values(), *SYSTEMATIC.values()):
        assert from_plain(Arm, to_plain(arm)) == arm


def _protocol(name="sound", **options):
    return parse.protocol_of(name, TINY, Options(**options))


def test_options_of_max_at_k():
    assert _protocol().max_at_k == MaxAtK()
    chosen = _protocol(max_k=8, k_start=2, best="chain", k_form="rank", rank_by="value")
    assert chosen.max_at_k == MaxAtK(
        max_k=8, k_start=2, best="chain", form="rank", rank_by="value"
    )
    for bad in ({"max_k": 0}, {"k_start": 20}, {"k_start": 0}):
        with pytest.raises(UsageError, match="k"):
            _protocol(**bad)
    for bad in ({"best": "run"}, {"form": "log"}, {"rank_by": "w"}, {"batches": 0}):
        with pytest.raises(ValueError):
            MaxAtK(**bad)


def test_max_at_k_as_the_reward():
    options = Options(task=("spooky-author",), reward="max_at_k")

    def resolved(*arms):
        chosen = dataclasses.replace(options, arms=arms) if arms else options
        return resolve_settings(chosen, describe=lambda _: None)

    settings = resolved()
    assert settings.arms == (get_arm("rpg-best"), get_arm("max-at-k"))
    # What a score is worth is as before: w is made of gains.
    assert settings.protocol.rule == SOUND.rule
    both = ("max-at-k+own-advantage", "search-only")
    assert [arm.name for arm in resolved(*both).arms] == list(both)
    with pytest.raises(UsageError, match=r"=max_at_k: vanilla learns from the reward"):
        resolved("rpg-best", "vanilla")


def test_the_cap_is_for_new_runs_under_sound():
    assert _protocol().learning.caps
    assert not _protocol(cap_gainless=False).learning.caps
    assert not _protocol("paper").learning.cap_gainless
    assert not Learning().cap_gainless
    # Where it cannot act, the record does not say that it does.
    assert not _protocol(advantage="critic").learning.cap_gainless
    with pytest.raises(UsageError, match="cap_gainless"):
        _protocol(advantage="critic", cap_gainless=True)


def test_the_trainer_is_given_the_advantages_that_are_capped():
    sampling, options = SOUND.sampling, LLMOptions()
    assert ppo_hyper(SOUND.learning, sampling, options).advantage == "given"
    free = dataclasses.replace(SOUND.learning, cap_gainless=False)
    assert ppo_hyper(free, sampling, options).advantage == "loo"


def test_raw_losses_are_no_values_for_max_at_k():
    options = {"reward": "raw", "failure_penalty": 99.0}
    protocol = _protocol(**options)
    with pytest.raises(UsageError, match=r"--arms=max-at-k.*worth less than a failure"):
        parse.check_objective(
            protocol, [ARMS["rpg"], get_arm("max-at-k")], ["leaf-classif"]
        )
    parse.check_objective(protocol, [ARMS["rpg"]], ["leaf-classif"])
    parse.check_objective(protocol, [get_arm("max-at-k")], ["tabular-2022"])


def test_k_of_a_step():
    k = MaxAtK(max_k=16)
    assert [k.k(left, 0.5) for left in (0.2, 3.5, 99.0, float("inf"))] == [
        1,
        3.5,
        16,
        16,
    ]
    rising = MaxAtK(max_k=10, k_start=2)
    assert [rising.k(99.0, share) for share in (0.0, 0.5, 1.0, 1.3)] == [2, 6, 10, 10]
    assert rising.k(3.0, 0.9) == 3
