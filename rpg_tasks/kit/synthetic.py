"""What a task's `data.py` hands over: its generator with the sizes, its carver."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rpg_tasks.kit.splits import Draw
from rpg_tasks.task import Size

Generator = Callable[[np.random.Generator, int, int, Path, Path], None]
"""(rng, training rows, test rows, public folder, private folder): writes the files."""

Carver = Callable[[Draw, Path, Path, Path], None]
"""(draw, whole public folder, public folder, private folder): writes the view."""


@dataclass(frozen=True)
class SyntheticData:
    """How one task's synthetic data are made.

    Attributes:
        generate: writes the layout that `mlebench prepare` leaves, from a seed.
        small: rows of the training and test tables (images, clips, pages, sentences).
        medium: the same for the larger size.
        scale: what is smaller than in the real data, besides the rows.
    """

    generate: Generator
    small: tuple[int, int]
    medium: tuple[int, int]
    scale: str = ""

    def rows(self, size: Size) -> tuple[int, int]:
        """Training and test rows of a size."""
        return self.small if size == "small" else self.medium

    def describe(self, size: Size) -> str:
        """One line on how the data differ from the real ones."""
        train, test = self.rows(size)
        scale = f", {self.scale}" if self.scale else ""
        return f"synthetic data, {train} + {test} rows{scale}"
