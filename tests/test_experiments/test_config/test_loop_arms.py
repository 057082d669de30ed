"""Arms and protocols: what differs between two of them is what their names say."""

import dataclasses

import loop_help as helper
import numpy as np
import pytest

from experiments.config.arms import ARMS, Arm, get_arm, in_words, price
from experiments.config.protocol import PAPER, PROTOCOLS, SOUND, get_protocol
from experiments.loop.algorithm import Loop
from experiments.loop.learn import Rows, make_signals

NAMES = (
    "rpg",
    "vanilla",
    "search-only",
    "independent",
    "random-edits",
    "fixed-price",
    "ratio",
    "on-policy-rate",
    "duration-weighted",
    "rpg-best",
)


def _differences(a, b):
    return {
        f.name
        for f in dataclasses.fields(a)
        if getattr(a, f.name) != getattr(b, f.name)
    }


def test_all_arms_are_there():
    assert tuple(ARMS) == NAMES


def test_rpg_and_vanilla_differ_in_price_alone():
    differ = _differences(ARMS["rpg"], ARMS["vanilla"])
    assert differ == {"name", "advantage_price", "ranking_price"}


@pytest.mark.parametrize(
    ("arm", "base", "switches"),
    [
        ("search-only", "vanilla", {"gradient"}),
        ("independent", "search-only", {"parents"}),
        ("random-edits", "search-only", {"policy"}),
        ("on-policy-rate", "rpg", {"advantage_price", "ranking_price"}),
        ("fixed-price", "rpg", {"advantage_price", "ranking_price"}),
        ("ratio", "vanilla", {"signal"}),
        ("duration-weighted", "vanilla", {"weight"}),
    ],
)
def test_other_arms_turn_one_switch(arm, base, switches):
    assert _differences(ARMS[arm], ARMS[base]) == {"name"} | switches


def test_first_batches_of_rpg_and_vanilla_are_the_same(tmp_path):
    seen = {}
    for arm in ("rpg", "vanilla"):
        folder = tmp_path / arm
        folder.mkdir()
        spec = helper.spec(arm)
        with Loop(folder, spec, helper.hooks(helper.ScriptedPolicy(folder))) as loop:
            metrics = loop.step()
        lines = helper.records(folder)
        keys = ("script_sha256", "prompt_id", "parent", "reward", "delta_s", "score")
        seen[arm] = [{k: line[k] for k in keys} for line in lines]
        seen[arm, "metrics"] = metrics
    assert seen["rpg"] == seen["vanilla"]
    rpg, vanilla = seen["rpg", "metrics"], seen["vanilla", "metrics"]
    assert rpg["rho"] == vanilla["rho"] > 0
    assert rpg["price"] == rpg["rho"]
    assert vanilla["price"] == 0
    # And the learning signals differ by the price of the charged seconds alone.
    paid = rpg["rho"] * np.array(rpg["charged_s"])
    np.testing.assert_allclose(
        np.array(vanilla["relative"]) - rpg["relative"], paid, rtol=1e-12
    )
    assert rpg["charged_s"] == vanilla["charged_s"]


def test_the_two_cells_are_equal_but_for_the_arm():
    assert _differences(helper.spec("rpg"), helper.spec("vanilla")) == {"arm"}


def test_presets():
    assert set(PROTOCOLS) == {"sound", "paper"}
    assert (SOUND.rule.kind, SOUND.rule.failure_charge) == ("gain", "slowest")
    assert (SOUND.rule.clock, SOUND.reward_split) == ("attempt", "validation")
    assert (SOUND.rate.data, SOUND.rate.leave_one_out) == ("greedy", True)
    assert SOUND.sampling.top_k is None
    assert SOUND.sampling.top_p is None
    assert (PAPER.rule.kind, PAPER.rule.failure_charge) == ("paper", "limit")
    assert (PAPER.rule.clock, PAPER.reward_split) == ("execution", "test")
    assert (PAPER.rate.data, PAPER.rate.leave_one_out) == ("slots", False)
    assert (PAPER.chains, PAPER.buffer_capacity) == (128, 1280)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAPER.chains = 3
    with pytest.raises(ValueError, match="choose from sound, paper"):
        get_protocol("papier")


def test_names_and_prices_are_checked():
    with pytest.raises(ValueError, match="choose from rpg"):
        get_arm("rgp")
    with pytest.raises(ValueError, match="needs a price"):
        get_arm("fixed-price")
    with pytest.raises(ValueError, match="no hand-set price"):
        get_arm("rpg", fixed_price=1.0)
    with pytest.raises(ValueError, match="finite"):
        get_arm("fixed-price", fixed_price=float("nan"))
    with pytest.raises(ValueError, match="signal"):
        Arm("x", signal="log")
    assert get_arm("fixed-price", fixed_price=0.25).fixed_price == 0.25


def test_price_choices():
    arm = get_arm("fixed-price", fixed_price=0.25)
    prices = {"none": 0.0, "estimated": 3.0, "fixed": 0.25, "on-policy": 4.0}
    prices["own"] = 5.0
    for choice, expected in prices.items():
        assert price(choice, arm, estimated=3.0, on_policy=4.0, own=5.0) == expected


def _rows(reward, seconds, valid, known=None):
    reward, valid = np.array(reward, float), np.array(valid, bool)
    known = np.ones(len(valid), bool) if known is None else np.array(known)
    return Rows(
        reward=reward,
        value=np.where(valid, reward, 0),
        seconds=np.array(seconds, float),
        valid=valid,
        known=known,
        chain=np.arange(len(valid)),
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_crash_never_outranks_a_gain(name):
    """Over many batches: each failure is below each valid script of positive gain, in
    the signal and in what multiplies the gradient."""
    rng = np.random.default_rng(3)
    arm = get_arm(name, fixed_price=0.2 if name == "fixed-price" else None)
    for _ in range(300):
        size = int(rng.integers(2, 9))
        valid = rng.random(size) < 0.6
        valid[0], valid[-1] = True, False
        seconds = np.where(valid, rng.lognormal(2, 2, size), 0.1)
        reward = np.where(valid, rng.random(size), 0.0)
        rows = _rows(reward, seconds, valid)
        rho = 0.0 if arm.advantage_price == "none" else float(rng.lognormal(-2, 2))
        out = make_signals(arm, SOUND.rule, rows, price=rho, limit_s=600.0)
        gain = valid & (reward > 0)
        assert out.relative[~valid].max() < out.relative[gain].min()
        assert out.advantage[~valid].max() <= out.advantage[gain].min() + 1e-6


def test_measured_charge_would_let_it():
    """The control: with the measured charge the crash wins, so the test can fail."""
    rows = _rows([0.1, 0.0], [50.0, 0.1], [True, False])
    arm = dataclasses.replace(ARMS["rpg"], failure_charge="measured")
    out = make_signals(arm, SOUND.rule, rows, price=0.05, limit_s=600.0)
    assert out.relative[1] > out.relative[0]


def test_rows_that_the_machinery_lost_take_no_part():
    rows = _rows(
        [0.5, 9.0, 0.1], [2.0, 9.0, 4.0], [True, True, True], [True, False, True]
    )
    out = make_signals(ARMS["rpg"], SOUND.rule, rows, price=0.1, limit_s=60.0)
    assert out.mask.tolist() == [True, False, True]
    assert out.relative[1] == out.advantage[1] == out.weight[1] == out.charged[1] == 0
    expected = (0.5 - 0.2) - (0.1 - 0.4)
    np.testing.assert_allclose(out.advantage[[0, 2]], [expected, -expected], rtol=1e-6)


def test_what_an_arm_learns_from_is_said_as_its_switches_are():
    said = {name: in_words(arm) for name, arm in ARMS.items()}
    assert said["rpg"] == "learns from reward − ρ̂ · seconds"
    assert said["vanilla"] == "learns from reward"
    assert said["search-only"].startswith("no training")
    assert said["ratio"] == "learns from reward / seconds"
    assert "0.25 · seconds" in in_words(get_arm("fixed-price", fixed_price=0.25))
    assert len(set(said.values())) == len(said)  # arms differ, and so do their words


def test_a_script_that_gains_nothing_is_never_taught():
    """Under a price that no script of the batch can pay, quick ones look good."""
    reward, seconds = [0.5, 0.0, 0.2, 0.0], [40.0, 1.0, 30.0, 2.0]
    rows = _rows(reward, seconds, [True, True, True, False])
    free = make_signals(ARMS["rpg"], SOUND.rule, rows, price=0.05, limit_s=60.0)
    held = make_signals(
        ARMS["rpg"], SOUND.rule, rows, price=0.05, limit_s=60.0, cap_gainless=True
    )
    assert free.advantage[1] > 0
    assert held.advantage[1] == 0
    np.testing.assert_array_equal(held.advantage[[0, 2, 3]], free.advantage[[0, 2, 3]])
    np.testing.assert_array_equal(held.relative, free.relative)


@pytest.mark.parametrize("name", NAMES)
def test_no_gain_has_no_positive_advantage_under_any_price(name):
    rng = np.random.default_rng(4)
    arm = get_arm(name, fixed_price=0.2 if name == "fixed-price" else None)
    for _ in range(200):
        size = int(rng.integers(2, 9))
        valid, known = rng.random(size) < 0.7, rng.random(size) < 0.9
        reward = np.where(valid & (rng.random(size) < 0.5), rng.random(size), 0.0)
        rows = _rows(reward, rng.lognormal(2, 2, size), valid, known)
        price = float(rng.lognormal(-2, 2))
        options = {"price": price, "limit_s": 600.0}
        out = make_signals(arm, SOUND.rule, rows, cap_gainless=True, **options)
        free = make_signals(arm, SOUND.rule, rows, **options)
        gains = known & (reward > 0)
        np.testing.assert_array_equal(out.advantage[gains], free.advantage[gains])
        if gains.any():
            assert (out.advantage[~gains] <= 0).all()
        else:  # all are alike: the quicker one is the better one
            np.testing.assert_array_equal(out.advantage, free.advantage)
