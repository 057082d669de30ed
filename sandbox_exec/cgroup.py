"""Control groups, v1 and v2: bounds on the sum over all processes, and exact counters.

One tree per harness process, named by ``owner``, below the first group on the way from
our own group to the root where that is allowed; one child per run. Nesting below our
own group keeps whatever limits already hold for the harness.
"""

import contextlib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import cgroup_files as files
from .errors import SandboxError
from .limits import Limits
from .owner import is_abandoned, owner_name

OVERRIDE = "SANDBOX_EXEC_CGROUP"
_NEEDED_V1 = ("memory", "pids", "cpuacct")
_OPTIONAL_V1 = ("cpuset",)
_NEEDED_V2 = ("memory", "pids")
_OPTIONAL_V2 = ("cpuset",)
_UNAVAILABLE = (FileNotFoundError, PermissionError, OSError)


class CgroupUnavailable(SandboxError):
    """Control groups cannot be used here; the text says why."""


@dataclass
class RunCgroup:
    """The groups of one run: add its processes, read its counters, remove it."""

    version: int
    paths: dict[str, Path]
    pinned: bool
    _cpu_start: float = field(default=0.0, init=False)

    def _path(self, controller: str) -> Path:
        return self.paths[controller if self.version == 1 else ""]

    def add(self, pids: Iterable[int]) -> None:
        """Move processes in; nothing of theirs was charged here before."""
        for pid in pids:
            for path in dict.fromkeys(self.paths.values()):
                files.write(path / "cgroup.procs", pid)

    def start_clock(self) -> None:
        """Count CPU seconds from now on."""
        self._cpu_start = self._cpu_total()

    def _cpu_total(self) -> float:
        if self.version == 1:
            return int(files.read(self._path("cpuacct") / "cpuacct.usage")) / 1e9
        return self._keyed("", "cpu.stat").get("usage_usec", 0) / 1e6

    def cpu_s(self) -> float:
        """CPU seconds since `start_clock`, every process of the run, dead or alive."""
        return max(0.0, self._cpu_total() - self._cpu_start)

    def _keyed(self, controller: str, name: str) -> dict[str, int]:
        lines = files.read(self._path(controller) / name).splitlines()
        pairs = (line.split() for line in lines)
        return {p[0]: int(p[1]) for p in pairs if len(p) == 2 and p[1].isdigit()}

    def oom_kills(self) -> int:
        """Processes that the kernel killed because the run's memory was used up."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        return self._keyed("memory", name).get("oom_kill", 0)

    def memory_peak(self) -> int:
        """Largest memory of the run in bytes, page cache and tmpfs included."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        try:
            return int(files.read(self._path("memory") / name))
        except FileNotFoundError:  # memory.peak came with Linux 5.19
            return 0

    def pids_refused(self) -> int:
        """Forks that the process limit refused."""
        return self._keyed("pids", "pids.events").get("max", 0)

    def pids_peak(self) -> int:
        """Most processes and threads at one time; 0 where the kernel keeps no peak."""
        try:
            return int(files.read(self._path("pids") / "pids.peak"))
        except FileNotFoundError:
            return 0

    def kill(self) -> None:
        """SIGKILL every process of the run (a second line of defence)."""
        path = self._path("pids")
        with contextlib.suppress(OSError):
            if (path / "cgroup.kill").exists():
                files.write(path / "cgroup.kill", 1)
                return
            files.kill_members(path)

    def remove(self) -> None:
        """Remove the groups."""
        for path in dict.fromkeys(self.paths.values()):
            files.rmdir(path)


@dataclass
class CgroupTree:
    """A harness's own groups, from which each run gets a child."""

    version: int
    roots: dict[str, Path]
    _serial: int = field(default=0, init=False)

    @property
    def description(self) -> str:
        """Version and controllers, for records and the doctor."""
        names = sorted(self.roots) if self.version == 1 else self._v2_controllers()
        return f"v{self.version}: {', '.join(names)}"

    def _v2_controllers(self) -> list[str]:
        return sorted(files.read(self.roots[""] / "cgroup.subtree_control").split())

    def can_pin(self) -> bool:
        """Whether runs can be held on cores by a cpuset."""
        if self.version == 1:
            return "cpuset" in self.roots
        return "cpuset" in self._v2_controllers()

    def create(self, name: str, limits: Limits, cores: tuple[int, ...]) -> RunCgroup:
        """Make the groups of one run with its limits set.

        Raises:
            CgroupUnavailable: a group could not be made or a limit could not be set.
        """
        pinned = bool(cores) and self.can_pin()
        paths = {
            key: root / name
            for key, root in self.roots.items()
            if pinned or key != "cpuset"  # an empty cpuset takes no process
        }
        group = RunCgroup(version=self.version, paths=paths, pinned=pinned)
        try:
            for path in dict.fromkeys(paths.values()):
                path.mkdir()
            self._set_limits(group, limits, cores if pinned else ())
        except OSError as error:
            with contextlib.suppress(OSError):
                group.remove()
            raise CgroupUnavailable(
                f"cannot set up a control group ({error}); ask for "
                "require=Level.NAMESPACES or run `python -m sandbox_exec doctor`"
            ) from error
        return group

    def _set_limits(
        self, group: RunCgroup, limits: Limits, cores: tuple[int, ...]
    ) -> None:
        memory = limits.memory_mb << 20
        # The supervisor inside the sandbox is one process more.
        pids = limits.pids + 1
        path = group._path
        if self.version == 1:
            files.write(path("memory") / "memory.limit_in_bytes", memory)
            with contextlib.suppress(*_UNAVAILABLE):  # absent without swap accounting
                files.write(path("memory") / "memory.memsw.limit_in_bytes", memory)
            if cores:
                mems = files.read(self.roots["cpuset"] / "cpuset.mems")
                files.write(path("cpuset") / "cpuset.mems", mems)
        else:
            files.write(path("") / "memory.max", memory)
            for name, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
                with contextlib.suppress(FileNotFoundError):
                    files.write(path("") / name, value)
        files.write(path("pids") / "pids.max", pids)
        if cores:
            files.write(path("cpuset") / "cpuset.cpus", ",".join(map(str, cores)))

    def remove(self) -> None:
        """Remove the tree; runs must be over."""
        for root in dict.fromkeys(self.roots.values()):
            files.remove_tree(root)


def open_tree() -> CgroupTree:
    """Make this process's tree under the best base that the machine allows.

    Raises:
        CgroupUnavailable: neither version is writable; the text names the remedy.
    """
    try:
        mounts, own = files.mounts(), files.own_groups()
    except OSError as error:
        raise CgroupUnavailable(f"no control groups here: {error}") from error
    reasons = []
    for attempt in (_open_v2, _open_v1):
        try:
            return attempt(mounts, own)
        except CgroupUnavailable as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(f"{attempt.__name__[-2:]}: {error}")
    raise CgroupUnavailable("; ".join(reasons))


def _bases(place: Path, top: Path) -> list[Path]:
    """Candidate parents: a delegated group, ours, and each group above it."""
    override = os.environ.get(OVERRIDE)
    if override:
        return [top / override.strip("/")]
    chain = [place, *place.parents]
    return [base for base in chain if base == top or top in base.parents]


def _open_v1(mounts: list[files.Mount], own: dict[str, str]) -> CgroupTree:
    name = owner_name(os.getpid())
    where = {
        controller: (root, point)
        for kind, root, point, options in mounts
        if kind == "cgroup"
        for controller in (*_NEEDED_V1, *_OPTIONAL_V1)
        if controller in options
    }
    missing = [c for c in _NEEDED_V1 if c not in where]
    if missing:
        raise CgroupUnavailable(f"v1: no {', '.join(missing)} hierarchy is mounted")
    roots: dict[str, Path] = {}
    try:
        for controller, (mount_root, point) in where.items():
            place = files.place(mount_root, point, own.get(controller, "/"))
            try:
                roots[controller] = _make_v1(place, Path(point), name, controller)
            except OSError as error:
                if controller in _NEEDED_V1:
                    raise CgroupUnavailable(
                        f"v1: the {controller} hierarchy is not writable "
                        f"({error.strerror})"
                    ) from error
    except CgroupUnavailable:
        for root in dict.fromkeys(roots.values()):
            with contextlib.suppress(OSError):
                files.remove_tree(root)
        raise
    return CgroupTree(version=1, roots=roots)


def _make_v1(place: Path, top: Path, name: str, controller: str) -> Path:
    failure: OSError | None = None
    for base in _bases(place, top):
        root = base / name
        try:
            root.mkdir(exist_ok=True)
            if controller == "cpuset":
                for part in ("cpus", "mems"):
                    source = base / f"cpuset.effective_{part}"
                    files.write(root / f"cpuset.{part}", files.read(source))
            return root
        except OSError as error:
            with contextlib.suppress(OSError):
                os.rmdir(root)
            failure = failure or error
    raise failure or FileNotFoundError(errno.ENOENT, "no group to start from")


def _open_v2(mounts: list[files.Mount], own: dict[str, str]) -> CgroupTree:
    name = owner_name(os.getpid())
    points = [(root, point) for kind, root, point, _ in mounts if kind == "cgroup2"]
    if not points:
        raise CgroupUnavailable("v2: not mounted")
    mount_root, point = points[0]
    place = files.place(mount_root, point, own.get("", "/"))
    reasons: list[str] = []
    for base in _bases(place, Path(point)):
        try:
            offered = files.read(base / "cgroup.controllers").split()
            missing = [c for c in _NEEDED_V2 if c not in offered]
            if missing:
                reasons.append(f"v2: no {', '.join(missing)} controller")
                continue
            _delegate(base, offered)
            root = base / name
            root.mkdir(exist_ok=True)
            for controller in (*_NEEDED_V2, *_OPTIONAL_V2):
                if controller in files.read(root / "cgroup.controllers").split():
                    files.write(root / "cgroup.subtree_control", f"+{controller}")
            return CgroupTree(version=2, roots={"": root})
        except OSError as error:
            with contextlib.suppress(OSError):
                os.rmdir(base / name)
            reasons.append(
                f"v2: not writable ({error.strerror}); start the harness with "
                "`systemd-run --user --scope -p Delegate=yes ...`"
            )
    raise CgroupUnavailable(reasons[0] if reasons else "v2: no group to start from")


def _delegate(base: Path, offered: list[str]) -> None:
    """Pass the controllers on to children of `base`.

    A group that holds processes cannot do so (other than the real root). If we are its
    only process we step into a leaf of our own; anybody else's stay where they are.
    """
    control = base / "cgroup.subtree_control"
    enabled = files.read(control).split()
    wanted = [c for c in _NEEDED_V2 if c not in enabled]
    if wanted:
        try:
            for controller in wanted:
                files.write(control, f"+{controller}")
        except OSError as error:
            members = files.read(base / "cgroup.procs").split()
            if error.errno != errno.EBUSY or members != [str(os.getpid())]:
                raise
            leaf = base / "sbx-harness"
            leaf.mkdir(exist_ok=True)
            files.write(leaf / "cgroup.procs", os.getpid())
            for controller in wanted:
                files.write(control, f"+{controller}")
    for controller in _OPTIONAL_V2:
        if controller in offered and controller not in enabled:
            with contextlib.suppress(OSError):
                files.write(control, f"+{controller}")


def sweep_stale() -> list[Path]:
    """Remove trees whose harness is gone (killed before it could clean up)."""
    removed = []
    with contextlib.suppress(OSError):
        own = files.own_groups()
        for kind, mount_root, point, options in files.mounts():
            keys = [k for k in own if k and k in options] if kind == "cgroup" else [""]
            for key in keys:
                place = files.place(mount_root, point, own.get(key, "/"))
                for base in _bases(place, Path(point)):
                    removed += _sweep(base)
    return removed


def _sweep(base: Path) -> list[Path]:
    removed = []
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(base)):
            if not is_abandoned(entry.name):
                continue
            with contextlib.suppress(OSError):
                files.remove_tree(Path(entry.path))
                removed.append(Path(entry.path))
    return removed
