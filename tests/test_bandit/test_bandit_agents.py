"""Agents against an independent NumPy float64 loop, and their behaviour as learners."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bandit import agents, envs, prices, simulate
from bandit.base import CellSums, GreedyRate, Step, categorical, first_argmax
from benchmarks import numpy_bandit
from rpg_jax import rates
from rpg_jax.types import Batch

STEPS = 400


def reference_trial(key, env, seed, steps):
    """The trial's instance and random numbers as NumPy arrays."""
    env = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), env)
    instance = jax.tree.map(
        lambda a: np.asarray(a[0], np.float64),
        simulate.permute_trials(key, env, jnp.asarray([seed])),
    )
    trial_key = simulate.trial_keys(key, jnp.asarray([seed]))[0]
    chunks = [
        simulate.draw_chunk(trial_key, jnp.asarray(c), env.mean_reward.shape[0], 0)
        for c in range(-(-steps // simulate.CHUNK))
    ]
    context, noise, uniform = (
        np.concatenate([np.asarray(chunk[i]) for chunk in chunks])[:steps]
        for i in range(3)
    )
    corr = float(env.correlation)
    z2 = corr * noise[:, 0] + (1 - corr**2) ** 0.5 * noise[:, 1]
    return numpy_bandit.Trial(
        instance.reward_loc,
        instance.duration_loc,
        context,
        noise[:, 0].astype(float),
        z2.astype(float),
        uniform.astype(float),
        bool(env.lognormal),
    )


@pytest.mark.parametrize("name", ["E1", "E4"])
def test_npg_niw_equals_the_numpy_loop(name):
    """Same trial, same random numbers: same decisions, regret and rates."""
    key = jax.random.key(3)
    env = envs.make_env(name, 5, 4)
    spec = agents.AGENTS["npg-niw"]
    seeds = np.arange(4)
    hyper = {"lr": np.array([0.3]), "age": np.array([100.0])}
    result = simulate.simulate(key, spec.build, env, hyper, seeds, STEPS)
    agree = 0
    for s in seeds:
        trial = reference_trial(key, env, s, STEPS)
        log = numpy_bandit.npg_trial(trial, step_size=0.3, age=100.0, sampled=False)
        regret = float(env.rho_star) * log["duration"].sum() - log["reward"].sum()
        same = np.isclose(result.regret[-1, 0, s], regret, rtol=1e-4, atol=1e-3)
        same &= np.isclose(result.rate[-1, 0, s], log["rate"][-1], rtol=1e-3)
        agree += bool(same)
    # Rounding may flip a decision of a trial; most trials must agree to the digit.
    assert agree >= 3


def test_slot_price_equals_the_library_estimator():
    """bandit.prices.niw_slots is rates.niw_slots with a traced age."""
    rng = np.random.default_rng(0)
    steps, age = 300, 60
    reward = rng.gamma(2.0, 0.3, steps).astype(np.float32)
    duration = rng.uniform(0.5, 3.0, steps).astype(np.float32)
    greedy = rng.random(steps) < 0.7
    price = prices.niw_slots(age=float(age))
    estimator = rates.niw_slots(age=age, fit_every=prices.FIT_EVERY, method="analytic")
    zero = jnp.zeros((), jnp.int32)
    cells = CellSums(*jnp.zeros((3, 2)))

    def body(carry, xs):
        ours, theirs = carry
        t, r, d, g = xs
        ours = price.update(
            ours, prices.Decision(t, zero, zero, r, d, g, jnp.zeros(()), cells)
        )
        batch = Batch(zero[None], zero[None], r[None], d[None], g[None])
        theirs = estimator.update(theirs, batch)
        return (ours, theirs), (
            price.rate(ours),
            estimator.rate(theirs, jnp.zeros(())),
        )

    xs = (np.arange(1, steps + 1, dtype=np.float32), reward, duration, greedy)
    _, (ours, theirs) = jax.lax.scan(body, (price.init(), estimator.init()), xs)
    assert np.unique(np.round(np.asarray(ours), 6)).size > 10
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=1e-6)


def play(names, **changed):
    """An instance, and every named agent's result on 16 trials of it."""
    key, env = jax.random.key(0), envs.make_env("E1", 5, 4)
    out = {}
    for name in names:
        spec = agents.AGENTS[name]
        setting = {**spec.setting(env), **changed}
        hyper = {k: np.array([v]) for k, v in setting.items()}
        hyper = hyper or {"none": np.zeros(1)}
        out[name] = simulate.simulate(key, spec.build, env, hyper, np.arange(16), 3000)
    return env, out


def final(out):
    return {name: result.regret[-1, 0].mean() for name, result in out.items()}


def check_priced(out, uniform, names):
    for name in names:
        assert final(out)[name] < 0.5 * uniform, name
    for name, result in out.items():
        assert np.isfinite(result.regret).all(), name
        assert (np.diff(result.pseudo_regret, axis=0) >= 0).all(), name


@pytest.mark.slow
def test_priced_agents_learn_and_reward_alone_is_worse_than_chance():
    env, out = play(["uniform", "npg-niw", "spg-niw", "imed", "npg-reward"])
    uniform = final(out)["uniform"]
    check_priced(out, uniform, ["npg-niw", "spg-niw", "imed"])
    assert final(out)["npg-reward"] > uniform
    assert abs(out["imed"].rate[-1].mean() / env.rho_star - 1) < 0.08


@pytest.mark.slow
def test_every_agent_learns_what_it_should():
    env, out = play(agents.AGENTS)
    regret, uniform = final(out), final(out)["uniform"]
    assert (out["oracle"].pseudo_regret == 0).all()
    priced = ["npg-niw", "spg-niw", "ppo-niw", "npg-cells", "npg-rm", "npg-neural"]
    priced += ["cucb-plugin", "cucb-tuned", "imed", "posterior", "npg-fixed-price"]
    check_priced(out, uniform, [*priced, "npg-on-policy"])
    # Rewards without a price: the longest arms win, worse than uniform play.
    assert regret["npg-reward"] > uniform
    assert regret["npg-duration-weighted"] > uniform
    # The theorem's constants: play is uniform for all practical purposes.
    assert abs(regret["cucb-theory"] / uniform - 1) < 0.1
    for name in ("npg-cells", "cucb-plugin", "imed", "posterior"):
        assert abs(out[name].rate[-1].mean() / env.rho_star - 1) < 0.08, name
    # C-UCB's own rate weighs contexts by visits; with a small penalty it settles above
    # rho* soon.
    _, out = play(["cucb-tuned"], c1=0.01)
    assert out["cucb-tuned"].rate[-1].mean() > 1.05 * env.rho_star


def test_greedy_rate_is_the_dinkelbach_root():
    rng = np.random.default_rng(1)
    shape = (3, 6)
    count = rng.integers(1, 9, shape).astype(np.float32)
    duration = (rng.uniform(0.5, 3, shape) * count).astype(np.float32)
    reward = (rng.uniform(0, 2, shape) * count).astype(np.float32)
    rate = GreedyRate.empty(3)
    for _ in range(6):
        for x in range(3):
            rate = rate.refresh(
                jnp.asarray(x),
                CellSums(*map(jnp.asarray, (reward[x], duration[x], count[x]))),
            )
    exact = envs.optimal_rate(reward / count, (duration / count).astype(float))
    np.testing.assert_allclose(rate.rate, exact, rtol=1e-5)


def test_untried_cells_have_value_zero_and_negative_rates_are_floored():
    cells = CellSums(*jnp.asarray([[0.0, -1.0], [0.0, 2.0], [0.0, 1.0]]))
    np.testing.assert_allclose(cells.value(jnp.asarray(0.5)), [0.0, -2.0])
    rate = GreedyRate.empty(1).refresh(jnp.asarray(0), cells)
    assert rate.rate == 0
    assert np.isfinite(rate.reward).all()


def test_categorical_follows_the_probabilities(key):
    p = jnp.asarray([0.0, 0.2, 0.5, 0.0, 0.3])
    count = 20_000
    draws = jax.vmap(categorical, (0, None))(jax.random.uniform(key, (count,)), p)
    share = np.bincount(draws, minlength=5) / count
    assert share[3] == 0
    error = np.sqrt(np.asarray(p) * (1 - np.asarray(p)) / count)
    assert (np.abs(share - p) <= 6 * error).all()
    # Ends of the range, and an underflown policy, stay in range.
    for u in (0.0, 1.0 - 2**-24):
        assert 0 <= int(categorical(jnp.asarray(u), p)) < 5
    assert 0 <= int(categorical(jnp.asarray(0.5), jnp.zeros(5))) < 5


def test_first_argmax_is_first_and_in_range_with_nan():
    assert int(first_argmax(jnp.asarray([1.0, 3.0, 3.0]))) == 1
    assert int(first_argmax(jnp.asarray([1.0, jnp.nan, 3.0]))) in (0, 1, 2)


def test_agents_by_default_are_complete():
    env = jax.tree.map(jnp.asarray, envs.make_env("E1", 3, 2))
    for name, spec in agents.AGENTS.items():
        assert spec.name == name
        for num_contexts in (4, 8):
            grid = spec.settings(num_contexts)
            assert set(grid) <= set(spec.defaults)
        agent = spec.build(env, spec.defaults or {"none": 0.0})
        normals = jnp.zeros(agent.num_normals)
        step = Step(jnp.ones(()), jnp.zeros((), jnp.int32), jnp.zeros(()), normals)
        action, _ = agent.act(agent.init(), step)
        assert action.dtype == jnp.int32
        assert action.shape == ()
