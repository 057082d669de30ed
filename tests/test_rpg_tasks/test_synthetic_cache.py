"""The cache: built once, whole or absent, repaired, and clear about what went wrong."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from repo_paths import ROOT
from synthetic_helpers import SHORTS, shared_cache, small_data

from rpg_tasks import TaskError, prepare, prepare_task
from rpg_tasks.checks import digests
from rpg_tasks.digests import data_version
from rpg_tasks.prepare import (
    MANIFEST,
    default_cache_dir,
    ensure_built,
    is_whole,
)


def _fill(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "a.txt").write_text("one")
    (folder / "sub" / "b.txt").write_text("two")


def _visible(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir() if not p.name.endswith(".lock")}


def test_builds_once_and_leaves_nothing_beside(tmp_path):
    calls = []

    def build(folder):
        calls.append(folder)
        _fill(folder)

    place = tmp_path / "cache" / "x"
    ensure_built(place, build)
    ensure_built(place, build)
    assert len(calls) == 1
    assert is_whole(place)
    assert _visible(place.parent) == {"x"}


@pytest.mark.parametrize("damage", ["gone", "short", "no manifest", "bad manifest"])
def test_a_damaged_folder_is_built_again(tmp_path, damage):
    place = tmp_path / "x"
    ensure_built(place, _fill)
    if damage == "gone":
        (place / "sub" / "b.txt").unlink()
    elif damage == "short":
        (place / "a.txt").write_text("o")
    elif damage == "no manifest":
        (place / MANIFEST).unlink()
    else:
        (place / MANIFEST).write_text('{"files": ')
    assert not is_whole(place)
    ensure_built(place, _fill)
    assert is_whole(place)
    assert (place / "a.txt").read_text() == "one"
    assert _visible(tmp_path) == {"x"}


def test_a_failed_build_leaves_nothing_and_passes_its_error_on(tmp_path):
    def broken(folder):
        _fill(folder)
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        ensure_built(tmp_path / "x", broken)
    assert _visible(tmp_path) == set()


_SIDE_BY_SIDE = """
import os, sys, time
from pathlib import Path
from rpg_tasks.prepare import ensure_built

def build(folder):
    with open({log!r}, "a") as log:
        log.write(f"{{os.getpid()}}\\n")
    time.sleep(1.0)
    (folder / "a.txt").write_text("one")

print("ready", flush=True)
sys.stdin.readline()
ensure_built(Path({place!r}), build)
"""


def test_processes_at_once_build_once(tmp_path):
    place, log = tmp_path / "x", tmp_path / "log"
    code = _SIDE_BY_SIDE.format(place=str(place), log=str(log))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes)
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=60)
    assert [c.returncode for c in children] == [0, 0, 0]
    assert len(log.read_text().splitlines()) == 1
    assert is_whole(place)


_KILLED = """
import os, signal
from pathlib import Path
from rpg_tasks import prepare, prepare_task

def die(root):
    os.kill(os.getpid(), signal.SIGKILL)

prepare._write_manifest = die
prepare_task("leaf-classif", cache_dir=Path({cache!r}), seed=5)
"""


def _python(code: str, **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **kwargs,
    )


def test_a_killed_build_is_swept_and_repaired(tmp_path):
    result = _python(_KILLED.format(cache=str(tmp_path)))
    assert result.returncode == -signal.SIGKILL, result.stderr
    folder = tmp_path / "synthetic"
    left = _visible(folder)
    assert len(left) == 1
    assert left.pop().endswith(".tmp")
    data = prepare_task("leaf-classif", cache_dir=tmp_path, seed=5)
    assert data.answers.is_file()
    assert len(_visible(folder)) == 1
    assert is_whole(data.public.parents[1])


_FULL = """
import resource, signal, sys
from rpg_tasks import TaskError, prepare_task
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    prepare_task("spooky-author", cache_dir={cache!r})
except TaskError as error:
    sys.exit(str(error))
"""


def test_no_room_is_one_clear_line_and_a_later_run_repairs(tmp_path):
    result = _python(_FULL.format(cache=str(tmp_path)))
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "no room left" in result.stderr
    assert "--cache-dir" in result.stderr
    assert _visible(tmp_path / "synthetic") == set()
    assert prepare_task("spooky-author", cache_dir=tmp_path).answers.is_file()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "no room left"),
        (errno.EROFS, "cannot write to the cache"),
        (errno.EACCES, "cannot write to the cache"),
        (errno.EIO, "cannot build data"),
    ],
)
def test_errors_of_the_system_become_one_line(tmp_path, code, words):
    def fail(folder):
        raise OSError(code, os.strerror(code))

    with pytest.raises(TaskError, match=words) as caught:
        ensure_built(tmp_path / "x", fail)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_cache_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TaskError, match="--cache-dir"):
        prepare_task("spooky-author", cache_dir=tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_cache_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(TaskError, match="cannot write to the cache"):
        prepare_task("spooky-author", cache_dir=tmp_path)


def test_a_read_only_cache_that_is_whole_is_used(tmp_path, monkeypatch):
    place = tmp_path / "x"
    ensure_built(place, _fill)

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EROFS, "read-only")

    monkeypatch.setattr(prepare, "_locked", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    ensure_built(place, _fill)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"data": "kaggle"}, "'synthetic' or 'mlebench'"),
        ({"size": "huge"}, "'small' or 'medium'"),
        ({"seed": -1}, "negative"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, words):
    with pytest.raises(TaskError, match=words):
        prepare_task("spooky-author", cache_dir=tmp_path, **options)


def test_wrong_task_name_gets_a_suggestion(tmp_path):
    with pytest.raises(TaskError, match="spooky-author"):
        prepare_task("spooky-autor", cache_dir=tmp_path)


def test_seed_size_and_code_are_in_the_name(tmp_path, monkeypatch):
    data = prepare_task("spooky-author", cache_dir=tmp_path, seed=7)
    name = data.public.parents[1].name
    assert name == f"spooky-author-small-seed7-{data_version('spooky-author')}"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "xdg" / "rpg_jax" / "tasks"


@pytest.fixture(scope="module")
def real_layout(tmp_path_factory):
    """Synthetic files in the place of MLE-Bench's own."""
    base = tmp_path_factory.mktemp("mle-bench")
    data = small_data(shared_cache(tmp_path_factory), "leaf-classif")
    target = base / data.task.competition_id / "prepared"
    shutil.copytree(data.test_public.parent, target)
    return base, data


def test_real_data_get_the_same_view_by_the_same_code(real_layout, tmp_path):
    base, synthetic = real_layout
    data = prepare_task(
        "leaf-classif", data="mlebench", data_dir=base, cache_dir=tmp_path
    )
    assert (data.source, data.size) == ("mlebench", "full")
    assert digests(data.public) == digests(synthetic.public)
    assert data.answers.read_bytes() == synthetic.answers.read_bytes()
    assert data.test_public == base / data.task.competition_id / "prepared" / "public"
    assert data.test_answers.is_file()
    # Pictures are linked, not copied, and the source is left as it was.
    picture = next((data.public / "images").iterdir())
    assert picture.stat().st_nlink == 2
    assert digests(data.test_public) == digests(synthetic.test_public)


@pytest.mark.slow
@pytest.mark.parametrize("short", SHORTS)
def test_both_sources_agree_for_every_task(tmp_path_factory, tmp_path, short):
    synthetic = small_data(shared_cache(tmp_path_factory), short)
    home = tmp_path / "data" / synthetic.task.competition_id
    home.mkdir(parents=True)
    (home / "prepared").symlink_to(synthetic.test_public.parent)
    options = {"data": "mlebench", "data_dir": home.parent, "cache_dir": tmp_path}
    real = prepare_task(short, **options)
    assert digests(real.public) == digests(synthetic.public)
    assert real.answers.read_bytes() == synthetic.answers.read_bytes()


def test_changed_real_data_are_carved_again(real_layout, tmp_path):
    base, _ = real_layout
    own = tmp_path / "data"
    shutil.copytree(base, own)
    options = {"data": "mlebench", "data_dir": own, "cache_dir": tmp_path / "cache"}
    first = prepare_task("leaf-classif", **options)
    train = own / first.task.competition_id / "prepared" / "public" / "train.csv"
    lines = train.read_text().splitlines(keepends=True)
    train.write_text("".join(lines[:-40]))
    second = prepare_task("leaf-classif", **options)
    assert second.public != first.public


@pytest.mark.parametrize("damage", ["column", "picture", "bytes"])
def test_damaged_real_data_are_one_clear_line(real_layout, tmp_path, damage):
    base, _ = real_layout
    own = tmp_path / "data"
    shutil.copytree(base, own)
    public = own / "leaf-classification" / "prepared" / "public"
    if damage == "column":
        text = (public / "train.csv").read_text()
        (public / "train.csv").write_text(text.replace("species", "kind", 1))
    elif damage == "picture":
        next((public / "images").iterdir()).unlink()
        for path in sorted((public / "images").iterdir())[::2]:
            path.unlink()
    else:
        (public / "train.csv").write_bytes(b"id,species\n1,\xff\xfe\n")
    with pytest.raises(TaskError, match=r"leaf|missing") as caught:
        prepare_task("leaf-classif", data="mlebench", data_dir=own, cache_dir=tmp_path)
    assert "\n" not in str(caught.value)
    assert "again" in str(caught.value)
    assert _visible(tmp_path / "mlebench") == set()


def test_missing_and_half_prepared_real_data_name_the_command(real_layout, tmp_path):
    base, _ = real_layout
    with pytest.raises(TaskError, match="mlebench prepare -c leaf-classification"):
        prepare_task("leaf-classif", data="mlebench", data_dir=tmp_path / "none")
    own = tmp_path / "data"
    shutil.copytree(base, own)
    public = own / "leaf-classification" / "prepared" / "public"
    (public / "train.csv").unlink()
    with pytest.raises(TaskError, match=r"half-prepared \(public/train.csv"):
        prepare_task("leaf-classif", data="mlebench", data_dir=own)
