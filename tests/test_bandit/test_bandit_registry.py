"""What a notebook can add without editing the package, and what a name means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bandit import agents, envs, figures, registry, sweep, tables
from bandit.base import Agent, CellSums
from bandit.registry import AgentSpec, EnvSpec, register_agent, register_env


@pytest.fixture(autouse=True)
def restored():
    """Registrations of a test end with it."""
    before = dict(registry.AGENTS), dict(registry.ENVS)
    yield
    for now, then in zip((registry.AGENTS, registry.ENVS), before, strict=True):
        now.clear()
        now.update(then)


def follow_the_leader(num_contexts, num_actions):
    """An agent as a user writes it: the best mean ratio so far, untried first."""

    def init():
        return jnp.zeros((num_contexts, 3, num_actions))

    def act(table, step):
        cells = CellSums(*table[step.context])
        ratio = jnp.where(cells.tried, cells.reward / cells.duration, jnp.inf)
        return jnp.argmax(ratio).astype(jnp.int32), table

    def update(table, step, action, reward, duration):
        cells = CellSums(*table[step.context]).add(action, reward, duration)
        return table.at[step.context].set(jnp.stack(cells))

    return Agent(init, act, update, lambda table: jnp.zeros(()))


def my_draw(env, context, action, normals):
    """Noise of one's own: exponential rewards, fixed durations."""
    reward = -env.reward_loc[context, action] * jnp.log(
        jax.scipy.stats.norm.cdf(-normals[0])
    )
    return reward, env.duration_loc[context, action]


def test_an_agent_and_an_environment_from_a_notebook():
    register_agent(
        AgentSpec(
            "leader", "Leader", lambda env, _: follow_the_leader(*env.mean_reward.shape)
        )
    )

    def make(num_arms, num_contexts):
        env = envs.make_env("E1", num_arms, num_contexts)
        means = {"mean_reward": env.reward_loc, "mean_duration": env.duration_loc}
        rate = envs.optimal_rate(env.reward_loc, env.duration_loc)
        return env._replace(**means, rho_star=np.asarray(rate))

    register_env(EnvSpec("mine", "mine: exponential", make, my_draw))
    cell = sweep.Cell("mine", 3, 2, registry.AGENTS["leader"])
    result = sweep.run_cell(cell, jax.random.key(0), num_steps=200, num_trials=8)
    assert np.isfinite(result.regret).all()
    assert (np.diff(result.pseudo_regret, axis=0) >= 0).all()
    # Durations are fixed here, so the elapsed time of a step is one of the table.
    assert result.elapsed[-1].min() > 200 * 0.3
    assert figures.colour_of("leader") in figures.SPARE
    row = {"agent": "leader", "selection": "default", "at_edge": ""}
    assert tables.at_edge(row) == []


def test_names_are_unique_and_fit_into_file_names():
    spec = AgentSpec("uniform", "Mine", agents.AGENTS["uniform"].build)
    with pytest.raises(ValueError, match="replace=True"):
        register_agent(spec)
    register_agent(spec, replace=True)
    assert agents.AGENTS["uniform"].label == "Mine"
    for name in ("", "a/b", "a b", "ü"):
        with pytest.raises(ValueError, match="name"):
            register_agent(spec._replace(name=name))
        with pytest.raises(ValueError, match="name"):
            register_env(registry.ENVS["E1"]._replace(name=name))
    with pytest.raises(ValueError, match="E1"):
        register_env(registry.ENVS["E1"])
    with pytest.raises(ValueError, match="register"):
        sweep.Cell("E9", 3, 2, spec)


def test_who_was_not_tuned_is_not_called_so():
    spec = agents.AGENTS["cucb-tuned"]
    assert spec.title("median") == spec.title("mean") == "C-UCB (tuned)"
    assert spec.title("default") == "C-UCB (default)"
    assert agents.AGENTS["cucb-theory"].title("default") == "C-UCB (theory)"


def test_fine_grids_are_fine_and_cover_the_papers_picks():
    for name, spec in agents.AGENTS.items():
        for key, values in spec.fine_grid.items():
            assert key in spec.defaults, name
            positive = [v for v in values if v > 0]
            if key != "age":
                ratio = np.array(positive[1:]) / positive[:-1]
                np.testing.assert_allclose(ratio, 1.5, rtol=0.02)
    fine = agents.AGENTS["cucb-plugin"].grid(4, "fine")["c2"]
    assert sum(0.1 <= v <= 0.4 for v in fine) >= 3
    assert agents.AGENTS["imed"].grid(4, "fine") == {}
    assert agents.AGENTS["npg-niw"].grid(4, "none") == {}


def test_picks_at_an_end_of_the_grid_are_named():
    spec = agents.AGENTS["cucb-tuned"]
    place = {"num_contexts": 4, "num_steps": 30_000, "tune": "paper"}
    assert spec.at_edge({"c1": 0.01, "c2": 1.0}, **place) == ["c1", "c2"]
    assert spec.at_edge({"c1": 1.0, "c2": 0.1}, **place) == []
    large = {**place, "num_contexts": 64}
    assert spec.at_edge({"c1": 1.0, "c2": 0.0}, **large) == []  # 0 cannot be passed
    niw = agents.AGENTS["npg-niw"]
    assert niw.at_edge({"lr": 0.3, "age": 32_000.0}, **place) == []
    assert niw.at_edge({"lr": 0.3, "age": 60.0}, **place) == ["age"]
    assert spec.at_edge({"c1": 0.01, "c2": 1.0}, **{**place, "tune": "none"}) == []


def test_one_colour_per_agent():
    colours = [spec.colour for spec in agents.AGENTS.values()]
    assert None not in colours
    assert len(set(colours)) == len(colours)
    assert not set(colours) & set(figures.SPARE)
