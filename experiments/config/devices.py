"""GPUs that a plan can be made for: memory and peak figures of their data sheets."""

from __future__ import annotations

import dataclasses

from experiments.config.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Device:
    """One accelerator.

    Attributes:
        name: as in ``--devices``.
        gib: memory that a program can have, GiB.
        bandwidth: of its memory, bytes per second.
        flops: dense bfloat16 operations per second.
    """

    name: str
    gib: float
    bandwidth: float
    flops: float


# Memory, bandwidth and dense bfloat16 figures of the makers' data sheets; 3% of the
# memory is left to the driver.
_SHEETS = {
    "H200": (141, 4.8e12, 989e12),
    "H100": (80, 3.35e12, 989e12),
    "B200": (180, 8.0e12, 2250e12),
    "A100-80": (80, 2.0e12, 312e12),
    "A100-40": (40, 1.555e12, 312e12),
    "L40S": (48, 0.864e12, 362e12),
    "A6000": (48, 0.768e12, 155e12),
    "RTX4090": (24, 1.008e12, 165e12),
}
DEVICES = {
    name: Device(name, 0.97 * gigabytes * 1e9 / 2**30, bandwidth, flops)
    for name, (gigabytes, bandwidth, flops) in _SHEETS.items()
}


def device_of(text: str) -> Device:
    """The GPU that ``H200`` or ``1xH200`` names.

    Raises:
        UsageError: it is not known, or more than one are asked for.
    """
    count, _, name = text.rpartition("x") if text[:1].isdigit() else ("1", "", text)
    if name not in DEVICES or not count.isdigit():
        raise UsageError(f"--devices={text}: choose from {', '.join(DEVICES)}")
    if int(count) != 1:
        raise UsageError(
            f"--devices={text}: the commands train on one GPU; plan for 1x{name}"
        )
    return DEVICES[name]
