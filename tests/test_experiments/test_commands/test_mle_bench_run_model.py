"""The real parts: a random tiny model, its sandbox, the command line."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import llm_tiny
import numpy as np
import pytest
from mle_run_help import lines
from repo_paths import ROOT

from experiments.config.presets import PRESETS, Machine
from experiments.config.protocol import SOUND, Sampling
from experiments.policies.base import Signals
from experiments.policies.models import Model
from experiments.records.recorded import MEASURED
from experiments.teaching.tokenizer import save, train_tokenizer
from rpg_jax.llm import export_pretrained
from rpg_jax.llm.models import model_for
from rpg_jax.llm.qwen3_5 import Qwen35Config
from rpg_tasks import get_task

TEXTS = ["```python\nprint(1)\n``` the plan: score train.csv submission id text\n"] * 3


def tiny_model(folder):
    """A random model of the embedded policy's kind, with a tokenizer of its own."""
    tokenizer = train_tokenizer(TEXTS, vocabulary=320)
    config = Qwen35Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        linear_num_key_heads=1,
        linear_num_value_heads=1,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=("linear_attention", "full_attention"),
        tie_word_embeddings=True,
        eos_token_id=(tokenizer.eos_token_id,),
    )
    params = model_for(config).init(jax.random.key(0))
    export_pretrained(folder, config, params)
    save(tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model") / "random")


def command(*arguments, cache):
    return [sys.executable, "-m", "experiments.mle_bench", *map(str, arguments)], {
        **os.environ,
        "XDG_CACHE_HOME": str(cache),
    }


def run(*arguments, cache):
    words, environment = command(*arguments, cache=cache)
    return subprocess.run(
        words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )


def bare(folder):
    return [
        {k: v for k, v in m.items() if k not in MEASURED}
        for m in lines(folder / "metrics.jsonl")
    ]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_from_the_command_line_to_the_report(folder, tmp_path):
    """Train, stop by SIGTERM, go on, replay: through the real sandbox."""
    out, copy, cache = tmp_path / "run", tmp_path / "copy", tmp_path / "cache"
    flags = [
        *("--task=spooky-author", "--data=synthetic", f"--model={folder}"),
        *("--chains=3", "--steps=2", "--max-prompt-tokens=1600", "--lr=0.01"),
        "--prompt-style=compact",
        *("--max-new-tokens=16", "--wall-limit=20", "--isolation=posix"),
    ]
    words, environment = command(*flags, f"--out={out}", cache=cache)
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        metrics = out / "spooky-author" / "rpg" / "seed-0" / "metrics.jsonl"
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and process.poll() is None:
            if metrics.exists() and metrics.stat().st_size:
                break
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        text = process.communicate(timeout=300)[0]
    assert process.returncode == 143, text
    last = text.splitlines()[-1]
    assert last == f"go on with: python -m experiments.mle_bench --resume --out={out}"
    assert any(line.startswith("note     synthetic data") for line in text.splitlines())

    done = run("--resume", f"--out={out}", cache=cache)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
    with (out / "result.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["steps"] for row in rows] == ["2", "2"]
    assert [row["attempts"] for row in rows] == ["6", "6"]
    config = json.loads((out / "config.json").read_text("utf-8"))["config"]
    assert config["sandbox"] in ("POSIX", "LANDLOCK", "NAMESPACES", "FULL")
    assert len(config["weights"]) == 8
    assert (out / "report" / "report.html").exists()

    done = run(f"--replay={out}", f"--out={copy}", "--noreport", cache=cache)
    assert done.returncode == 0, done.stderr
    assert "replay  4 steps of 2 runs came out bit for bit" in done.stdout
    for arm in ("rpg", "vanilla"):
        where = Path("spooky-author") / arm / "seed-0"
        assert bare(copy / where) == bare(out / where)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_gives_a_policy(folder, tmp_path, name):
    """What a preset asks of the machine is what the policy's parts accept."""
    model = Model(str(folder), PRESETS[name].machine)
    policy = model.policy(tmp_path, 0, SOUND, get_task("spooky-author"))
    try:
        assert policy.restore() == 0
        assert policy.options.keep == PRESETS[name].machine.keep
    finally:
        policy.close()


@pytest.mark.slow
def test_a_parked_policy_is_the_same_policy(folder, tmp_path):
    """Moving the state to the host and back, and donating it, change no bit."""
    protocol = SOUND.__class__(
        chains=4, sampling=Sampling(max_prompt_tokens=64, max_new_tokens=6)
    )
    model = Model(str(folder), Machine(microbatch=4, remat=False))

    def steps(name, *, park, donate):
        place = tmp_path / name
        place.mkdir()
        model.on_cpu = not donate  # donation is for accelerators
        policy = model.policy(place, 0, protocol, get_task("spooky-author"))
        texts = []
        for step in range(3):
            if park:
                policy.park()
                assert isinstance(
                    jax.tree.leaves(policy._state.opt_state)[0], np.ndarray
                )
                policy.wake()
            groups = list(policy.sample(step, range(4), ["plan"] * 4))
            texts += [t for g in groups for t in g.texts]
            ones = np.ones(4)
            relative = np.arange(4.0)
            policy.learn(
                step, groups, Signals(relative, relative, ones, ones, ones > 0)
            )
        policy.save(3, {})
        assert policy.restore() == 3
        policy.close()
        return texts

    plain = steps("a", park=False, donate=False)
    assert steps("b", park=True, donate=False) == plain
    assert steps("c", park=True, donate=True) == plain
    assert len(set(plain)) > 1


def test_a_model_without_a_tokenizer_is_one_line(tmp_path):
    from experiments.config.errors import UsageError
    from experiments.policies.models import load

    config = llm_tiny.llama(layers=1)
    place = tmp_path / "bare"
    export_pretrained(place, config, model_for(config).init(jax.random.key(0)))
    with pytest.raises(UsageError, match="no readable tokenizer"):
        load(str(place), Machine())
