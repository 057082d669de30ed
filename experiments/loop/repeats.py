"""Scripts that the run has seen before: known by their program, not run again.

The same program has the same outcome, so that running it again measures nothing new.
A repeat's record says what its first run's record says; it costs no execution seconds
and the rate model does not see it. The learner does: the same action, with its known
reward and seconds.
"""

import ast
import hashlib
import warnings
from typing import Any

from experiments.config.reward_rule import RewardRule
from experiments.loop import grade
from experiments.records.recorded import INFRASTRUCTURE, Located, is_repeat
from experiments.records.rewards import seconds_of

# What a first run's record says of its run and of what it earned. Nothing waited, was
# disturbed or was graded a second time.
_OF_THE_RUN = (
    *("status", "reason", "execution_s", "cpu_s", "isolation", "execution"),
    *("exit_code", "stdout", "stderr", "submission_sha256", "verdict"),
    *("medal", "above_median", "valid", "score", "value"),
)


def program_digest(script: bytes) -> str:
    """Hex SHA-256 of the program: comments, blank lines and layout do not count.

    What does not parse is compared by its bytes, but for line ends and trailing blanks.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the script's own odd literals
            text = ast.unparse(ast.parse(script))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        lines = script.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        data = b"\n".join(line.rstrip() for line in lines).rstrip()
    else:
        data = text.encode("utf-8", errors="replace")
    return hashlib.sha256(data).hexdigest()


class Firsts:
    """Where the first run of each program is on record.

    A run that the machinery lost is no first run.
    """

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, offset: int, record: dict[str, Any]) -> None:
        """Note a record, unless its program is known or it has none."""
        program = record.get("program_sha256")
        if program and not is_repeat(record) and record["delta_s"] is not None:
            self._offsets.setdefault(bytes.fromhex(program), offset)

    def find(self, program: str) -> int | None:
        """Offset of the first run's record, None for a program that is new."""
        return self._offsets.get(bytes.fromhex(program))


def leaders_of(on_record: dict[int, Located]) -> dict[str, int]:
    """Program -> the chain of a step whose record is of a run of its own."""
    found: dict[str, int] = {}
    for chain, (_, record) in sorted(on_record.items()):
        program = record.get("program_sha256")
        if program and not is_repeat(record):
            found.setdefault(program, chain)
    return found


def repeat_of(
    identity: dict[str, Any],
    first: dict[str, Any],
    *,
    rule: RewardRule,
    generation_s: float,
) -> dict[str, Any]:
    """The record of an attempt that writes a known program again.

    Args:
        identity: of the attempt itself.
        first: record of the program's first run. If that was lost, so is this.
        rule: gives the clock.
        generation_s: seconds that this answer took to write.
    """
    record = identity | {"repeat_of": first["run_id"]}
    own = {"generation_s": float(generation_s), "grading_s": 0.0}
    if first["status"] == INFRASTRUCTURE:
        reason = f"its first run, {first['run_id']}, was lost: {first['reason']}"
        fields = grade.infrastructure(reason) | {"valid": False, "score": None}
        return record | fields | own | dict.fromkeys(("reward", "value", "delta_s"))
    record |= {name: first[name] for name in _OF_THE_RUN if name in first} | own
    # The value of a valid script is its reward without the bonus for a new best, which
    # was paid to the first run.
    record["reward"] = first["value"] if first["valid"] else first["reward"]
    record["delta_s"] = seconds_of(rule, record)
    return record
