"""What a script may be made of: recipes, their slots, options and parameters.

A recipe is an ordered list of slots (load, rows, features, model, ...), a slot is a
list of options, an option is a few lines of code with ``$parameters`` and the values
these may take. One draw picks an option per slot and a value per parameter; the script
is the code of the slots, one after the other.

Nothing in a menu says which choice scores well: options are drawn with weights that are
set for variety and for a spread of costs, and parameter values uniformly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from string import Template

import numpy as np

from experiments.menus.source import source

#: Begins a line of a template that names a slot.
PLACE = "#: "


@dataclasses.dataclass(frozen=True)
class Option:
    """One way to fill a slot.

    Attributes:
        name: unique within its slot.
        code: lines of Python with ``$parameter`` and ``$variable`` of the task.
        domains: parameter -> values as they stand in the code.
        weight: relative frequency of a draw.
        twin: name of the option that gives the same predictions for less time; empty
            where this option wastes nothing.
        near: the predictions of the two differ a little.
    """

    name: str
    code: str
    domains: Mapping[str, tuple[str, ...]]
    weight: float = 1.0
    twin: str = ""
    near: bool = False


@dataclasses.dataclass(frozen=True)
class Pick:
    """A drawn option and the values of its parameters."""

    option: str
    values: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Recipe:
    """All scripts of one form for one task.

    Attributes:
        name: "model" (something is fitted), "constant" (nothing is), ...
        slots: slot -> options, in the order of the script.
        variables: placeholders that the task fixes.
        weight: relative frequency of this form.
    """

    name: str
    slots: Mapping[str, tuple[Option, ...]]
    variables: Mapping[str, str]
    weight: float

    def draw(self, rng: np.random.Generator) -> dict[str, Pick]:
        """One option per slot and one value per parameter."""
        return {slot: draw_option(rng, options) for slot, options in self.slots.items()}

    def option(self, slot: str, pick: Pick) -> Option:
        """The option that a pick names."""
        return next(o for o in self.slots[slot] if o.name == pick.option)

    def render(self, picks: Mapping[str, Pick]) -> str:
        """The script of these picks, by slot."""
        blocks = []
        for slot, pick in picks.items():
            code = self._fill(self.option(slot, pick).code, pick)
            if code.strip():
                blocks.append(code.strip("\n"))
        return source(blocks)

    def _fill(self, text: str, pick: Pick) -> str:
        # Values may name task variables themselves (paths, columns).
        values = dict(self.variables)
        for name, value in pick.values:
            fixed = "$" not in value
            values[name] = value if fixed else Template(value).substitute(values)
        return Template(text).substitute(values) if "$" in text else text


@dataclasses.dataclass(frozen=True)
class TemplateRecipe(Recipe):
    """A recipe whose script is a text with places for the parts.

    Attributes:
        template: the text; a line ``#: SLOT`` is where the code of a slot goes.
    """

    template: str = ""

    def render(self, picks: Mapping[str, Pick]) -> str:
        """The template with the code of these picks, by slot."""
        lines = []
        for line in self.template.split("\n"):
            slot = line.removeprefix(PLACE)
            if slot == line:
                lines.append(line)
                continue
            pick = picks[slot]
            code = self._fill(self.option(slot, pick).code, pick).strip("\n")
            lines += code.split("\n")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class ChosenScript:
    """A recipe and a pick for each of its slots: one script.

    Attributes:
        recipe: the form of the script.
        choices: slot -> pick, in the order of the script.
    """

    recipe: Recipe
    choices: Mapping[str, Pick]

    @property
    def script(self) -> str:
        """The source."""
        return self.recipe.render(self.choices)


def first_script(recipe: Recipe) -> ChosenScript:
    """The script of each slot's first option and each parameter's first value."""
    picks = {}
    for slot, options in recipe.slots.items():
        option = options[0]
        values = tuple((name, domain[0]) for name, domain in option.domains.items())
        picks[slot] = Pick(option.name, values)
    return ChosenScript(recipe, picks)


def draw_option(rng: np.random.Generator, options: Sequence[Option]) -> Pick:
    """An option by weight, its parameters uniformly."""
    weights = np.array([option.weight for option in options], float)
    option = options[int(rng.choice(len(options), p=weights / weights.sum()))]
    return Pick(
        option.name,
        tuple((k, v[int(rng.integers(len(v)))]) for k, v in option.domains.items()),
    )


def draw_script(recipes: Sequence[Recipe], rng: np.random.Generator) -> ChosenScript:
    """A form by weight, then an option per slot: a script, every choice drawn anew."""
    weights = np.array([recipe.weight for recipe in recipes])
    recipe = recipes[int(rng.choice(len(recipes), p=weights / weights.sum()))]
    return ChosenScript(recipe, recipe.draw(rng))
