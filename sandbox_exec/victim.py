"""The harness under attack: one process that holds secrets and runs one script.

Started by ``attack``; what it saw goes into a file, and what leaked is judged outside.
"""

import fcntl
import importlib.util
import json
import os
import secrets
import shutil
import tempfile
import termios
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from .environment import Environment
from .limits import Level, Limits
from .pool import LocalPool
from .protocol import RunRecord, ScriptJob
from .runner import Engine
from .slots import available_cores

_MEMORY: list[bytes] = []
Result = dict[str, Any]
Spec = dict[str, Any]


def victim(spec_path: str) -> None:
    """The harness under attack: holds secrets, runs the script, writes what it saw."""
    spec = json.loads(Path(spec_path).read_text())
    attack, stage = spec["attack"], Path(spec["stage"])
    _MEMORY.append(("CANARY-MEM-" + secrets.token_hex(8)).encode())
    answers = os.open(spec["answers"], os.O_RDONLY)
    os.set_inheritable(answers, True)
    ledger = open(stage / "grader" / "ledger.txt", "a")  # noqa: SIM115
    if attack.get("probe") == "pty":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    limits = dict(attack.get("limits", {}))
    cores = limits.pop("cores", None)
    job = ScriptJob(
        script=(Path(spec["corpus"]) / f"{attack['id']}.py").read_bytes(),
        inputs=stage / "inputs",
        limits=replace(Limits(wall_s=attack["timeout_s"]), **limits),
        env={
            "A_MARK": spec["mark"],
            "A_PRIVATE": spec["answers"],
            "A_INPUT": str(stage / "inputs"),
            "A_OUTSIDE": str(stage / "outside"),
            "A_GRADER": str(stage / "grader" / "grader.py"),
            "A_PORT": str(spec["port"]),
        },
    )
    result: Result = {"next": "", "cleanup": "", "harness_error": ""}
    try:
        runner = _naive_victim if spec["level"] == "naive" else _sandbox_victim
        runner(job, spec, cores, result)
    except Exception as error:
        result["harness_error"] = f"{type(error).__name__}: {error}"
    ledger.close()
    partial = stage / "result.part"
    partial.write_text(json.dumps(result))
    partial.rename(stage / "result.json")


def _note(result: Result, record: RunRecord, started: float) -> None:
    result["call_s"] = time.monotonic() - started
    result["record"] = record.to_dict()
    data = record.submission_bytes or b""
    result["submission"] = data[: 1 << 20].decode("utf-8", "replace")


def _inspection(job: ScriptJob, spec: Spec) -> ScriptJob:
    source = (Path(spec["corpus"]) / "inspect_leftovers.py").read_bytes()
    return replace(job, script=source, run_id="", limits=Limits(wall_s=20))


def _sandbox_victim(
    job: ScriptJob, spec: Spec, cores: int | None, result: Result
) -> None:
    # The level was probed before: probing again in every victim would only cost time.
    engine = Engine(
        level=Level.parse(spec["level"]),
        env=Environment.of(),
        as_nobody=spec["as_nobody"],
    )
    chosen = available_cores()[:cores] if cores else None
    with LocalPool(
        1, engine=engine, cores=chosen, calibrate=False, rerun_contended=False
    ) as pool:
        started = time.monotonic()
        record = pool.submit(job).result()
        _note(result, record, started)
        if spec["attack"]["expect"].get("next_clean"):
            after = pool.submit(_inspection(job, spec)).result()
            result["next"] = after.stdout_head + after.stderr_head + after.error
    left = [path.name for path in Path(tempfile.gettempdir()).glob("sbx-*")]
    result["cleanup"] = f"left {left}" if left else ""


def _naive_victim(
    job: ScriptJob, spec: Spec, cores: int | None, result: Result
) -> None:
    naive = _module(Path(spec["corpus"]) / "naive.py")
    flaws, work = set(spec["attack"].get("flaws", ())), Path(spec["stage"]) / "work"
    started = time.monotonic()
    record = naive.run(job, work, flaws)
    _note(result, record, started)
    if spec["attack"]["expect"].get("next_clean"):
        after = naive.run(_inspection(job, spec), work, set())
        result["next"] = after.stdout_head + after.stderr_head
    if spec["attack"]["expect"].get("cleanup_ok"):
        result["cleanup"] = naive.clean(work, flaws)
        if result["cleanup"]:
            shutil.rmtree(work, ignore_errors=True)


def _module(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
