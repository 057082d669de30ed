"""What a level is made of, in words."""

import os

from . import landlock
from .limits import Level


def layers_of(level: Level) -> dict[str, str]:
    """Name the layers that a level is made of (the runner adds what it measured)."""
    if level >= Level.NAMESPACES:
        layers = {"namespaces": "user mount pid net ipc uts", "seccomp": "deny list"}
        if level is Level.NAMESPACES:
            layers["memory"] = "sampled sum, RLIMIT_DATA per process"
        return layers
    if level is Level.LANDLOCK:
        signals = "scoped" if landlock.signals_scoped() else "open to this user"
        return {
            "landlock": f"ABI {landlock.abi()}",
            "seccomp": "deny list, sockets among its own processes",
            "signals": signals,
            "memory": "sampled sum, RLIMIT_DATA per process",
            "pids": "sampled",
            "disk": "sampled",
        }
    return {"boundary": "none: session, rlimits and a clean environment only"}


def user_layer(level: Level, as_nobody: bool) -> dict[str, str]:
    """Who the script is to the kernel, and what that means for its process count."""
    if level < Level.NAMESPACES:
        return {}
    bounded = "RLIMIT_NPROC in the namespace"
    if as_nobody:
        layers = {"user": "an id that nobody else has"}
    elif os.geteuid() == 0:
        layers = {"user": "root without capabilities"}
        bounded = "sampled (no rlimit binds root)"
    else:
        layers = {"user": "that of the harness"}
    return layers if level is Level.FULL else {**layers, "pids": bounded}
