"""Reading a submission out of a hostile folder, and emptying such a folder."""

import errno
import os
import socket

import pytest

from sandbox_exec.collect import collect
from sandbox_exec.errors import SandboxError
from sandbox_exec.inputs import check_inputs
from sandbox_exec.janitor import remove_folder
from sandbox_exec.output import OutputTail


@pytest.fixture
def folder(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield tmp_path, fd
    os.close(fd)


def test_collects_plain_files_exactly(folder):
    path, fd = folder
    (path / "s.csv").write_bytes(b"\x00\xff\r\n")
    found, data = collect(fd, "s.csv", 4)
    assert (found.status, found.n_bytes, data) == ("ok", 4, b"\x00\xff\r\n")
    assert collect(fd, "s.csv", 3)[0].status == "rejected"
    assert collect(fd, "S.csv", 4)[0].status == "missing"
    assert collect(fd, "s", 4)[0].status == "missing"


def test_rejects_everything_else(folder, tmp_path_factory):
    path, fd = folder
    secret = tmp_path_factory.mktemp("other") / "secret"
    secret.write_text("answers")
    (path / "link").symlink_to(secret)
    os.link(secret, path / "twin")
    os.mkfifo(path / "fifo")
    (path / "dir").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        old = os.getcwd()
        os.chdir(path)
        server.bind("sock")
        os.chdir(old)
    for name in ("link", "twin", "fifo", "dir", "sock"):
        found, data = collect(fd, name, 1 << 20)
        assert (found.status, data) == ("rejected", b""), name
        assert found.reason


def test_forbidden_modes_do_not_matter(folder):
    path, fd = folder
    (path / "s.csv").write_text("x")
    os.chmod(path / "s.csv", 0)
    os.chmod(path, 0)
    assert collect(fd, "s.csv", 9)[1] == b"x"


def test_sparse_files_are_not_read(folder):
    path, fd = folder
    with open(path / "s.csv", "wb") as stream:
        stream.truncate(1 << 40)
    assert collect(fd, "s.csv", 1 << 20)[0].n_bytes == 1 << 40


def test_removes_any_folder_without_following_links(tmp_path):
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "file").write_text("stay")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "out").symlink_to(keep)
    os.mkdir(os.fsencode(victim) + b"/\xff\xfe")
    open(os.fsencode(victim) + b"/\xff\xfe/\n\x80", "w").close()
    (victim / "up1").mkdir()
    (victim / "up1" / "up2").mkdir()
    (victim / "up1" / "up2" / "x").write_text("x")
    here = os.getcwd()
    os.chdir(victim)
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)
    (victim / "closed").mkdir()
    (victim / "closed" / "inner").mkdir()
    os.chmod(victim / "closed", 0)
    os.chmod(victim, 0o500)
    remove_folder(victim)
    assert not victim.exists()
    assert (keep / "file").read_text() == "stay"


def test_inputs_hold_files_only(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.csv").write_text("1")
    check_inputs(tmp_path)
    os.mkfifo(tmp_path / "sub2")
    with pytest.raises(SandboxError, match="sub2"):
        check_inputs(tmp_path)
    with pytest.raises(SandboxError, match="cannot be used"):
        check_inputs(tmp_path / "none")
    with pytest.raises(SandboxError, match="not a folder"):
        check_inputs(tmp_path / "sub" / "a.csv")


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_output_tail_equals_slicing(step):
    data = bytes(range(256)) * 20
    for keep in (1, 10, 101, 5000, 9999):
        tail = OutputTail(keep)
        for start in range(0, len(data), step):
            tail.feed(data[start : start + step])
        head_size = keep // 2
        rest = data[head_size:]
        assert tail.total == len(data)
        escape = lambda b: b.decode("utf-8", "backslashreplace")  # noqa: E731
        assert tail.head == escape(data[:head_size])
        assert tail.tail == escape(rest[-(keep - head_size) :])


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ENOMEM])
def test_the_machines_own_failure_is_not_the_scripts(folder, monkeypatch, number):
    path, fd = folder
    (path / "s.csv").write_bytes(b"x")

    def fails(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("sandbox_exec.collect.os.open", fails)
    with pytest.raises(OSError, match=os.strerror(number)):
        collect(fd, "s.csv", 9)
