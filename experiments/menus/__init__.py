"""The corpus that the embedded policy is taught: scripts drawn from menus."""

from experiments.menus.generate import Draft, Example, draw, edit, generate
from experiments.menus.menu import Option, Pick, Recipe, recipes

__all__ = [
    "Draft",
    "Example",
    "Option",
    "Pick",
    "Recipe",
    "draw",
    "edit",
    "generate",
    "recipes",
]
