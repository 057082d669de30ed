"""Modules of a user's own, imported for what they register."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.config.errors import UsageError


def load_plugins(names: Sequence[str], *, flag: str = "plugins") -> None:
    """Import each plugin once; what it registers can be named by other options.

    Args:
        names: importable modules (``my_package.arms``) or files (``my_arm.py``).
        flag: the option that named them, for messages.

    Raises:
        UsageError: there is no such module, or importing it fails.
    """
    for name in names:
        try:
            if name.endswith(".py"):
                _load_file(Path(name))
            else:
                importlib.import_module(name)
        except Exception as error:
            raise UsageError(
                f"--{flag}={name}: {type(error).__name__}: {error}"
            ) from error


def _load_file(path: Path) -> None:
    place = path.expanduser().resolve()
    name = f"rpg_plugin_{place.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(place):
        return
    spec = importlib.util.spec_from_file_location(name, place)
    if spec is None or spec.loader is None or not place.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
