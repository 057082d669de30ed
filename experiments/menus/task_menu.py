"""The recipes of a task, read from its row: whose options, which values.

A task's row names a menu file and a slot for every part of a script. Rows of the tasks
that are shipped stand in ``data/tasks.toml``; a task from elsewhere brings its own, as
``menu.toml`` in its folder, with the keys that a row has:

    variables = { id = "id", target = "label" }
    drop = ["classifier.boosting"]
    forms.model = { load = "own.load", model = "models.classifier", ... }
    [values]
    "classifier.forest" = { trees = [10, 30] }
    [own.load.csv]
    code = 'train = pd.read_csv("input/train.csv")'

``[own.SLOT.OPTION]`` tables are options for this task alone; ``own.SLOT`` names them.

``template = "FILE"`` makes the script of a text with places for the parts (a line
``#: SLOT`` each); without it the script is the code of the parts, one after the other.

``twin = "OPTION"`` marks an option that wastes time: it names the option of the same
slot that gives the same predictions without the cost. Parameters that both have, and
that the wasteful one does not list, take the values of the plain one. Who drops the
plain option drops its twins.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.config.errors import LoopError
from experiments.menus.menu import Menu
from experiments.menus.recipe import (
    PLACE,
    ChosenScript,
    Option,
    Recipe,
    TemplateRecipe,
    draw_script,
)
from experiments.menus.restrict import restricted
from rpg_tasks.goal import Goal
from rpg_tasks.registry import TaskError, get_task, task_folder
from rpg_tasks.speedrun.record import speedruns

DATA = Path(__file__).with_name("data")
MENU_FILE = "menu.toml"
_OWN = "own"
_ROW_KEYS = ("variables", "drop", "forms", "values", "template", _OWN)

Slots = Mapping[str, tuple[Option, ...]]


class MenuError(LoopError, ValueError):
    """A menu's file says something that cannot be; the message names the file."""


class NoMenu(MenuError):
    """A task has no menu; the message says where to put one."""


def recipes(task: str) -> tuple[Recipe, ...]:
    """The forms of script for one task: of its folder's ``menu.toml``, else its row.

    Args:
        task: short name.

    Raises:
        NoMenu: the task has neither.
        MenuError: its file cannot be used.
    """
    own = _own_file(task)
    if own is not None:
        found = _own_recipes(own, own.stat().st_mtime_ns)
    else:
        found = _shipped_recipes(task)
    try:
        return restricted(task, found)
    except ValueError as error:
        raise MenuError(f"{task}: {error}") from error


def menu_of(task: str) -> Menu:
    """A task's menu as texts.

    Args:
        task: short name.

    Raises:
        NoMenu: the task has none.
        MenuError: it cannot be used.
    """
    found = recipes(task)
    try:
        return Menu(found)
    except ValueError as error:
        raise MenuError(f"{task}: {error}") from error


def has_menu(task: str) -> bool:
    """Whether ``recipes`` finds something for a task's short name."""
    return task in _table("tasks") or _own_file(task) is not None


def draw(task: Goal | str, rng: np.random.Generator) -> ChosenScript:
    """A script for a task, every choice drawn again."""
    return draw_script(recipes(goal_of(task).short), rng)


def goal_of(name: Goal | str) -> Goal:
    """The task or the speedrun of a name; a task itself is given back.

    Raises:
        TaskError: there is none.
    """
    if not isinstance(name, str):
        return name
    return speedruns()[name] if name in speedruns() else get_task(name)


def slots_of(name: str) -> Slots:
    """The slots of one menu file in ``data``: ``[slot.option]`` tables.

    Raises:
        MenuError: there is no such file, or an option has an unknown key.
    """
    if not (DATA / f"{name}.toml").is_file():
        raise MenuError(f"there is no menu file {name}.toml in experiments/menus/data")
    return _shipped_slots(name)


def _own_file(task: str) -> Path | None:
    """A folder's menu; None where there is none."""
    if task in speedruns():
        return speedruns()[task].folder / MENU_FILE
    try:
        path = task_folder(task) / MENU_FILE
    except TaskError:
        return None
    return path if path.is_file() else None


@functools.cache
def _own_recipes(path: Path, changed: int) -> tuple[Recipe, ...]:
    """Of a task folder's file; read again when its time stamp has ``changed``."""
    try:
        return _recipes(tomllib.loads(path.read_text("utf-8")), path.parent)
    except (MenuError, OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MenuError(f"{path}: {error}") from error


@functools.cache
def _shipped_recipes(task: str) -> tuple[Recipe, ...]:
    row = _table("tasks").get(task)
    if row is None:
        raise NoMenu(
            f"{task} has no menu: add a {MENU_FILE} to the task's folder or a row to "
            "experiments/menus/data/tasks.toml"
        )
    return _recipes(row)


def _recipes(row: Mapping[str, Any], folder: Path = DATA) -> tuple[Recipe, ...]:
    """The recipes of a row; ``folder`` is where a template lies.

    Raises:
        MenuError: a key, a menu file, a slot or an option is not there.
    """
    if unknown := set(row).difference(_ROW_KEYS):
        raise MenuError(
            f"unknown keys {sorted(unknown)}: a row may have {', '.join(_ROW_KEYS)}"
        )
    if not row.get("forms"):
        raise MenuError("a row needs a form of script: forms.NAME = { SLOT = ... }")
    own = _slots(row.get(_OWN, {}))
    variables = {name: str(value) for name, value in row.get("variables", {}).items()}
    found = []
    for form, parts in row["forms"].items():
        slots = {
            slot: _allowed(row, f"forms.{form}.{slot}", _named(names, own))
            for slot, names in parts.items()
            if slot != "weight"
        }
        weight = float(parts.get("weight", 1.0))
        if "template" in row:
            text = (folder / str(row["template"])).read_text("utf-8")
            found.append(_of_template(form, slots, variables, weight, text))
        else:
            found.append(Recipe(form, slots, variables, weight))
    return tuple(found)


def _of_template(
    form: str,
    slots: Mapping[str, tuple[Option, ...]],
    variables: Mapping[str, str],
    weight: float,
    text: str,
) -> Recipe:
    """A recipe with a template that has a place for each slot.

    Raises:
        MenuError: places and slots are not the same.
    """
    lines = text.split("\n")
    places = [line.removeprefix(PLACE) for line in lines if line.startswith(PLACE)]
    if sorted(places) != sorted(slots):
        raise MenuError(
            f"forms.{form} has the slots {', '.join(slots)}, its template places for "
            f"{', '.join(places)}"
        )
    return TemplateRecipe(form, slots, variables, weight, text)


def _named(names: str | list[str], own: Slots) -> Iterator[Option]:
    """The options of ``file.slot``, or of a list of such names."""
    for name in [names] if isinstance(names, str) else names:
        file, _, slot = name.partition(".")
        slots = own if file == _OWN else slots_of(file)
        if slot not in slots:
            raise MenuError(f"{name}: {file} has the slots {', '.join(slots)}")
        yield from slots[slot]


def _allowed(
    row: Mapping[str, Any], where: str, options: Iterator[Option]
) -> tuple[Option, ...]:
    """The options that a task allows, with its own values where it has some."""
    kept: dict[str, Option] = {}
    drop = set(row.get("drop", ()))
    for option in sorted(options, key=lambda o: bool(o.twin)):
        if option.name in drop or option.twin in drop:
            continue
        values = row.get("values", {}).get(option.name, {})
        domains = {**option.domains, **_texts(values)}
        if option.twin:
            domains = {**kept[option.twin].domains, **domains}
        kept[option.name] = dataclasses.replace(option, domains=domains)
    if not kept:
        raise MenuError(f"{where}: every option is dropped")
    return tuple(kept.values())


def _slots(tables: Mapping[str, Any]) -> Slots:
    """Options by slot; an option is named ``slot.option``.

    Raises:
        MenuError: an unknown key, or a twin that is not a plain option of the slot.
    """
    return {
        slot: tuple(_option(slot, name, rows) for name in rows)
        for slot, rows in tables.items()
    }


def _option(slot: str, short: str, rows: Mapping[str, Any]) -> Option:
    """One option of a slot's table."""
    name, row = f"{slot}.{short}", rows[short]
    if unknown := set(row) - {"code", "values", "weight", "twin", "near"}:
        raise MenuError(f"option {name}: unknown keys {sorted(unknown)}")
    twin = row.get("twin", "")
    if twin and (twin not in rows or "twin" in rows[twin]):
        raise MenuError(
            f"option {name}: its twin {twin!r} is no plain option of {slot}"
        )
    return Option(
        name=name,
        code=row.get("code", ""),
        domains=_texts(row.get("values", {})),
        weight=float(row.get("weight", 1.0)),
        twin=f"{slot}.{twin}" if twin else "",
        near=bool(row.get("near", False)),
    )


def _texts(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Values as they stand in the code."""
    return {name: tuple(map(str, domain)) for name, domain in values.items()}


@functools.cache
def _shipped_slots(name: str) -> Slots:
    return _slots(_table(name))


@functools.cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / f"{name}.toml").read_text("utf-8"))
