"""How fast this machine's cores are, so that seconds of different nodes compare."""

import functools
import json
from typing import TYPE_CHECKING

from .errors import SandboxError
from .limits import Limits
from .protocol import ScriptJob, Slot

if TYPE_CHECKING:
    from .runner import Engine

# The unit: a core that does the work below in this time has ratio 1; 2 is half as fast.
UNIT_S = 0.05

_SCRIPT = b"""
import hashlib, json, time
def work():
    total, table, data = 0, {}, bytes(range(256)) * 4096
    for i in range(120_000):
        total += i * i % 7
        table[i & 1023] = total
    words = sorted(str(i * 2654435761 % 1_000_003) for i in range(20_000))
    for _ in range(4):
        data = hashlib.sha256(data).digest() * 32768
    return len(words)
times = []
for _ in range(5):
    start = time.perf_counter()
    work()
    times.append(time.perf_counter() - start)
print(json.dumps(min(times)))
"""


@functools.lru_cache(maxsize=8)
def calibration_ratio(engine: "Engine", slot: Slot) -> float:
    """Return the time of a fixed piece of work over `UNIT_S`, measured in a slot.

    The least of five repetitions: what the core can do, not how busy it is. Kept for
    the life of the process.

    Raises:
        SandboxError: the calibration script did not run.
    """
    job = ScriptJob(script=_SCRIPT, task_id="calibration", limits=Limits(wall_s=60))
    record = engine.run(job, slot)
    if record.status != "ok":
        detail = record.error or record.stderr_tail or record.stderr_head
        raise SandboxError(f"calibration ended with {record.status}: {detail}")
    return float(json.loads(record.stdout_head)) / UNIT_S
