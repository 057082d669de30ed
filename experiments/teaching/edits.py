"""The same script with one or two of its choices changed."""

from __future__ import annotations

import numpy as np

from experiments.menus.recipe import ChosenScript, Option, Pick, Recipe, draw_option

TWO_CHANGES = 0.3  # share of the edits that touch two slots; for variety, not tuned


def edit(
    before: ChosenScript, rng: np.random.Generator
) -> tuple[ChosenScript, str, str]:
    """Change one or two slots: (script, plan, kind).

    A value of an option is changed (one line, mostly) or an option replaced by another.

    Args:
        before: the script to change.
        rng: all randomness of the edit.

    Returns:
        The new script, a plan that names the changes, and ``value`` or ``option``.
    """
    choices = dict(before.choices)
    changes = 2 if rng.random() < TWO_CHANGES else 1
    kinds, words = set(), []
    for slot in map(str, rng.permutation(_open_slots(before.recipe))[:changes]):
        found = _changed(before.recipe, slot, choices[slot], rng)
        if found is not None:
            choices[slot], what, kind = found
            words.append(what)
            kinds.add(kind)
    kind = "option" if "option" in kinds else "value"
    after = ChosenScript(before.recipe, choices)
    return after, f"Plan: change {'; '.join(words)}.", kind


def _open_slots(recipe: Recipe) -> list[str]:
    """Slots that can change: several options, or one with something to choose."""
    return [
        slot
        for slot, options in recipe.slots.items()
        if len(options) > 1 or any(len(v) > 1 for v in options[0].domains.values())
    ]


def _changed(
    recipe: Recipe, slot: str, old: Pick, rng: np.random.Generator
) -> tuple[Pick, str, str] | None:
    """Another pick for a slot, how a plan names it, and its kind."""
    options = recipe.slots[slot]
    option = recipe.option(slot, old)
    free = [name for name, domain in option.domains.items() if len(set(domain)) > 1]
    if free and (len(options) == 1 or rng.random() < 0.5):
        pick, name, value = _other_value(option, old, free, rng)
        what = recipe.words(slot, old) or slot
        return pick, f"{what}: {name} {value}", "value"
    others = [other for other in options if other.name != old.option]
    if not others:
        return None
    pick = draw_option(rng, others)
    was, now = recipe.words(slot, old), recipe.words(slot, pick)
    return pick, f"{was or slot} to {now or 'the plain way'}", "option"


def _other_value(
    option: Option, old: Pick, free: list[str], rng: np.random.Generator
) -> tuple[Pick, str, str]:
    """The same option with one parameter changed: (pick, parameter, value)."""
    name = free[int(rng.integers(len(free)))]
    values = dict(old.values)
    others = [value for value in option.domains[name] if value != values[name]]
    values[name] = others[int(rng.integers(len(others)))]
    return Pick(old.option, tuple(values.items())), name, values[name]
