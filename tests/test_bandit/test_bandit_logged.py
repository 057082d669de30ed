"""Logged decisions: what is refused, and what inverse propensities get right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bandit import instance, log_report, logged, off_policy, replay, resampled
from bandit.base import Agent

REWARD = np.array([[1.0, 2.0, 0.5], [0.2, 1.5, 3.0]])
SECONDS = np.array([[1.0, 4.0, 0.6], [1.0, 1.0, 5.0]])
CHOSEN = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
TARGET = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
TRUE_RATE = (1.0 + 1.5) / (1.0 + 1.0)


def skewed_log(size, seed=0):
    """Two contexts, three arms, chosen with CHOSEN; noise around the means."""
    rng = np.random.default_rng(seed)
    context = rng.integers(0, 2, size)
    arm = (rng.random(size)[:, None] > CHOSEN[context].cumsum(axis=1)).sum(axis=1)
    noise = rng.exponential(1.0, (2, size))
    return logged.make_log(
        [f"c{x}" for x in context],
        [f"a{a}" for a in arm],
        REWARD[context, arm] * noise[0],
        SECONDS[context, arm] * noise[1],
        CHOSEN[context, arm],
    )


def play(table):
    """An agent that plays a fixed action per context."""
    arms = jnp.asarray(table.argmax(axis=1))

    def act(state, step):
        return arms[step.context].astype(jnp.int32), state

    return lambda env, hyper: Agent(
        lambda: jnp.zeros(()), act, lambda s, *_: s, lambda s: s
    )


def test_the_off_policy_interval_covers_the_true_rate():
    errors, covered = [], 0
    for seed in range(100):
        log = skewed_log(600, seed)
        found = off_policy.off_policy_rate(log, off_policy.weights(log, TARGET))
        covered += found.low <= TRUE_RATE <= found.high
        errors.append(found.rate - TRUE_RATE)
    assert 0.86 <= covered / 100 <= 1.0
    assert abs(np.mean(errors)) < 0.03  # the plain mean of matching rows is far off


def test_effective_rows_and_too_few_of_them():
    log = skewed_log(400)
    same = off_policy.off_policy_rate(log, np.ones(400))
    assert same.effective == pytest.approx(400)
    few = off_policy.off_policy_rate(log, np.where(np.arange(400) < 5, 1.0, 0.0))
    assert np.isnan(few.rate)
    assert "effective rows" in few.refused
    nothing = off_policy.off_policy_rate(log, np.zeros(400))
    assert nothing.refused


def test_what_is_learned_is_judged_on_other_rows():
    """Pure noise: in-sample the learned policy looks good, cross-fitted it does not."""
    rng = np.random.default_rng(0)
    size, arms = 300, 30
    log = logged.make_log(
        ["x"] * size,
        [f"a{k % arms:02d}" for k in range(size)],
        rng.exponential(1.0, size),
        np.ones(size),
        np.full(size, 1 / arms),
    )
    policy = off_policy.best_rate(log)
    weight = off_policy.weights(log, policy)
    in_sample = float(weight @ log.reward / weight.sum())
    assert in_sample > 1.4
    weight, missing = off_policy.cross_fitted(log, off_policy.best_rate)
    assert missing == 0
    assert float(weight @ log.reward / weight.sum()) < 1.4


def test_learned_policies():
    log = skewed_log(4000)
    np.testing.assert_array_equal(off_policy.best_rate(log), TARGET)
    np.testing.assert_array_equal(
        off_policy.most_reward(log).argmax(axis=1), REWARD.argmax(axis=1)
    )
    np.testing.assert_array_equal(
        off_policy.best_ratio(log).argmax(axis=1), (REWARD / SECONDS).argmax(axis=1)
    )
    assert (off_policy.best_arm(log).argmax(axis=1) == 1).all()  # 3.5 in 5 s
    rates = {rate.name: rate for rate in off_policy.evaluate(log)}
    assert rates["best reward rate"].low < TRUE_RATE < rates["best reward rate"].high
    assert rates["most reward"].rate < 0.7


def test_a_replay_keeps_rows_as_the_agent_would_have_met_them():
    """Contexts and outcomes of the kept rows, although propensities differ."""
    log = skewed_log(4000)
    found = replay.replay(log, play(TARGET), {}, trials=40, key=jax.random.key(0))
    # Both contexts match with p_min = 0.2, where matching alone keeps 0.5 and 0.2.
    assert found.decisions.mean() == pytest.approx(0.2 * 4000, rel=0.05)
    assert found.rate.mean() == pytest.approx(TRUE_RATE, rel=0.06)
    per_decision = found.reward.sum() / found.decisions.sum()
    assert per_decision == pytest.approx((1.0 + 1.5) / 2, rel=0.06)


def test_logs_that_cannot_be_replayed_say_so(tmp_path):
    log = skewed_log(100)
    with pytest.raises(ValueError, match="would keep 20 of 100"):
        replay.replay(log, play(TARGET), {}, trials=1, key=jax.random.key(0))
    hole = skewed_log(2000)
    hole = hole.take((hole.context != 0) | (hole.arm != 1))
    assert "'a1' has no row in context 'c0'" in replay.refusal(hole)
    with pytest.raises(ValueError, match="is no environment"):
        resampled.resampled("hole", hole)
    shown = {rate.name: rate for rate in off_policy.evaluate(hole)}
    assert "never shows" in shown["uniform"].refused
    rates, replays = log_report.run(hole, tmp_path, ["uniform"], trials=2)
    assert replays == []
    assert len(rates) == 6
    assert log_report.terminal(rates, replays)


def test_propensities_that_contradict_the_log():
    log = skewed_log(500)
    columns = [
        [log.contexts[x] for x in log.context],
        [log.arms[a] for a in log.arm],
        log.reward,
        log.seconds,
    ]
    with pytest.raises(ValueError, match="contradict"):
        logged.make_log(*columns, np.full(500, 0.01))
    with pytest.raises(ValueError, match="propensity must be"):
        logged.make_log(*columns, np.zeros(500))
    frequency = logged.make_log(*columns, propensity="frequency")
    np.testing.assert_allclose(frequency.propensity, log.propensity, atol=0.08)


def test_an_environment_of_the_rows():
    log = skewed_log(300)
    spec = resampled.resampled("mine", log)
    assert spec.size == (3, 2)
    env = spec.make(3, 2)
    with pytest.raises(ValueError, match="3 arms"):
        spec.make(4, 2)
    order = jnp.asarray([1, 0])
    turned = instance.permuted(env, order, jnp.asarray([1, 0]))
    normals = jax.random.normal(jax.random.key(0), (4000, 2))
    draw = jax.vmap(lambda z: spec.draw(turned, jnp.asarray(0), jnp.asarray(1), z))
    reward, seconds = (np.asarray(v) for v in draw(normals))
    cell = (log.context == 1) & (log.arm == 0)
    own = set(zip(np.float32(log.reward[cell]), np.float32(log.seconds[cell]),
                  strict=True))  # fmt: skip
    assert set(zip(reward, seconds, strict=True)) == own
    error = reward.std() / np.sqrt(4000)
    assert reward.mean() == pytest.approx(env.mean_reward[1, 0], abs=5 * error)


def test_rows_are_drawn_by_their_inverse_propensities():
    log = logged.make_log(
        ["x"] * 6, ["a", "a", "a", "a", "b", "b"], [0.0, 0, 0, 1, 0, 0], np.ones(6),
        [0.8, 0.8, 0.8, 0.2, 0.2, 0.8],
    )  # fmt: skip
    spec = resampled.resampled("mine", log)
    expected = 5 / (3 / 0.8 + 5)
    assert log.means()[0][0, 0] == pytest.approx(expected)
    normals = jax.random.normal(jax.random.key(1), (4000, 2))
    env = spec.make(2, 1)
    draw = jax.vmap(lambda z: spec.draw(env, jnp.asarray(0), jnp.asarray(0), z))
    assert float(draw(normals)[0].mean()) == pytest.approx(expected, abs=0.04)


def test_reading(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("context,arm,reward,seconds\nx,skip,0,1\nx,Z,1,2\ny,Z,1,2\n")
    with pytest.raises(ValueError, match="no column 'propensity'"):
        logged.read_log(path)
    log = logged.read_log(path, propensity="uniform")
    assert log.arms == ("Z", "skip")
    np.testing.assert_allclose(log.propensity, 0.5)
    path.write_text("context,arm,reward\nx,a,1\n")
    with pytest.raises(ValueError, match="no column seconds"):
        logged.read_log(path, propensity="uniform")
    path.write_text("context,arm,reward,seconds\nx,a,1,two\n")
    with pytest.raises(ValueError, match="line 2: seconds is no number: 'two'"):
        logged.read_log(path, propensity="uniform")
    with pytest.raises(ValueError, match="cannot read"):
        logged.read_log(tmp_path / "none.csv")


numbers = st.sampled_from([1.0, 0.5, 0.0, -1.0, np.nan, np.inf, 1e300])
rows = st.lists(
    st.tuples(st.sampled_from("xy "), st.sampled_from(["a", "b", ""]), numbers,
              numbers, numbers), max_size=6,
)  # fmt: skip


@given(rows=rows, propensity=st.sampled_from(["column", "uniform", "frequency", "?"]))
@settings(max_examples=80, deadline=None)
def test_any_columns_are_a_log_or_one_clear_error(rows, propensity):
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 5
    chances = columns[4] if propensity == "column" else None
    try:
        log = logged.make_log(*columns[:4], chances, propensity=propensity)
    except ValueError:
        return
    assert np.isfinite(log.means()[0][log.counts > 0]).all()
    for rate in off_policy.evaluate(log):
        assert rate.refused or np.isfinite([rate.rate, rate.low, rate.high]).all()
    assert replay.refusal(log)
