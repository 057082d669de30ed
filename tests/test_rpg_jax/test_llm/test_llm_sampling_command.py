"""``python -m experiments.sample``: scores, samples, complaints."""

import json
import subprocess
import sys

import command_flags
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl.testing import flagsaver

from experiments import cli
from rpg_jax.llm.export import export_pretrained
from rpg_jax.llm.models import model_for
from rpg_jax.llm.qwen3_5 import Qwen35Config

COMMAND = "experiments.sample"
command = command_flags.load(COMMAND)
CONFIG = Qwen35Config.from_hf_json(
    {
        "model_type": "qwen3_5_text",
        "vocab_size": 300,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 4,
        "linear_value_head_dim": 4,
        "initializer_range": 0.3,
        "eos_token_id": 1,
    }
)
MODEL = model_for(CONFIG)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    params = MODEL.init(jax.random.key(0))
    path = export_pretrained(tmp_path_factory.mktemp("m") / "model", CONFIG, params)
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    core = tokenizers.Tokenizer(
        tokenizers.models.BPE({c: i + 2 for i, c in enumerate(letters)}, [])
    )
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=core).save_pretrained(path)
    return path


def run(*flags):
    line = [sys.executable, "-m", COMMAND, *flags]
    return subprocess.run(line, capture_output=True, text=True, timeout=300)


def test_scores_are_those_of_a_plain_forward(folder):
    ids = [5, 250, 0, 7, 1, 1]
    out = run(f"--model={folder}", f"--score_ids={','.join(map(str, ids))}")
    assert out.returncode == 0, out.stderr
    result = json.loads(out.stdout)
    assert result["ids"] == ids
    assert result["log_probs"][0] is None
    params = MODEL.init(jax.random.key(0))
    tokens = jnp.asarray([ids])
    hidden, _ = MODEL.forward(params, tokens, tokens >= 0)
    want = jax.nn.log_softmax(MODEL.logits(params, hidden), axis=-1)[0, :-1]
    want = want[jnp.arange(5), tokens[0, 1:]]
    np.testing.assert_allclose(result["log_probs"][1:], want, atol=1e-4)


def test_samples_are_printed(folder, capsys):
    flags = f"--model={folder}", "--prompt=hi", "--n=3", "--max_new_tokens=9"
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as stop:
        cli.run(command.main, ["prog", *flags])
    out = capsys.readouterr()
    assert not stop.value.code, out.err
    assert out.out.count("--- sample") == 3
    assert "truncated" in out.out or "finished" in out.out


@pytest.mark.slow
def test_equal_seeds_print_equal_samples(folder):
    flags = f"--model={folder}", "--prompt=hi", "--n=2", "--max_new_tokens=9"
    first, again, other = run(*flags), run(*flags), run(*flags, "--seed=1")
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout != other.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--score_ids=1,x"], "whole numbers"),
        (["--score_ids=1,2", "--prompt=x"], "takes no prompt"),
        ([], "give one of"),
        (["--prompt=x", "--model=/no/such/model"], "does not exist"),
        (["--score_ids=1,300", "--model=FOLDER"], "must lie in"),
        (["--prompt=x", "--temperature=nan"], "temperature"),
        (["--prompt_file=/no/such/file"], "prompt_file"),
    ],
)
def test_complaints_are_one_line(folder, flags, message, capsys):
    line = ["prog", *(f.replace("FOLDER", str(folder)) for f in flags)]
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as stop:
        cli.run(command.main, line)
    out = capsys.readouterr()
    assert stop.value.code == 2
    assert message in out.err
    assert len(out.err.strip().splitlines()) == 1
    assert out.out == ""
