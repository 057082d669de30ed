"""Each agent's step alone, compiled and not: what it records and that both agree."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import parameterized

from bandit import agents, envs
from bandit.base import Step
from bandit.cucb_agent import cucb_agent

ENV = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), envs.make_env("E1", 3, 2))
SHAPE = ENV.mean_reward.shape
#: context, uniform, reward, seconds of eight decisions.
PLAYED = [
    (0, 0.1, 0.5, 1.0),
    (1, 0.9, 1.8, 2.0),
    (0, 0.4, 0.6, 1.2),
    (0, 0.6, 0.0, 0.35),
]
PLAYED = PLAYED + PLAYED[::-1]
NAMES = ("npg-niw", "cucb-plugin", "imed")
RATES = ("approximate", "pool", "fresh")


def step_of(agent, t, context, uniform):
    normals = jnp.linspace(-1, 1, agent.num_normals)
    return Step(jnp.asarray(t, jnp.float32), jnp.asarray(context), uniform, normals)


def play(agent, variant):
    """Actions [8] and the last state."""
    act, update = variant(agent.act), variant(agent.update)
    state, actions = agent.init(), []
    for t, (context, uniform, reward, seconds) in enumerate(PLAYED, start=1):
        step = step_of(agent, t, context, jnp.asarray(uniform))
        action, state = act(state, step)
        chex.assert_shape(action, ())
        chex.assert_type(action, jnp.int32)
        state = update(state, step, action, jnp.asarray(reward), jnp.asarray(seconds))
        actions.append(int(action))
    return actions, state


def check(agent, variant):
    """The table holds what was played, nothing else, and its numbers are finite."""
    actions, state = play(agent, variant)
    sums = np.zeros((SHAPE[0], 3, SHAPE[1]))
    for action, (context, _, reward, seconds) in zip(actions, PLAYED, strict=True):
        sums[context, :, action] += (reward, seconds, 1.0)
    table = np.asarray(state.table)
    # Policy gradients keep their logits in the first row, NoisyCells scatters last.
    first = 1 if table.shape[1] == 4 else 0
    np.testing.assert_allclose(table[:, first : first + 3], sums, rtol=1e-6)
    chex.assert_tree_all_finite(state.table)
    assert np.isfinite(float(agent.rate(state)))
    return actions


class StepTest(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters(*NAMES)
    def test_agents(self, name):
        spec = agents.AGENTS[name]
        check(spec.build(ENV, spec.defaults), self.variant)

    @chex.variants(with_jit=True, without_jit=True)
    @parameterized.parameters(*RATES)
    def test_cucb_by_way_of_its_rate(self, rate):
        agent = cucb_agent(*SHAPE, c1=1.0, c2=0.1, rate=rate, num_policies=16)
        actions = check(agent, self.variant)
        # In a context with an untried action the first untried one is played.
        contexts = [context for context, *_ in PLAYED]
        first = [a for a, x in zip(actions, contexts, strict=True) if x == 0]
        assert first[: SHAPE[1]] == list(range(SHAPE[1]))

    def test_two_states_of_an_agent_have_one_structure(self):
        for name in NAMES:
            spec = agents.AGENTS[name]
            agent = spec.build(ENV, spec.defaults)
            _, state = play(agent, jax.jit)
            chex.assert_trees_all_equal_shapes_and_dtypes(agent.init(), state)
