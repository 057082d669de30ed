"""Jobs in, records out: the types that callers, pools and ledgers share."""

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from .limits import Level, Limits

STATUSES = (
    "ok",
    "nonzero_exit",
    "signal",
    "timeout",
    "oom",
    "output_limit",
    "disk_limit",
    "pids_limit",
    "sandbox_error",
)


def _new_run_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, kw_only=True)
class ScriptJob:
    """One script to run.

    Attributes:
        script: the source, as bytes; it is never decoded or parsed here.
        inputs: folder shown to the script, read-only, as ``input`` in its working
            folder (``open("input/train.csv")``); None for an empty one.
        task_id: free text, copied into the record.
        limits: the budget.
        submission_name: file in the working folder that is collected when the script
            is over: a plain file name.
        run_id: identity across attempts and machines; a fresh one where it is empty.
        args: arguments that the script sees in ``sys.argv[1:]``.
        env: variables added to the script's clean environment.
    """

    script: bytes
    inputs: Path | None = None
    task_id: str = ""
    limits: Limits = field(default_factory=Limits)
    submission_name: str = "submission.csv"
    run_id: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.script, str):
            raise TypeError("ScriptJob.script is bytes: encode the text first")
        object.__setattr__(self, "script", bytes(self.script))
        if self.inputs is not None:
            object.__setattr__(self, "inputs", Path(self.inputs))
        name = self.submission_name
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"submission_name must be a plain file name, got {name!r}")
        if name in ("input", "script.py"):
            raise ValueError(f"submission_name {name!r} is taken by the sandbox")
        if any("\0" in text for text in (*self.args, *self.env, *self.env.values())):
            raise ValueError("args and env must not hold NUL characters")
        if not self.run_id:
            object.__setattr__(self, "run_id", _new_run_id())
        object.__setattr__(self, "args", tuple(self.args))
        object.__setattr__(self, "env", dict(self.env))

    @property
    def script_sha256(self) -> str:
        """Hex digest of the script."""
        return hashlib.sha256(self.script).hexdigest()


@dataclass(frozen=True)
class Slot:
    """Where a script runs: fixed cores, as many threads, at most its own GPUs."""

    index: int = 0
    cores: tuple[int, ...] = ()
    gpu_ids: tuple[int, ...] = ()

    @property
    def threads(self) -> int:
        """Thread count that numerical libraries are told to use."""
        return max(1, len(self.cores))


@dataclass(frozen=True)
class Submission:
    """What was collected: 'ok', 'missing', or 'rejected' with a reason."""

    status: str = "missing"
    reason: str = ""
    sha256: str = ""
    n_bytes: int = 0


@dataclass(frozen=True)
class SlotUse:
    """The slot of a run and how undisturbed it was (CPU seconds of others)."""

    index: int = 0
    cores: tuple[int, ...] = ()
    gpu_ids: tuple[int, ...] = ()
    threads: int = 1
    foreign_cpu_s: float = 0.0
    steal_s: float = 0.0
    contended: bool = False


@dataclass(frozen=True)
class Isolation:
    """The level that a run had, and what each layer was made of."""

    level: str = ""
    layers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """Everything known about one run; serialises to JSON and back.

    ``delta_s`` is the wall time from 'go' to the exit of the main process, or the limit
    after a timeout. ``sandbox_error`` means that the machinery failed, or that the
    caller cancelled: never a reward. ``submission_bytes`` is the collected file; it
    stays out of the JSON. ``earlier`` holds the attempts that this record replaces
    (a contended first run, an infrastructure error); ``charged_s`` sums all of them.
    """

    run_id: str
    attempt: int = 1
    task_id: str = ""
    script_sha256: str = ""
    node: str = ""
    cpu_model: str = ""
    calibration_ratio: float | None = None
    started_at: float = 0.0

    status: str = "sandbox_error"
    exit_code: int | None = None
    term_signal: int | None = None
    killed_by: str = ""
    error: str = ""

    delta_s: float = 0.0
    setup_s: float = 0.0
    queue_s: float = 0.0
    reap_s: float = 0.0
    cpu_s: float = 0.0
    cpu_source: str = ""

    peak_rss_bytes: int = 0
    rss_source: str = ""
    oom_kills: int = 0
    pids_peak: int = 0
    disk_bytes: int = 0

    stdout_head: str = ""
    stdout_tail: str = ""
    stdout_bytes: int = 0
    stderr_head: str = ""
    stderr_tail: str = ""
    stderr_bytes: int = 0

    submission: Submission = field(default_factory=Submission)
    slot: SlotUse = field(default_factory=SlotUse)
    isolation: Isolation = field(default_factory=Isolation)
    earlier: tuple["RunRecord", ...] = ()
    submission_bytes: bytes | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """The script ended by itself with exit code 0."""
        return self.status == "ok"

    @property
    def charged_s(self) -> float:
        """Seconds of script time spent on this run_id, all attempts together."""
        return self.delta_s + sum(record.delta_s for record in self.earlier)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; the submission's bytes are left out."""
        plain = asdict(replace(self, earlier=(), submission_bytes=None))
        del plain["submission_bytes"]
        plain["slot"]["cores"] = list(self.slot.cores)
        plain["slot"]["gpu_ids"] = list(self.slot.gpu_ids)
        plain["earlier"] = [record.to_dict() for record in self.earlier]
        return plain

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict` as strict JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "RunRecord":
        """Rebuild a record from `to_dict`; unknown keys of newer versions are dropped.

        Raises:
            ValueError: `plain` has no run_id.
        """
        if "run_id" not in plain:
            raise ValueError("not a run record: no 'run_id'")
        known = {f.name for f in fields(cls)} - {"submission_bytes"}
        values = {key: value for key, value in plain.items() if key in known}
        slot = dict(values.get("slot", {}))
        for key in ("cores", "gpu_ids"):
            slot[key] = tuple(slot.get(key, ()))
        values["slot"] = SlotUse(**slot)
        values["submission"] = Submission(**values.get("submission", {}))
        values["isolation"] = Isolation(**values.get("isolation", {}))
        values["earlier"] = tuple(map(cls.from_dict, values.get("earlier", ())))
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> "RunRecord":
        """Rebuild a record from `to_json`."""
        return cls.from_dict(json.loads(text))


@runtime_checkable
class ScriptPool(Protocol):
    """What a pool of any size offers: one machine, many machines, or a test double."""

    @property
    def capacity(self) -> int:
        """Scripts that run at one time."""

    @property
    def isolation(self) -> Level:
        """The level that every script of this pool gets."""

    def submit(self, job: ScriptJob) -> "Future[RunRecord]":
        """Queue a job."""

    def as_completed(
        self, futures: Iterable["Future[RunRecord]"], timeout: float | None = None
    ) -> "Iterator[Future[RunRecord]]":
        """Yield futures as they finish."""

    def cancel(self, run_id: str) -> bool:
        """Drop a queued job or stop a running one."""

    def close(self) -> None:
        """Stop everything and release every resource."""
