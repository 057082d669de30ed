"""What a script may see: an interpreter, its packages, the system libraries."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .errors import SandboxError
from .protocol import ScriptJob, Slot

_QUERY = """
import json, sys, sysconfig
paths = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
paths |= {sysconfig.get_path(k) for k in ('stdlib', 'platstdlib', 'purelib', 'platlib')}
print(json.dumps({'paths': sorted(p for p in paths if p), 'prefix': sys.prefix,
                  'site': sysconfig.get_path('purelib'),
                  'tag': sys.implementation.cache_tag}))
"""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "LOKY_MAX_CPU_COUNT",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "NPROC",  # threads of XLA's client for the CPU, and so of JAX
    "PYTHON_CPU_COUNT",  # os.cpu_count() from Python 3.13 on
)


@dataclass(frozen=True)
class Environment:
    """An interpreter with the folders it needs.

    Attributes:
        python: path of the interpreter, the same inside and outside.
        folders: folders to show read-only at their own path.
        links: symbolic links to recreate (link, target).
        hidden: folders below those that are covered by an empty one.
        site: where the interpreter's packages are.
        cache_tag: of its bytecode files.
    """

    python: str
    folders: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]
    site: str
    cache_tag: str

    @classmethod
    def of(cls, python: str | os.PathLike[str] | None = None) -> "Environment":
        """Ask an interpreter (by default the running one) for its folders.

        Raises:
            SandboxError: it does not start, or it lives in a folder that would show too
                much (the root, a home folder).
        """
        return _environment(os.path.abspath(os.fspath(python or sys.executable)))

    def variables(
        self,
        job: ScriptJob,
        slot: Slot,
        *,
        home: str,
        start: str,
        renumber_gpus: bool = False,
    ) -> dict[str, str]:
        """The whole environment of a script: nothing is inherited from the harness.

        Args:
            job: has variables of its own.
            slot: its cores and GPUs.
            home: the script's home and temp folder.
            start: folder of what each of its interpreters runs first.
            renumber_gpus: the script sees the device nodes of its GPUs alone: CUDA
                numbers what it can open, from 0, whatever the host calls it.
        """
        threads = str(slot.threads)
        gpus = range(len(slot.gpu_ids)) if renumber_gpus else slot.gpu_ids
        bin_folder = os.path.dirname(self.python)
        values = {
            "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "USER": "sandbox",
            "LOGNAME": "sandbox",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONFAULTHANDLER": "1",  # a crash or a timeout says where it was
            "PYTHONHASHSEED": "0",
            "PYTHONNOUSERSITE": "1",
            "PYTHONPATH": start,
            "MPLBACKEND": "Agg",
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)),
        }
        values.update(dict.fromkeys(THREAD_VARIABLES, threads))
        values.update(job.env)
        return values

    def uncompiled(self, *, limit: int = 1000) -> int:
        """Count modules of the packages without bytecode, up to `limit`.

        Without bytecode every run compiles what it imports, inside delta.
        """
        tag = f".{self.cache_tag}.pyc"
        count = 0
        for folder, folders, names in os.walk(self.site):
            folders[:] = [name for name in folders if name not in _NOT_IMPORTED]
            modules = [name[:-3] for name in names if name.endswith(".py")]
            if not modules:
                continue
            try:
                have = set(os.listdir(os.path.join(folder, "__pycache__")))
            except OSError:
                have = set()
            count += sum(name + tag not in have for name in modules)
            if count >= limit:
                return limit
        return count

    def compile_ahead(self) -> bool:
        """Write the missing bytecode; False where the folder cannot be written."""
        if not os.access(self.site, os.W_OK):
            return False
        command = [self.python, "-I", "-m", "compileall", "-q", "-j", "0", self.site]
        # Packages ship files for other Python versions: their syntax errors are normal.
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        return True


_NOT_IMPORTED = {"__pycache__", "tests", "test", "testing", "testdata", "templates"}


def _covered(path: str, by: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(top + "/") for top in by)


@functools.lru_cache(maxsize=16)
def _environment(python: str) -> Environment:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _QUERY],
            capture_output=True,
            timeout=60,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxError(f"cannot start the interpreter {python}: {error}") from error
    links: list[tuple[str, str]] = []
    hop = python
    while os.path.islink(hop) and len(links) < 16:
        target = os.readlink(hop)
        links.append((hop, target))
        hop = os.path.join(os.path.dirname(hop), target)
    wanted = {os.path.normpath(path) for path in answer["paths"]}
    wanted |= {os.path.realpath(path) for path in wanted}
    real = os.path.realpath(python)
    folders: tuple[str, ...] = ()
    for path in sorted(wanted, key=len):
        if os.path.isdir(path) and not _covered(path, (*_SYSTEM, *folders)):
            folders += (path,)
    if not _covered(real, (*_SYSTEM, *folders)):
        folders += (os.path.dirname(real),)
    home = os.path.realpath(os.path.expanduser("~"))
    for path in folders:
        if path == "/" or _covered(home, (path,)):
            raise SandboxError(
                f"the interpreter's folder {path} would show the whole home folder to "
                "scripts: use an interpreter with a folder of its own (a venv)"
            )
    own = str(Path(__file__).resolve().parent)
    hidden = (own,) if _covered(own, folders) else ()
    links = [pair for pair in links if not _covered(pair[0], (*_SYSTEM, *folders))]
    return Environment(
        python, folders, tuple(links), hidden, answer["site"], answer["tag"]
    )
