"""The same script with one or a few of its choices changed.

What is drawn here says nothing about which choice is good: the part is drawn uniformly,
then another value or another option of it. The policy that knows nothing
(``--model=random-edits``) draws from here, and the embedded policy is taught on it.
"""

from __future__ import annotations

import numpy as np

from experiments.menus.recipe import (
    ChosenScript,
    Option,
    Pick,
    Recipe,
    draw_option,
    draw_script,
)

# Chosen for local edits with some variety; not tuned to any score.
CHANGES = (0.65, 0.25, 0.1)  # shares of edits of one, two and three parts
JUMPS = (0.03, 0.12)  # share of scripts drawn anew: under the best, the worst parent


def draw_edit(
    forms: tuple[Recipe, ...],
    before: ChosenScript,
    rng: np.random.Generator,
    *,
    place: float = 0.5,
) -> ChosenScript:
    """An edit of a script, sometimes one of another kind altogether.

    Args:
        forms: the task's recipes.
        before: the script to change.
        rng: all randomness.
        place: of the script among others: 0 the best, 1 the worst. From a bad one it
            is jumped away a little more often.
    """
    low, high = JUMPS
    if rng.random() < low + (high - low) * place:
        return draw_script(forms, rng)
    return edit(before, rng)


def edit(before: ChosenScript, rng: np.random.Generator) -> ChosenScript:
    """Change one to three parts of a script.

    Args:
        before: the script to change.
        rng: all randomness of the edit.
    """
    choices = dict(before.choices)
    number = 1 + int(rng.choice(len(CHANGES), p=CHANGES))
    for slot in map(str, rng.permutation(open_slots(before.recipe))[:number]):
        choices[slot] = changed(before.recipe, slot, choices[slot], rng)
    return ChosenScript(before.recipe, choices)


def open_slots(recipe: Recipe) -> list[str]:
    """Parts that can change: several options, or one with something to choose."""
    return [
        slot
        for slot, options in recipe.slots.items()
        if len(options) > 1
        or any(len(set(values)) > 1 for values in options[0].domains.values())
    ]


def changed(recipe: Recipe, slot: str, old: Pick, rng: np.random.Generator) -> Pick:
    """Another pick for a part that can change: another value, or another option."""
    options = recipe.slots[slot]
    option = recipe.option(slot, old)
    free = [name for name, domain in option.domains.items() if len(set(domain)) > 1]
    others = [other for other in options if other.name != old.option]
    if free and (not others or rng.random() < 0.5):
        return _other_value(option, old, free, rng)
    return draw_option(rng, others)


def _other_value(
    option: Option, old: Pick, free: list[str], rng: np.random.Generator
) -> Pick:
    """The same option with one parameter changed."""
    name = free[int(rng.integers(len(free)))]
    values = dict(old.values)
    others = [value for value in option.domains[name] if value != values[name]]
    values[name] = others[int(rng.integers(len(others)))]
    return Pick(old.option, tuple(values.items()))
