"""Parts that run beside a script, tried here in this process: broker, police, start."""

import errno
import os
import socket
import struct
import subprocess
import sys

import pytest
from sandbox_help import REPO, has

from sandbox_exec import Level, script_start

pytestmark = pytest.mark.skipif(not has(Level.LANDLOCK), reason="needs Landlock")


@pytest.fixture
def parts(monkeypatch):
    """The modules as the gate imports them: by themselves, from their folder."""
    monkeypatch.syspath_prepend(str(REPO / "sandbox_exec"))
    for name in ("gate_host", "gate_sockets"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import gate_host
    import gate_sockets

    yield gate_host, gate_sockets
    for name in ("gate_host", "gate_sockets"):
        sys.modules.pop(name, None)


def _inet(host: str, port: int) -> bytes:
    return struct.pack("=H", 2) + struct.pack("!H4s8x", port, socket.inet_aton(host))


def _unix(path: object) -> bytes:
    return struct.pack("=H", 1) + os.fsencode(path) + b"\0"


@pytest.fixture
def ask(parts, tmp_path, monkeypatch):
    """Ask a broker whose script is this process; the error number, 0 if it did it."""
    broker = parts[1].Broker(-1, {}, [str(tmp_path)])

    def ask(name: str, sock: socket.socket, address: bytes = b"", backlog=5) -> int:
        copy = parts[1]._socket.socket(fileno=os.dup(sock.fileno()))
        try:
            broker._carry_out(name, copy, address, (0, backlog), os.getpid())
        except OSError as error:
            return error.errno
        finally:
            if copy not in broker._held.values():
                copy.close()
        return 0

    monkeypatch.setattr(parts[0], "descendants", lambda: [os.getpid()])
    ask.broker = broker
    yield ask
    for sock in broker._held.values():
        sock.close()


def test_broker_binds_to_the_loopback_interface_alone(ask):
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        assert ask("bind", one, _inet("192.0.2.1", 0)) == errno.EADDRNOTAVAIL
        assert ask("bind", one, _inet("127.0.0.1", 80)) == errno.EACCES
        assert ask("bind", one, _unix("x")) == errno.EAFNOSUPPORT
        assert ask("bind", one, _inet("0.0.0.0", 0)) == 0
        host, port = one.getsockname()
        assert host == "127.0.0.1"
        assert ask("connect", two, _inet(host, port)) == errno.ECONNREFUSED
        assert ask("listen", one) == 0
        assert ask("connect", two, _inet(host, port)) == 0
        assert ask("listen", three) == 0  # without a name it gets one
        assert three.getsockname()[0] == "127.0.0.1"


def test_broker_connects_to_what_the_script_holds(ask, parts, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as foreign, socket.socket() as one:
        port = foreign.getsockname()[1]
        assert ask("connect", one, _inet("127.0.0.1", port)) == errno.ECONNREFUSED
        assert ask("connect", one, _inet("192.0.2.1", 1)) == errno.ENETUNREACH
        with socket.create_server(("0.0.0.0", 0)) as open_to_all:
            assert ask("listen", open_to_all) == errno.EACCES
    monkeypatch.setattr(parts[0], "descendants", list)  # nobody has any of them open
    for _ in range(70):  # what is closed makes room
        with socket.socket() as passing:
            assert ask("bind", passing, _inet("127.0.0.1", 0)) == 0
    assert len(ask.broker._held) <= 64


def test_broker_keeps_unix_sockets_in_the_scripts_folders(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outside = tmp_path.parent / f"outside{os.getpid()}"
    outside.mkdir()
    (tmp_path / "way").symlink_to(outside)
    foreign = socket.socket(socket.AF_UNIX)
    foreign.bind(str(outside / "s"))
    foreign.listen()
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        assert ask("bind", one, _unix(outside / "t")) == errno.EACCES
        assert ask("bind", one, _unix("way/t")) == errno.EACCES
        assert ask("bind", one, _unix("")) == errno.EACCES
        assert ask("bind", one, _unix("s")) == 0
        assert one.getsockname() == "s"  # the script's own words
        assert ask("listen", one) == 0
        for name in (outside / "s", "way/s", ""):
            assert ask("connect", two, _unix(name)) == errno.EACCES, name
        (tmp_path / "file").write_text("x")
        os.link("s", "twin")
        for name in ("file", "twin"):
            assert ask("connect", two, _unix(name)) == errno.ECONNREFUSED, name
        os.unlink("twin")
        assert ask("connect", two, _unix("s")) == 0
    foreign.close()
    assert sorted(p.name for p in outside.iterdir()) == ["s"]


def test_addresses_are_read_with_their_size(parts):
    read = parts[1]._host_and_port
    assert read(socket.AF_INET, _inet("127.0.0.1", 7)) == ("127.0.0.1", 7)
    six = struct.pack("=H", 10) + struct.pack("!HI16sI", 7, 0, bytes(15) + b"\1", 0)
    assert read(socket.AF_INET6, six) == ("::1", 7)
    for family, short in ((socket.AF_INET, b"\2\0\0\7"), (socket.AF_INET6, six[:20])):
        with pytest.raises(OSError, match="size"):
            read(family, short)


def test_police_sees_memory_and_threads_of_descendants(parts):
    gate_host, _ = parts
    text = "import time; x = bytearray(50 << 20); print(1, flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    try:
        child.stdout.read(1)
        assert child.pid in gate_host.descendants()
        police = gate_host.Police(1 << 40, 1 << 20)
        assert police.look() == ""
        assert police.memory_peak > 50 << 20
        assert police.pids_peak >= 1
        assert gate_host.Police(1 << 40, 0).look() == "pids_limit"
        police = gate_host.Police(10 << 20, 1 << 20)
        assert police.look() == "oom"
        assert police.look() == ""  # said once
        police._seen = [child.pid]
        police.kill()
        assert child.wait(10) == -9
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_start_makes_output_line_buffered(monkeypatch, tmp_path):
    with open(tmp_path / "out", "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        script_start.line_by_line()
        assert stream.line_buffering
    monkeypatch.setattr(sys, "stdout", None)  # closed by whoever started it
    script_start.line_by_line()
    (tmp_path / "sitecustomize.py").write_text("import os\nos.environ['SEEN'] = '1'\n")
    monkeypatch.delenv("SEEN", raising=False)
    monkeypatch.delitem(sys.modules, "sitecustomize", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    script_start.run_the_interpreters_own()
    assert os.environ["SEEN"] == "1"
