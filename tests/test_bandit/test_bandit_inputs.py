"""Any input to a public function gives a value that is defined, or one clear error."""

import inspect
import pkgutil
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bandit
from bandit import (
    adaptive,
    analysis,
    base,
    cell_noise,
    claims,
    cucb,
    cucb_agent,
    cucb_policies,
    cucb_record,
    envs,
    estimate,
    figures,
    instance,
    neural_price,
    policy_gradient,
    ppo_agent,
    prices,
    registry,
    simulate,
    sweep,
    tables,
    ucb,
)  # fmt: skip
from bandit.agents import AGENTS
from bandit.theory import iteration, npg, problems

CLEAR = (ValueError, TypeError, AssertionError)
small = st.integers(-2, 4)
real = st.floats(allow_nan=True, allow_infinity=True, width=32)
number = st.one_of(real, st.sampled_from([0.0, 0.1, 1.0, -1.0]))
name = st.sampled_from(["E1", "E4", "E9", "", "uniform", "npg-niw", "median", "mean"])


def tables_of(entries=number):
    """A table, often a good one: lists, wrong ranks, ragged and empty ones too."""
    rows = st.lists(st.lists(entries, min_size=2, max_size=2), min_size=1, max_size=3)
    good = rows.map(np.array)
    return st.one_of(
        good, rows, st.just([]), st.just([[1.0], [1.0, 2.0]]), st.just("x"),
        st.just(np.ones((2, 2), int)), st.just([1, 2]),
    )  # fmt: skip


def vectors(entries=number):
    return st.one_of(
        st.lists(entries, max_size=4).map(np.array), st.just([[1.0]]), st.just(3.0)
    )


def cube():
    """Three tables [2, 3, 1] of cell sums, sometimes of other shapes."""
    sizes = st.sampled_from([(2, 3, 1), (2, 3, 1), (2, 3), (1, 1, 1)])
    return sizes.map(lambda shape: jnp.ones(shape))


positive = st.sampled_from([0.5, 1.0, 3.0])
policy = st.sampled_from([(2, 1), (2, 1), (1, 1), (3,)]).map(
    lambda shape: jnp.zeros(shape, jnp.int32)
)
env = st.just(envs.make_env("E1", 2, 2))
key = st.just(jax.random.key(0))
agent = st.sampled_from([AGENTS["npg-niw"], AGENTS["cucb-tuned"], AGENTS["uniform"]])
tune = st.sampled_from(["none", "paper", "fine"])
setting = st.dictionaries(st.sampled_from(["lr", "age", "c1", "x"]), number, max_size=2)
row = st.sampled_from(
    [
        {
            "env": "E1", "num_arms": 2, "num_contexts": 4, "agent": "npg-niw",
            "selection": s, "hyper": h, "steps": 10, "regret_mean": np.nan,
            "regret_se": 1.0,
        }
        for s in ("median", "default")
        for h in ('{"lr": 0.03}', "{}")
    ]
)  # fmt: skip
three = [cube()] * 3
scalar = st.floats(-2, 2, width=32).map(jnp.asarray)
vector3 = st.sampled_from([jnp.ones(3), jnp.zeros(0), jnp.ones((1, 2)), jnp.ones(1)])

#: Arguments of each public function, positional.
CASES = {
    base.one_hot: [st.just(jnp.zeros((), jnp.int32)), small],
    base.first_argmax: [vector3],
    base.categorical: [scalar, vector3],
    base.check_sizes: [small, small],
    cell_noise.quadratic: [st.just(jnp.ones((3, 2))), scalar],
    adaptive.imed: [small, small],
    adaptive.posterior_sampling: [small, small],
    analysis.standard_error: [vectors()],
    analysis.bootstrap_interval: [vectors()],
    claims.verdict: [vectors()],
    claims.markdown: [st.just([])],
    cucb.log_term: [scalar, number],
    cucb.approximate_max: [*three, number, policy],
    cucb.empty_pool: [small, small],
    cucb.sampled_rate: [key, st.sampled_from([jnp.ones((2, 3, 2)), jnp.ones(3)]),
                        number, small],
    cucb.pool_rate: [st.just(cucb.empty_pool(2, 3)), number],
    cucb_agent.cucb_agent: [small, small],
    cucb_policies.brute_force_max: [*three, number],
    cucb_policies.checked_tables: [*three, number],
    cucb_policies.penalised_rate: [*three, scalar],
    cucb_record.record: [key, env, vectors(), vectors(),
                         st.sampled_from([(), (0,), (2, 1)])],
    envs.context_scales: [small],
    envs.locations: [small, small],
    envs.env_of: [name, tables_of(), tables_of()],
    envs.make_env: [name, small, small],
    estimate.duration: [st.floats(0, 1e9)],
    figures.colour_of: [name],
    instance.rectified_normal_mean: [number, number],
    instance.floored_lognormal_mean: [number, number, number],
    instance.optimal_rate: [tables_of(), tables_of()],
    instance.instance: [tables_of(), tables_of()],
    instance.gaps: [env],
    instance.permuted: [env, *[st.sampled_from([jnp.arange(2), jnp.arange(3)])] * 2],
    instance.correlate: [env, st.sampled_from([jnp.ones(2), jnp.ones((3, 3))])],
    instance.outcome: [*three, *three, scalar],
    instance.draw: [env, *[st.just(jnp.zeros((), jnp.int32))] * 2,
                    st.sampled_from([jnp.ones(2), jnp.ones(3)])],
    neural_price.neural: [st.integers(-1, 0), small],
    prices.plug_in: [small],
    prices.fixed: [number],
    prices.on_policy: [],
    simulate.trial_keys: [key, st.just(jnp.arange(2))],
    simulate.permute_trials: [key, env, st.just(jnp.arange(2))],
    simulate.draw_chunk: [key, st.just(jnp.asarray(0)), st.integers(1, 2),
                          st.integers(0, 2)],
    simulate.checkpoints: [vectors(st.integers(-1, 9)), small],
    tables.at_edge: [row],
    tables.markdown: [st.lists(row, max_size=2)],
    tables.terminal: [st.just([])],
    ucb.log_one_plus_policies: [small, small],
    ucb.theory_constants: [env],
    ucb.uniform: [small, small],
    ucb.oracle: [env],
    iteration.edge_problem: [number, number],
    problems.random_problems: [st.integers(0, 9), small, small, small],
    problems.exact_rates: [st.just(problems.random_problems(0, 2))],
    problems.greedy_sums: [st.just(problems.random_problems(0, 2)),
                           st.just(np.zeros(2))],
}  # fmt: skip
#: The same with keyword arguments.
KEYWORDS = {
    adaptive.imed: {"scale": number},
    adaptive.posterior_sampling: {"prior_count": number, "prior_sd": number},
    analysis.bootstrap_interval: {"level": number},
    cucb_agent.cucb_agent: {
        "c1": number, "c2": number,
        "rate": st.sampled_from([None, "exact", "pool", "fresh", "other"]),
    },
    instance.instance: {"correlation": number, "lognormal": st.booleans()},
    neural_price.neural: {"step_size": number},
    tables.markdown: {"selection": name},
}  # fmt: skip
FACTORIES = {
    ucb.plug_in_ucb: {"c2": number},
    policy_gradient.tabular_policy_gradient: {
        "step_size": number, "price": st.just(prices.fixed(0.0)),
        "rule": st.sampled_from(["npg", "ppo"]),
        "signal": st.sampled_from(["plain", ""]),
    },
    ppo_agent.tabular_ppo: {
        "step_size": number, "price": st.just(prices.fixed(0.0)), "num_epochs": small,
    },
}  # fmt: skip
for _function, _keywords in FACTORIES.items():
    CASES[_function], KEYWORDS[_function] = [small, small], _keywords
CASES[prices.niw_slots], KEYWORDS[prices.niw_slots] = [], {"age": number}
#: Tested with their files, processes or trajectories: name of the test module.
ELSEWHERE = {
    "test_bandit_sweep": {
        "bandit.analysis.result_rows", "bandit.analysis.curve_rows",
        "bandit.analysis.write_csv", "bandit.analysis.read_csv", "bandit.claims.rows",
        "bandit.figures.regret_against_arms", "bandit.figures.regret_against_time",
        "bandit.figures.save", "bandit.sweep.run_cell", "bandit.sweep.work_of",
        "bandit.sweep.save_cell", "bandit.sweep.load_cell",
    },
    "test_bandit_study": {
        "bandit.study.finished", "bandit.study.run", "bandit.study.write",
        "bandit.study.draw", "bandit.estimate.estimate", "bandit.progress.watcher",
    },
    "test_bandit_registry": {
        "bandit.registry.register_agent", "bandit.registry.register_env",
    },
    "test_bandit_simulate": {"bandit.simulate.simulate"},
    "test_bandit_crossed": {
        "bandit.crossed.precision", "bandit.crossed.posterior",
        "bandit.crossed.others_say", "bandit.crossed.learn",
    },
    "test_bandit_shared_sampling": {
        "bandit.shared_sampling.believe", "bandit.shared_sampling.shared_sampling",
        "bandit.bound.noise_variance", "bandit.bound.log_constant",
    },
    "test_bandit_logged": {
        *(f"bandit.logged.{name}" for name in ("read_log", "make_log")),
        *(f"bandit.off_policy.{name}" for name in (
            "weights", "unsupported", "off_policy_rate", "best_rate", "most_reward",
            "best_ratio", "best_arm", "cross_fitted", "evaluate")),
        *(f"bandit.replay.{name}" for name in (
            "table_env", "expected_decisions", "refusal", "replay")),
        *(f"bandit.log_report.{name}" for name in (
            "facts", "rate_rows", "agent_rows", "run", "terminal")),
        "bandit.resampled.resampled",
    },
    "test_bandit_agents": {"bandit.prices.from_estimator", "bandit.ucb.ucb_action",
                           "bandit.base.check_numbers"},
    "test_bandit_cucb": {
        "bandit.cucb.disagreement", "bandit.cucb_exact.exact_max",
        "bandit.cucb_exact.first_untried_only", "bandit.cucb_exact.cannot_reach",
        "bandit.cucb_bounds.near_edges", "bandit.cucb_bounds.even_edges",
        "bandit.cucb_bounds.count_range", "bandit.cucb_bounds.cell_bounds",
        "bandit.cucb_stages.search_round", "bandit.cucb_stages.split_search",
        "bandit.cucb_policies.first_argmax", "bandit.cucb_policies.policy_sums",
        "bandit.cucb_policies.coordinate_ascent",
        "bandit.cucb_policies.enumerate_product", "bandit.cucb_certified.search",
        "bandit.cucb_methods.method_of",
    },
    "test_bandit_cucb_sampled": {
        "bandit.cucb.refresh_pool", "bandit.cucb.pool_actions",
        "bandit.cucb.recount_pool",
    },
    "test_bandit_theory": {
        "bandit.theory.iteration.check_band",
        "bandit.theory.iteration.check_termination",
        "bandit.theory.npg.boltzmann_error", "bandit.theory.npg.check_boltzmann",
        "bandit.theory.npg.run_rates", "bandit.theory.npg.fitted_slopes",
        "bandit.theory.npg.check_rate", "bandit.theory.summary.run",
        "bandit.theory.summary.draw", "bandit.theory.summary.report",
        "bandit.theory.sums.rate_of_sums", "bandit.theory.sums.check_rate_of_sums",
    },
}  # fmt: skip


def full_name(function):
    return f"{function.__module__}.{function.__name__}"


def public_functions():
    for module in pkgutil.walk_packages(bandit.__path__, "bandit."):
        for attribute, value in vars(import_module(module.name)).items():
            value = inspect.unwrap(value)
            if (
                inspect.isfunction(value)
                and value.__module__ == module.name
                and not attribute.startswith("_")
            ):
                yield full_name(value)


def test_every_public_function_is_here_or_named():
    named = {name for names in ELSEWHERE.values() for name in names}
    here = {full_name(function) for function in CASES}
    assert not named & here
    assert set(public_functions()) == named | here


def finite_or_told(value):
    """Numbers that come back are numbers; -inf says that no policy counts."""
    for leaf in jax.tree.leaves(value):
        if isinstance(leaf, float | np.ndarray | jax.Array) and not (
            isinstance(leaf, jax.Array)
            and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        ):
            array = np.asarray(leaf)
            if array.dtype.kind == "f":
                yield not (np.isnan(array) | (array == np.inf)).any()


#: nan and inf are what these give for nan and inf, as NumPy does.
PASS_ON = {
    analysis.standard_error, analysis.bootstrap_interval, cucb_policies.penalised_rate,
    cucb_policies.checked_tables, cucb_policies.brute_force_max, cucb.approximate_max,
    cucb.sampled_rate, cucb.pool_rate, cell_noise.quadratic, claims.verdict,
    iteration.edge_problem,
}  # fmt: skip


@pytest.mark.parametrize("function", CASES, ids=full_name)
def test_any_input_gives_a_value_or_one_clear_error(function):
    drawn = st.tuples(*CASES[function])
    keywords = st.fixed_dictionaries(KEYWORDS.get(function, {}))

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn, keywords)
    def check(arguments, named):
        with np.errstate(all="ignore"):
            try:
                value = function(*arguments, **named)
            except CLEAR as error:
                value, told = (), bool(str(error).strip())
            else:
                told = True
        assert told, "an error without a message"
        assert function in PASS_ON or all(finite_or_told(value))

    check()


@pytest.mark.parametrize(
    ("reward", "duration", "word"),
    [
        ([[1.0, 2.0]], [[0.0, 1.0]], "positive"),
        ([[1.0, 2.0]], [[-1.0, 1.0]], "positive"),
        ([[1.0, np.nan]], [[1.0, 1.0]], "finite"),
        ([[1.0, 2.0]], [[1.0, np.inf]], "finite"),
        ([[1.0, 2.0]], [[1.0]], "shape"),
        ([1.0, 2.0], [1.0, 1.0], "table"),
        ([], [], "table"),
        ("reward", [[1.0]], "table"),
        ([[1e308, 1e308], [1e308, 1e308]], [[1e-300] * 2] * 2, "large"),
    ],
)
def test_bad_tables_are_named(reward, duration, word):
    with pytest.raises(ValueError, match=word):
        envs.optimal_rate(reward, duration)


def test_integer_tables_and_lists_are_tables():
    assert envs.optimal_rate([[3, 1]], [[2, 1]]) == 1.5
    assert envs.optimal_rate(np.array([[3, 1]]), np.array([[2, 1]])) == 1.5
    assert envs.env_of("E4", [[1]], [[2]]).mean_reward.shape == (1, 2)


def test_settings_and_grids_take_any_setting():
    spec = AGENTS["cucb-tuned"]
    place = {"num_contexts": 4, "num_steps": 10}
    assert spec.at_edge({}, tune="paper", **place) == []
    assert spec.at_edge({"c1": float("nan")}, tune="paper", **place) == []
    assert registry.AgentSpec("x", "X", spec.build).settings(4) == {}
    with pytest.raises(ValueError, match="trial"):
        sweep.run_cell(
            sweep.Cell("E1", 2, 2, spec), jax.random.key(0), num_steps=5, num_trials=0
        )


def test_negative_and_infinite_hyper_parameters_are_named():
    with pytest.raises(ValueError, match="scale"):
        base.check_numbers(lr=0.1, scale=-1.0)
    with pytest.raises(ValueError, match="lr"):
        base.check_numbers(lr=np.inf)
    with pytest.raises(ValueError, match="scale must be finite and above 0"):
        adaptive.imed(2, 2, scale=0.0)
    with pytest.raises(ValueError, match="prior_count"):
        adaptive.posterior_sampling(2, 2, prior_count=0)
    with pytest.raises(ValueError, match="every"):
        prices.from_estimator(None, every=0)
    jax.jit(lambda value: base.check_numbers(lr=value) or value)(1.0)


def test_theory_refuses_no_problem():
    with pytest.raises(ValueError, match="at least 1"):
        npg.run_rates(0, number=0)
