"""Slots: which cores a script gets, and who else used them while it ran."""

import contextlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .protocol import Slot, SlotUse

# Below this many CPU seconds the tick of /proc/stat (10 ms a core) is all there is.
_NOISE_S = 0.03
_FOREIGN_SHARE = 0.05
_OVER_QUOTA = 1.05


def available_cores() -> tuple[int, ...]:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def make_slots(
    count: int,
    *,
    cores: tuple[int, ...] | None = None,
    gpus: tuple[int, ...] = (),
    oversubscribe: bool = False,
) -> list[Slot]:
    """Share the cores out evenly; where there are more than two, one stays free.

    Args:
        count: slots.
        cores: cores to share; those of this process by default.
        gpus: GPUs, one per slot as far as they go.
        oversubscribe: allow more slots than cores (times then mean little).

    Raises:
        ValueError: more slots than cores without `oversubscribe`.
    """
    if count < 1:
        raise ValueError(f"a pool needs at least one slot, got {count}")
    chosen = tuple(cores) if cores is not None else available_cores()
    if cores is None and len(chosen) > max(2, count):
        chosen = chosen[1:]  # the first one is the harness's
    groups: list[tuple[int, ...]]
    if count > len(chosen):
        if not oversubscribe:
            raise ValueError(
                f"{count} slots on {len(chosen)} cores would share cores and spoil the "
                "times: use fewer slots, or pass oversubscribe=True"
            )
        groups = [(chosen[i % len(chosen)],) for i in range(count)]
    else:
        size = len(chosen) // count
        groups = [chosen[i * size : (i + 1) * size] for i in range(count)]
    return [
        Slot(index, group, gpus[index : index + 1])
        for index, group in enumerate(groups)
    ]


@dataclass(frozen=True)
class CoreClock:
    """CPU seconds of a set of cores at one moment, from /proc/stat."""

    busy_s: float
    steal_s: float

    @classmethod
    def read(cls, cores: tuple[int, ...]) -> "CoreClock | None":
        """Read the counters; None where there is no /proc/stat."""
        wanted = {f"cpu{core}" for core in cores}
        tick = os.sysconf("SC_CLK_TCK")
        busy = steal = 0
        try:
            with open("/proc/stat", "rb", buffering=0) as stream:
                text = stream.read(1 << 16).decode("ascii", "replace")
        except OSError:
            return None
        for line in text.splitlines():
            if not line.startswith("cpu"):
                break
            name, *numbers = line.split()
            if name in wanted:
                user, nice, system, _idle, _iowait, irq, soft, stolen = map(
                    int, numbers[:8]
                )
                busy += user + nice + system + irq + soft
                steal += stolen
        return cls(busy / tick, steal / tick)


def slot_use(
    slot: Slot,
    before: CoreClock | None,
    after: CoreClock | None,
    *,
    delta_s: float,
    cpu_s: float,
) -> SlotUse:
    """Return how undisturbed a run was.

    Contended means: others used more than 5 % of delta on the slot's cores, or the
    hypervisor took as much, or the script used more CPU than its cores can give.
    """
    foreign = steal = 0.0
    if before is not None and after is not None and slot.cores:
        foreign = max(0.0, after.busy_s - before.busy_s - cpu_s)
        steal = max(0.0, after.steal_s - before.steal_s)
    limit = max(_NOISE_S, _FOREIGN_SHARE * delta_s)
    quota = slot.threads * delta_s * _OVER_QUOTA + _NOISE_S
    over = bool(slot.cores) and cpu_s > quota
    return SlotUse(
        index=slot.index,
        cores=slot.cores,
        gpu_ids=slot.gpu_ids,
        threads=slot.threads,
        foreign_cpu_s=round(foreign, 6),
        steal_s=round(steal, 6),
        contended=foreign > limit or steal > limit or over,
    )


def cpu_model() -> str:
    """Name of the processor."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def gpu_memory_used_mb(gpu_ids: tuple[int, ...]) -> dict[int, int]:
    """Used memory per GPU (MiB) by nvidia-smi; empty without GPUs or the tool."""
    tool = shutil.which("nvidia-smi")
    if not gpu_ids or tool is None:
        return {}
    command = [tool, "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        )
        rows = [line.split(",") for line in done.stdout.splitlines() if line.strip()]
        used = {int(row[0]): int(row[1]) for row in rows}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}
    return {gpu: used[gpu] for gpu in gpu_ids if gpu in used}
