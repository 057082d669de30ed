"""A task's menu as texts: what a policy that chooses writes, a line per part.

    form: model
    rows: fraction frac=0.5 seed=1
    model: logistic C=0.2 steps=100

The parts, their options and values are those of the recipes; a part with nothing to
choose has no line. Lines and script say the same thing: a script begins with its
lines as a comment, so that an improve prompt can show the choices of any script, also
after a resume.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from experiments.menus.recipe import (
    ChosenScript,
    Option,
    Pick,
    Recipe,
)

FORM = "form"

_T = TypeVar("_T")


class NotOfTheMenu(ValueError):
    """A text that no choices of a menu give."""


@dataclasses.dataclass(frozen=True)
class LabelledOption:
    """One way to fill a part, with the words that a line has for it.

    Attributes:
        option: of the recipe.
        values: parameter -> label -> value as it stands in the code; only parameters
            with more than one value.
    """

    option: Option
    values: Mapping[str, Mapping[str, str]]

    def pick(self, labels: Mapping[str, str]) -> Pick:
        """The recipe's pick; ``labels`` by parameter.

        Raises:
            NotOfTheMenu: other parameters, or a value that there is not.
        """
        if list(labels) != list(self.values):
            raise NotOfTheMenu(
                f"{self.option.name} takes {', '.join(self.values) or 'no parameter'}, "
                f"not {', '.join(labels) or 'none'}"
            )
        chosen = []
        for name, domain in self.option.domains.items():
            value = domain[0]
            if name in labels:
                if labels[name] not in self.values[name]:
                    near = _closest(labels[name], self.values[name])
                    raise NotOfTheMenu(
                        f"{name}={labels[name]} is not on the menu{near}"
                    )
                value = self.values[name][labels[name]]
            chosen.append((name, value))
        return Pick(self.option.name, tuple(chosen))


Parts = Mapping[str, Mapping[str, LabelledOption]]  # slot -> label -> choice


class Menu:
    """All scripts of one task, as texts.

    Args:
        forms: the task's recipes.

    Attributes:
        forms: name -> recipe.
        parts: name of a form -> the parts that have something to choose.

    Raises:
        ValueError: two forms, options or values would read the same.
    """

    def __init__(self, forms: Sequence[Recipe]):
        self.forms = _unique((form.name, form) for form in forms)
        self.parts = {name: _parts(form) for name, form in self.forms.items()}

    def text(self, chosen: ChosenScript) -> str:
        """The lines of a script's choices."""
        lines = [f"{FORM}: {chosen.recipe.name}"]
        for slot, choices in self.parts[chosen.recipe.name].items():
            pick = chosen.choices[slot]
            label, choice = next(
                (k, c) for k, c in choices.items() if c.option.name == pick.option
            )
            given = dict(pick.values)
            words = [
                f"{name}={_label_of(values, given[name])}"
                for name, values in choice.values.items()
            ]
            lines.append(f"{slot}: {' '.join([label, *words])}")
        return "\n".join(lines)

    def parse(self, text: str) -> ChosenScript:
        """The choices of these lines.

        Raises:
            NotOfTheMenu: the menu has no such lines.
        """
        pairs = [_split(line) for line in text.strip().split("\n")]
        (head, name), rest = pairs[0], pairs[1:]
        if head != FORM or name not in self.forms:
            raise NotOfTheMenu(f"the first line is not '{FORM}: ...'")
        recipe, parts = self.forms[name], self.parts[name]
        if [slot for slot, _ in rest] != list(parts):
            raise NotOfTheMenu(f"the parts are {', '.join(parts)}, in this order")
        picks = {slot: _pick(parts[slot], words) for slot, words in rest}
        return ChosenScript(
            recipe,
            {
                slot: picks[slot] if slot in picks else _only(options)
                for slot, options in recipe.slots.items()
            },
        )

    def line(self, form: str, text: str) -> tuple[str, Pick]:
        """The part that a line names, and its pick.

        Raises:
            NotOfTheMenu: a form of script has no such part, option or value.
        """
        slot, words = _split(text)
        parts = self.parts[form]
        if slot not in parts:
            raise NotOfTheMenu(
                f"there is no part {slot[:80]!r}: the parts are {', '.join(parts)}"
            )
        return slot, _pick(parts[slot], words)

    def changes(self, before: ChosenScript, after: ChosenScript) -> str:
        """The lines of ``after`` that ``before`` does not have; all for another form.

        Empty where the two are the same.
        """
        lines, known = self.text(after).split("\n"), self.text(before).split("\n")
        if before.recipe.name != after.recipe.name:
            return "\n".join(lines)
        return "\n".join(line for line in lines if line not in known)

    def script(self, chosen: ChosenScript) -> str:
        """The recipe's script under a comment that holds the lines."""
        lines = self.text(chosen).split("\n")
        return "".join(f"# {line}\n" for line in lines) + f"\n{chosen.script}"

    def recover(self, script: str) -> ChosenScript:
        """The choices that a script was rendered from.

        Raises:
            NotOfTheMenu: it was not rendered from this menu.
        """
        head = itertools.takewhile(lambda s: s.startswith("# "), script.split("\n"))
        return self.parse("\n".join(line[2:] for line in head))


def _parts(recipe: Recipe) -> Parts:
    """What of a recipe is to be chosen."""
    parts = {}
    for slot, options in recipe.slots.items():
        short = [option.name.rpartition(".")[2] for option in options]
        # Where two menus share a slot, their names alone tell options apart.
        distinct = len(set(short)) == len(short)
        names = short if distinct else [option.name for option in options]
        choices = _unique(zip(names, map(_choice, options), strict=True))
        if len(choices) > 1 or any(c.values for c in choices.values()):
            parts[slot] = choices
    return parts


def _choice(option: Option) -> LabelledOption:
    values = {}
    for name, domain in option.domains.items():
        # A value that is listed twice is a likelier draw, not another value.
        distinct = tuple(dict.fromkeys(domain))
        if len(distinct) > 1:
            values[name] = _unique((label(value), value) for value in distinct)
    return LabelledOption(option, values)


def label(value: str) -> str:
    """How a line names a value: its words and numbers, without quotes and spaces."""
    return ",".join(re.findall(r"[\w.|^-]+", value)) or "plain"


def _unique(pairs: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for name, item in pairs:
        if name in found or re.search(r"[\s=:]", name):
            raise ValueError(f"a menu cannot name {name!r}: it is taken or unreadable")
        found[name] = item
    return found


def _label_of(values: Mapping[str, str], wanted: str) -> str:
    return next(name for name, value in values.items() if value == wanted)


def _only(options: Sequence[Option]) -> Pick:
    option = options[0]
    return Pick(option.name, tuple((k, v[0]) for k, v in option.domains.items()))


def _split(line: str) -> tuple[str, str]:
    name, colon, rest = line.partition(": ")
    if not colon:
        raise NotOfTheMenu(f"not a line of a menu: {line[:80]!r}")
    return name, rest


def _pick(choices: Mapping[str, LabelledOption], words: str) -> Pick:
    name, *given = words.split(" ")
    if name not in choices:
        raise NotOfTheMenu(f"{name!r} is not on the menu{_closest(name, choices)}")
    pairs = [word.partition("=") for word in given]
    return choices[name].pick({key: value for key, _, value in pairs})


def _closest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f": the closest is {near[0]!r}" if near else ""
