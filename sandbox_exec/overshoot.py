"""How far a script gets past its memory limit where memory is sampled, not bounded.

Without control groups nobody stops an allocation: a script is seen above its limit some
milliseconds later, and killed. What it can take until then depends on the machine, so
it is tried: processes that take memory as fast as they can, and say so as they go.
"""

from dataclasses import dataclass
from pathlib import Path

from .errors import SandboxError
from .limits import Level, Limits
from .protocol import ScriptJob
from .runner import Engine
from .slots import available_cores, make_slots

_LIMIT_MB, _PIECE_MB, _MOST_MB = 128, 4, 1024
_SCRIPT = """
import mmap, os, sys, time
share, piece = int(sys.argv[1]), int(sys.argv[2]) << 20
fill, kept = b"m" * piece, []
for _ in range(int(sys.argv[3]) - 1):
    if os.fork() == 0: break
for _ in range(share):
    block = mmap.mmap(-1, piece, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.write(fill)
    kept.append(block)
    os.write(1, b".")
time.sleep(5)
"""


@dataclass(frozen=True)
class Overshoot:
    """The largest of some tries.

    Attributes:
        level: where it was tried.
        limit_mb: of the script (MiB). above_mb: taken beyond it (MiB).
        processes: that took memory side by side.
        bounded: False where they had all they were made for before they were stopped.
    """

    level: Level
    limit_mb: int
    above_mb: int
    processes: int
    bounded: bool

    def line(self) -> str:
        """One line for people."""
        more = "" if self.bounded else "at least "
        return (
            f"sampled; {self.processes} processes that took it as fast as they could "
            f"were stopped {more}{self.above_mb} MiB above {self.limit_mb} MiB"
        )


def measure_overshoot(engine: Engine, *, tries: int = 3) -> Overshoot:
    """Try one level; takes some tenths of a second and up to 1 GiB of memory.

    Args:
        engine: its level is tried. tries: of which the largest counts.

    Raises:
        SandboxError: the machine has too little memory free, or the script was not
            stopped for its memory.
    """
    if _available_mb() < 2 * _MOST_MB:
        raise SandboxError(f"less than {2 * _MOST_MB} MiB of memory are free")
    processes = min(4, len(available_cores()) + 1)
    share = _MOST_MB // _PIECE_MB // processes
    limits = Limits(wall_s=20, memory_mb=_LIMIT_MB, pids=16)
    most = 0
    for _ in range(tries):
        args = (str(share), str(_PIECE_MB), str(processes))
        job = ScriptJob(script=_SCRIPT.encode(), limits=limits, args=args)
        record = engine.run(job, make_slots(1)[0])
        if record.status != "oom":
            raise SandboxError(
                f"a script above its memory limit ended with {record.status} "
                f"{record.error or record.stderr_head[-200:]}"
            )
        most = max(most, record.stdout_bytes * _PIECE_MB)
    above = max(0, most - _LIMIT_MB)
    whole = share * processes * _PIECE_MB
    return Overshoot(engine.level, _LIMIT_MB, above, processes, most < whole)


def _available_mb() -> int:
    """Memory that can be taken without hurting anybody (MiB)."""
    text = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
    for line in text.splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) >> 10
    return 0
