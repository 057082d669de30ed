"""Attempts that are on record already: of a resumed run, or of a run to replay."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.config.errors import LoopError, ReplayError
from experiments.records.ledger import read, read_at

ATTEMPTS = "attempts.jsonl"
METRICS = "metrics.jsonl"

# What steps recorded before these numbers were there lack.
LATER = ("greedy_rate", "own_rate")

Located = tuple[int, dict[str, Any]]  # byte offset in the ledger, record

# Measured, so different in every run; all other numbers are functions of the records.
MEASURED = ("seconds", "used", "finished_at")


def by_step(path: Path) -> Iterator[tuple[int, list[Located]]]:
    """Yield (step, located records by chain), one step in memory at a time.

    A chain's later record of a step takes the place of an earlier one (a retry after an
    infrastructure error).
    """
    step: int | None = None
    rows: dict[int, Located] = {}
    for offset, record in read(path):
        if record["step"] != step:
            if step is not None:
                yield step, [rows[chain] for chain in sorted(rows)]
            step, rows = int(record["step"]), {}
        rows[record["chain"]] = (offset, record)
    if step is not None:
        yield step, [rows[chain] for chain in sorted(rows)]


def is_repeat(record: Mapping[str, Any]) -> bool:
    """Whether the attempt repeats a program of the run, so that nothing was run."""
    return record.get("repeat_of") is not None


def spent_s(record: dict[str, Any]) -> float:
    """Execution seconds that an attempt has cost; 0 for a repeat.

    A disturbed run is not billed beside its rerun (``disturbed_s``); records of an
    older form, which have ``rerun_s``, keep the clock that they were made under.
    """
    if is_repeat(record):
        return 0.0
    return float(record["execution_s"] + record.get("rerun_s", 0.0))


def answer_alone(record: Mapping[str, Any], *, clock: str) -> Mapping[str, Any]:
    """The attempt as a rate counts it: a repeat ran no script and earned nothing new.

    Only its answer took time, and under the clock ``execution`` not even that.

    Args:
        record: any attempt; one that is no repeat stays as it is.
        clock: of the reward rule.
    """
    if not is_repeat(record):
        return record
    seconds = record.get("delta_s")
    if seconds is not None:
        answer = record.get("generation_s") or 0.0
        seconds = min(seconds, 0.0 if clock == "execution" else answer)
    return {**record, "execution_s": 0.0, "delta_s": seconds}


class Recording:
    """Finds the records of a step by their offsets.

    Args:
        folder: of the run.
        first: steps before this one are not wanted.
        replay: true if every attempt of the run must be on record. A run that was
            never begun has none: its replay is over at once.
    """

    def __init__(self, folder: Path, *, first: int = 0, replay: bool = False):
        self.path = folder / ATTEMPTS
        self.replay = replay
        self.metrics_path = folder / METRICS
        self._offsets: dict[int, dict[int, int]] = {}
        self._tries: dict[tuple[int, int], int] = {}
        self._metrics: dict[int, int] = {}
        if self.path.exists():
            for offset, record in read(self.path):
                step, chain = record["step"], record["chain"]
                if step >= first:
                    self._offsets.setdefault(step, {})[chain] = offset
                    at = (step, chain)
                    self._tries[at] = self._tries.get(at, 0) + 1
        if self.metrics_path.exists():
            for offset, record in read(self.metrics_path):
                if record["step"] >= first:
                    self._metrics[record["step"]] = offset

    @property
    def steps(self) -> int:
        """Number of the step after the last committed one."""
        return max(self._metrics, default=-1) + 1

    def attempts(self, step: int) -> dict[int, Located]:
        """chain -> (offset, record) of what is on record of a step.

        A step that met nothing but infrastructure errors was never committed and is
        tried again as a whole: its attempts are on record when each has been tried as
        often as any other.
        """
        offsets = self._offsets.get(step, {})
        found = {chain: (at, read_at(self.path, at)) for chain, at in offsets.items()}
        if step in self._metrics:
            return found
        lost = {c for c, (_, r) in found.items() if r["status"] == INFRASTRUCTURE}
        if len(lost) == len(found):
            return {}
        # Stopped within its second try, a step must not learn from the fast ones alone.
        most = max(self.tries(step, chain) for chain in found)
        return {
            chain: row
            for chain, row in found.items()
            if chain not in lost or self.tries(step, chain) == most
        }

    def tries(self, step: int, chain: int) -> int:
        """How many records this attempt has."""
        return self._tries.get((step, chain), 0)

    def metrics(self, step: int) -> dict[str, Any] | None:
        """The committed numbers of a step, if it was committed."""
        if step not in self._metrics:
            return None
        return read_at(self.metrics_path, self._metrics[step])


def check_script(record: dict[str, Any], answer_sha256: str) -> None:
    """Refuse a record of another answer than the policy has just written.

    Raises:
        ReplayError: they differ.
    """
    if record["answer_sha256"] != answer_sha256:
        raise ReplayError(
            f"step {record['step']}, chain {record['chain']}: the policy wrote another "
            "answer than the ledger holds. A run can be resumed or replayed with the "
            "model, versions and kind of machine that it began with"
        )


def check_metrics(recorded: dict[str, Any], computed: dict[str, Any]) -> None:
    """Refuse a step whose numbers are not those on record, bit for bit.

    Raises:
        ReplayError: names the first number that differs.
    """
    for name in computed:
        if name in LATER and name not in recorded:
            continue
        if name not in MEASURED and recorded.get(name) != computed[name]:
            raise ReplayError(
                f"step {computed['step']}: {name} is {_short(computed[name])}, on "
                f"record is {_short(recorded.get(name))}. The ledger was changed, or "
                "versions or machine are not those of the run"
            )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def need_whole(step: int, rows: list[Located], chains: int) -> None:
    """Refuse a committed step with attempts missing.

    Raises:
        LoopError: some are not on record.
    """
    if [row["chain"] for _, row in rows] != list(range(chains)):
        raise LoopError(
            f"the ledger holds {len(rows)} of {chains} attempts of step {step}, which "
            "was committed: restore the run's folder from a copy"
        )


INFRASTRUCTURE = "infrastructure"
NO_SCRIPT = "no_script"
#: A speedrun's model that was scored and does not reach the target.
MISSED = "missed"
