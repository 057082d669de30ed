"""Zip and 7z archives of competition data: list, read one member, unpack safely.

A member that would land outside the target folder, a link, or an archive that unpacks
to more than a set size is refused before anything is written.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from rpg_tasks.task import TaskError

SUFFIXES = (".zip", ".7z")
# dogs-vs-cats, the largest archive of the 22 tasks, unpacks to less than 1 GB.
MAX_UNPACKED_BYTES = 64 << 30
MAX_MEMBER_BYTES = 16 << 30


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether the name ends like an archive that this module reads."""
    return Path(path).suffix.lower() in SUFFIXES


def _py7zr() -> ModuleType:
    try:
        import py7zr
    except ImportError:
        raise TaskError("reading .7z archives needs py7zr: pip install py7zr") from None
    return py7zr


def _broken(path: Path, error: Exception) -> TaskError:
    return TaskError(
        f"{path} is not a readable archive ({error}); fetch or prepare it again"
    )


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, EOFError) as error:
        raise _broken(path, error) from error


def _open_7z(path: Path) -> Any:  # py7zr has no types
    py7zr = _py7zr()
    try:
        return py7zr.SevenZipFile(path, mode="r")
    except (py7zr.exceptions.ArchiveError, EOFError, ValueError) as error:
        raise _broken(path, error) from error


def list_members(path: str | os.PathLike[str]) -> dict[str, int]:
    """Files in an archive with their unpacked sizes in bytes, in archive order.

    Raises:
        TaskError: the archive is broken or truncated, or py7zr is missing.
        FileNotFoundError: there is no such file.
    """
    path = Path(path)
    if path.suffix.lower() == ".7z":
        with _open_7z(path) as archive:
            infos = archive.list()
        return {i.filename: i.uncompressed for i in infos if not i.is_directory}
    with _open_zip(path) as archive:
        infos = archive.infolist()
    return {i.filename: i.file_size for i in infos if not i.is_dir()}


def read_member(
    path: str | os.PathLike[str], name: str, limit_bytes: int = MAX_MEMBER_BYTES
) -> bytes:
    """One member's bytes.

    Raises:
        TaskError: broken archive, no such member, or larger than ``limit_bytes``.
    """
    path = Path(path)
    sizes = list_members(path)
    if name not in sizes:
        raise TaskError(f"{path} has no member {name!r}")
    if sizes[name] > limit_bytes:
        raise TaskError(f"{path}: {name} unpacks to more than {limit_bytes} bytes")
    if path.suffix.lower() == ".7z":
        py7zr = _py7zr()
        try:
            with _open_7z(path) as archive:
                factory = py7zr.io.BytesIOFactory(limit_bytes)
                archive.extract(targets=[name], factory=factory)
                product: bytes = factory.products[name].read()
            return product
        except (py7zr.exceptions.ArchiveError, EOFError, OSError) as error:
            raise _broken(path, error) from error
    try:
        with _open_zip(path) as archive, archive.open(name) as member:
            data = member.read(limit_bytes + 1)  # a header may lie about the size
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise _broken(path, error) from error
    if len(data) > limit_bytes:
        raise TaskError(f"{path}: {name} unpacks to more than {limit_bytes} bytes")
    return data


def read_file(path: str | os.PathLike[str]) -> bytes:
    """A file's bytes; of an archive with a single file, that file's bytes.

    Folders, ``__MACOSX`` and hidden entries of an archive do not count.

    Raises:
        TaskError: a broken archive, or one with several files.
        OSError: the file cannot be read.
    """
    path = Path(path)
    if not is_archive(path):
        return path.read_bytes()
    names = [n for n in list_members(path) if not _is_clutter(n)]
    if len(names) != 1:
        raise TaskError(f"{path} should hold one file, it holds {len(names)}")
    return read_member(path, names[0])


def _is_clutter(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return "__MACOSX" in parts or any(part.startswith(".") for part in parts)


def _checked_names(path: Path, limit_bytes: int) -> Iterator[str]:
    total = 0
    for name, size in list_members(path).items():
        pure = PurePosixPath(name.replace("\\", "/"))
        if pure.is_absolute() or ".." in pure.parts or ":" in pure.parts[0]:
            raise TaskError(f"{path}: member {name!r} points outside the archive")
        total += size
        if total > limit_bytes:
            raise TaskError(f"{path} unpacks to more than {limit_bytes} bytes")
        yield name


def extract(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    limit_bytes: int = MAX_UNPACKED_BYTES,
) -> list[Path]:
    """Unpack a whole archive below ``folder``; returns the files written.

    Raises:
        TaskError: broken archive, a member that would leave the folder, a link, or more
            than ``limit_bytes`` unpacked; nothing is written in the last three cases.
    """
    path, folder = Path(path), Path(folder)
    names = list(_checked_names(path, limit_bytes))
    if path.suffix.lower() == ".7z":
        py7zr = _py7zr()
        try:
            with _open_7z(path) as archive:
                if any(f.is_symlink for f in archive.files):
                    raise TaskError(f"{path} holds a link")
                archive.extractall(folder)
        except (py7zr.exceptions.ArchiveError, EOFError) as error:
            raise _broken(path, error) from error
        return [folder / name for name in names]
    try:
        with _open_zip(path) as archive:
            for info in archive.infolist():
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise TaskError(f"{path} holds a link: {info.filename}")
            archive.extractall(folder)
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError) as error:
        raise _broken(path, error) from error
    return [folder / name for name in names]
