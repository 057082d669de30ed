"""python -m experiments.plan: whether it fits, and what to change."""

import subprocess
import sys

import llm_tiny
import pytest
from repo_paths import ROOT

from experiments.config.devices import DEVICES, Device, device_of
from experiments.config.errors import UsageError
from experiments.config.options import Options
from experiments.config.presets import Machine
from experiments.policies.models import ModelInfo
from experiments.running.plan import (
    bounds,
    cheaper,
    first_that_fits,
    in_words,
    plan_of,
)
from experiments.running.resolve import resolve_settings

CONFIG = llm_tiny.llama()


def _settings(**changes):
    given = {"model": "m", "chains": 4, "max_prompt_tokens": 32, "max_new_tokens": 16}
    options = Options(task=("spooky-author",), **given | changes)
    return resolve_settings(options, describe=lambda name: ModelInfo(name, 2e9, "cpu"))


def _plan(settings, gib):
    device = Device("small", gib, 1e12, 1e14)
    return plan_of(settings, CONFIG, device, settings.machine)


def test_flags_reach_the_machine():
    machine = _settings(microbatch=2, group=3, dtype="float32", remat=False).machine
    assert (machine.microbatch, machine.group) == (2, 3)
    assert (machine.compute_dtype, machine.remat) == ("float32", False)
    assert _settings().machine == Machine(
        microbatch=1,
        group=16,
        park=True,
        compute_dtype="bfloat16",
        checkpoint_every=10,
    )
    for wrong in ({"microbatch": 0}, {"group": -1}):
        with pytest.raises(UsageError, match="must be"):
            _settings(**wrong)


def test_what_is_too_much_is_named_and_the_mildest_change_is_found():
    settings = _settings(microbatch=4, dtype="float32", remat=False)
    large = _plan(settings, 1.0)
    assert large.fits
    assert not any("too much" in line for line in in_words(large))
    needed = large.memory.peak / 2**30
    small = _plan(settings, 0.99 * needed)
    assert not small.fits
    assert any("too much" in line for line in in_words(small))
    asked = []
    found = first_that_fits(
        small, lambda m: plan_of(settings, CONFIG, small.device, m), asked.append
    )
    flags, better = found
    assert better.memory.peak < small.memory.peak
    assert asked[-1] == f"does {flags} fit?"


def test_cheaper_settings_come_the_mildest_first():
    asked = [flags for flags, _ in cheaper(Machine(microbatch=8, remat=False))]
    assert asked == [
        "--dtype=bfloat16",
        "--dtype=bfloat16 --remat",
        "--dtype=bfloat16 --remat --microbatch=4",
        "--dtype=bfloat16 --remat --microbatch=2",
        "--dtype=bfloat16 --remat --microbatch=1",
        "--dtype=bfloat16 --remat --microbatch=1 --group=16",
        "--dtype=bfloat16 --remat --microbatch=1 --group=16 --lora_rank=32",
    ]
    last = list(cheaper(Machine(microbatch=1, lora_rank=8, compute_dtype="bfloat16")))
    assert [flags for flags, _ in last] == ["--microbatch=1 --group=16"]


def test_bounds_are_those_of_the_data_sheet():
    device = Device("d", 1.0, bandwidth=1e9, flops=1e12)
    settings = _settings(group=2)
    found = bounds(settings, CONFIG, device)
    from rpg_jax.llm import count_parameters

    parameters = count_parameters(CONFIG)
    assert found["decode"] == pytest.approx(2 * 1e9 / (2 * parameters))
    assert found["train"] == pytest.approx(1e12 / (8 * parameters))


def test_devices():
    assert device_of("H200") is device_of("1xH200") is DEVICES["H200"]
    assert device_of("A100-80").gib == pytest.approx(72.3, abs=0.1)
    for wrong, match in (("H9000", "choose"), ("xH200", "choose"), ("2xH200", "one")):
        with pytest.raises(UsageError, match=match):
            device_of(wrong)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((), 2, "--model: give random:Qwen3.5-4B"),
        (("--model=random:Qwen9",), 2, "no model 'Qwen9'"),
        (("--model=tiny", "--devices=8xH200"), 2, "train on one GPU"),
        (("--model=tiny", "--devices=H200"), 0, "tiny fits one H200"),
    ],
)
def test_the_command(arguments, code, text):
    done = subprocess.run(
        [sys.executable, "-m", "experiments.plan", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr
