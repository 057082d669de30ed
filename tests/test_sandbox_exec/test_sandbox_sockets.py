"""LANDLOCK: sockets work among a script's own processes and reach nobody else."""

import os
import socket
import threading

import pytest
from sandbox_help import has, job

from sandbox_exec import Level, LocalPool, Slot, run_script

pytestmark = pytest.mark.skipif(not has(Level.LANDLOCK), reason="needs Landlock")

_TRY = """
import errno, os, socket, sys
def attempt(name, act):
    try: print(name, "REACHED", act())
    except OSError as error: print(name, errno.errorcode[error.errno])
def tcp(): return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
def unix(): return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
"""


def _said(text: str, *args: str, **options) -> dict[str, str]:
    record = run_script(job(_TRY + text, args=args, **options), level=Level.LANDLOCK)
    assert record.status == "ok", record.stderr_head + record.error
    return dict(line.split(" ", 1) for line in record.stdout_head.splitlines())


@pytest.fixture
def services(tmp_path):
    """A TCP port, a unix socket and an abstract one, which count who comes."""
    tcp = socket.create_server(("127.0.0.1", 0))
    named, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    path = str(tmp_path / "service.sock")
    named.bind(path)
    name = f"sbxtest{os.getpid()}"
    abstract.bind("\0" + name)
    met: list[str] = []
    servers = [tcp, named, abstract]

    def serve(server):
        while True:
            try:
                server.accept()[0].close()
            except OSError:
                return
            met.append(str(server))

    for server in servers:
        server.listen()
        threading.Thread(target=serve, args=(server,), daemon=True).start()
    yield str(tcp.getsockname()[1]), path, name, met
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def test_services_of_the_host_stay_unreached(services):
    port, path, name, met = services
    text = """
port, path, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
attempt("tcp", lambda: tcp().connect(("127.0.0.1", port)))
attempt("any", lambda: tcp().connect(("0.0.0.0", port)))
attempt("outside", lambda: tcp().connect(("192.0.2.1", 80)))
def mapped():
    six = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    six.connect(("::ffff:127.0.0.1", port))
attempt("mapped", mapped)
fast = lambda: tcp().sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", port))
attempt("fast_open", fast)
def message():
    tcp().sendmsg([b"x"], [], socket.MSG_FASTOPEN, ("127.0.0.1", port))
attempt("fast_message", message)
attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("multipath", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("netlink", lambda: socket.socket(16, socket.SOCK_RAW, 0))
attempt("named", lambda: unix().connect(path))
os.symlink(path, "soft")
attempt("by_link", lambda: unix().connect("soft"))
os.symlink(os.path.dirname(path), "folder")
attempt("by_folder", lambda: unix().connect("folder/service.sock"))
attempt("hard_link", lambda: os.link(path, "hard"))
attempt("abstract", lambda: unix().connect("\\0" + name))
"""
    said = _said(text, port, path, name)
    assert not [line for line in said.items() if "REACHED" in line[1]]
    assert met == []
    assert said["tcp"] == "ECONNREFUSED"
    assert said["outside"] == "ENETUNREACH"
    assert said["fast_open"] == said["fast_message"] == "EPERM"


def test_nothing_is_offered_to_others(tmp_path):
    text = """
import os
low, high = map(int, sys.argv[2].split())
def names(address):
    one = tcp(); one.bind(address); return one.getsockname()[0]
attempt("any", lambda: names(("", 0)))
attempt("outside", lambda: names((sys.argv[3], 0)))
attempt("service_port", lambda: names(("127.0.0.1", low - 1)))
def unbound():
    one = tcp(); one.listen(); return one.getsockname()[0]
attempt("unbound", unbound)
share = lambda: tcp().setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
attempt("share", share)
attempt("named", lambda: unix().bind(sys.argv[1] + "/made.sock"))
attempt("shared_memory", lambda: unix().bind("/dev/shm/made.sock"))
os.symlink(sys.argv[1], "folder")
attempt("by_link", lambda: unix().bind("folder/made.sock"))
attempt("up", lambda: unix().bind("../made.sock"))
attempt("abstract", lambda: unix().bind("\\0made"))
attempt("long", lambda: unix().bind("x" * 104))
"""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as stream:
        ports = stream.read()
    said = _said(text, str(tmp_path), ports, "192.0.2.1")
    assert said.pop("any") == said.pop("unbound") == "REACHED 127.0.0.1"
    said.pop("long")
    assert not [line for line in said.items() if "REACHED" in line[1]]
    assert list(tmp_path.iterdir()) == []
    assert not os.path.exists("/dev/shm/made.sock")


def test_a_folder_that_changes_under_way_leads_nowhere(tmp_path):
    text = """
import threading, time
os.mkdir("real"); os.symlink(sys.argv[1], "evil")
stop = []
def swap():
    while not stop:
        os.rename("real", "x"); os.rename("evil", "real"); os.rename("x", "evil")
        os.rename("real", "x"); os.rename("evil", "real"); os.rename("x", "evil")
thread = threading.Thread(target=swap); thread.start()
end, made = time.monotonic() + 1.0, 0
while time.monotonic() < end:
    try: unix().bind(f"real/s{made}"); made += 1
    except OSError: pass
stop.append(1); thread.join()
print("made", made)
"""
    assert int(_said(text, str(tmp_path))["made"]) > 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_closed_is_refused_and_ports_come_back():
    text = """
for _ in range(100):
    server = socket.create_server(("127.0.0.1", 0)); server.close()
attempt("closed", lambda: tcp().connect(("127.0.0.1", server.getsockname()[1])))
""".replace("server.close()\n", "port = server.getsockname()[1]; server.close()\n")
    text = text.replace("server.getsockname()[1])))\n", "port)))\n")
    assert _said(text)["closed"] == "ECONNREFUSED"


def test_scripts_of_other_slots_do_not_meet():
    place = f"/dev/shm/sbxtest{os.getpid()}"  # which slots share at this level
    serve = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
open(sys.argv[1] + "x", "w").write(str(server.getsockname()[1]))
os.rename(sys.argv[1] + "x", sys.argv[1])
server.settimeout(30)
while os.path.exists(sys.argv[1]): time.sleep(0.02)
server.settimeout(0.2)
try: server.accept(); print("MET")
except TimeoutError: pass
"""
    knock = """
import os, socket, sys, time
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
port = int(open(sys.argv[1]).read())
try: socket.socket().connect(("127.0.0.1", port)); print("MET", port)
except ConnectionRefusedError: print("refused")
os.unlink(sys.argv[1])
"""
    slots = [Slot(0, ()), Slot(1, ())]
    options = {"level": Level.LANDLOCK, "calibrate": False, "rerun_contended": False}
    with LocalPool(slots, **options) as pool:
        futures = [pool.submit(job(text, args=(place,))) for text in (serve, knock)]
        records = [future.result(60) for future in futures]
    assert [r.status for r in records] == ["ok", "ok"], records
    assert [r.stdout_head for r in records] == ["", "refused\n"]


def test_sockets_cost_little(tmp_path):
    text = """
import time
server = socket.create_server(("127.0.0.1", 0), backlog=256)
start = time.monotonic()
for _ in range(200): socket.create_connection(server.getsockname()).close()
print("seconds", time.monotonic() - start)
"""
    assert float(_said(text)["seconds"]) < 4


def test_a_socket_of_both_families_is_met_by_both(services):
    text = """
def listening(host, only):
    one = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
    if host is not None: one.bind((host, 0))
    one.listen(); return one
def met(server, host):
    with socket.create_connection((host, server.getsockname()[1]), timeout=20) as c:
        server.accept()[0].close()
        return c.family.name
for name, host in (("any", "::"), ("unbound", None), ("mapped", "::ffff:127.0.0.1")):
    server = listening(host, False)
    attempt(name + "4", lambda: met(server, "127.0.0.1"))
    attempt(name + "mapped", lambda: met(server, "::ffff:127.0.0.1"))
    if name != "mapped": attempt(name + "6", lambda: met(server, "::1"))
only = listening("::", True)
attempt("only6", lambda: met(only, "::1"))
attempt("refused", lambda: met(only, "127.0.0.1"))
attempt("host", lambda: met(socket.create_server(("127.0.0.1", 0)), "127.0.0.1"))
attempt("service", lambda: socket.create_connection(("::ffff:127.0.0.1", sys.argv[1])))
"""
    said = _said(text, services[0])
    assert said.pop("refused") == said.pop("service") == "ECONNREFUSED"
    assert set(said.values()) == {"REACHED AF_INET", "REACHED AF_INET6"}
    assert len(said) == 10
    assert services[3] == []
