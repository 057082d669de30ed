"""Scripts without their waste: for each wasteful part the plain one of the same score.

An option with a ``twin`` costs seconds that buy no score: row loops, folds that are
only printed, fits that repeat each other. ``plain_script`` is what an edit of each such
part would leave; which share of a recipe's draws waste time follows from its weights.
"""

from __future__ import annotations

from collections.abc import Callable

from experiments.menus.recipe import ChosenScript, Option, Pick, Recipe


def plain_pick(recipe: Recipe, slot: str, pick: Pick) -> Pick:
    """The pick without its waste; itself where it wastes nothing.

    Args:
        recipe: of the script.
        slot: one of its parts.
        pick: what the script has there.

    Returns:
        The twin with the same values; a value that the twin does not take (ten times
        the trees) becomes its last one.
    """
    option = recipe.option(slot, pick)
    if not option.twin:
        return pick
    given = dict(pick.values)
    twin = recipe.option(slot, Pick(option.twin))
    return Pick(
        twin.name,
        tuple(
            (name, given[name] if given.get(name) in domain else domain[-1])
            for name, domain in twin.domains.items()
        ),
    )


def plain_script(chosen: ChosenScript) -> ChosenScript:
    """The script with every wasteful part replaced by its plain twin."""
    recipe = chosen.recipe
    return ChosenScript(
        recipe,
        {slot: plain_pick(recipe, slot, p) for slot, p in chosen.choices.items()},
    )


def wasteful(chosen: ChosenScript) -> tuple[str, ...]:
    """Slots of a script that waste time."""
    recipe = chosen.recipe
    return tuple(s for s, p in chosen.choices.items() if recipe.option(s, p).twin)


def waste_share(
    recipe: Recipe, counts: Callable[[Option], bool] = lambda option: bool(option.twin)
) -> float:
    """1 - prod_slots (1 - share of the slot's weight on options that count as waste).

    Args:
        recipe: a form of script.
        counts: whether an option is waste; by default every option with a twin.
    """
    plain = 1.0
    for options in recipe.slots.values():
        total = sum(option.weight for option in options)
        plain *= sum(o.weight for o in options if not counts(o)) / total
    return 1.0 - plain
