"""The study's agents and environments by name, and how to add one.

An agent is one file and one registration. The file has a function that returns an
``Agent`` (``bandit.base``), written for one trial; the registration names it:

    from bandit.registry import AgentSpec, register_agent

    register_agent(AgentSpec(
        "greedy", "Greedy", lambda env, hyper: greedy(*env.mean_reward.shape)))

An environment is one file and one registration, too: a function (K, X) -> ``Env`` and,
if its noise is neither of the two of ``bandit.instance``, a function that draws:

    register_env(EnvSpec("E5", "E5: mine", make, draw))

Both work from a notebook, without a change of these files; after them ``sweep``,
``study``, tables and figures know the name. Commands know what is registered by
``bandit.agents`` and ``bandit.envs``.
"""

from collections.abc import Callable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from bandit.base import Agent, Number
from bandit.instance import Draw, Env, draw

Hyper = Mapping[str, Number]
Builder = Callable[[Env, Hyper], Agent]
Grid = Mapping[str, tuple[float, ...]]
#: 'none' runs the documented setting; 'paper' searches the paper's grid, a factor of 3
#: to 10 apart; 'fine' one whose scales are 1.5 apart.
Tune = Literal["none", "paper", "fine"]


_NOTHING: Mapping[str, float] = MappingProxyType({})
_NO_GRID: Grid = MappingProxyType({})


class AgentSpec(NamedTuple):
    """An agent as the study knows it.

    Attributes:
      name: what ``--agents`` takes.
      label: what tables and figures show.
      build: (the trial's instance, hyper-parameters) -> Agent.
      defaults: the documented setting, used without tuning.
      small_grid: values by hyper-parameter for up to 4 contexts; empty: never tuned.
      large_grid: the same beyond 4 contexts.
      fine_grid: the finer grid, for any number of contexts.
      tune_build: a cheaper builder used while tuning only, or None.
      large_build: the builder beyond 4 contexts, where it differs, or None.
      constants: computes the setting from the canonical instance, or None.
      note: one line on what it is.
      colour: of its curve and points in every figure; None: one of the spare colours.
      marker: of its points.
    """

    name: str
    label: str
    build: Builder
    defaults: Mapping[str, float] = _NOTHING
    small_grid: Grid = _NO_GRID
    large_grid: Grid = _NO_GRID
    fine_grid: Grid = _NO_GRID
    tune_build: Builder | None = None
    large_build: Builder | None = None
    constants: Callable[[Env], Mapping[str, float]] | None = None
    note: str = ""
    colour: str | None = None
    marker: str = "."

    def grid(self, num_contexts: int, tune: Tune) -> Grid:
        """The values to search, by hyper-parameter; empty: the agent is not tuned."""
        if tune == "none":
            return _NO_GRID
        paper = self.small_grid if num_contexts <= 4 else self.large_grid
        return (self.fine_grid or paper) if tune == "fine" else paper

    def settings(
        self, num_contexts: int, tune: Tune = "paper"
    ) -> dict[str, Float[np.ndarray, " grid"]]:
        """All combinations of the grid, or the default setting alone."""
        grid = self.grid(num_contexts, tune)
        if not grid:
            return {name: np.array([value]) for name, value in self.defaults.items()}
        rows = np.array(list(product(*grid.values())))
        return dict(zip(grid, rows.T, strict=True))

    def at_edge(
        self,
        setting: Mapping[str, float],
        *,
        num_contexts: int,
        num_steps: int,
        tune: Tune,
    ) -> list[str]:
        """Hyper-parameters that were picked at an end of their grid.

        A wider grid might have given a better setting. What no wider grid can change
        does not count: a scale of 0, and an age of the whole trial or more.
        """
        found = []
        for name, values in self.grid(num_contexts, tune).items():
            value = setting.get(name)
            if value is None or len(values) < 2:
                continue
            low, high = np.isclose(value, [min(values), max(values)], rtol=1e-6)
            settled = value == 0 or (name == "age" and value >= num_steps)
            if (low or high) and not settled:
                found.append(name)
        return found

    def title(self, selection: str) -> str:
        """The label of a row: who was not tuned is not called so."""
        if selection == "default":
            return self.label.replace("(tuned)", "(default)")
        return self.label

    def builder(self, num_contexts: int) -> Builder:
        """The builder for a number of contexts."""
        return self.large_build if num_contexts > 4 and self.large_build else self.build

    def setting(self, env: Env) -> dict[str, float]:
        """The documented setting, computed from the instance if it depends on it."""
        return dict(self.constants(env) if self.constants else self.defaults)


class EnvSpec(NamedTuple):
    """An environment as the study knows it.

    Attributes:
      name: what ``--env`` takes.
      title: what figures show.
      make: (K, X) -> its canonical instance.
      draw: reward and seconds of a decision; ``instance.draw`` has the study's noise.
      size: (K, X) of an environment that has one size; None: any.
    """

    name: str
    title: str
    make: Callable[[int, int], Env]
    draw: Draw = draw
    size: tuple[int, int] | None = None


AGENTS: dict[str, AgentSpec] = {}
ENVS: dict[str, EnvSpec] = {}


def _check_name(name: str) -> None:
    if not name or not set(name) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."
    ):
        raise ValueError(
            f"a name has letters, digits, '-' and '.' only (it names files): {name!r}"
        )


def register_agent(spec: AgentSpec, *, replace: bool = False) -> AgentSpec:
    """Makes an agent known by its name.

    Args:
      spec: the agent.
      replace: whether another agent of that name may be replaced (in a notebook, when
        a cell is run again).

    Raises:
      ValueError: the name is taken or cannot name a file.
    """
    _check_name(spec.name)
    if spec.name in AGENTS and not replace:
        raise ValueError(f"there is an agent {spec.name!r}: pass replace=True")
    AGENTS[spec.name] = spec
    return spec


def register_env(spec: EnvSpec, *, replace: bool = False) -> EnvSpec:
    """Makes an environment known by its name.

    Args:
      spec: the environment.
      replace: whether another environment of that name may be replaced.

    Raises:
      ValueError: the name is taken or cannot name a file.
    """
    _check_name(spec.name)
    if spec.name in ENVS and not replace:
        raise ValueError(f"there is an environment {spec.name!r}: pass replace=True")
    ENVS[spec.name] = spec
    return spec
