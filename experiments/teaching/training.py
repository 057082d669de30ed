"""One pretraining run: a folder with tokenizer, checkpoints, losses and the model.

    tokenizer/     made from the corpus, once
    checkpoints/   parameters, optimizer and place in the stream
    losses.csv     one row per update, append-only
    model/         safetensors, config.json, tokenizer, SHA256SUMS

A stopped run goes on where its last checkpoint was; the numbers come out the same.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from experiments.menus.task_menu import has_menu
from experiments.teaching.batches import LENGTHS, Place, Stream, TokenBatch
from experiments.teaching.examples import corpus
from experiments.teaching.teacher import (
    TeachOptions,
    TeachState,
    held_out,
    make_teacher,
)
from experiments.teaching.tiny_model import (
    TrainingError,
    export_model,
    tiny_config,
)
from experiments.teaching.tokenizer import save, train_tokenizer
from rpg_jax.llm import Checkpoints, load_pretrained, load_tokenizer
from rpg_jax.llm.qwen3_5 import Qwen35Config
from rpg_tasks.registry import load_tasks
from rpg_tasks.speedrun.record import speedruns

COLUMNS = ("step", "loss", "answer_loss", "grad_norm", "tokens", "seconds")
HELD_OUT_SEED = 1_000_003


@dataclasses.dataclass(frozen=True)
class PretrainSettings:
    """What identifies a pretraining run.

    Attributes:
        teach: hyper-parameters of the updates.
        width, depth, hidden: of the model.
        vocabulary: number of tokens.
        tokens: per batch, about.
        per_task: examples of each task per block.
        seed: of the examples and the start weights.
        checkpoint_every: updates.
        held_out: examples per task in the held-out loss.
        start: digest of the model whose weights were loaded; empty: random ones.
        tasks: short names; empty: all, and the speedruns.
        lengths: of batches; each is a compilation.
        speedrun_share: examples of a speedrun, in multiples of a task's.
    """

    teach: TeachOptions = dataclasses.field(default_factory=TeachOptions)
    width: int = 256
    depth: int = 4
    hidden: int = 640
    vocabulary: int = 3072
    tokens: int = 4096
    per_task: int = 24
    seed: int = 0
    checkpoint_every: int = 50
    held_out: int = 4
    start: str = ""
    tasks: tuple[str, ...] = ()
    lengths: tuple[int, ...] = LENGTHS
    speedrun_share: int = 1


SMOKE = PretrainSettings(
    teach=TeachOptions(steps=24),
    width=64,
    depth=4,
    hidden=128,
    tokens=1024,
    vocabulary=1024,
    per_task=4,
    checkpoint_every=12,
    held_out=4,
    tasks=("spooky-author", "nyc-taxi", "leaf-classif"),
    lengths=(224,),
)


class Training:
    """A run that can be stepped, stopped and gone on with.

    Args:
        folder: of the run; it exists.
        settings: what is run.
        start: a model of the same sizes (see ``start_model``), whose weights and
            tokenizer are loaded.

    Raises:
        TrainingError: the model's sizes differ.
        CheckpointError: it cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        settings: PretrainSettings,
        *,
        start: Path | None = None,
    ):
        self.folder, self.settings = folder, settings
        known = (*load_tasks(), *speedruns())
        self.tasks = settings.tasks or tuple(t for t in known if has_menu(t))
        if start is not None:
            save(load_tokenizer(start), folder / "tokenizer")
        self.tokenizer = self._tokenizer()
        self.config: Qwen35Config = tiny_config(
            settings.vocabulary,
            width=settings.width,
            depth=settings.depth,
            hidden=settings.hidden,
        )
        runs = [t for t in self.tasks if t in speedruns()]
        self.stream = Stream(
            (*self.tasks, *runs * (settings.speedrun_share - 1)),
            self.tokenizer,
            seed=settings.seed,
            tokens=settings.tokens,
            per_task=settings.per_task,
            lengths=settings.lengths,
        )
        init, self._update = make_teacher(self.config, settings.teach)
        self.state: TeachState = init(jax.random.key(settings.seed))
        self.place, self.step, self._saved = Place(), 0, -1
        self._store = Checkpoints(folder / "checkpoints", max_to_keep=2)
        if start is not None:
            self.state = self.state._replace(params=self._weights_of(start))
        self._restore()

    def _weights_of(self, start: Path) -> Any:
        config, params = load_pretrained(start)
        if config != self.config:
            raise TrainingError(f"{start} does not fit these settings: other sizes")
        return params

    def _tokenizer(self) -> Any:
        place = self.folder / "tokenizer"
        if not (place / "tokenizer.json").exists():
            examples = corpus(
                self.tasks, per_task=min(400, 50 * self.settings.per_task), seed=5
            )
            texts = [example.prompt + example.completion for example in examples]
            scratch = place.with_name("tokenizer.partial")
            shutil.rmtree(scratch, ignore_errors=True)
            save(train_tokenizer(texts, vocabulary=self.settings.vocabulary), scratch)
            shutil.rmtree(place, ignore_errors=True)
            scratch.rename(place)
        return load_tokenizer(place)

    def _restore(self) -> None:
        found = self._store.restore({"state": self.state._asdict()})
        if found is None:
            return
        self.state = TeachState(**found.items["state"])
        self.step = self._saved = found.step
        self.place = Place(*found.meta["place"])

    def checkpoint(self) -> None:
        """Keep the state; losses of later updates are written again on resuming."""
        meta = {"place": list(self.place)}
        self._store.save(self.step, {"state": self.state._asdict()}, meta)
        self._saved = self.step

    def run(self, on_step: Callable[[int, dict[str, float]], None]) -> None:
        """Update to the last step.

        Args:
            on_step: called after each update with its number and its row of losses.

        Raises:
            TrainingError: a loss is not finite; the last checkpoint stays.
        """
        path = self.folder / "losses.csv"
        rows = _rows_before(path, self.step)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
            file.flush()
            for batch, after in self.stream.batches(self.place):
                if self.step >= self.settings.teach.steps:
                    break
                begin = time.monotonic()
                self.state, info = self._update(self.state, batch)
                row = {name: float(value) for name, value in info._asdict().items()}
                if not math.isfinite(row["loss"] + row["grad_norm"]):
                    raise TrainingError(
                        f"update {self.step + 1}: loss {row['loss']}, gradient "
                        f"{row['grad_norm']}; lower matrix_rate and other_rate"
                    )
                self.step, self.place = self.step + 1, after
                row |= {
                    "step": self.step,
                    "tokens": int(batch.mask.sum()),
                    "seconds": round(time.monotonic() - begin, 3),
                }
                writer.writerow({name: row[name] for name in COLUMNS})
                file.flush()
                on_step(self.step, row)
                if self.step % self.settings.checkpoint_every == 0:
                    self.checkpoint()
        if self._saved != self.step:
            self.checkpoint()

    def held_out_batches(self, tasks: Sequence[str]) -> list[TokenBatch]:
        """Batches of other examples of these tasks than those trained on."""
        return dataclasses.replace(
            self.stream,
            tasks=tasks,
            seed=HELD_OUT_SEED,
            per_task=self.settings.held_out,
        ).block(0)

    def held_out_loss(self, tasks: Sequence[str] = ()) -> float:
        """Nats per token of answers that were not trained on.

        Args:
            tasks: whose answers; empty: those of all tasks, not of the speedruns.
        """
        chosen = tasks or [t for t in self.tasks if t not in speedruns()] or self.tasks
        return held_out(self.config, self.state.params, self.held_out_batches(chosen))

    def export(self) -> Path:
        """Write ``model/``: what ``--model=FOLDER`` reads."""
        return export_model(
            self.folder / "model", self.config, self.state.params, self.tokenizer
        )

    def close(self) -> None:
        """Release the checkpoint manager."""
        self._store.close()


def _rows_before(path: Path, step: int) -> list[dict[str, str]]:
    """Rows up to a step; a killed process may have left torn ones, which go."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        lines = [line.replace("\0", "") for line in file]
    return [
        row
        for row in csv.DictReader(lines)
        if set(row) == set(COLUMNS)
        and all(row.values())
        and row["step"].isdecimal()
        and int(row["step"]) <= step
    ]
