"""A policy that writes scripts for prompts, outside any training loop."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.answers import AnswerForm, NoScript, get_form
from experiments.menus import part_edits
from experiments.menus.grammar import TokenMenu, token_menu
from experiments.menus.prompt import menu_prompt
from experiments.menus.task_menu import goal_of, menu_of
from rpg_jax.llm import left_pad, load_pretrained, load_tokenizer, sample
from rpg_jax.llm.head import token_log_probs
from rpg_jax.llm.models import model_for
from rpg_jax.llm.sampling import bucket
from rpg_jax.llm.tokenizer import chat_ids, decode, stop_ids
from rpg_tasks.goal import Goal
from rpg_tasks.prepare import TaskData
from rpg_tasks.prompts import Attempt, prompt


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the policy wrote.

    Attributes:
        text: the whole answer.
        script: what it means; None where it has no meaning.
        tokens: length, its end included.
        reason: why there is no script; empty where there is one.
    """

    text: str
    script: str | None
    tokens: int
    reason: str = ""


def parses(script: str) -> bool:
    """Whether Python's compiler reads it."""
    try:
        ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


@dataclasses.dataclass(frozen=True)
class Writer:
    """A model and its tokenizer.

    Attributes:
        config: of the model.
        params: weights.
        tokenizer: of the model.
        style: of the prompts: ``menu``, ``compact`` or ``full``.
        max_new_tokens: longest answer.
    """

    config: Any
    params: Any
    tokenizer: Any
    style: str = "menu"
    max_new_tokens: int = 640

    @classmethod
    def load(cls, model: str | Path, *, style: str = "menu") -> Writer:
        """From a name or folder, as ``--model`` takes it."""
        config, params = load_pretrained(model)
        return cls(config, params, load_tokenizer(model), style)

    def form(self, task: Goal) -> AnswerForm:
        """How answers are read."""
        name = part_edits.NAME if self.style == "menu" else "whole-script"
        return get_form(name).bind(task)

    def prompt(self, data: TaskData, attempt: Attempt | None = None) -> str:
        """The prompt of a chain's first attempt, or one that shows an attempt.

        Raises:
            MenuError: the task has no menu.
        """
        if self.style == "menu":
            return menu_prompt(data.task, menu_of(data.task.short), attempt)
        return prompt(data.task, data.public, attempt, style=self.style)

    def write(
        self,
        task: Goal | str,
        prompts: Sequence[str],
        parents: Sequence[str | None] | None = None,
        *,
        seed: int,
        temperature: float = 1.0,
    ) -> list[Answer]:
        """One answer to each prompt.

        Args:
            task: that the prompts are about.
            prompts: what is asked.
            parents: the script that each prompt shows; None: they show none.
            seed: of the sampler.
            temperature: divides the logits.
        """
        task = goal_of(task)
        menu = self._menu(task) if self.style == "menu" else None
        ids = [chat_ids(self.tokenizer, text) for text in prompts]
        tokens, mask = left_pad(ids, length=bucket(max(map(len, ids))))
        done = sample(
            jax.random.key(seed),
            self.params,
            self.config,
            tokens,
            mask,
            max_new_tokens=menu.longest if menu else self.max_new_tokens,
            temperature=temperature,
            logit_mask=menu.grammar_for(prompts) if menu else None,
            stop_ids=stop_ids(self.config, self.tokenizer),
        )
        lengths = np.asarray(done.mask).sum(axis=1)
        texts = decode(self.tokenizer, done.tokens, done.mask)
        form = self.form(task)
        known = [None] * len(prompts) if parents is None else parents
        return [
            _answer(form, text, parent, int(length))
            for text, parent, length in zip(texts, known, lengths, strict=True)
        ]

    def log_probs(self, prompts: Sequence[str], texts: Sequence[str]) -> np.ndarray:
        """Log-probability of each text as the answer to its prompt, nats, [N].

        Of the model itself: no menu leaves tokens out.
        """
        asked = [chat_ids(self.tokenizer, text) for text in prompts]
        written = [
            list(self.tokenizer.encode(text, add_special_tokens=False))
            for text in texts
        ]
        rows = [a + b for a, b in zip(asked, written, strict=True)]
        tokens, mask = left_pad(rows, length=bucket(max(map(len, rows))))
        answer = np.zeros(tokens.shape, bool)
        for at, ids in enumerate(written):
            answer[at, tokens.shape[1] - len(ids) :] = len(ids) > 0
        model = model_for(self.config)

        @jax.jit
        def score(params: Any) -> jax.Array:
            hidden, _ = model.forward(params, tokens, mask)
            out = token_log_probs(
                hidden[:, :-1], model.head_weight(params), jnp.asarray(tokens[:, 1:])
            )
            return (out.log_prob * answer[:, 1:]).sum(axis=1)

        return np.asarray(score(self.params))

    def _menu(self, task: Goal) -> TokenMenu:
        return token_menu(task, self.config, self.tokenizer)


def _answer(form: AnswerForm, text: str, parent: str | None, tokens: int) -> Answer:
    try:
        return Answer(text, form.read(text, parent), tokens)
    except NoScript as error:
        return Answer(text, None, tokens, str(error))
