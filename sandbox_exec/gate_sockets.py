"""Sockets among a script's own processes, where no network namespace keeps them apart.

Stands alone, as the gate does. The script's filter lets it make stream sockets, but
each ``bind``, ``connect`` and ``listen`` stops it and asks here (seccomp's user
notification). They are carried out here, on a copy of its socket, with an address that
was read once and checked: the loopback interface, ports that the script itself holds,
and unix sockets in its own folders. Everything else fails, as it does without sockets.

Layout and numbers: Linux ``uapi/linux/seccomp.h``; a copied descriptor because what a
pointer points to can change after it was looked at (``seccomp_unotify(2)``).
"""

# ruff: noqa: SIM105  (importing contextlib would cost more than all else here)

import _queue
import _socket
import _thread
import ctypes
import errno
import fcntl
import os
import select
import stat
import struct
import time

TYPE_CHECKING = False  # as in `typing`, which takes too long to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sandbox_exec import gate_host
else:
    import gate_host  # from the same folder

_NOTIF_RECV, _NOTIF_SEND, _NOTIF_ID_VALID = 0xC0502100, 0xC0182101, 0x40082102
_PIDFD_GETFD = 438
_CLONE_FS = 0x200
_MOST_HELD = 64
_LONGEST_REST_S = 0.05
_LOOPBACK = {_socket.AF_INET: "127.0.0.1", _socket.AF_INET6: "::1"}
_EVERY = {_socket.AF_INET: "0.0.0.0", _socket.AF_INET6: "::"}
_ANY = {*_EVERY.values()}  # asked for: the loopback interface is what they get
_MAPPED = "::ffff:127.0.0.1"  # IPv4's loopback, for a socket of both families


class Refused(OSError):
    """Not for a script; with the number that it gets to see."""


def start(channel: _socket.socket, rules: "dict[str, Any]") -> None:
    """Answer a script's questions from a thread of our own.

    Args:
        channel: its other end sends the descriptor of the filter's notifications, or
            ends where there are none: then every question fails by itself.
        rules: of the gate; `calls` and `own` are for us.
    """

    def serve() -> None:
        _, passed, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(4))
        if passed:
            (listener,) = struct.unpack("=i", passed[0][2][:4])
            Broker(listener, rules["calls"], rules["own"]).serve()

    _thread.start_new_thread(serve, ())


class Binder:
    """Gives unix sockets their names, from a thread that may make them nowhere else.

    The name that a socket is given is the name that it tells: it must be the script's
    own words, looked up again by the kernel, and a folder on the way may be replaced
    meanwhile. So the looking up is restricted, by the thread's own Landlock domain.
    """

    def __init__(self, folders: list[str]):
        self._folders = folders
        self._jobs: _queue.SimpleQueue[Callable[[], None]] = _queue.SimpleQueue()
        self._done: _queue.SimpleQueue[int] = _queue.SimpleQueue()
        _thread.start_new_thread(self._work, ())
        if self._done.get():
            raise Refused(errno.EACCES, "no thread that is restricted")

    def _work(self) -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(_CLONE_FS) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            gate_host.confine(self._folders)
        except BaseException:
            self._done.put(errno.EACCES)
            return
        self._done.put(0)
        while True:
            job = self._jobs.get()
            try:
                job()
                self._done.put(0)
            except OSError as error:
                self._done.put(error.errno or errno.EACCES)

    def bind(self, sock: _socket.socket, path: bytes, folder: int) -> None:
        """Bind to a path that starts at an open folder.

        Raises:
            OSError: outside the script's folders, or taken.
        """

        def job() -> None:
            os.fchdir(folder)  # this thread's alone
            sock.bind(path)

        self._jobs.put(job)
        number = self._done.get()
        if number:
            raise OSError(number, os.strerror(number))


class Broker:
    """Answers one script's questions.

    Args:
        listener: descriptor of its filter's notifications.
        calls: number of each call, by its name.
        folders: where its unix sockets may lie.
    """

    def __init__(self, listener: int, calls: dict[str, int], folders: list[str]):
        self._listener = listener
        self._names = {number: name for name, number in calls.items()}
        self._folders = [os.path.realpath(folder) for folder in folders]
        self._binder: Binder | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long
        # Copies of its bound sockets: while we hold one, its port is nobody else's.
        self._held: dict[tuple[str, int], _socket.socket] = {}
        with open("/proc/sys/net/ipv4/ip_local_port_range") as stream:
            self._first_port, self._last_port = map(int, stream.read().split())

    def serve(self) -> None:
        """Answer until the script and its descendants are gone."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        while True:
            if not any(events & select.POLLIN for _, events in poll.poll()):
                return
            question = bytearray(80)
            try:
                fcntl.ioctl(self._listener, _NOTIF_RECV, question)
            except OSError:  # killed while it asked
                continue
            began = time.monotonic()
            number, pid, _, call = struct.unpack_from("=QIIi", question)
            args = struct.unpack_from("=6Q", question, 32)
            try:
                self._answer(self._names.get(call, ""), pid, number, args)
                result = 0
            except OSError as error:
                result = -(error.errno or errno.EACCES)
            except (KeyError, ValueError):
                result = -errno.EINVAL
            reply = struct.pack("=QqiI", number, 0, result, 0)
            try:
                fcntl.ioctl(self._listener, _NOTIF_SEND, reply)
            except OSError:
                pass  # it was killed meanwhile
            # Half the time at most: a flood of questions must not keep the other thread
            # of this process from watching over memory.
            time.sleep(min(_LONGEST_REST_S, time.monotonic() - began))

    def _answer(self, name: str, pid: int, number: int, args: tuple[int, ...]) -> None:
        # The whole process: its threads share descriptors and memory.
        with open(f"/proc/{pid}/status", "rb") as stream:
            fields = dict(x.split(b":", 1) for x in stream.read().splitlines())
        process = int(fields[b"Tgid"])
        address = b""
        if name in ("bind", "connect"):
            size = args[2] & 0xFFFFFFFF
            if not 2 <= size <= 128:
                raise Refused(errno.EINVAL, "size of the address")
            fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                address = os.pread(fd, size, args[1])
            finally:
                os.close(fd)
        pidfd = os.pidfd_open(process)
        try:
            # Still waiting for us: so the pid was its own all the time.
            fcntl.ioctl(self._listener, _NOTIF_ID_VALID, struct.pack("=Q", number))
            fd = self._libc.syscall(_PIDFD_GETFD, pidfd, ctypes.c_int(args[0]), 0)
            if fd < 0:
                raise Refused(ctypes.get_errno(), "no such descriptor")
        finally:
            os.close(pidfd)
        sock = _socket.socket(fileno=fd)
        try:
            if sock.type != _socket.SOCK_STREAM:
                raise Refused(errno.EACCES, "not a stream")
            self._carry_out(name, sock, address, args, pid)
        finally:
            if sock not in self._held.values():
                sock.close()

    def _carry_out(
        self,
        name: str,
        sock: _socket.socket,
        address: bytes,
        args: tuple[int, ...],
        pid: int,
    ) -> None:
        if name == "listen":
            if sock.family in _LOOPBACK and sock.getsockname()[1] == 0:
                self._bind(sock, _EVERY[sock.family], 0)
            if sock.family in _LOOPBACK and sock.getsockname()[0] not in (
                *_LOOPBACK.values(),
                _MAPPED,
            ):
                raise Refused(errno.EACCES, "not the loopback interface")
            sock.listen(min(args[1] & 0x7FFFFFFF, 4096))
            return
        family = struct.unpack_from("=H", address)[0]
        if family != sock.family:
            raise Refused(errno.EAFNOSUPPORT, "another family")
        if family == _socket.AF_UNIX:
            self._unix(name, sock, address[2:], pid)
            return
        host, port = _host_and_port(family, address)
        if name == "bind":
            self._bind(sock, host, port)
        else:
            self._connect(sock, host, port)

    def _bind(self, sock: _socket.socket, host: str, port: int) -> None:
        if host == "::" and _of_both_families(sock):
            # One socket has one address: callers of ::1 are led to this one.
            host = _MAPPED
        if host in _ANY:
            host = _LOOPBACK[sock.family]
        if host not in _own_addresses(sock):
            raise Refused(errno.EADDRNOTAVAIL, "not the loopback interface")
        # Below live services whose clients must not be met by a script.
        if port and not self._first_port <= port <= self._last_port:
            raise Refused(errno.EACCES, "not a port for everyone")
        if len(self._held) >= _MOST_HELD:
            self._forget_closed()
        if len(self._held) >= _MOST_HELD:
            raise Refused(errno.ENOBUFS, "too many bound sockets")
        sock.bind((host, port))
        self._held[(host, sock.getsockname()[1])] = sock

    def _connect(self, sock: _socket.socket, host: str, port: int) -> None:
        if host in _ANY:
            host = _LOOPBACK[sock.family]
        if host not in _own_addresses(sock):
            raise Refused(errno.ENETUNREACH, "no network")
        self._forget_closed()
        for place, reached in _ways(sock, host):
            held = self._held.get((place, port))
            if held and held.getsockopt(_socket.SOL_SOCKET, _socket.SO_ACCEPTCONN):
                sock.connect((reached, port))
                return
        raise Refused(errno.ECONNREFUSED, "not a port of its own")

    def _forget_closed(self) -> None:
        """Close copies of what the script has closed: nobody would answer there."""
        inodes = {
            os.fstat(sock.fileno()).st_ino: key for key, sock in self._held.items()
        }
        if not inodes:
            return
        used = set()
        for pid in gate_host.descendants():
            try:
                for name in os.listdir(f"/proc/{pid}/fd"):
                    target = os.readlink(f"/proc/{pid}/fd/{name}")
                    if target.startswith("socket:["):
                        used.add(int(target[8:-1]))
            except OSError:
                continue
        for inode in inodes.keys() - used:
            self._held.pop(inodes[inode]).close()

    def _unix(self, name: str, sock: _socket.socket, raw: bytes, pid: int) -> None:
        path = raw.partition(b"\0")[0]
        if not path:  # abstract names are the whole machine's
            raise Refused(errno.EACCES, "no abstract names")
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        cwd = os.open(f"/proc/{pid}/cwd", flags)
        try:
            if name == "bind":
                self._binder = self._binder or Binder(self._folders)
                self._binder.bind(sock, path, cwd)
                return
            folder, _, last = path.rpartition(b"/")
            start = b"/" + folder if path.startswith(b"/") else folder or b"."
            # Held open: whatever becomes of its name, this folder is the one checked.
            top = os.open(start, flags, dir_fd=cwd)
        finally:
            os.close(cwd)
        try:
            self._connect_below(sock, top, last)
        finally:
            os.close(top)

    def _connect_below(self, sock: _socket.socket, top: int, last: bytes) -> None:
        real = os.readlink(f"/proc/self/fd/{top}") + "/"
        if not any(real.startswith(own + "/") for own in self._folders):
            raise Refused(errno.EACCES, "not in its own folders")
        end = os.open(last, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
        try:
            found = os.fstat(end)
            if not stat.S_ISSOCK(found.st_mode) or found.st_nlink != 1:
                raise Refused(errno.ECONNREFUSED, "not a socket of its own")
            sock.connect(f"/proc/self/fd/{end}")
        finally:
            os.close(end)


def _of_both_families(sock: _socket.socket) -> bool:
    """Whether an IPv6 socket meets IPv4 too."""
    return sock.family == _socket.AF_INET6 and not sock.getsockopt(
        _socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY
    )


def _own_addresses(sock: _socket.socket) -> set[str]:
    """The loopback interface's addresses that a socket can have or reach."""
    return {_LOOPBACK[sock.family]} | ({_MAPPED} if _of_both_families(sock) else set())


def _ways(sock: _socket.socket, host: str) -> list[tuple[str, str]]:
    """Addresses under which a listener may be held, each with the one to connect to."""
    four = _LOOPBACK[_socket.AF_INET]
    if host == four:
        return [(four, four), (_MAPPED, four)]
    if host == _MAPPED:
        return [(four, _MAPPED), (_MAPPED, _MAPPED)]
    # A listener of both families lies at IPv4's address, see `_bind`.
    return [(host, host), *([(_MAPPED, _MAPPED)] if _of_both_families(sock) else [])]


def _host_and_port(family: int, address: bytes) -> tuple[str, int]:
    inet6 = family == _socket.AF_INET6
    if len(address) < (24 if inet6 else 8):
        raise Refused(errno.EINVAL, "size of the address")
    port = struct.unpack_from("!H", address, 2)[0]
    raw = address[8:24] if inet6 else address[4:8]
    return _socket.inet_ntop(family, raw), port
