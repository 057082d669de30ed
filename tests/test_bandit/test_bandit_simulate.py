"""The simulator: reproducible trials, prefixes, accounting and bad input."""

import jax
import numpy as np
import pytest

from bandit import agents, envs, simulate

SPEC = agents.AGENTS["npg-cells"]


def run(seeds, steps, *, env="E3", lr=(0.3,), num_arms=4, spec=SPEC, progress=None):
    hyper = {"lr": np.array(lr)}
    return simulate.simulate(
        jax.random.key(7),
        spec.build,
        envs.make_env(env, num_arms, 4),
        hyper,
        np.asarray(seeds),
        steps,
        progress=progress,
    )


def test_a_trial_depends_on_its_seed_alone():
    together = run([0, 1, 2], 600)
    for column, seed in enumerate([0, 1, 2]):
        alone = run([seed, 5, 9], 600)
        np.testing.assert_allclose(
            alone.regret[:, :, 0], together.regret[:, :, column], rtol=1e-5, atol=1e-4
        )
    assert np.unique(together.regret[-1, 0].round(6)).size == 3


def test_settings_share_trials_and_a_lone_setting_is_the_same():
    both = run([0, 1, 2], 500, lr=(0.3, 3.0))
    np.testing.assert_allclose(
        both.regret[:, :1], run([0, 1, 2], 500).regret, rtol=1e-5, atol=1e-4
    )
    assert not np.allclose(both.regret[-1, 0], both.regret[-1, 1])


def test_every_length_is_covered_by_segments():
    """Each decision once, in order, for lengths around chunks and records."""
    for steps in (1, 49, 50, 130, 499, 500, 530, 600, 1234):
        done = 0
        for chunk, segment in simulate._segments(steps):
            assert chunk * simulate.CHUNK + segment.start == done
            done += segment.num_records * segment.record
        assert done == steps


@pytest.mark.parametrize("steps", [49, 530])
def test_a_shorter_run_is_a_prefix(steps):
    long, short = run([0, 1, 2], 600), run([0, 1, 2], steps)
    assert short.steps[-1] == steps
    common = np.intersect1d(long.steps, short.steps)
    rows = [np.searchsorted(r.steps, common) for r in (long, short)]
    np.testing.assert_allclose(
        long.regret[rows[0]], short.regret[rows[1]], rtol=1e-5, atol=1e-4
    )


def test_regret_identity_and_progress():
    calls = []
    result = run([0, 1, 2], 600, progress=calls.append)
    assert sum(calls) == 600 * 3
    assert (np.diff(result.elapsed, axis=0) > 0).all()
    # The oracle's regret is noise around 0 and its pseudo-regret exactly 0.
    oracle = simulate.simulate(
        jax.random.key(7),
        agents.AGENTS["oracle"].build,
        envs.make_env("E3", 4, 4),
        {"none": np.zeros(1)},
        np.arange(64),
        500,
    )
    assert (oracle.pseudo_regret == 0).all()
    final = oracle.regret[-1, 0]
    assert abs(final.mean()) < 5 * final.std() / 8


def test_threads_change_nothing_but_the_time():
    seeds = np.arange(6)
    hyper = {"lr": np.array([0.3])}
    env = envs.make_env("E3", 4, 4)
    key, calls = jax.random.key(7), []
    split = simulate.simulate(
        key, SPEC.build, env, hyper, seeds, 600, progress=calls.append, threads=2
    )
    for half in (0, 3):
        alone = run(seeds[half : half + 3], 600)
        for name in ("regret", "rate", "elapsed"):
            np.testing.assert_array_equal(
                getattr(split, name)[..., half : half + 3], getattr(alone, name)
            )
    np.testing.assert_array_equal(split.steps, alone.steps)
    assert sum(calls) == 600 * 6


def test_regret_minus_pseudo_regret_is_noise():
    result = run(np.arange(64), 500)
    noise = (result.regret - result.pseudo_regret)[-1, 0]
    assert abs(noise.mean()) < 5.5 * noise.std() / 8


def test_one_trace_serves_all_environments_of_a_size():
    run([0, 1, 2], 600)
    before = simulate._run_segment._cache_size()
    run([3, 4, 5], 600, env="E1")
    run([3, 4, 5], 600, env="E4")
    assert simulate._run_segment._cache_size() == before


@pytest.mark.parametrize("steps", [0, -3, simulate.MAX_STEPS + 1])
def test_bad_lengths_are_refused(steps):
    with pytest.raises(ValueError, match="num_steps"):
        run([0], steps)
    with pytest.raises(ValueError, match="trial"):
        run([], 10)


def test_bad_seeds_and_settings_are_refused():
    env = envs.make_env("E1", 3, 2)

    def simulated(hyper, seeds):
        key = jax.random.key(0)
        return simulate.simulate(key, SPEC.build, env, hyper, seeds, 10)

    for seeds in ([0.5], [[0]], [2**31]):
        with pytest.raises(ValueError, match="seeds"):
            simulated({"lr": np.ones(1)}, seeds)
    for values in ([np.nan], [[0.1]], []):
        with pytest.raises(ValueError, match=r"lr|setting"):
            simulated({"lr": values}, [0])
    with pytest.raises(ValueError, match="setting"):
        simulated({}, [0])


def test_checkpoints_are_log_spaced_and_end_at_the_end():
    steps = np.arange(50, 30_001, 50)
    index = simulate.checkpoints(steps, 40)
    assert index[-1] == len(steps) - 1
    assert index[0] == 0
    assert (np.diff(index) > 0).all()
    gaps = np.diff(np.log(steps[index]))[10:]
    assert gaps.max() / gaps.min() < 3
