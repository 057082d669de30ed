"""A deliberately broken runner: the positive control of every attack.

It does what a first version of a harness does: ``subprocess.run`` with a timeout, in
one folder that all scripts share, with everything inherited. ``flaws`` switch on more
habits seen in the wild. Nothing here is meant to be used.
"""

import contextlib
import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from sandbox_exec import RunRecord, ScriptJob, Submission


def run(job: ScriptJob, work: Path, flaws: set[str]) -> RunRecord:
    """Run `job` in the shared folder `work`, believing what it says."""
    work.mkdir(exist_ok=True)
    (work / "script.py").write_bytes(job.script)
    if job.inputs is not None and not (work / "input").exists():
        (work / "input").symlink_to(job.inputs)
    (work / job.submission_name).unlink(missing_ok=True)
    start = time.monotonic()
    status, code, out, err = _execute(job, work, flaws)
    delta = time.monotonic() - start
    if code is not None and code < 0:
        status, signal_number, code = "signal", -code, None
    else:
        signal_number = None
    if "ignores_exit_code" in flaws and status == "nonzero_exit":
        status, code = "ok", 0
    if "believes_exit_codes" in flaws:
        shell = 128 + signal_number if signal_number else code
        status = {124: "timeout", 137: "oom"}.get(shell, status)
    if "charges_cpu_time" in flaws:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        delta = usage.ru_utime + usage.ru_stime
    if "trusts_printed_time" in flaws and b"elapsed" in out:
        delta = float(out.split()[-1])
    if "trusts_result_file" in flaws and (work / "result.json").exists():
        claim = json.loads((work / "result.json").read_text())
        status, delta = claim["status"], claim["delta"]
    if "writes_log_into_workdir" in flaws:
        (work / "stdout.txt").write_bytes(out)
    if "decodes_strictly" in flaws:
        out, err = out.decode("utf-8").encode(), err.decode("utf-8").encode()
    submission, data = _submission(job, work, flaws, status)
    return RunRecord(
        run_id=job.run_id,
        status=status,
        exit_code=code,
        term_signal=signal_number,
        delta_s=delta,
        stdout_head=out.decode("utf-8", "backslashreplace"),
        stdout_bytes=len(out),
        stderr_head=err.decode("utf-8", "backslashreplace"),
        stderr_bytes=len(err),
        disk_bytes=sum(
            p.lstat().st_size
            for p in work.iterdir()
            if p.is_file() and not p.is_symlink()
        ),
        submission=submission,
        submission_bytes=data,
    )


def _execute(job: ScriptJob, work: Path, flaws: set[str]):
    if "allows_cores" in flaws:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_CORE, unlimited)
    if "leaves_a_channel_open" in flaws:
        os.set_inheritable(os.pipe()[1], True)
    process = subprocess.Popen(
        [sys.executable, "script.py", *job.args],
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        close_fds=False,
        env={**os.environ, **job.env, "A_NAIVE": "1"},
    )
    if "stops_at_submission" in flaws:
        for _ in range(300):
            if (work / job.submission_name).exists():
                process.kill()
                return "ok", 0, b"", b""
            time.sleep(0.01)
    if "ends_at_end_of_output" in flaws:
        out = process.stdout.read()
        process.kill()
        return "ok", 0, out, b""
    try:
        out, err = process.communicate(timeout=job.limits.wall_s)
    except subprocess.TimeoutExpired:
        if "asks_politely" in flaws:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(3)
            return "timeout", None, b"", b""
        process.kill()
        return "timeout", None, b"", b""
    status = "ok" if process.returncode == 0 else "nonzero_exit"
    return status, process.returncode, out, err


def _submission(job: ScriptJob, work: Path, flaws: set[str], status: str):
    path = work / job.submission_name
    if "zero_is_success" in flaws and status == "ok":
        return Submission("ok"), b""
    if "exists_is_enough" in flaws and path.exists():
        return Submission("ok"), b""
    if "infers_compression" in flaws:
        packed = path.with_name(path.name + ".gz")
        if packed.exists():
            with gzip.open(packed) as stream:
                data = stream.read()
            return Submission("ok", n_bytes=len(data)), data[:100]
    if not path.exists():
        return Submission("missing"), None
    try:
        size = path.stat().st_size
        with open(path, "rb") as stream:
            data = stream.read(64 << 20)
    except OSError as error:
        return Submission("rejected", str(error)), None
    if "parses_submission" in flaws:
        for line in data.decode("utf-8").splitlines()[1:]:
            float(line.split(",")[1])
    return Submission("ok", n_bytes=size), data


def clean(work: Path, flaws: set[str]) -> str:
    """Remove the shared folder; returns what went wrong."""
    try:
        if "cleans_by_text" in flaws:
            for name in os.listdir(work):
                name.encode("utf-8")
        if "cleans_as_user" in flaws and os.geteuid() == 0:
            os.chown(work, 65534, 65534)
            os.seteuid(65534)
        shutil.rmtree(work)
    except (OSError, ValueError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
    return ""
