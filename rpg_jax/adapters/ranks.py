"""Rows of all ranks of a job, so that each of them charges one and the same price.

PyTorch is not imported here: a job that has ranks has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Gather = Callable[[Any], list[Any]]

# A group of this module's own, over Gloo: rows travel from CPU to CPU, whatever the
# trainer's backend is, and do not mix with what the trainer sends meanwhile.
_groups: dict[str, Any] = {}


def gather_ranks(value: Any) -> list[Any]:
    """The value of every rank, in rank order; ``[value]`` in a job of one process.

    A collective of ``torch.distributed``: all ranks must call it.
    """
    distributed = _distributed()
    if distributed is None or distributed.get_world_size() == 1:
        return [value]
    # A process may end a job and start another.
    job = str(id(distributed.group.WORLD))
    if job not in _groups:
        _groups.clear()
        _groups[job] = distributed.new_group(backend="gloo")
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, value, group=_groups[job])
    return found


def gather_none(value: Any) -> list[Any]:
    """This process alone."""
    return [value]


def _distributed() -> Any:
    """``torch.distributed`` of a job that runs; None without."""
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return module
