"""The real parts of an experiment, as far as they do not need a model."""

import os
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from experiments.running import parts
from experiments.running.parts import warm_up
from sandbox_exec import Level, LocalPool


class Recorded:
    """A pool that passes its jobs on and keeps their records."""

    def __init__(self, pool):
        self.pool, self.records = pool, []

    def submit(self, job) -> Future:
        future = self.pool.submit(job)
        self.records.append(future.result())
        return future


def test_what_scripts_import_is_imported_once_before_any_of_them(monkeypatch):
    # Names that are missing must not keep the others from being read.
    modules = "\nimport sys; print('numpy' in sys.modules, 'sklearn' in sys.modules)"
    source = parts._IMPORTS.replace(b'"numpy"', b'"no_such_package", "numpy"')
    assert source != parts._IMPORTS
    monkeypatch.setattr(parts, "_IMPORTS", source + modules.encode())
    core = max(os.sched_getaffinity(0))
    with LocalPool(
        slots=1, cores=(core,), require=Level.POSIX, calibrate=False
    ) as pool:
        recorded = Recorded(pool)
        warm_up(recorded)
    (record,) = recorded.records
    assert record.ok, record.stderr_tail
    assert record.stdout_head.split() == ["True", "True"]


@pytest.mark.parametrize(("clock", "again"), [("wall", True), ("cpu", False)])
def test_a_pool_is_warm_when_it_is_opened(monkeypatch, clock, again):
    order, options = [], {}

    def opened(*_, **given):
        order.append("open")
        options.update(given)

    monkeypatch.setattr(parts, "LocalPool", opened)
    monkeypatch.setattr(parts, "warm_up", lambda pool: order.append("warm"))
    monkeypatch.setattr(parts, "slot_cores", lambda slots: (0,))
    rule = SimpleNamespace(script_clock=clock)
    settings = SimpleNamespace(slots=1, protocol=SimpleNamespace(rule=rule))
    parts.open_pool(settings, engine=None)
    assert order == ["open", "warm"]
    assert options["rerun_contended"] is again  # CPU seconds do not need calm
