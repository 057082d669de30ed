"""Commands define flags of the same names (--arms, --steps): one at a time in a test.

absl keeps one table of flags for the process. ``load`` imports a command with a table
of its own, ``active`` puts that table in place for the length of a test.
"""

import contextlib
import copy
import importlib
import sys

from absl import flags

from experiments import cli

_TABLES = {}


def _snapshot(source=None):
    return {
        name: {k: copy.copy(v) if isinstance(v, list) else v for k, v in part.items()}
        if isinstance(part, dict)
        else part
        for name, part in (source or flags.FLAGS.__dict__).items()
    }


def _restore(table):
    for name, part in table.items():
        flags.FLAGS.__dict__[name] = part


#: Flags of the test run and those that every command shares.
_SHARED = _snapshot()
assert cli.SEED.name in flags.FLAGS


def load(name):
    """The module of a command; its flags are in its own table."""
    if name not in _TABLES:
        if name in sys.modules:
            raise RuntimeError(f"{name} was imported without command_flags.load")
        before = _snapshot()
        _restore(_snapshot(_SHARED))
        try:
            importlib.import_module(name)
            _TABLES[name] = _snapshot()
        finally:
            _restore(before)
    return sys.modules[name]


@contextlib.contextmanager
def active(name):
    """The command's flags are those of the process meanwhile."""
    before = _snapshot()
    _restore(_TABLES[name])
    try:
        yield
    finally:
        _restore(before)
