"""What a run of an attack gives away, against what the attack expects."""

import json
from typing import Any

from .attack_corpus import Attack
from .protocol import RunRecord

_LATE_S = 2.0  # grace on a loaded machine, on top of what an attack allows


def judge(attack: Attack, record: RunRecord, result: dict[str, Any]) -> list[str]:
    """What the record and the output give away, against what the attack expects."""
    expect, leaks = attack["expect"], []
    output = "\n".join(
        (record.stdout_head, record.stdout_tail, record.stderr_head, record.stderr_tail)
    )

    def one_of(name: str, seen: object) -> None:
        wanted = expect.get(name)
        wanted = [wanted] if isinstance(wanted, (str, int)) else wanted
        if wanted is not None and seen not in wanted:
            leaks.append(f"{name} {seen}")

    if record.status == "sandbox_error" and "refuses" not in record.error:
        leaks.append(f"sandbox_error: {record.error}")
    elif record.status != "sandbox_error":
        one_of("status", record.status)
        one_of("submission", record.submission.status)
        one_of("exit_code", record.exit_code)
    word = expect.get("stdout_not")
    if word and word in output:
        leaks.append(f'saw "{word}"')
    if expect.get("no_canary"):
        data = output + result.get("submission", "")
        for kind in ("ANSWERS", "MEM", "ENV", "NET", "STDIN"):
            if f"CANARY-{kind}" in data:
                leaks.append(f"leak CANARY-{kind}")
    if record.delta_s > expect.get("delta_max_s", 1e9) + _LATE_S:
        leaks.append(f"delta too large {record.delta_s:.2f}")
    if record.delta_s < expect.get("delta_min_s", 0.0):
        leaks.append(f"delta too small {record.delta_s:.3f}")
    if record.delta_s == expect.get("delta_not"):
        leaks.append("forged delta")
    late = result["call_s"] - record.delta_s - record.setup_s
    if late > expect.get("returns_within_s", 1e9) + _LATE_S:
        leaks.append(f"returned {late:.1f} s late")
    megabytes = len(json.dumps(result["record"])) / 2**20
    if megabytes > expect.get("captured_max_mb", 1e9):
        leaks.append(f"captured {megabytes:.0f} MB")
    megabytes = record.submission.n_bytes / 2**20
    if record.submission.status == "ok" and megabytes > expect.get(
        "submission_max_mb", 1e9
    ):
        leaks.append(f"submission of {megabytes:.0f} MB accepted")
    megabytes = record.disk_bytes / 2**20
    if megabytes > expect.get("disk_max_mb", 1e9):
        leaks.append(f"disk {megabytes:.0f} MB")
    if expect.get("cleanup_ok") and result["cleanup"]:
        leaks.append(f"cleanup fails: {result['cleanup']}")
    if expect.get("next_clean") and "CANARY-PLANTED" in result["next"]:
        found = [x for x in result["next"].splitlines() if "CANARY-PLANTED" in x]
        leaks.append("next run: " + " | ".join(found))
    elif expect.get("next_clean") and "looked" not in result["next"]:
        leaks.append(f"next run did not look: {result['next'][:100]}")
    return leaks
