"""Real data: found, or explained in one line; archives are read with care."""

import io
import stat
import zipfile

import pytest

from rpg_tasks import TaskError, archives, get_task, load_tasks, mlebench
from rpg_tasks.mlebench import HALF, MISSING, READY

py7zr = pytest.importorskip("py7zr")


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)


def lay_out(task, data_dir):
    """The least that passes for a prepared task."""
    root = data_dir / task.competition_id / "prepared"
    for name in task.files:
        path = root / "public" / name.replace("*", "0001")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".zip":
            write_zip(path, {path.stem: "id,after\n0_0,x\n"})
        else:
            path.write_text("x,y\n1,2\n")
    (root / "private").mkdir()
    columns = [task.id_column, *(task.targets or ["a", "b"])]
    (root / "private" / task.answers).write_text(",".join(columns) + "\n")
    return root


@pytest.mark.parametrize("task", load_tasks().values(), ids=lambda t: t.short)
def test_ready_half_and_missing(task, tmp_path):
    assert mlebench.inspect_prepared(task, tmp_path).state == MISSING
    with pytest.raises(TaskError) as caught:
        mlebench.find_prepared(task, tmp_path)
    message = str(caught.value)
    assert f"mlebench prepare -c {task.competition_id} --data-dir {tmp_path}" in message
    assert "not there" in message
    assert "\n" not in message

    root = lay_out(task, tmp_path)
    found = mlebench.find_prepared(task.short, str(tmp_path))
    assert found.state == READY
    assert found.public == root / "public"
    assert found.answers.is_file()
    assert found.sample.is_file()

    for name in (*task.files, None):
        folder = "private" if name is None else "public"
        hit = root / folder / (name or task.answers).replace("*", "0001")
        aside = tmp_path / "aside"
        hit.rename(aside)
        found = mlebench.inspect_prepared(task, tmp_path)
        assert found.state == HALF
        assert f"{folder}/{name or task.answers} is missing" in found.problems
        aside.rename(hit)
    assert mlebench.inspect_prepared(task, tmp_path).state == READY


def test_downloaded_but_not_prepared(tmp_path):
    task = get_task("pizza")
    (tmp_path / task.competition_id / "raw").mkdir(parents=True)
    with pytest.raises(TaskError, match="downloaded but not prepared"):
        mlebench.find_prepared(task, tmp_path)


def test_damaged_files_are_noticed(tmp_path):
    task = get_task("aerial-cactus")
    root = lay_out(task, tmp_path)
    whole = (root / "public" / "train.zip").read_bytes()
    for data, words in (
        (whole[: len(whole) // 2], "damaged or cut short"),
        (b"", "is empty"),
        (b"<html>sign in</html>", "damaged or cut short"),
    ):
        (root / "public" / "train.zip").write_bytes(data)
        with pytest.raises(TaskError, match=words):
            mlebench.find_prepared(task, tmp_path)
    write_zip(root / "public" / "train.zip", {})
    with pytest.raises(TaskError, match="holds no files"):
        mlebench.find_prepared(task, tmp_path)
    (root / "public" / "train.zip").write_bytes(whole)
    (root / "private" / "test.csv").write_text("id,label\n")
    with pytest.raises(TaskError, match="no column 'has_cactus'"):
        mlebench.find_prepared(task, tmp_path)
    (root / "private" / "test.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="cannot be read"):
        mlebench.find_prepared(task, tmp_path)


def test_the_default_folder_is_mle_benchs(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert mlebench.default_data_dir() == tmp_path / "mle-bench" / "data"
    command = mlebench.prepare_command(get_task("whale"), mlebench.default_data_dir())
    assert command == (
        "mlebench prepare -c the-icml-2013-whale-challenge-right-whale-redux"
    )
    spaced = mlebench.prepare_command(get_task("pizza"), tmp_path / "my data")
    assert spaced.endswith("data'")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert mlebench.default_data_dir() == tmp_path / ".cache" / "mle-bench" / "data"
    monkeypatch.setattr("sys.platform", "darwin")
    assert "Library/Caches" in mlebench.default_data_dir().as_posix()


@pytest.fixture(params=[".zip", ".7z"])
def archive(request, tmp_path):
    path = tmp_path / f"data.csv{request.param}"
    if request.param == ".zip":
        write_zip(path, {"data.csv": "a,b\n1,é\n"})
    else:
        with py7zr.SevenZipFile(path, "w") as out:
            out.writestr("a,b\n1,é\n", "data.csv")
    return path


def test_archives_are_read_and_unpacked(archive, tmp_path):
    text = "a,b\n1,é\n".encode()
    assert archives.is_archive(archive)
    assert archives.list_members(archive) == {"data.csv": len(text)}
    assert archives.read_file(archive) == text
    assert archives.read_member(archive, "data.csv") == text
    written = archives.extract(archive, tmp_path / "out")
    assert [path.read_bytes() for path in written] == [text]
    plain = tmp_path / "plain.csv"
    plain.write_bytes(text)
    assert archives.read_file(plain) == text


def test_archive_limits_and_missing_members(archive, tmp_path):
    with pytest.raises(TaskError, match="no member 'x'"):
        archives.read_member(archive, "x")
    with pytest.raises(TaskError, match="more than 3 bytes"):
        archives.read_member(archive, "data.csv", limit_bytes=3)
    with pytest.raises(TaskError, match="more than 3 bytes"):
        archives.extract(archive, tmp_path / "out", limit_bytes=3)
    assert not (tmp_path / "out").exists()
    for data in (archive.read_bytes()[:20], b"not an archive", b""):
        archive.write_bytes(data)
        with pytest.raises(TaskError, match="not a readable archive"):
            archives.list_members(archive)
    with pytest.raises(FileNotFoundError):
        archives.list_members(tmp_path / f"none{archive.suffix}")


def test_clutter_does_not_count_and_two_files_are_ambiguous(tmp_path):
    path = tmp_path / "a.zip"
    write_zip(path, {"a.csv": "x", "__MACOSX/._a.csv": "y", ".DS_Store": "z"})
    assert archives.read_file(path) == b"x"
    write_zip(path, {"a.csv": "x", "b.csv": "y"})
    with pytest.raises(TaskError, match="should hold one file, it holds 2"):
        archives.read_file(path)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "c:/evil"])
def test_a_member_outside_the_folder_is_refused(tmp_path, name):
    path = tmp_path / "a.zip"
    write_zip(path, {"ok": "x", name: "y"})
    with pytest.raises(TaskError, match="outside the archive"):
        archives.extract(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_in_a_zip_is_refused(tmp_path):
    path = tmp_path / "a.zip"
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    path.write_bytes(buffer.getvalue())
    with pytest.raises(TaskError, match="holds a link"):
        archives.extract(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
