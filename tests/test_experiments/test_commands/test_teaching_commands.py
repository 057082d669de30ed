"""``pretrain`` and ``survey``: what the flags mean, complaints in one line."""

import json

import command_flags
import pytest
from absl.testing import flagsaver

from experiments import cli
from experiments.teaching.pretrain import make_settings
from experiments.teaching.survey_summary import Sample


def run(name, *flags):
    """The exit code of a command in this process."""
    command = command_flags.load(name)
    with (
        command_flags.active(name),
        flagsaver.flagsaver(),
        pytest.raises(SystemExit) as stop,
    ):
        cli.run(command.main, ["prog", *flags])
    return stop.value.code


def test_pretrain_shows_its_settings(capsys):
    flags = ("--smoke", "--steps=3", "--tokens=2000", "--seed=4")
    assert not run("experiments.pretrain", "--dry_run", *flags)
    settings = make_settings(smoke=True, steps=3, tokens=2000, seed=4)
    assert capsys.readouterr().out.strip() == str(settings)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--init=/no/such/run"], "--init=/no/such/run: "),
        (["--resume"], "--resume needs --out=DIR"),
    ],
)
def test_pretrain_complains_in_one_line(flags, message, capsys):
    assert run("experiments.pretrain", *flags) == 2
    out = capsys.readouterr()
    assert message in out.err
    assert len(out.err.strip().splitlines()) == 1


def test_survey_shows_its_configuration(capsys):
    flags = ("--task=insults,whale", "--samples=6", "--isolation=posix")
    assert not run("experiments.survey", "--dry_run", *flags)
    config = json.loads(capsys.readouterr().out)
    assert config["tasks"] == ["insults", "whale"]
    assert (config["model"], config["samples"], config["seed"]) == ("tiny", 6, 0)


def test_a_line_of_the_survey_says_what_became_of_an_answer():
    command = command_flags.load("experiments.survey")
    fields = (
        "whale",
        "base",
        True,
        "failed",
        None,
        None,
        1.26,
        1.0,
        9,
        "KeyError: 'x'",
    )
    sample = Sample(*fields, changed=None, script="", previous="", plan="")
    assert command._line(sample) == "  whale base: failed 1.3 s KeyError: 'x'"
    good = sample.__class__(**{**vars(sample), "gain": 0.5, "reason": ""})
    assert command._line(good).rstrip() == "  whale base: failed gain 0.500 1.3 s"
