"""A policy that knows nothing: edits drawn from the task's recipe, no model at all.

It improves all the same, as its parents are the best scripts so far. What a model and
its learning add is what they do better than this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.menus.edits import draw_edit
from experiments.menus.menu import Menu
from experiments.menus.prompt import describer as menu_describer
from experiments.menus.prompt import shown_parts, shown_place
from experiments.menus.recipe import draw_script
from experiments.menus.task_menu import menu_of
from experiments.policies.base import Signals
from experiments.records.drafts import Generation
from rpg_tasks.goal import Goal
from rpg_tasks.prompts import Attempt

NAME = "random-edits"
_CHARACTERS = 4  # a token's worth, where there is no tokenizer


class RandomEdits:
    """See ``experiments.policies.base.Policy``.

    Args:
        folder: of the run; the number of the next step is kept there.
        menu: of the task.
        seed: of the draws.
    """

    def __init__(self, folder: Path | str, menu: Menu, *, seed: int = 0):
        self.menu, self.seed = menu, seed
        self._forms = tuple(menu.forms.values())
        self._kept = Path(folder) / "checkpoints" / "random_edits.json"

    def sample(
        self, step: int, rows: Sequence[int], prompts: Sequence[str]
    ) -> Iterator[Generation]:
        """An edit of what each prompt shows; a draw under the base prompt."""
        texts = tuple(
            self._answer(np.random.default_rng([self.seed, step, row]), prompt)
            for row, prompt in zip(rows, prompts, strict=True)
        )
        seconds = np.zeros(len(texts))
        yield Generation(tuple(map(int, rows)), texts, seconds, {})

    def _answer(self, rng: np.random.Generator, prompt: str) -> str:
        shown = shown_parts(prompt)
        if shown is None:
            return self.menu.text(draw_script(self._forms, rng))
        parent = self.menu.parse(shown)
        place = shown_place(prompt)
        while True:
            child = draw_edit(self._forms, parent, rng, place=place)
            text = self.menu.changes(parent, child)
            if text:
                return text

    def learn(
        self, step: int, generations: Sequence[Generation], signals: Signals
    ) -> dict[str, float]:
        """There is nothing to learn with."""
        return {}

    def save(self, step: int, meta: Mapping[str, Any]) -> None:
        """Keep the number of the next step."""
        self._kept.parent.mkdir(exist_ok=True)
        scratch = self._kept.with_suffix(".partial")
        scratch.write_text(json.dumps({**meta, "next_step": step}), encoding="utf-8")
        scratch.replace(self._kept)

    def restore(self) -> int:
        """The next step, 0 for the start."""
        if not self._kept.exists():
            return 0
        return int(json.loads(self._kept.read_text(encoding="utf-8"))["next_step"])


def random_edits(folder: Path, seed: int, task: Goal) -> RandomEdits:
    """The policy of a run.

    Raises:
        MenuError: the task has no menu, or one that cannot be used.
    """
    return RandomEdits(folder, menu_of(task.short), seed=seed)


def describer(task: Goal, max_tokens: int) -> Callable[[Attempt | None], str | None]:
    """The loop's ``describe`` hook."""
    return menu_describer(task, menu_of(task.short), count, max_tokens)


def count(text: str) -> int:
    """About the tokens of a prompt, for which there is no tokenizer here."""
    return -(-len(text) // _CHARACTERS)
