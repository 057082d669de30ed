"""Flags to settings: presets, protocols, mistakes, --help; the clock of work."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import llm_tiny
import mle_run_help as run_help
import numpy as np
import pytest
from absl.testing import flagsaver
from repo_paths import ROOT
from synthetic_helpers import shared_cache

from experiments import cli
from experiments.config import plain
from experiments.config.errors import UsageError
from experiments.config.presets import LARGE, TINY
from experiments.config.protocol import PAPER, SOUND
from experiments.config.settings import Settings, read_settings
from experiments.running import machine
from experiments.running.places import (
    Places,
    check_folder,
    check_tasks,
    leaderboard_of,
    show,
)
from rpg_jax.llm import export_pretrained
from rpg_jax.llm.models import model_for
from rpg_tasks import TaskError, get_task

COMMAND = run_help.COMMAND
mle_bench = run_help.mle_bench


def settings(**changes):
    return run_help.settings(**{"steps": None, "chains": None} | changes)


def test_defaults_of_the_embedded_policy():
    found = settings()
    assert (found.preset, found.style) == ("tiny", "menu")
    assert found.answer_form == "part-edits"
    assert found.protocol.chains == TINY.chains
    assert found.protocol.sampling.max_new_tokens == TINY.max_new_tokens
    assert found.protocol.learning.learning_rate == TINY.learning_rate
    assert found.limit_s(get_task("nomad2018")) == TINY.wall_limit_s
    assert found.budget.seconds == TINY.budget_s
    assert [arm.name for arm in found.arms] == ["rpg", "vanilla"]
    assert found.isolation == "landlock"


@pytest.mark.parametrize(("name", "protocol"), [("sound", SOUND), ("paper", PAPER)])
def test_a_large_model_gets_the_protocol_as_it_is(name, protocol):
    found = settings(model="somewhere", parameters=4_200_000_000, protocol=name)
    assert found.protocol == protocol
    assert (found.style, found.stated_limits) == ("full", "run")
    assert found.machine == LARGE.machine
    assert found.limit_s(get_task("nomad2018")) == 1200
    assert found.limit_s(get_task("spooky-author")) == 600
    assert found.isolation == "namespaces"


def test_a_group_of_one_is_refused_where_it_would_learn_nothing():
    with pytest.raises(UsageError, match="nothing would be learned"):
        settings(chains=1, arms=["rpg", "search-only"])
    assert settings(chains=1, arms=["search-only"]).protocol.chains == 1
    assert settings(chains=1, advantage="critic").protocol.chains == 1


def test_flags_override_the_preset_and_the_protocol():
    found = settings(
        protocol="paper",
        time="attempt",
        rate="empirical",
        rate_data="greedy",
        reward="gain",
        reward_split="validation",
        failure_charge="measured",
        failure_penalty=0.5,
        chains=3,
        lr=2e-3,
        advantage="loo",
        max_prompt_tokens=77,
        max_new_tokens=11,
        prompt_style="full",
        wall_limit=7.5,
        lora_rank=4,
        steps=5,
        budget=9.0,
        budget_clock="execution",
        seeds=["4", "9"],
        arms=["fixed-price", "ratio"],
        fixed_price=0.25,
    )
    rule = found.protocol.rule
    assert dataclasses.astuple(rule) == (
        *("gain", 0.5, "measured", "attempt"),
        "wall",
    )
    assert (found.protocol.rate.estimator, found.protocol.rate.data) == (
        "empirical",
        "greedy",
    )
    assert found.protocol.reward_split == "validation"
    assert found.protocol.sampling.top_k == PAPER.sampling.top_k
    assert found.protocol.sampling.max_prompt_tokens == 77
    assert found.protocol.sampling.max_new_tokens == 11
    assert found.protocol.learning.learning_rate == 2e-3
    assert found.protocol.learning.advantage == "loo"
    assert (found.style, found.wall_limit_s, found.machine.lora_rank) == (
        "full",
        7.5,
        4,
    )
    assert dataclasses.astuple(found.budget) == (9.0, 5, "execution")
    assert found.seeds == (4, 9)
    assert [arm.fixed_price for arm in found.arms] == [0.25, 0.0]


def test_seeds_and_arms_and_tasks_as_lists():
    assert settings(seeds=["3"]).seeds == (0, 1, 2)
    assert settings(seeds=["7", ""]).seeds == (7,)
    assert len(settings(arms=["all"]).arms) == 9  # no price, no fixed-price
    assert len(settings(arms=["all"], fixed_price=0.1).arms) == 10
    assert len(settings(task=["all"]).tasks) == 22
    both = settings(task=["spooky-author-identification", "nyc-taxi", "nyc-taxi"])
    assert both.tasks == ("spooky-author", "nyc-taxi")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": ["spooky-autor"]}, "did you mean spooky-author"),
        ({"task": [""]}, "names no task"),
        ({"arms": ["rpg", "rgp"]}, "choose from rpg, vanilla"),
        ({"arms": ["fixed-price"]}, "needs --fixed-price"),
        ({"fixed_price": 0.1}, "add that arm"),
        ({"arms": ["fixed-price"], "fixed_price": -1.0}, "finite and >= 0"),
        ({"seeds": ["one"]}, "number of seeds"),
        ({"seeds": ["-1"]}, "number of seeds"),
        ({"seeds": ["900"]}, "for the one seed 900 write --seeds=900,"),
        ({"budget": 0.0}, "must be positive"),
        ({"budget": float("nan")}, "must be positive"),
        ({"steps": 0}, "must be at least 1"),
        ({"chains": 0}, "must be 1 to"),
        ({"lr": float("inf")}, "must be positive"),
        ({"wall_limit": -1.0}, "must be positive"),
        ({"slots": 10_000}, "this machine has"),
        ({"failure_penalty": -1.0}, "failure penalty"),
        ({"rate_data": "slots", "chains": 1}, "--chains=2"),
        ({"lora_rank": -1}, "must be 0 to"),
        ({"reward": "raw", "task": ["whale", "nomad2018"]}, "on nomad2018 the metric"),
        ({"protocol": "paper", "failure_penalty": 2.0}, "reward is -10"),
        ({"data": "mlebench"}, "mlebench prepare -c tabular-playground"),
    ],
)
def test_mistakes_are_one_clear_line(changes, words, tmp_path):
    with flagsaver.flagsaver(), pytest.raises(UsageError) as caught:
        run_help.settings(**changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_raw_losses_need_a_failure_that_loses_more():
    found = settings(task=["nomad2018"], reward="raw", failure_penalty=5.0)
    assert found.protocol.rule.failure_penalty == 5.0
    assert settings(task=["whale"], reward="raw").protocol.rule.kind == "raw"


def test_real_data_need_a_real_boundary():
    from experiments.config.parse import isolation_of

    assert isolation_of("auto", real=False, model="tiny") == "landlock"
    assert isolation_of("auto", real=False, model="x", style="menu") == "landlock"
    assert isolation_of("auto", real=True, model="tiny") == "namespaces"
    assert isolation_of("auto", real=True, model="x", style="menu") == "namespaces"
    assert isolation_of("auto", real=False, model="other") == "namespaces"
    assert isolation_of("full", real=True, model="tiny") == "full"
    assert isolation_of("posix", real=False, model="other") == "posix"
    for name in ("posix", "landlock"):
        with pytest.raises(UsageError, match="namespaces or full"):
            isolation_of(name, real=True, model="tiny")


def test_slots_leave_a_core_free_for_a_policy_that_writes_meanwhile(monkeypatch):
    monkeypatch.setattr(machine, "available_cores", lambda: (0, 1, 2, 3))
    assert machine.slots_of(None, 128) == 3
    assert machine.slots_of(None, 2) == 2
    assert machine.slot_cores(2) == (2, 3)
    assert machine.slots_of(None, 128, overlap=False) == 4
    assert machine.slot_cores(4) == (0, 1, 2, 3)
    with pytest.raises(UsageError, match=r"4 core\(s\): 1 to 4"):
        machine.slots_of(5, 128, overlap=False)
    monkeypatch.setattr(machine, "memory_mb", lambda: 40_000)
    assert machine.slots_of(None, 128, script_mb=16_384) == 2
    assert machine.slots_of(None, 128, script_mb=64_000) == 1
    assert machine.slots_of(3, 128, script_mb=16_384) == 3
    monkeypatch.setattr(machine, "memory_mb", lambda: None)
    assert machine.slots_of(None, 128, script_mb=16_384) == 3
    with pytest.raises(UsageError, match="1 to 3"):
        machine.slots_of(4, 128)
    monkeypatch.setattr(machine, "available_cores", lambda: (5,))
    assert machine.slots_of(None, 8) == 1
    assert machine.slot_cores(1) == (5,)


def test_settings_survive_json(tmp_path):
    found = settings(arms=["fixed-price"], fixed_price=0.5, seeds=["2"], task=["all"])
    text = json.dumps({"config": plain.to_plain(found) | {"weights": "x"}})
    (tmp_path / "config.json").write_text(text)
    assert read_settings(tmp_path) == found
    shown = json.loads(show(found, Places(tmp_path)))
    assert shown.pop("out") == str(tmp_path)
    assert plain.from_plain(Settings, shown) == found
    del shown["model"]
    (tmp_path / "config.json").write_text(json.dumps({"config": shown}))
    with pytest.raises(UsageError, match="not that of such an experiment"):
        read_settings(tmp_path)
    with pytest.raises(UsageError, match="there is no run in"):
        read_settings(tmp_path / "nowhere")


def test_folders_are_checked_before_anything_slow(tmp_path):
    check_folder(tmp_path / "a" / "b", resume=False)
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match="cannot write to"):
        check_folder(file / "run", resume=False)
    with pytest.raises(UsageError, match="is not empty and holds no run"):
        check_folder(tmp_path, resume=False)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="add --resume"):
        check_folder(tmp_path, resume=False)
    check_folder(tmp_path, resume=True)


def test_the_papers_reward_needs_leaderboards(tmp_path):
    """Only for tasks where a lower score is better; the others have the metric."""
    higher = settings(protocol="paper")
    assert leaderboard_of(higher, Places(tmp_path), get_task(run_help.TASK)) is None
    lower = settings(protocol="paper", task=["spooky-author"])
    task = get_task("spooky-author")
    places = Places(tmp_path, leaderboards=str(tmp_path))
    with pytest.raises(TaskError, match="there is no leaderboard"):
        leaderboard_of(lower, places, task)
    with pytest.raises(UsageError, match="--leaderboards=DIR"):
        check_tasks(lower, Places(tmp_path))
    folder = tmp_path / task.competition_id
    folder.mkdir()
    (folder / "leaderboard.csv").write_text("score\n0.3\n0.4\n")
    np.testing.assert_array_equal(leaderboard_of(lower, places, task), [0.3, 0.4])
    assert leaderboard_of(settings(), places, task) is None


# --- the command line ---------------------------------------------------------------


def test_every_flag_has_one_place_in_the_help(capsys):
    sections = mle_bench.SECTIONS
    names = [holder.name for section in sections.values() for holder in section]
    assert len(names) == len(set(names))
    own = mle_bench.flags.FLAGS.flags_by_module_dict()["experiments.mle_bench"]
    shared = {"seed", "out", "resume", "dry_run", "plot"}
    assert set(names) == {flag.name for flag in own} | shared
    text = cli.grouped_help(mle_bench.__doc__, sections)
    assert max(map(len, text.splitlines())) <= 88
    for name in names:
        assert f"  --{name} " in text


def command(*arguments, cwd=ROOT, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "experiments.mle_bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.strip()


def in_process(*arguments):
    """Exit code and error of a command line that cannot start anything."""
    with flagsaver.flagsaver():
        # absl marks what it parses as present; the saver takes it back.
        mle_bench.flags.FLAGS(cli._underscored(["mle_bench", *map(str, arguments)]))
        try:
            return mle_bench.main(), ""
        except UsageError as error:
            return 2, str(error)


def damaged(tmp_path):
    """A model folder whose weights are cut short."""
    config = llm_tiny.llama(layers=1)
    folder = tmp_path / "model"
    export_pretrained(folder, config, model_for(config).init(jax.random.key(0)))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-50])
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--resume"], "add --out=DIR"),
        (["--resume", "--out={tmp}/none"], "there is no run in"),
        (["--replay={tmp}/none"], "there is no run in"),
        (["--replay={tmp}", "--resume"], "leave out --resume"),
        (["--task=spooky-author", "--model={tmp}/none"], "does not exist"),
        (["--task=spooky-author", "--model={tmp}"], "no config.json"),
        (["--task=spooky-author", "--out=/dev/null/run"], "cannot write to"),
        (["--task=all", "--data=mlebench", "--data-dir={tmp}"], "mlebench prepare -c"),
        (["--task=spooky-author,nyc-taxi", "--show-prompt"], "takes one task"),
    ],
)
def test_a_wrong_command_line_is_refused(tmp_path, arguments, words):
    code, error = in_process(*(a.format(tmp=tmp_path) for a in arguments))
    assert code == 2
    assert words in error
    assert "\n" not in error
    assert list(tmp_path.iterdir()) == []


def test_damaged_weights_are_one_line_and_leave_no_folder(tmp_path, tmp_path_factory):
    folder = damaged(tmp_path)
    out = tmp_path / "run"
    cache = shared_cache(tmp_path_factory)
    flags = ("--task=spooky-author", "--data=synthetic", "--isolation=posix")
    code, error = in_process(
        *flags, f"--model={folder}", f"--out={out}", f"--cache-dir={cache}"
    )
    assert code == 2
    assert f"--model={folder}" in error
    assert not out.exists()


def test_stored_settings_allow_no_others(tmp_path):
    stored = {"config": plain.to_plain(settings())}
    (tmp_path / "config.json").write_text(json.dumps(stored))
    code, error = in_process(
        tmp_path, "--resume", f"--out={tmp_path}", "--chains=3", "--lr=1"
    )
    assert (code, "leave out --chains, --lr" in error) == (2, True)
    code, error = in_process(f"--replay={tmp_path}", "--steps=3")
    assert "leave out --steps" in error


def test_a_task_named_again_keeps_the_stored_budget(tmp_path, capsys):
    flags = ("--task=spooky-author", "--data=synthetic", "--dry-run")

    def seconds(*more):
        code, error = in_process(*flags, f"--out={tmp_path}", *more)
        assert (code, error) == (0, "")
        shown = json.loads(capsys.readouterr().out)
        del shown["out"]
        if "--resume" not in more:
            (tmp_path / "config.json").write_text(json.dumps({"config": shown}))
        return shown["budget"]["seconds"]

    assert seconds("--budget=60") == 60.0
    assert seconds("--resume") == 60.0
    assert seconds("--resume", "--budget=90") == 90.0


def test_dry_run_shows_what_would_run(tmp_path):
    code, out, err = command(
        *("--task=spooky-author", "--data=synthetic", "--rate-data=slots"),
        *("--dry-run", f"--out={tmp_path}/run"),
    )
    assert (code, err) == (0, "")
    shown = json.loads(out)
    assert shown["protocol"]["learning"]["learning_rate"] == TINY.learning_rate
    assert shown["protocol"]["rate"]["data"] == "slots"
    assert list(tmp_path.iterdir()) == []
