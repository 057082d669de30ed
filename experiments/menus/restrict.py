"""A part of a task's recipes: fewer options and values, so that a table can hold all.

A plugin calls ``keep_parts`` (``--plugins=FILE.py``); the run's configuration names the
plugin, so the restriction is on record.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from experiments.menus.recipe import Option, Recipe

#: Slot -> names of options, or option -> parameter -> values; {} keeps all values.
Kept = Mapping[str, Sequence[str] | Mapping[str, Mapping[str, Sequence[str]]]]

_KEPT: dict[str, tuple[Kept, tuple[str, ...]]] = {}


def keep_parts(task: str, kept: Kept, *, forms: Sequence[str] = ("model",)) -> None:
    """Draw a task's scripts from these options alone.

    Args:
        task: short name.
        kept: options of the slots that lose some; other slots stay whole.
        forms: names of the recipes that stay.
    """
    _KEPT[task] = (kept, tuple(forms))


def restricted(task: str, recipes: tuple[Recipe, ...]) -> tuple[Recipe, ...]:
    """The recipes that ``keep_parts`` has left of a task's.

    Raises:
        ValueError: it names a form, slot, option, parameter or value that is not
            there, or keeps a wasteful option without its plain twin.
    """
    if task not in _KEPT:
        return recipes
    kept, forms = _KEPT[task]
    names = [recipe.name for recipe in recipes]
    _known("form", forms, names)
    left = [recipe for recipe in recipes if recipe.name in forms]
    return tuple(_recipe(recipe, kept) for recipe in left)


def programs(recipe: Recipe) -> int:
    """How many scripts a recipe can give, values of parameters counted."""
    return math.prod(
        sum(math.prod(map(len, o.domains.values())) for o in options)
        for options in recipe.slots.values()
    )


def _recipe(recipe: Recipe, kept: Kept) -> Recipe:
    _known("slot", kept, recipe.slots)
    slots = dict(recipe.slots)
    for slot, wanted in kept.items():
        options = {option.name: option for option in slots[slot]}
        _known(f"option of {slot}", wanted, options)
        values: Mapping[str, Mapping[str, Sequence[str]]] = (
            wanted if isinstance(wanted, Mapping) else {name: {} for name in wanted}
        )
        slots[slot] = tuple(_option(options[name], values[name]) for name in values)
        for option in slots[slot]:
            if option.twin:
                _known(f"plain twin of {slot} {option.name}", [option.twin], values)
    return dataclasses.replace(recipe, slots=slots)


def _option(option: Option, values: Mapping[str, Sequence[str]]) -> Option:
    if values:
        _known(f"parameter of {option.name}", values, option.domains)
    domains = dict(option.domains)
    for name, wanted in values.items():
        _known(f"value of {option.name} {name}", wanted, domains[name])
        domains[name] = tuple(wanted)
    return dataclasses.replace(option, domains=domains)


def _known(what: str, wanted: Collection[str], there: Collection[str]) -> None:
    missing = [name for name in wanted if name not in there]
    if missing or not len(wanted):
        raise ValueError(
            f"keep_parts: no {what} {', '.join(missing) or 'is kept'}; there are "
            f"{', '.join(there)}"
        )
