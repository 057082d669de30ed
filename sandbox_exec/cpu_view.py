"""What a script reads of the processor: its slot's cores and no others.

``os.cpu_count()`` and most libraries do not ask for the cores that they may use but for
those that the machine has: a script in a slot of one core would start a thread for
each of the host's. So the files they read are rewritten for the slot. Formats: Linux
``Documentation/admin-guide/cputopology.rst``, ``Documentation/filesystems/proc.rst``.
"""

import contextlib
from pathlib import Path

SYS_CPU = "/sys/devices/system/cpu"


def cpu_files(cores: tuple[int, ...]) -> dict[str, bytes]:
    """Return the content of each file that is rewritten, by its path.

    Args:
        cores: the slot's; without any it is not pinned and nothing is rewritten.
    """
    if not cores:
        return {}
    listed = ",".join(map(str, sorted(cores))) + "\n"
    files = dict.fromkeys(
        (f"{SYS_CPU}/{name}" for name in ("online", "possible", "present")),
        listed.encode(),
    )
    for path, rewrite in (("/proc/cpuinfo", _cpuinfo), ("/proc/stat", _stat)):
        with contextlib.suppress(OSError, ValueError):
            text = Path(path).read_text(encoding="utf-8", errors="replace")
            files[path] = rewrite(text, set(cores)).encode()
    return files


def core_folders(cores: tuple[int, ...]) -> list[str]:
    """Folders of /sys that describe the cores, caches and siblings included."""
    return [f"{SYS_CPU}/cpu{core}" for core in cores]


def _cpuinfo(text: str, cores: set[int]) -> str:
    """The blocks of the slot's cores; blocks without a number (Arm's last) stay."""
    kept = []
    for block in text.split("\n\n"):
        name, _, value = block.partition("\n")[0].partition(":")
        if name.strip() != "processor" or int(value) in cores:
            kept.append(block)
    return "\n\n".join(kept)


def _stat(text: str, cores: set[int]) -> str:
    """The lines of the slot's cores, with their sum as the first line."""
    kept, total = [], [0] * 10
    for line in text.splitlines():
        name, *numbers = line.split()
        if name == "cpu":
            continue
        if name.startswith("cpu"):
            if int(name[3:]) not in cores:
                continue
            values = [*map(int, numbers), *([0] * 10)][:10]
            total = [a + b for a, b in zip(total, values, strict=True)]
        kept.append(line)
    return "\n".join([f"cpu  {' '.join(map(str, total))}", *kept]) + "\n"
