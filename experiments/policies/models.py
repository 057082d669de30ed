"""The policy that a command names: its description, then its weights."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from experiments.config.errors import UsageError
from experiments.config.presets import Machine
from experiments.policies import random_edits
from rpg_tasks.goal import Goal

_SHARED = 1_000_000_000  # parameters; a larger model wants the whole accelerator


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """What is known of a model before its weights are read.

    Attributes:
        name: as it was given.
        parameters: their number.
        backend: where it will run: ``cpu``, ``gpu``, ``tpu``.
    """

    name: str
    parameters: int
    backend: str

    @property
    def millions(self) -> str:
        """The number of parameters, readable."""
        if not self.parameters:
            return "no model"
        if self.parameters >= 1_000_000_000:
            return f"{self.parameters / 1e9:.2f} B parameters"
        return f"{self.parameters / 1e6:.3g} M parameters"


def describe_model(name: str) -> ModelInfo:
    """Read a model's configuration alone.

    Raises:
        CheckpointError, ConfigError: it cannot be read.
    """
    import jax

    from rpg_jax.llm.models import count_parameters

    if name == random_edits.NAME:
        return ModelInfo(name, 0, "cpu")
    parameters = count_parameters(config_of(name))
    if parameters > _SHARED:
        # By default JAX leaves a quarter of a GPU to others. Read when it starts.
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")
    return ModelInfo(name, parameters, jax.default_backend())


def config_of(name: str) -> Any:
    """A model's configuration, without its weights.

    Raises:
        CheckpointError, ConfigError: it cannot be read.
    """
    from rpg_jax.llm.known import RANDOM, known_config
    from rpg_jax.llm.weights import read_config, resolve

    if name.startswith(RANDOM):
        return known_config(name.removeprefix(RANDOM))
    path = resolve(name)
    if path.is_file():
        from rpg_jax.llm.gguf_file import read_gguf

        return read_gguf(path)[0]
    return read_config(path)


class Model:
    """Weights and tokenizer, read once and shared by all runs.

    Args:
        name: as for ``load_pretrained``.
        machine: types, batch sizes, checkpoints.
        menus: answers are choices from menus and not scripts.

    Attributes:
        fingerprint: checksum of the weights.

    Raises:
        CheckpointError, ConfigError: they cannot be read.
    """

    def __init__(self, name: str, machine: Machine, *, menus: bool = False):
        import jax

        from rpg_jax.llm import fingerprint, load_pretrained, load_tokenizer

        self.name, self.machine, self.menus = name, machine, menus
        self._menus: dict[str, Any] = {}
        self.on_cpu = jax.default_backend() == "cpu"
        self.tokenizer = load_tokenizer(name)
        self.config, self.params = load_pretrained(
            name, dtype="float32" if self.on_cpu else None
        )
        self.fingerprint = fingerprint(self.params)

    def policy(
        self,
        folder: Path,
        seed: int,
        protocol: Any,
        task: Goal,
        *,
        unverified: bool = False,
    ) -> Any:
        """A policy at the start weights.

        Args:
            folder: of the run.
            seed: of the run.
            protocol: sampling and learning.
            task: whose menu it chooses from, if it writes no scripts.
            unverified: also read a checkpoint whose manifest is gone.
        """
        from experiments.policies.clock import WORK_CLOCK
        from experiments.policies.llm import LLMOptions, LLMPolicy, ppo_hyper

        machine = self.machine
        options = LLMOptions(
            # Without an accelerator sampling and scripts would use the same cores at
            # the same time and disturb each other's seconds: all answers come first.
            group=0 if self.on_cpu else machine.group,
            microbatch=machine.microbatch,
            lora_rank=machine.lora_rank,
            compute_dtype="float32" if self.on_cpu else machine.compute_dtype,
            remat=machine.remat,
            keep=machine.keep,
            donate=not self.on_cpu,
            unverified=unverified,
        )
        return LLMPolicy(
            folder,
            self.config,
            self.params,
            self.tokenizer,
            sampling=protocol.sampling,
            hyper=ppo_hyper(protocol.learning, protocol.sampling, options),
            seed=seed,
            options=options,
            menu=self._menu(task) if self.menus else None,
            clock=WORK_CLOCK.listen(),
        )

    def describer(self, task: Goal, max_tokens: int) -> Any:
        """The loop's ``describe`` hook of a policy that chooses from menus."""
        from experiments.menus.prompt import describer

        return describer(task, self._menu(task).menu, self.count, max_tokens)

    def _menu(self, task: Goal) -> Any:
        from experiments.menus.grammar import token_menu

        if task.short not in self._menus:
            self._menus[task.short] = token_menu(task, self.config, self.tokenizer)
        return self._menus[task.short]

    def count(self, text: str) -> int:
        """Tokens of a prompt, template included."""
        from rpg_jax.llm.tokenizer import chat_ids

        return len(chat_ids(self.tokenizer, text))


class NoModel:
    """What stands for a model where answers are drawn at random."""

    name, fingerprint, on_cpu = random_edits.NAME, "none", True
    describer = staticmethod(random_edits.describer)
    count = staticmethod(random_edits.count)

    def policy(
        self,
        folder: Path,
        seed: int,
        protocol: Any,
        task: Goal,
        *,
        unverified: bool = False,
    ) -> random_edits.RandomEdits:
        """As ``Model.policy``."""
        return random_edits.random_edits(folder, seed, task)


def describe(name: str) -> ModelInfo:
    """What is known of a model without its weights.

    Raises:
        UsageError: there is no such model, or it cannot be read.
    """
    from rpg_jax.llm import CheckpointError, ConfigError

    try:
        return describe_model(name)
    except (CheckpointError, ConfigError) as error:
        raise UsageError(f"--model={name}: {error}") from None


def load(name: str, machine: Machine, *, menus: bool = False) -> Model | NoModel:
    """The model's weights and tokenizer.

    Raises:
        UsageError: they cannot be read.
    """
    from rpg_jax.llm import CheckpointError, ConfigError

    if name == random_edits.NAME:
        return NoModel()
    try:
        return Model(name, machine, menus=menus)
    except (CheckpointError, ConfigError) as error:
        raise UsageError(f"--model={name}: {error}") from None
