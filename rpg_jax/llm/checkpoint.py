"""Checkpoints from which a killed run goes on as if nothing had happened.

One orbax Composite per step: any number of pytrees (parameters, optimizer, typed PRNG
key, estimator, buffer) and one JSON dictionary (ledger offset and the like). Orbax
makes a directory appear only when it is whole. Beside it lies a manifest of sizes and
checksums, so that damage that comes later (a full disk, a lost page, a careless copy)
is found before the data are used: such a checkpoint is passed over with a warning. A
checkpoint that was being saved when the process died has a mark beside it and no
manifest: it never was one.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from rpg_jax.llm import manifest
from rpg_jax.llm.errors import CheckpointError
from rpg_jax.llm.ppo import PPOState

_META = "meta"
_PREFIX = "step"
_ASIDE = "aside"


class Snapshot(NamedTuple):
    """A restored checkpoint.

    Attributes:
        step: the step it was saved under.
        items: pytrees by name, of the templates' types.
        meta: the JSON dictionary.
    """

    step: int
    items: dict[str, Any]
    meta: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run directory; a context manager.

    Args:
        directory: made if missing. With several processes: one that all of them see.
        max_to_keep: older ones are deleted once a newer one is complete; at least 2,
            so that there is something to fall back to.
        unverified: also read a checkpoint whose manifest is gone.

    Raises:
        CheckpointError: the directory cannot be made or read.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        max_to_keep: int = 3,
        unverified: bool = False,
    ):
        self._unverified = unverified
        if max_to_keep < 2:
            raise ValueError("max_to_keep must be at least 2: one to fall back to.")
        self.directory = Path(directory).resolve()
        try:
            if jax.process_index() == 0:
                self.directory.mkdir(parents=True, exist_ok=True)
            _barrier("checkpoints-open")
            self._manager = ocp.CheckpointManager(
                self.directory,
                options=ocp.CheckpointManagerOptions(
                    max_to_keep=max_to_keep,
                    step_prefix=_PREFIX,
                    step_format_fixed_length=8,
                    enable_async_checkpointing=False,
                    cleanup_tmp_directories=True,
                ),
            )
        except OSError as error:
            raise CheckpointError(
                f"Cannot use {self.directory} for checkpoints: {error}."
            ) from error

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the manager's threads."""
        self._manager.close()

    def steps(self) -> list[int]:
        """Steps with a complete directory, oldest first."""
        self._manager.reload()
        return sorted(self._manager.all_steps())

    def save(
        self, step: int, items: Mapping[str, Any], meta: Mapping[str, Any] | None = None
    ) -> None:
        """Write one checkpoint; it exists completely or not at all.

        Args:
            step: a directory that is already there under this step (damaged, or from
                a run that was resumed at or before it) is moved aside at first, and
                deleted when the new one is complete.
            items: pytrees by name; an item without a leaf is taken from the template
                when restored.
            meta: anything that JSON can hold.

        Raises:
            CheckpointError: the disk is full or not writable, say; the older
                checkpoints are untouched.
        """
        if _META in items:
            raise ValueError(f"{_META!r} is the name of the JSON dictionary.")
        header = {
            "user": json.loads(json.dumps(dict(meta or {}))),
            "leaves": _leaves(items),
        }
        args = {
            name: ocp.args.StandardSave(_as_arrays(tree))
            for name, tree in items.items()
            if jax.tree.leaves(tree)
        }
        try:
            self._move_aside(step)
            if jax.process_index() == 0:
                self._mark(step).touch()
            self._manager.save(
                step,
                args=ocp.args.Composite(**args, **{_META: ocp.args.JsonSave(header)}),
                force=True,
            )
            self._manager.wait_until_finished()
            if jax.process_index() == 0:
                self._write_manifest(step)
                self._mark(step).unlink()
                self._drop_aside()
        except (OSError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"Checkpoint of step {step} could not be written to {self.directory}: "
                f"{error}. Older checkpoints are untouched; free some space or fix the "
                "permissions and resume."
            ) from error

    def restore(self, templates: Mapping[str, Any]) -> Snapshot | None:
        """The newest checkpoint that is whole; damaged newer ones are warned about.

        Args:
            templates: pytrees of the types, shapes, dtypes and shardings to restore.

        Returns:
            `Snapshot`, or None where there is no checkpoint at all.

        Raises:
            CheckpointError: every checkpoint is damaged, a whole one does not fit the
                templates (another model, optimizer or set of items), or the newest has
                lost its manifest and ``unverified`` is false.
        """
        steps = self.steps()[::-1]
        for step in steps[:]:
            damage = self._agree(self._damage(step))
            if damage == manifest.UNFINISHED:
                steps.remove(step)
                continue
            if not damage or (damage == manifest.MISSING and self._unverified):
                return self._read(step, templates)
            if damage == manifest.MISSING:
                raise CheckpointError(
                    f"{self._path(step)}: {damage}. Copy {self._manifest_path(step)} "
                    "as well if it was left behind, or go on with --unverified"
                )
            warnings.warn(
                f"Checkpoint {self._path(step)} is damaged ({damage}): falling back to "
                "the one before.",
                RuntimeWarning,
                stacklevel=2,
            )
        if steps:
            raise CheckpointError(
                f"None of the {len(steps)} checkpoints in {self.directory} can be "
                "read. Start in a new directory, or restore this one from a backup."
            )
        return None

    def _read(self, step: int, templates: Mapping[str, Any]) -> Snapshot:
        names = [name for name, tree in templates.items() if jax.tree.leaves(tree)]
        try:
            header = self._manager.restore(
                step, args=ocp.args.Composite(**{_META: ocp.args.JsonRestore()})
            )[_META]
            # Asked before anything is read: orbax itself would cast to another dtype.
            saved = {n: header["leaves"].get(n, {}) for n in names}
            _compare(saved, _leaves({n: templates[n] for n in names}))
            args = {
                name: ocp.args.StandardRestore(_as_arrays(templates[name]))
                for name in names
            }
            restored = self._manager.restore(step, args=ocp.args.Composite(**args))
        except Exception as error:  # orbax raises many types; all mean the same here
            raise CheckpointError(
                f"{self._path(step)} does not fit what is to be restored: "
                f"{_first_line(error)}. Was it saved with another model, optimizer or "
                "adapter rank?"
            ) from error
        items = {n: restored[n] if n in names else t for n, t in templates.items()}
        return Snapshot(step, items, dict(header["user"]))

    def _path(self, step: int) -> Path:
        return self.directory / f"{_PREFIX}_{step:08d}"

    def _manifest_path(self, step: int) -> Path:
        return self.directory / f"manifest_{step:08d}.json"

    def _mark(self, step: int) -> Path:
        """Is there while the step is being saved."""
        return self.directory / f"unfinished_{step:08d}"

    def _move_aside(self, step: int) -> None:
        if step not in self.steps():
            return
        if jax.process_index() == 0:
            path, n = self._path(step), 1
            while (aside := path.with_name(f"{_ASIDE}-{n}-{path.name}")).exists():
                n += 1
            # In this order: a manifest must not meet a directory of other content.
            self._manifest_path(step).unlink(missing_ok=True)
            path.rename(aside)
        _barrier(f"checkpoints-aside-{step}")
        self._manager.reload()

    def _drop_aside(self) -> None:
        """Delete what was moved aside, also by a run that was killed before this.

        Call it when a newer checkpoint is complete: each is as large as that one.
        """
        for aside in self.directory.glob(f"{_ASIDE}-*-{_PREFIX}_*"):
            # What cannot be deleted is no reason to lose the run: it stays.
            shutil.rmtree(aside, ignore_errors=True)

    def _write_manifest(self, step: int) -> None:
        """The manifest of a complete checkpoint; drops files of deleted ones."""
        manifest.write(self._manifest_path(step), self._path(step))
        for old in self.directory.glob("manifest_*.json"):
            if not self._path(int(old.stem.split("_")[1])).exists():
                old.unlink(missing_ok=True)
        for mark in self.directory.glob("unfinished_*"):
            if not self._path(int(mark.stem.split("_")[1])).exists():
                mark.unlink(missing_ok=True)

    def _damage(self, step: int) -> str:
        if jax.process_index() != 0:
            return ""
        if self._mark(step).exists():
            return manifest.UNFINISHED
        return manifest.damage(self._manifest_path(step), self._path(step))

    def _agree(self, damage: str) -> str:
        """Process 0's judgement on all processes."""
        if jax.process_count() == 1:
            return damage
        code = np.frombuffer(damage.encode()[:200].ljust(200), np.uint8)
        text = np.asarray(multihost_utils.broadcast_one_to_all(code)).tobytes()
        return text.decode(errors="replace").rstrip()


def ppo_items(state: PPOState) -> dict[str, Any]:
    """The part of a PPO state that a checkpoint holds, by item.

    The frozen weights are left out: they are the start weights, which come back with
    the pretrained model. `fingerprint` in the metadata guards against another one.
    """
    return {
        "params": state.params,
        "optimizer": state.opt_state,
        "key": {"key": state.key},
        "step": {"step": state.step},
    }


def with_ppo_items(state: PPOState, items: Mapping[str, Any]) -> PPOState:
    """A fresh state (`ppo.init` with the start weights) with the restored items."""
    return state._replace(
        params=items["params"],
        opt_state=items["optimizer"],
        key=items["key"]["key"],
        step=items["step"]["step"],
    )


def fingerprint(params: Any) -> str:
    """A short checksum of weights, the same on any mesh.

    Args:
        params: pytree of floating arrays; None gives an empty string.
    """
    leaves = jax.tree.leaves(params)
    if not leaves:
        return ""
    sums = np.asarray(_bit_sums(leaves), np.uint32)
    return f"{zlib.crc32(sums.tobytes()):08x}"


@jax.jit
def _bit_sums(leaves: list[jax.Array]) -> jax.Array:
    def bit_sum(x: jax.Array) -> jax.Array:
        # 64 bits are two words.
        unsigned = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
        bits = jax.lax.bitcast_convert_type(x, unsigned).astype(jnp.uint32)
        return jnp.sum(bits, dtype=jnp.uint32)  # wraps: exact in any order

    return jnp.stack([bit_sum(x) for x in leaves])


def _as_arrays(tree: Any) -> Any:
    """NumPy scalars as arrays of no dimension, which orbax can hold."""
    return jax.tree.map(
        lambda x: np.asarray(x) if isinstance(x, np.generic) else x, tree
    )


def _leaves(items: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """By item: path, dtype and shape of every leaf, as text."""

    def describe(leaf: Any) -> str:
        dtype = getattr(leaf, "dtype", type(leaf).__name__)
        return f"{dtype}{list(np.shape(leaf))}"

    return {
        name: {
            jax.tree_util.keystr(path): describe(leaf)
            for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
        }
        for name, tree in items.items()
    }


def _compare(saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name, leaves in wanted.items():
        for path in [*leaves, *saved[name]]:
            old, new = saved[name].get(path, "nothing"), leaves.get(path, "nothing")
            if old != new:
                raise ValueError(f"{name}{path} was saved as {old}, {new} is wanted")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(". ")


def _barrier(name: str) -> None:
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)
