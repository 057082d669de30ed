"""What the PPO step accepts: ids inside and outside the vocabulary, settings."""

import dataclasses
import tracemalloc

import jax
import jax.numpy as jnp
import llm_tiny as tiny
import numpy as np
import pytest

from rpg_jax.llm.batch import make_batch
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import model_for
from rpg_jax.llm.ppo import make_ppo

CONFIG = tiny.llama(layers=1)
VOCAB = CONFIG.vocab_size
HYPER = PPOHyper(learning_rate=1e-3, microbatch=4, kl_coef=0.0, remat=False)
NUMBERS = [
    *(f.name for f in dataclasses.fields(PPOHyper) if type(f.default) in (int, float)),
    "clip_eps_high",
]


@pytest.fixture(scope="module")
def params():
    return model_for(CONFIG).init(jax.random.key(0))


@pytest.fixture(scope="module")
def batch(params):
    return tiny.random_batch(CONFIG, params)


def started(hyper, params):
    ppo = make_ppo(CONFIG, hyper)
    return ppo, ppo.init(jax.random.key(1), params)


@pytest.fixture(scope="module")
def start(params):
    return started(HYPER, params)


# --- token ids ----------------------------------------------------------------------


@pytest.mark.parametrize("pad", [VOCAB, -100, 2**40])
def test_pads_may_be_any_id_and_change_no_number(start, batch, pad):
    mask = batch.completion_mask.copy()
    mask[0, 2:] = False  # so that there are pads at the end, too

    def with_ids(prompt, completion):
        return make_batch(
            *(prompt, batch.prompt_mask, completion, mask),
            *(batch.sampler_log_prob, batch.reward),
            group=batch.group,
        )

    plain = with_ids(batch.prompt, batch.completion)
    wild = with_ids(
        np.where(batch.prompt_mask, batch.prompt.astype(np.int64), pad),
        np.where(mask, batch.completion.astype(np.int64), pad),
    )
    ppo, state = start
    (new, metrics), (wanted, _) = ppo.update(state, wild), ppo.update(state, plain)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        new.params,
        wanted.params,
    )
    assert metrics.nonfinite.sum() == metrics.skipped.sum() == 0


@pytest.mark.parametrize(("name", "column"), [("prompt", -1), ("completion", 0)])
@pytest.mark.parametrize("value", [VOCAB, -1])
def test_tokens_outside_the_vocabulary_are_refused(start, batch, name, column, value):
    ids = getattr(batch, name).copy()
    ids[2, column] = value
    bad = batch._replace(**{name: ids})
    message = rf"{name}: row 2, token \d+ has id {value}, outside the vocabulary"
    ppo, state = start
    for use in (ppo.update, ppo.score):
        with pytest.raises(ValueError, match=message):
            use(state, bad)
    # Without a model the batch itself knows a vocabulary from its logit mask alone.
    mask = np.ones(VOCAB, bool)
    with pytest.raises(ValueError, match=message):
        make_batch(*bad[:6], logit_mask=mask)


# --- hyper-parameters ---------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), -0.5])
@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_is_checked(name, value):
    with pytest.raises(ValueError, match=f"{name} must"):
        PPOHyper(**{name: value})


def test_what_zero_and_none_turn_off_is_allowed():
    names = ("kl_coef", "entropy_coef", "max_kl", "weight_decay", "grad_clip")
    hyper = PPOHyper(**dict.fromkeys(names, 0.0), clip_eps_high=None)
    assert not hyper.uses_reference


def test_the_step_size_may_be_a_schedule_over_optimizer_steps(params, batch):
    """One step per pass; the second has size 0."""
    schedule = dataclasses.replace(
        HYPER, learning_rate=lambda count: jnp.where(count < 1, 1e-3, 0.0)
    )
    ppo, state = started(schedule, params)
    _, metrics = ppo.update(state, batch)
    assert metrics.changed[0] > 0.5
    assert metrics.changed[1] == 0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reward", np.full(8, np.nan), "reward has 8 values"),
        ("reward", np.zeros(7), "reward has shape"),
        ("weight", np.full(8, np.inf), "weight has"),
        ("sampler_log_prob", np.full((8, 6), np.nan), "sampler_log_prob has"),
        ("reward", np.full(8, 1e38), r"reward must be within .* got 1e\+38"),
        ("weight", np.full(8, -1e20), "weight must be within"),
        ("sampler_log_prob", np.full((8, 6), 100.0), "sampler_log_prob must be within"),
        ("sampler_log_prob", np.full((8, 6), -1e30), "sampler_log_prob must be within"),
        ("completion_mask", np.eye(8, 6, 1, dtype=bool), "from the first token on"),
        ("prompt_mask", np.eye(8, 3, dtype=bool), "left-padded"),
        ("logit_mask", np.zeros((8, 6, 8), bool) | (np.arange(8) == 9), None),
        ("logit_mask", np.arange(8) == 7, "forbidden by its logit mask"),
        ("logit_mask", np.ones((3, 6, 8), bool), "does not fit"),
    ],
)
def test_bad_batches_are_refused(batch, name, value, message):
    names = ("prompt", "prompt_mask", "completion", "completion_mask")
    names += ("sampler_log_prob", "reward", "group", "weight")
    given = {n: getattr(batch, n) for n in names} | {name: value}
    positional = [given.pop(n) for n in names[:6]]
    if message is None:  # a mask that allows nothing counts as none
        make_batch(*positional, **given)
        return
    with pytest.raises(ValueError, match=message):
        make_batch(*positional, **given)


def test_a_mask_of_a_large_vocabulary_costs_its_table_alone():
    rows, length, vocabulary = 16, 64, 20_000
    tokens = np.ones((rows, length), np.int64)
    some = np.ones((rows, length), bool)
    zeros = np.zeros(rows)
    tracemalloc.start()
    try:
        made = make_batch(
            tokens, some, tokens, some, np.zeros((rows, length)), zeros,
            logit_mask=np.arange(vocabulary) < 9,
        )  # fmt: skip
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.mask_table.shape[1] == vocabulary
    assert peak < 2e6  # rows * length * vocabulary are 20 MB


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"advantage": "grpo"},
        {"temperature": 0.0},
        {"learning_rate": float("nan")},
        {"kl_coef": -1.0},
        {"compute_dtype": "float16"},
    ],
)
def test_bad_hyper_parameters_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        dataclasses.replace(HYPER, **change)
