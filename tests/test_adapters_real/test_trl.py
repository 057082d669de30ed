"""The TRL adapter in the real trainers: what reaches the loss, saves, resumes."""

import asyncio
import math
import pickle
import time
import warnings

import numpy as np
import pytest

pytest.importorskip("trl")
import tiny_trl

from rpg_jax.adapters import trl

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

FORMS = ["grpo", "rloo"]


class Known:
    """A reward function whose calls are noted; returns seconds if ``pairs``."""

    __name__ = "known"

    def __init__(self, pairs=True):
        self.pairs, self.calls = pairs, []

    def __call__(self, prompts, completions, **columns):
        rows = np.array([tiny_trl.outcome(text) for text in completions])
        training = columns["log_metric"].__self__.model.training
        self.calls.append((rows, training))
        reward, seconds = rows.T.tolist()
        return (reward, seconds) if self.pairs else reward


def baseline(relative, form):
    """Advantages of groups of 4 as GRPO and RLOO make them, unscaled."""
    groups = relative.reshape(-1, 4)
    mean = groups.mean(1, keepdims=True)
    return ((groups - mean) * (4 / 3 if form == "rloo" else 1)).ravel()


def rates(trainer):
    return [log["rpg/rate"] for log in trainer.state.log_history if "rpg/rate" in log]


def wanted(calls, form):
    """The trainer's prices and advantages, computed anew from a trainer's calls."""
    price, out, earned, seconds = None, [], 0.0, 0.0
    for rows, _ in calls:
        kept = math.exp(-len(rows) / 256)
        earned = kept * earned + rows[:, 0].sum()
        seconds = kept * seconds + rows[:, 1].sum()
        price = earned / seconds if price is None else price
        out.append((price, baseline(rows[:, 0] - price * rows[:, 1], form)))
        price = earned / seconds
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["price", "attach"])
def test_the_relative_reward_reaches_the_loss(tmp_path, form, way):
    known = Known()
    functions = [trl.price(known, seconds=tell) if way == "price" else known]
    trainer = tiny_trl.trainer(tmp_path, functions, form, max_steps=3)
    if way == "attach":
        trl.attach(trainer, seconds=tell)
    trainer.train()
    want = wanted(known.calls, form)
    assert len(trainer.seen) == len(want) == 3
    for got, (_, advantages) in zip(trainer.seen, want, strict=True):
        np.testing.assert_allclose(np.sort(got), np.sort(advantages), atol=1e-5)
    np.testing.assert_allclose(rates(trainer), [p for p, _ in want], rtol=1e-6)
    log = trainer.state.log_history[0]
    assert {"rpg/seconds", "rpg/price_share", "rpg/reward"} <= set(log)
    name = "rewards/known/mean" if way == "price" else "rewards/rpg_price/mean"
    assert name in log


def tell(completions, **columns):
    """The seconds of completions, as a rollout would know them."""
    return [tiny_trl.outcome(text)[1] for text in completions]


async def half(prompts, completions, **columns):
    await asyncio.sleep(0)
    return [0.5 for _ in completions], [2.0 for _ in completions]


def sometimes(prompts, completions, number, **columns):
    """None for odd prompts; a NaN is no reward either."""
    rows = [None if n % 2 else float(n) for n in number]
    return [math.nan if row == 0.0 else row for row in rows]


def test_several_functions_are_one_reward(tmp_path):
    known, weights = Known(), [2.0, 1.0, 0.5]
    trainer = tiny_trl.trainer(
        tmp_path, [half, known, sometimes], reward_weights=weights
    )
    relative = trl.attach(trainer, initial_rate=0.25, seconds="number")
    assert trainer.reward_func_names == ["half", "known", "sometimes", "rpg_price"]
    trainer.train()
    log = trainer.state.log_history[0]
    names = ["half", "known", "sometimes"]
    means = [log[f"rewards/{name}/mean"] for name in names]
    assert means[0] == 0.5
    # Even numbers alone have the third one: the sum is what the rate is made of.
    assert log["rpg/rate"] == 0.25
    np.testing.assert_allclose(
        log["rewards/rpg_price/mean"], -0.25 * log["rpg/seconds"]
    )
    whole = log["rpg/reward"] - 0.25 * log["rpg/seconds"]
    np.testing.assert_allclose(log["reward"], whole, rtol=1e-5)
    assert relative.rate > 0
    with pytest.raises(ValueError, match="a price already"):
        trl.attach(trainer)
    with pytest.raises(TypeError, match="has no reward_funcs"):
        trl.attach(object())


def test_an_async_function_is_priced(tmp_path):
    trainer = tiny_trl.trainer(tmp_path, [trl.price(half, initial_rate=0.1)])
    trainer.train()
    log = trainer.state.log_history
    np.testing.assert_allclose(log[0]["reward"], 0.5 - 0.1 * 2.0, rtol=1e-6)
    np.testing.assert_allclose(log[1]["rpg/rate"], 0.25)


def test_rows_without_a_reward_are_not_charged(tmp_path):
    def never(prompts, completions, **columns):
        return [None] * len(completions), [1.0] * len(completions)

    trainer = tiny_trl.trainer(tmp_path, [trl.price(never), Known(pairs=False)])
    trainer.train()
    log = trainer.state.log_history[0]
    assert log["rpg/skipped"] == 8
    assert "rpg/seconds" not in log


def slow(prompts, completions, **columns):
    for text in completions:
        time.sleep(0.02 if "a" in text else 0.001)
    return [1.0 for _ in completions]


def test_seconds_are_measured_where_none_are_given(tmp_path):
    trainer = tiny_trl.trainer(tmp_path, [trl.price(slow)], max_steps=3)
    trainer.train()
    logs = trainer.state.log_history[:3]
    assert all(0.001 <= log["rpg/seconds"] < 1 for log in logs)
    assert all(log["rpg/price_share"] == 1.0 for log in logs)


@pytest.mark.parametrize("way", ["price", "attach"])
def test_an_evaluation_teaches_the_price_nothing(tmp_path, way):
    known = Known()
    functions = [trl.price(known, seconds=tell) if way == "price" else known]
    trainer = tiny_trl.trainer(
        tmp_path, functions, eval_strategy="steps", eval_steps=1, max_steps=3
    )
    if way == "attach":
        trl.attach(trainer, seconds=tell)
    trainer.train()
    training = [call for call in known.calls if call[1]]
    assert len(training) == 3 < len(known.calls)
    want = wanted(training, "grpo")
    np.testing.assert_allclose(rates(trainer), [p for p, _ in want], rtol=1e-6)
    assert any("eval_rpg/rate" in log for log in trainer.state.log_history)


@pytest.mark.parametrize("way", ["price", "attach"])
def test_a_checkpoint_has_the_price(tmp_path, way):
    def make(**settings):
        functions = [trl.price(Known(), seconds=tell) if way == "price" else Known()]
        trainer = tiny_trl.trainer(tmp_path, functions, max_steps=4, **settings)
        if way == "attach":
            trl.attach(trainer, seconds=tell)
        return trainer

    whole = make(save_strategy="steps", save_steps=2)
    whole.train()
    again = make()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert rates(again)[:3] == rates(whole)[:3]
    assert len(set(rates(whole))) > 2


def test_scaling_that_undoes_the_price_is_said_once(tmp_path):
    def told(**settings):
        functions = [trl.price(Known(), name=name) for name in ("one", "two")]
        trainer = tiny_trl.trainer(tmp_path, functions, **settings)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer.train()
        return [
            str(w.message) for w in caught if "standard deviation" in str(w.message)
        ]

    assert not told(scale_rewards="none")
    assert not told(scale_rewards="batch")
    messages = told(scale_rewards="group")
    assert len(messages) == 1
    assert "scale_rewards='none'" in messages[0]
    (message,) = told(multi_objective_aggregation="normalize_then_sum")
    assert "sum_then_normalize" in message


def test_reward_models_are_in_the_rate(tmp_path):
    import torch
    from transformers import LlamaForSequenceClassification

    torch.manual_seed(0)
    config = tiny_trl.model().config
    config.num_labels = 1
    judge = LlamaForSequenceClassification(config)
    trainer = tiny_trl.trainer(
        tmp_path,
        [judge, Known()],
        reward_processing_classes=[tiny_trl.tokenizer(), None],
    )
    trl.attach(trainer, seconds=tell, initial_rate=0.1)
    trainer.train()
    log = trainer.state.log_history[0]
    names = [name for name in log if name.startswith("rewards/") and "mean" in name]
    total = sum(log[name] for name in names)
    assert len(names) == 3
    np.testing.assert_allclose(log["reward"], total, rtol=1e-5)
    np.testing.assert_allclose(
        log["rpg/reward"], total - log["rewards/rpg_price/mean"], rtol=1e-5
    )


def test_a_priced_function_pickles_as_async_grpo_needs_it():
    from trl.trainer.utils import get_callable_name, is_async_callable

    for function in (slow, half):
        priced = pickle.loads(pickle.dumps(trl.price(function)))
        assert get_callable_name(priced) == function.__name__
        assert is_async_callable(priced) == (function is half)
        found = priced(prompts=["p"] * 2, completions=["a", "b"], completion_ids=[0, 1])
        assert len(asyncio.run(found) if function is half else found) == 2
