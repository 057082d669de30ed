"""What the scripts of the small policies are made of: recipes, menus, their grammar."""

from experiments.menus import part_edits  # registers the form
from experiments.menus.menu import Menu, NotOfTheMenu
from experiments.menus.recipe import ChosenScript, Option, Pick, Recipe, draw_script
from experiments.menus.restrict import keep_parts, programs
from experiments.menus.task_menu import (
    MenuError,
    NoMenu,
    draw,
    has_menu,
    menu_of,
    recipes,
)

__all__ = [
    "ChosenScript",
    "Menu",
    "MenuError",
    "NoMenu",
    "NotOfTheMenu",
    "Option",
    "Pick",
    "Recipe",
    "draw",
    "draw_script",
    "has_menu",
    "keep_parts",
    "menu_of",
    "part_edits",
    "programs",
    "recipes",
]
