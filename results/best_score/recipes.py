"""The recipes of the study of best scores: some hundred scripts a task, for a table.

A plugin (``--plugins=results/best_score/recipes.py``). One rule keeps a part of every
task's options, so that nobody picks them by their merit:

- rows: all, and one fraction;
- features: the first three kinds that are no wasteful twin;
- model: every one that is no wasteful twin; two settings of the logistic one, of the
  tree and of the forest;
- check: none, and a holdout; where the task is a stress test ten folds instead, which
  cost many fits and change no prediction;
- fit: the first two ways that are no wasteful twin;
- all else: the first option.

A setting varies the first parameter of an option, evenly over its values; others have
their middle value.
"""

from collections.abc import Sequence

from experiments.menus import keep_parts, programs
from experiments.menus.recipe import Option
from experiments.menus.task_menu import recipes

#: The form of max@k is chosen on these; nothing that is reported comes from them.
TUNING = ("tabular-2022", "spooky-author")
NATURAL = ("tabular-2021", "pizza", "insults", "leaf-classif", "siim-isic")
STRESS = ("nomad2018", "nyc-taxi", "mlsp-birds")

_FEATURES = ("features", "vector")
_TWICE = ("logistic", "ridge", "tree", "forest")
_COSTLY = ("deepcv", "cv")  # the first that the task has

Kept = dict[str, dict[str, list[str]]]


def spread(values: Sequence[str], count: int) -> list[str]:
    """``count`` of the values, evenly."""
    known = list(dict.fromkeys(values))
    count = min(count, len(known))
    return [known[int((at + 0.5) * len(known) / count)] for at in range(count)]


def settings(option: Option, count: int) -> dict[str, list[str]]:
    """The option's parameters and the values that stay."""
    return {
        name: spread(values, 1 if at else count)
        for at, (name, values) in enumerate(option.domains.items())
    }


def slot_of(slot: str, options: Sequence[Option], *, stress: bool) -> Kept:
    """What stays of a slot."""
    plain = [option for option in options if not option.twin]
    if slot == "rows":
        parts = [o for o in plain if "fraction" in o.name or "part" in o.name]
        return {plain[0].name: settings(plain[0], 1)} | {
            o.name: settings(o, 1) for o in parts
        }
    if slot == "check":
        return {plain[0].name: {}} | _checked(options, stress=stress)
    if slot == "model":
        return {o.name: settings(o, 2 if o.name.endswith(_TWICE) else 1) for o in plain}
    count = 3 if slot in _FEATURES else 2 if slot == "fit" else 1
    return {o.name: settings(o, 1) for o in plain[:count]}


def _checked(options: Sequence[Option], *, stress: bool) -> Kept:
    wanted = _COSTLY if stress else ("holdout", "cv")
    named = {o.name.rsplit(".", 1)[-1]: o for o in options}
    name = next(name for name in wanted if name in named)
    option = named[name]
    if not stress:
        return {option.name: settings(option, 1)}
    return {option.name: {k: [v[-1]] for k, v in option.domains.items()}}


def kept_of(task: str) -> dict[str, Kept]:
    """The rule, for one task."""
    recipe = next(one for one in recipes(task) if one.name == "model")
    return {
        slot: slot_of(slot, options, stress=task in STRESS)
        for slot, options in recipe.slots.items()
    }


for _task in (*TUNING, *NATURAL, *STRESS):
    keep_parts(_task, kept_of(_task))

if __name__ == "__main__":
    for _task in (*TUNING, *NATURAL, *STRESS):
        print(f"{_task:14} {programs(recipes(_task)[0]):5} scripts")
