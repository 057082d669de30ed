"""From a started process to a sandbox that waits at its gate."""

import contextlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .box import Launched, wait_readable
from .errors import SandboxError

if TYPE_CHECKING:
    from .gate import Config

START_TIMEOUT_S = 60.0


def abandon(launched: Launched) -> None:
    """Kill and close what did not become ready."""
    with contextlib.suppress(SandboxError, OSError):
        launched.kill()
    launched.close()


def _complaint(launched: Launched) -> str:
    """What the starter wrote to standard error: nothing of the script ran yet."""
    with contextlib.suppress(OSError):
        wait_readable(launched.stderr, 1.0)
        text = os.read(launched.stderr, 4096).decode("utf-8", "backslashreplace")
        return text.strip().replace("\n", "; ")
    return ""


def read_info(fd: int, deadline: float, launched: Launched) -> dict[str, Any]:
    """What bubblewrap says of the sandbox that it made.

    Raises:
        SandboxError: it could not make one.
    """
    data = b""
    while time.monotonic() < deadline:
        if not wait_readable(fd, max(0.0, deadline - time.monotonic())):
            break
        part = os.read(fd, 4096)
        data += part
        with contextlib.suppress(ValueError):
            info: dict[str, Any] = json.loads(data)
            return info
        if not part:
            reason = _complaint(launched) or "it ended without a word"
            raise SandboxError(f"bubblewrap could not set up the sandbox: {reason}")
    raise SandboxError("bubblewrap did not start in time")


def handshake(launched: Launched, config: "Config", deadline: float) -> int:
    """Hand the gate its orders and wait for 'ready'; return the child's own pid.

    Raises:
        SandboxError: the gate is gone or says that it cannot.
    """
    launched.ctrl.settimeout(max(0.1, deadline - time.monotonic()))
    try:
        launched.ctrl.sendall(ascii(config).encode() + b"\n")
        launched.ctrl.setblocking(False)
        answer = b""
        if wait_readable(launched.go.fileno(), _left_s(deadline)):
            answer = launched.go.recv(4096)
        child = _child(launched, deadline) if answer == b"ready" else 0
    except OSError as error:
        answer, child = f"x{error}".encode(), 0
    if not answer and time.monotonic() > deadline:
        raise SandboxError("the sandbox did not get ready in time")
    if answer != b"ready" or not child:
        reason = answer[1:].decode("utf-8", "replace") if answer[:1] == b"x" else ""
        reason = _complaint(launched) or reason or "its gate ended without a word"
        raise SandboxError(f"the sandbox could not be set up: {reason}")
    return child


def _child(launched: Launched, deadline: float) -> int:
    """The child's pid as the gate knows it; 0 if it does not say."""
    while wait_readable(launched.ctrl.fileno(), _left_s(deadline)):
        messages = launched.messages()
        for message in messages or ():
            if "child" in message:
                return int(message["child"])
        if messages is None:
            break
    return 0


def _left_s(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def only_child(pid: int) -> int:
    """Host pid of the gate's child, the script to be.

    Raises:
        SandboxError: it is gone.
    """
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        return int(text.split()[0])
    except (OSError, IndexError):
        pass
    for entry in os.scandir("/proc"):  # a kernel without CONFIG_PROC_CHILDREN
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(entry.path, "stat").read_text(errors="replace")
                if int(stat.rpartition(")")[2].split()[1]) == pid:
                    return int(entry.name)
    raise SandboxError("the script's process is gone before it started")
