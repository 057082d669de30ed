"""Isolation levels and the budget of one run."""

import enum
from dataclasses import dataclass, fields


class Level(enum.IntEnum):
    """How well a script is contained; higher contains more.

    POSIX is a session, a process group, rlimits and a clean environment: it keeps
    honest scripts tidy and is *not* a boundary. LANDLOCK adds Landlock rules and a
    seccomp filter. NAMESPACES is bubblewrap (user, mount, pid, net, ipc, uts
    namespaces) with seccomp. FULL adds control groups, which bound the sum over all
    processes.
    """

    POSIX = 0
    LANDLOCK = 1
    NAMESPACES = 2
    FULL = 3

    @classmethod
    def parse(cls, value: "Level | str | int") -> "Level":
        """Return the level named by `value` (a level, its name in any case, or number).

        Raises:
            ValueError: no such level.
        """
        if isinstance(value, str):
            try:
                return cls[value.strip().upper()]
            except KeyError:
                names = ", ".join(level.name.lower() for level in cls)
                raise ValueError(f"unknown level {value!r}: one of {names}") from None
        return cls(value)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Budget of one run. A script that exceeds it is stopped and the record says why.

    Attributes:
        wall_s: seconds from 'go' to the deadline. A timeout is charged in full.
        memory_mb: memory of all processes together, files in tmpfs included (MiB).
        pids: processes and threads alive at one time.
        disk_mb: size of the working folder, and separately of /tmp (MiB).
        shm_mb: size of /dev/shm (MiB).
        nofile: open descriptors per process.
        output_kb: kept from each of stdout and stderr, half head and half tail (KiB).
        output_total_mb: written to stdout and stderr together before the script is
            stopped with ``output_limit`` (MiB). The pipes are always drained.
        submission_mb: largest submission that is read back (MiB).
        files: files, folders and links in the working folder or in /tmp.
        cpu_s: CPU seconds of all processes together; None: no limit but ``wall_s``.
            For scripts that are charged by CPU seconds: a busy machine then stops
            none of them. It is looked at a few times a second. What exceeds it is a
            timeout, and is charged these seconds. Below NAMESPACES a child process
            counts once it has ended.
    """

    wall_s: float = 600.0
    memory_mb: int = 2048
    pids: int = 256
    disk_mb: int = 1024
    shm_mb: int = 256
    nofile: int = 1024
    output_kb: int = 64
    output_total_mb: int = 1024
    submission_mb: int = 64
    files: int = 200_000
    cpu_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "cpu_s":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"Limits.{field.name} must be a number, got {value!r}")
            if not 0 < value < float("inf"):
                raise ValueError(
                    f"Limits.{field.name} must be positive and finite, got {value!r}"
                )
            if field.name in ("wall_s", "cpu_s"):
                continue
            if value != int(value):
                raise ValueError(f"Limits.{field.name} must be whole, got {value!r}")
            # 4096.0, as configuration files write it
            object.__setattr__(self, field.name, int(value))
