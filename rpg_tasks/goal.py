"""What a run's records need to know of a task: its name and which way is better."""

from __future__ import annotations

from typing import Protocol

from rpg_tasks.task import Medals, PaperRow


class Goal(Protocol):
    """A task, or a speedrun: something with a name and a score.

    Attributes:
        short: name on the command line and in records.
        summary: what is to be done, in one sentence.
        metric_text: the score in words.
        higher_is_better: whether a larger score is a better one.
        medals: of a real competition, else None.
        paper: the paper's row, None where it has none.
    """

    @property
    def short(self) -> str: ...  # noqa: D102

    @property
    def summary(self) -> str: ...  # noqa: D102

    @property
    def metric_text(self) -> str: ...  # noqa: D102

    @property
    def higher_is_better(self) -> bool: ...  # noqa: D102

    @property
    def medals(self) -> Medals | None: ...  # noqa: D102

    @property
    def paper(self) -> PaperRow | None: ...  # noqa: D102
