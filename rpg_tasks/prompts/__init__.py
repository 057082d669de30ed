"""Prompts: what the policy is told, and how its answer is read."""

from rpg_tasks.prompts.answers import NoScript, extract_script
from rpg_tasks.prompts.describe import Entry, describe
from rpg_tasks.prompts.render import (
    STYLES,
    Attempt,
    StatedLimits,
    fit,
    installed_packages,
    messages,
    prompt,
    render,
)

__all__ = [
    "STYLES",
    "Attempt",
    "Entry",
    "NoScript",
    "StatedLimits",
    "describe",
    "extract_script",
    "fit",
    "installed_packages",
    "messages",
    "prompt",
    "render",
]
