"""C-UCB that searches only where a decision depends on it, against always searching."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bandit import agents, cucb, cucb_agent, envs, simulate, ucb
from bandit.ucb import log_one_plus_policies

HYPER = {"c1": np.array([0.01, 1.0, 100.0]), "c2": np.array([0.1, 0.01, 1.0])}
TRIALS = np.arange(8)


def certified(env, hyper):
    return cucb_agent.cucb_agent(*env.mean_reward.shape, **hyper)


def always(env, hyper):
    """The same agent with its bounds thrown away at every decision."""
    agent = certified(env, hyper)

    def act(state, step):
        open_ended = state.search._replace(upper=jnp.asarray(jnp.inf))
        open_ended = open_ended._replace(
            top_ratio=jnp.full_like(state.search.top_ratio, jnp.inf)
        )
        return agent.act(state._replace(search=open_ended), step)

    return agent._replace(act=act)


def counted(build):
    def wrapped(env, hyper):
        return build(env, hyper)._replace(rate=lambda state: state.searches)

    return wrapped


@pytest.mark.slow
@pytest.mark.parametrize("name", ["E4", "E1"])
def test_decisions_equal_those_of_searching_always(name):
    env = envs.make_env(name, 5, 4)
    runs = [
        simulate.simulate(
            jax.random.key(2), build, env, HYPER, TRIALS, 600, progress=None
        )
        for build in (COUNTED_CERTIFIED, COUNTED_ALWAYS)
    ]
    # Equal actions give equal regret to the last bit.
    same = (runs[0].regret[-1] == runs[1].regret[-1]).mean()
    assert same >= 23 / 24
    searched = [run.rate[-1].mean() for run in runs]
    assert searched[0] < 0.7 * searched[1]


COUNTED_CERTIFIED, COUNTED_ALWAYS = counted(certified), counted(always)


def test_bounds_enclose_the_maximum_of_all_policies():
    """Along real trajectories, against enumeration, whatever the penalty."""
    num_arms, steps = 4, 250
    env = jax.tree.map(
        lambda a: jnp.asarray(a, jnp.float32), envs.make_env("E4", num_arms, 4)
    )
    log_all = log_one_plus_policies(4, num_arms + 1)

    def trial(key, c1):
        agent = cucb_agent.cucb_agent(4, num_arms + 1, c1=c1, c2=0.1)

        def body(state, t):
            k = jax.random.split(jax.random.fold_in(key, t.astype(jnp.int32)), 3)
            context = jax.random.randint(k[0], (), 0, 4)
            step = cucb_agent.Step(t, context, jax.random.uniform(k[1]), jnp.zeros(0))
            action, state = agent.act(state, step)
            z1, z2 = envs.correlate(env, jax.random.normal(k[2], (2,)))
            reward, duration = envs.outcome(
                env.reward_loc[context, action],
                env.duration_loc[context, action],
                action == num_arms,
                z1,
                z2,
                env.lognormal,
            )
            state = agent.update(state, step, action, reward, duration)
            following = t + 1
            penalty = 2 * c1 * (jnp.log(jnp.maximum(following, 2.0)) + 0.5 * log_all)
            lower, upper = state.search.enclose(state.table, penalty)
            columns = jnp.transpose(state.table, (1, 0, 2))[..., None]
            exact, _ = cucb.brute_force_max(*columns, penalty[None])
            return state, (lower, jnp.maximum(exact[0], cucb.FLOOR), upper)

        _, out = jax.lax.scan(body, agent.init(), jnp.arange(1.0, steps + 1))
        return out

    keys = jax.random.split(jax.random.key(5), 6)
    c1 = jnp.asarray([0.01, 0.1, 1.0, 10.0, 100.0, 3000.0])
    lower, exact, upper = (np.asarray(v) for v in jax.jit(jax.vmap(trial))(keys, c1))
    slack = 2e-6 * (1 + np.abs(exact))
    assert (lower <= exact + slack).all()
    assert (upper >= exact - slack).all()
    # The bounds are of use: finite, and often close.
    assert np.isfinite(upper[:, 60:]).mean() > 0.9
    assert (upper - lower)[:2, 150:].min() < 0.02


def test_exact_is_refused_beyond_four_contexts():
    with pytest.raises(ValueError, match="pool"):
        cucb_agent.cucb_agent(5, 3, c1=1.0, c2=1.0, rate="exact")


def test_theory_constants_keep_lambda_at_its_floor_beyond_four_contexts():
    """Why the agent with the theorem's constants needs no sampled policies there."""
    env = envs.make_env("E4", 5, 8)
    spec = agents.AGENTS["cucb-theory"]

    def upper(env, hyper):
        agent = spec.builder(8)(env, hyper)
        penalty = 2.0 * hyper["c1"] * jnp.log(2.0)
        return agent._replace(
            rate=lambda state: state.search.enclose(state.table, penalty)[1]
        )

    setting = {name: np.array([v]) for name, v in spec.setting(env).items()}
    np.testing.assert_allclose(
        list(spec.setting(env).values()), ucb.theory_constants(env)
    )
    result = simulate.simulate(jax.random.key(0), upper, env, setting, TRIALS, 500)
    np.testing.assert_allclose(result.rate, cucb.FLOOR, rtol=1e-6)
