"""A run's folder: opened or resumed safely, with config.json as its record of truth."""

import contextlib
import fcntl
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from experiments.config.errors import UsageError

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_revision() -> str:
    """The checkout's commit, marked when files differ; 'unknown' outside git."""
    root = Path(__file__).parent
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return run.stdout.strip()


def machine() -> dict[str, Any]:
    """Processor and core count, without names or paths of the machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.system()}


def default_folder(kind: str, name: str) -> Path:
    """runs/<kind>/<time>_<name>: a folder no earlier run has used."""
    return Path("runs") / kind / f"{time.strftime('%Y%m%d-%H%M%S')}_{name}"


def write_json(path: Path, content: Any) -> None:
    """Writes JSON under another name first, so that no reader sees half a file."""
    handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(partial, 0o644)
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def open_run(
    folder: Path,
    config: dict[str, Any],
    *,
    resume: bool,
    growing: Collection[str] = (),
) -> Path:
    """Makes a run's folder and config.json, or checks that they can be gone on with.

    Args:
      folder: where the run lives.
      config: what identifies the run; a resumed run must have the same.
      resume: go on with the folder if it holds a run.
      growing: keys that a resumed run may change; config.json keeps what they were.

    Raises:
      UsageError: the folder holds another run, or one and ``resume`` is false, or it
        cannot be written. Nothing in it is changed then.
    """
    path = folder / "config.json"
    # As JSON gives it back, so that tuples compare equal to lists.
    config = json.loads(json.dumps(config))
    if path.exists():
        if not resume:
            raise UsageError(
                f"{folder} holds a run already: add --resume to go on with it, or "
                "choose another --out"
            )
        _need_same(folder, config, growing)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            # What a process killed inside write_json leaves is nobody's work.
            if any(other.suffix != ".partial" for other in folder.iterdir()):
                raise UsageError(
                    f"{folder} is not empty and holds no run: choose another --out"
                )
            write_json(
                path,
                {
                    "config": config,
                    "command": ["python", "-m", *_module_and_flags()],
                    "versions": versions(),
                    "git": git_revision(),
                    "machine": machine(),
                    "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                },
            )
        elif not os.access(folder, os.W_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"cannot write to {folder} ({reason}): choose another --out"
        ) from None
    return folder


def _need_same(folder: Path, config: dict[str, Any], growing: Collection[str]) -> None:
    """Refuse to go on with a run of another configuration; note what has grown."""
    path = folder / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known = content["config"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}): choose another --out"
        ) from None
    names = sorted(
        name for name in {*known, *config} if known.get(name) != config.get(name)
    )
    if names and set(names) <= set(growing):
        _change(folder, content, config, names)
    elif names:
        was = "; ".join(
            f"{n} was {json.dumps(known.get(n))}, is {json.dumps(config.get(n))}"
            for n in names
        )
        raise UsageError(
            f"{folder} holds a run of another configuration ({was}): go on with "
            "its flags on a machine like its own, or choose another --out"
        )


def _change(
    folder: Path, content: dict[str, Any], config: dict[str, Any], names: list[str]
) -> None:
    """Writes a resumed run's new settings, with what they were."""
    before = {name: content["config"].get(name) for name in names}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    changes = [*content.get("changes", []), {"until": now, "was": before}]
    # A running process holds the file that this one would replace.
    with sole_writer(folder):
        try:
            write_json(
                folder / "config.json",
                content | {"config": config, "changes": changes},
            )
        except OSError as error:
            raise UsageError(
                f"cannot write to {folder} ({error.strerror or error}): free some "
                "space or fix the permissions"
            ) from None


@contextlib.contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keeps a second process out of an opened run while the block lasts.

    Raises:
      UsageError: another process is at work in the folder.
    """
    with (folder / "config.json").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process is writing to {folder}: wait for it, or stop it"
            ) from None
        except OSError:
            # Some network file systems have no locks; one writer is then a promise.
            pass
        yield


def _module_and_flags() -> list[str]:
    """The command as it was typed, without this machine's paths."""
    script = Path(sys.argv[0])
    return [f"{script.parent.name}.{script.stem}", *map(_placeless, sys.argv[1:])]


def _placeless(argument: str) -> str:
    """--out=/a/b/run -> --out=run."""
    name, sign, value = argument.rpartition("=")
    return f"{name}{sign}{Path(value).name}" if value.startswith("/") else argument
