"""Any input to a public function gives finite values of a known shape, or one error.

Every function of ``rpg_jax.__all__`` must be in CASES: its arguments by kind, and the
shapes that it returns for good ones. One or two arguments at a time turn bad.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rpg_jax
from rpg_jax import checked_batch

X, A, B, T = 2, 3, 4, 3
KEY = jax.random.key(0)
PRIOR = rpg_jax.niw_prior()
DATA = rpg_jax.moments(np.arange(8.0).reshape(4, 2))
STATE = rpg_jax.empirical().init()

BAD_NUMBERS = [np.nan, np.inf, -np.inf, 1e300, -1e300, 1e39, 1e16, 1e-50, -1.0, 0.0]
ODD = ["text", None, {}, [], [[1.0], [1.0, 2.0]], object(), 1j, np.nan, 3, -1, 1e300]


def spoilt(good, places=BAD_NUMBERS):
    """Arrays like the good one: one bad entry, other shapes, types, a list."""
    good = np.asarray(good)

    def one(value):
        copy = good.astype(np.float64)
        copy.flat[0] = value
        return copy

    return st.one_of(
        st.sampled_from([one(v) for v in places]),
        st.sampled_from([np.full(good.shape, v) for v in places[:6]]),
        st.sampled_from(
            [
                *(good[None], np.atleast_1d(good)[:-1], good.ravel()[0], 0 * good),
                *(good.astype(t) for t in (np.int64, np.float16, str, object, complex)),
                good.tolist(),
            ]
        ),
        st.sampled_from([v for v in ODD if v is not None]),
    )


def record(good):
    """A NamedTuple with one field spoilt, or what is none."""
    broken = [
        spoilt(value).map(lambda v, name=name: good._replace(**{name: v}))
        for name, value in good._asdict().items()
    ]
    wide = jax.tree.map(lambda v: jnp.stack([v, v]), good)
    return st.one_of(*broken, st.sampled_from([wide, tuple(good), *ODD]))


def setting(*values):
    return st.sampled_from([*values, *BAD_NUMBERS, "text", (1,), 2, 10**20, np.ones(2)])


def table(low=0.5):
    return np.linspace(low, 2.0, X * A).reshape(X, A).astype(np.float32)


def kind(good, bad):
    """A good value and a strategy of bad ones."""
    return good, bad


def array(good):
    return kind(good, spoilt(good))


def option(good, *others):
    return kind(good, setting(good, *others))


TABLE, SECONDS = array(table(-0.5)), array(table())
ROWS = array(np.linspace(0.5, 1, B).astype(np.float32))
INDEX = array(np.array([0, 1, 1, 0]))
MASK_B, MASK = array(np.ones(B, bool)), array(np.ones((B, T), bool))
TOKENS = array(np.linspace(-1, 0, B * T).reshape(B, T).astype(np.float32))
PAIRS = array(np.linspace(0, 1, 2 * B).reshape(B, 2).astype(np.float32))
PROBS = array(np.array([0.25, 0.75]))
NIW, MOMENTS = kind(PRIOR, record(PRIOR)), kind(DATA, record(DATA))
COUNT, RATE, LEVEL = option(2, 0.5), option(0.3), option(0.95, 0.5, 0.4)
STEPS = option(3, 0, 1.5)
RNG = kind(KEY, st.sampled_from([jax.random.split(KEY), 0, jnp.ones(2), *ODD]))
LOG = kind(True, st.sampled_from([True, False]))
NET = {
    "apply_fn": kind(
        lambda w, c: (c @ w).reshape((-1, A, 2)), st.sampled_from([None, 3, "x"])
    ),
    "params": kind(jnp.full((2, 2 * A), 0.1), st.just(jnp.full((2, 2 * A), 0.1))),
    "optimizer": kind(optax.sgd(0.01), st.sampled_from([None, 0.1])),
    "num_steps": STEPS,
    "contexts": array(np.eye(2, dtype=np.float32)),
    "context_probs": PROBS,
    "units": kind("running", st.sampled_from(["first", "x", None])),
}
FORGET = kind(None, setting(1.0, 0.9))
SIZES = {"num_contexts": option(X), "num_arms": option(A)}

niw_shape = [(2,), (), (), (2, 2), (2,)]
moments_shape = [(), (2,), (2, 2), (2,), ()]

#: Arguments by name, and shapes of what is returned (None: as the arguments say).
CASES = {
    "approximate_iteration": (
        {"reward": TABLE, "duration": SECONDS, "factors": ROWS,
         "context_probs": PROBS, "initial_rate": RATE}, None),
    "charged_duration": (
        {"duration": ROWS, "failed": MASK_B, "limit": RATE,
         "charge": kind("slowest", st.sampled_from(["limit", "measured", "x"]))}, None),
    "checked_batch": (
        {"reward": ROWS, "duration": ROWS, "context": INDEX, "action": INDEX,
         "mask": MASK_B}, None),
    "duration_spread": (
        {"reward": TABLE, "duration": SECONDS, "gamma": RATE, "context_probs": PROBS},
        [()]),
    "empirical": ({"forgetting": FORGET}, "estimator"),
    "empty_moments": (
        {"shape": kind((2,), st.sampled_from([(), (-1,), (1.5,), (10**9,), *ODD])),
         "dim": option(2, 1), "dtype": kind(None, st.sampled_from(["x", int, 7]))},
        None),
    "expected_best": (
        {"sample": ROWS, "k": COUNT, "best": RATE, "mask": MASK_B}, [()]),
    "fit_slots": (
        {"carried": NIW, "reward": ROWS, "duration": ROWS, "mask": MASK_B,
         "forgetting": RATE, "log_duration": LOG}, [*niw_shape, (), ()]),
    "fixed_point": (
        {"estimator": kind(rpg_jax.empirical(), st.sampled_from(ODD)),
         "state": kind(STATE, st.just(STATE)), "rho": RATE, "num_steps": STEPS}, [()]),
    "forget": ({"niw": NIW, "factor": option(0.9, 1.0, 2.0),
                "min_nu": option(4.0)}, None),
    "gae": (
        {"reward": TOKENS, "value": TOKENS, "mask": MASK, "discount": option(0.9, 1.0),
         "trace": option(1.0), "last_value": ROWS}, None),
    "greedy_policy": ({"reward": TABLE, "duration": SECONDS, "rate": RATE}, None),
    "greedy_rate": ({"reward": TABLE, "duration": SECONDS, "rate": RATE,
                     "context_probs": PROBS, "mask": array(np.ones((X, A), bool))},
                    [()]),
    "in_analytic_range": ({"niw": NIW, "count": COUNT, "log_duration": LOG}, None),
    "kernel_cdf": ({"sample": ROWS, "bandwidth": RATE}, None),
    "kl_estimate": (
        {"log_prob": TOKENS, "ref_log_prob": TOKENS, "mask": MASK,
         "kind": kind("k3", st.sampled_from(["k1", "k2", "k4", 3]))}, None),
    "leave_one_out_advantage": ({"reward": TOKENS, "mask": MASK}, None),
    "masked_mean": ({"x": TOKENS, "mask": MASK, "normalizer": RATE}, [()]),
    "max_at_k": ({"value": ROWS, "sample": ROWS, "k": COUNT, "best": RATE,
                  "mask": MASK_B}, None),
    "max_at_k_of": (
        {"value": ROWS, "k": COUNT, "best": RATE, "nodes": option(64),
         "cdf": kind(rpg_jax.kernel_cdf(np.arange(4.0)), st.sampled_from(ODD))}, None),
    "max_at_k_rank": ({"value": ROWS, "sample": ROWS, "k": COUNT, "best": RATE,
                       "mask": MASK_B}, None),
    "merge": ({"a": MOMENTS, "b": MOMENTS}, None),
    "moments": ({"x": PAIRS, "mask": MASK_B}, None),
    "neural": (NET, "estimator"),
    "niw": ({**SIZES, "prior": NIW, "context_probs": PROBS, "log_duration": LOG,
             "forgetting": FORGET, "quantile": LEVEL}, "estimator"),
    "niw_prior": ({"mean": array(np.zeros(2)), "kappa": RATE, "nu": option(3.0, 1.0),
                   "scale": array(np.eye(2)), "dim": option(2, 3)}, None),
    "niw_slots": (
        {"num_slots": option(4), "prior": NIW, "forgetting": RATE, "quantile": LEVEL,
         "age": option(8), "fit_every": option(2), "by_context": LOG,
         "log_duration": LOG,
         "method": kind("analytic", st.sampled_from(["auto", "x", 1]))}, "estimator"),
    "npg": ({"logits": TABLE, "q_values": TABLE, "step_size": RATE}, None),
    "optimal_rate": ({"reward": TABLE, "duration": SECONDS, "context_probs": PROBS,
                      "max_steps": STEPS}, [(), (X,), (), ()]),
    "pareto_tail_cdf": ({"sample": ROWS, "tail": option(0.6)}, None),
    "posterior": ({"prior": NIW, "data": MOMENTS}, None),
    "ppo": ({"logits": TABLE, "context": INDEX, "action": INDEX, "advantage": ROWS,
             "mask": MASK_B, "step_size": RATE, "clip_eps": RATE,
             "num_epochs": STEPS}, None),
    "ppo_clip_loss": (
        {"log_prob": TOKENS, "old_log_prob": TOKENS, "advantage": TOKENS, "mask": MASK,
         "clip_eps": RATE, "clip_eps_high": RATE, "normalizer": RATE}, [()] * 6),
    "predictive": ({"niw": NIW}, None),
    "predictive_moments": ({"niw": NIW}, None),
    "ratio_quantile": (
        {"niw": NIW, "count": COUNT, "level": LEVEL, "log_duration": LOG}, None),
    "ratio_quantile_auto": (
        {"key": RNG, "niw": NIW, "count": COUNT, "level": LEVEL,
         "num_batches": option(8), "max_count": option(4), "log_duration": LOG}, [()]),
    "ratio_quantile_sampled": (
        {"key": RNG, "niw": NIW, "count": COUNT, "level": LEVEL,
         "num_batches": option(8), "max_count": option(4), "log_duration": LOG}, [()]),
    "regression_advantage": (
        {"reward": ROWS, "features": PAIRS, "mask": MASK_B, "ridge": RATE}, None),
    "rejected_members": ({"reward": TOKENS, "mask": MASK}, None),
    "relative_reward": ({"reward": ROWS, "duration": ROWS, "rate": RATE}, None),
    "robbins_monro": ({"step_size": RATE}, "estimator"),
    "score_free_spread": (
        {"value": ROWS, "seconds": ROWS, "bins": option(2), "min_attempts": option(2),
         "level": RATE, "resamples": option(9), "seed": option(0)}, None),
    "segment_moments": ({"x": PAIRS, "segment": INDEX, "num_segments": option(2),
                         "mask": MASK_B}, None),
    "slot_rate": (
        {"niw": NIW, "count": COUNT, "level": LEVEL, "log_duration": LOG}, None),
    "spg": ({"logits": TABLE, "q_values": TABLE, "step_size": RATE}, None),
    "tolerance_band": ({"rate": RATE, "gamma": RATE, "spread": RATE}, None),
    "value_bins": ({"value": ROWS, "bins": option(2)}, None),
    "value_clip_loss": (
        {"value": TOKENS, "old_value": TOKENS, "target": TOKENS, "mask": MASK,
         "clip_eps": RATE, "normalizer": RATE}, [()]),
    "wasted_share": (
        {"value": ROWS, "seconds": ROWS, "parent": array(np.array([-1, 0, 1, 0]))},
        None),
    "whiten": ({"x": TOKENS, "mask": MASK, "eps": RATE}, None),
}  # fmt: skip
#: A covariance that does not exist is inf, a spread of too few attempts and a share of
#: no seconds are NaN, which their docstrings say. A distribution is a function.
MAY_BE_INFINITE = {
    *("predictive_moments", "score_free_spread", "wasted_share"),
    *("kernel_cdf", "pareto_tail_cdf"),
}


def public_functions():
    for name in rpg_jax.__all__:
        if inspect.isfunction(getattr(rpg_jax, name)):
            yield name


def test_every_public_function_is_here():
    assert set(public_functions()) == set(CASES)


def leaves(value):
    return [np.asarray(v) for v in jax.tree.leaves(value)]


def finite(value):
    return all(np.isfinite(v).all() for v in leaves(value) if v.dtype.kind == "f")


def shapes(value):
    return [v.shape for v in leaves(value)]


def exercised(estimator, draw):
    """An estimator after a batch with bad rows: its state and its rate."""
    good = np.linspace(0.5, 1.0, B)
    batch = checked_batch(good, good, context=[0, 1, 1, 0], action=[0, 1, 2, 0])
    if estimator.needs == ("context", "action") and not hasattr(
        estimator.init(), "cells"
    ):
        batch = batch._replace(context=jnp.eye(2)[batch.context])
    field = draw(st.sampled_from(["reward", "duration", "context", "action", "mask"]))
    batch = batch._replace(**{field: draw(spoilt(getattr(batch, field)))})
    state = estimator.update(estimator.init(), batch)
    return state, estimator.rate(state, 0.3)


def told(error):
    text = str(error).strip()
    assert text, "an error without a message"
    assert "\n" not in text, text


@pytest.mark.parametrize("name", CASES)
def test_any_input_gives_a_value_or_one_clear_error(name):
    function, (arguments, wanted) = getattr(rpg_jax, name), CASES[name]
    plain = {key: good for key, (good, _) in arguments.items()}

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data):
        number = data.draw(st.integers(0, 2))
        bad = data.draw(st.permutations(sorted(arguments)))[:number]
        given_ = {**plain, **{key: data.draw(arguments[key][1]) for key in bad}}
        try:
            value = function(**given_)
            if wanted == "estimator":
                value = exercised(value, data.draw)
        except (ValueError, TypeError) as error:
            if not bad and wanted != "estimator":
                raise
            told(error)
            return
        assert finite(value) or name in MAY_BE_INFINITE, (given_, value)
        if isinstance(wanted, list) and "niw" not in bad and "carried" not in bad:
            assert shapes(value) == wanted

    with np.errstate(all="ignore"):
        check()
