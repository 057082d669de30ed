"""Sample: a prompt for each chain, and the policy's answers to them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.config.errors import LoopError
from experiments.loop.hooks import Hooks
from experiments.loop.select import Entry
from experiments.records.drafts import Drafts, Generation
from experiments.records.ledger import read_at
from experiments.records.phases import Phases
from experiments.records.texts import Texts
from rpg_tasks.prompts import Attempt


class Asked(NamedTuple):
    """What a chain was asked.

    Attributes:
        prompt: the text.
        parent: the attempt that it shows; None under the base prompt.
        script: the parent's script; None without a parent.
    """

    prompt: str
    parent: Entry | None
    script: str | None


class Sampler:
    """Asks the policy.

    Args:
        hooks: policy and prompts.
        ledger: file of the attempts, where parents are read.
        texts: scripts of the run.
        drafts: answers kept from before a stop.
        seconds_each: seconds that an answer is said to take; None: they are measured.
    """

    def __init__(
        self,
        hooks: Hooks,
        ledger: Path,
        texts: Texts,
        drafts: Drafts,
        seconds_each: float | None = None,
    ):
        self._seconds_each = seconds_each
        self._hooks, self._ledger = hooks, ledger
        self._texts, self._drafts = texts, drafts

    def ask(
        self, parents: Sequence[Entry | None], errors: Sequence[str | None]
    ) -> list[Asked]:
        """A prompt per chain; a parent that several chains share is described once.

        Args:
            parents: per chain, None for the base prompt.
            errors: per chain, why its last answer gave no script. It is shown where
                the form of answers is one that edits its parent.
        """
        base = self._hooks.describe(None)
        if base is None:
            raise LoopError("the base prompt does not fit: raise --max-prompt-tokens")
        known: dict[tuple[str, str], Asked] = {}
        asked = []
        for parent, error in zip(parents, errors, strict=True):
            if parent is None:
                asked.append(Asked(base, None, None))
                continue
            note = ""
            if error is not None and self._hooks.form.how:
                note = f"The last answer was not applied ({error})."
            if (parent.run_id, note) not in known:
                previous = self._previous(parent, note)
                prompt = self._hooks.describe(previous)
                known[parent.run_id, note] = (
                    Asked(base, None, None)
                    if prompt is None
                    else Asked(prompt, parent, previous.script)
                )
            asked.append(known[parent.run_id, note])
        return asked

    def _previous(self, parent: Entry, note: str) -> Attempt:
        record = read_at(self._ledger, parent.offset)
        texts = (record.get("stdout"), record.get("stderr"))
        return Attempt(
            script=self._texts.load(record["script_sha256"]),
            seconds=record["execution_s"],
            score=record["score"],
            output="\n".join(text for text in texts if text),
            note=note,
            rank=parent.rank,
        )

    def answers(
        self, step: int, asked: Sequence[Asked], phases: Phases
    ) -> Iterator[Generation]:
        """Answers for every chain: those kept from before a stop, then new ones."""
        missing = dict.fromkeys(range(len(asked)))
        for generation in self._drafts.load(step):
            if all(row in missing for row in generation.rows):
                for row in generation.rows:
                    del missing[row]
                yield generation
        if not missing:
            return
        rows = list(missing)
        prompts = [asked[row].prompt for row in rows]
        groups = self._hooks.policy.sample(step, rows, prompts)
        while True:
            with phases("sample"):
                written = next(groups, None)
                if written is not None:
                    written = self._declared(written)
                    self._drafts.save(step, written)
                    phases.mark()
            if written is None:
                break
            for row in written.rows:
                if row not in missing:
                    raise LoopError(f"the policy answered chain {row} unasked")
                del missing[row]
            yield written
        if missing:
            raise LoopError(f"the policy left chains {list(missing)} without an answer")

    def _declared(self, written: Generation) -> Generation:
        if self._seconds_each is None:
            return written
        return written._replace(seconds=np.full(len(written.rows), self._seconds_each))
