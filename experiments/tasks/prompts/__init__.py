"""Prompts: what the policy is told, and how its answer is read."""

from experiments.tasks.prompts.answers import NoScript, extract_script
from experiments.tasks.prompts.describe import Entry, describe
from experiments.tasks.prompts.render import (
    STYLES,
    Attempt,
    Budget,
    fit,
    installed_packages,
    messages,
    prompt,
    render,
)

__all__ = [
    "STYLES",
    "Attempt",
    "Budget",
    "Entry",
    "NoScript",
    "describe",
    "extract_script",
    "fit",
    "installed_packages",
    "messages",
    "prompt",
    "render",
]
