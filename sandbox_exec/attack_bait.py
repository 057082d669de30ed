"""Everything worth stealing or breaking, laid out around a victim."""

import contextlib
import hashlib
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bait:
    """What an attack is told of its target.

    Attributes:
        mark: variable by which its processes are found.
        port: of a TCP service that must stay unreached.
        answers: path of the private file.
        inner: a socket for attacks that want one among their inputs.
        stop: ends the services.
    """

    mark: str
    port: int
    answers: str
    inner: socket.socket
    stop: threading.Event


@contextlib.contextmanager
def bait(stage: Path) -> Iterator[Bait]:
    """Everything worth stealing or breaking, and services that must stay unreached."""
    mark = "sbx" + secrets.token_hex(8)
    for name in ("inputs", "private", "outside", "grader", "home", "tmp"):
        (stage / name).mkdir()
    for name in ("train", "test"):
        (stage / "inputs" / f"{name}.csv").write_text("id,target\n1,0\n" * 20)
    answers = stage / "private" / "answers.csv"
    answers.write_text(f"id,target\n1,CANARY-ANSWERS-{secrets.token_hex(8)}\n")
    (stage / "outside" / "victim.txt").write_text("untouched\n")
    (stage / "grader" / "grader.py").write_text("def grade():\n    return 0.0\n")
    (stage / "grader" / "ledger.txt").write_text("start\n")
    stop = threading.Event()
    servers = []
    try:
        tcp = socket.create_server(("127.0.0.1", 0))
        servers.append(tcp)
        for address in ("\0" + mark, str(stage / "outside" / "host.sock")):
            server = socket.socket(socket.AF_UNIX)
            servers.append(server)
            server.bind(address)
            server.listen()
        inner = socket.socket(socket.AF_UNIX)
        servers.append(inner)
        for server in servers[:3]:
            threading.Thread(target=serve, args=(server, stop), daemon=True).start()
        yield Bait(mark, tcp.getsockname()[1], str(answers), inner, stop)
    finally:
        stop.set()
        for server in servers:
            server.close()


def serve(server: socket.socket, stop: threading.Event) -> None:
    """Give a canary to whoever connects."""
    server.settimeout(0.2)
    while not stop.is_set():
        try:
            peer, _ = server.accept()
        except TimeoutError:
            continue
        except OSError:
            return
        with contextlib.suppress(OSError), peer:
            peer.sendall(b"CANARY-NET")


def digests(stage: Path) -> dict[str, str]:
    """Contents of everything that must stay as it is."""
    found = {}
    for name in ("inputs", "private", "outside", "grader"):
        for path in sorted((stage / name).rglob("*")):
            if path.is_file():
                key = f"{name}/{path.name}"
                found[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
