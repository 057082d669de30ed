"""What a folder of data really holds: names, shapes, types, first rows.

Prompts are built from this listing and never from a competition's description, because
several descriptions name files, columns or formats that the prepared data do not have.
Files of one kind in one folder are one entry (``train/*.jpg``).
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import functools
import io
import itertools
import json
import os
import posixpath
import re
import struct
import wave
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from rpg_tasks import archives
from rpg_tasks.task import TaskError

# More files of one suffix than this in a folder are shown as one pattern.
_MANY = 4
# Tables above this size are counted by the length of their first rows.
_COUNT_BYTES = 64 << 20
_TYPE_ROWS = 500
_IMAGES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".gif"}


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of the listing.

    Attributes:
        name: path or pattern relative to the folder.
        what: shape and content in words.
        head: the first rows as text, maybe empty.
    """

    name: str
    what: str
    head: str = ""


def _short(text: str, limit: int) -> str:
    text = text.replace("\t", " ").rstrip("\r\n")
    return text if len(text) <= limit else text[: limit - 3] + "..."


# --- tables -------------------------------------------------------------------------


def _value_kind(value: str) -> str:
    # Leading zeros mark an identifier, whatever it would be as a number.
    if "_" in value or re.match(r"[+-]?0\d", value):
        return "str"
    if re.fullmatch(r"[+-]?\d{1,18}", value):
        return "int"
    try:
        float(value)
    except ValueError:
        return "str"
    return "float"


def _kind(values: Iterable[str]) -> str:
    values = set(values)
    kinds = {_value_kind(value) for value in values if value}
    kind = next((k for k in ("str", "float", "int") if k in kinds), "blank")
    return f"{kind}, may be blank" if "" in values and kinds else kind


def _columns(header: list[str], rows: list[list[str]], limit: int) -> str:
    columns = [[row[i] for row in rows if i < len(row)] for i in range(len(header))]
    typed = list(zip(header, map(_kind, columns), strict=True))
    parts: list[str] = []
    # feature1, feature2, ... of one type are one part.
    for (prefix, kind), group in itertools.groupby(
        typed, lambda nk: (re.sub(r"\d+$", "", nk[0]), nk[1])
    ):
        names = [name for name, _ in group]
        if len(names) > 3 and prefix != names[0]:
            parts.append(f"{names[0]}..{names[-1]} ({kind})")
        else:
            parts += [f"{name} ({kind})" for name in names]
    if len(parts) <= limit:
        return ", ".join(parts)
    kinds = {kind for _, kind in typed[3:]}
    same = f", all {kinds.pop()}" if len(kinds) == 1 else ""
    return (
        f"{', '.join(parts[:3])}, ... {typed[-1][0]} ({typed[-1][1]}); "
        f"{len(header)} columns{same}"
    )


def _describe_csv(name: str, text: io.TextIOBase, size: int, wide: int) -> Entry:
    reader = csv.reader(text)
    try:
        header = next(reader)
        rows = list(itertools.islice(reader, _TYPE_ROWS))
        if size <= _COUNT_BYTES:
            number = len(rows) + sum(1 for row in reader if row)
            count = f"{number} row{'' if number == 1 else 's'}"
        else:
            buffer = io.StringIO()
            csv.writer(buffer).writerows(rows)
            per_row = max(len(buffer.getvalue().encode()) / max(len(rows), 1), 1.0)
            count = f"about {round(size / per_row, -3):.0f} rows"
    except StopIteration:
        return Entry(name, "empty")
    except (csv.Error, UnicodeDecodeError):
        return Entry(name, f"text, {size} bytes")
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *rows[:2]])
    head = "\n".join(_short(line, 160) for line in buffer.getvalue().split("\n")[:3])
    return Entry(name, f"{count}: {_columns(header, rows, wide)}", head)


def _describe_json(name: str, data: bytes, wide: int) -> Entry:
    try:
        records = json.loads(data)
    except ValueError:
        return Entry(name, f"JSON, {len(data)} bytes")
    if not (isinstance(records, list) and records and isinstance(records[0], dict)):
        return Entry(name, f"JSON, a {type(records).__name__} of {len(records)}")
    first = records[0]
    fields = [f"{key} ({type(value).__name__})" for key, value in first.items()]
    shown = ", ".join(fields[: 2 * wide])
    more = f", ... {len(fields)} fields" if len(fields) > 2 * wide else ""
    return Entry(name, f"JSON list of {len(records)} records: {shown}{more}")


# --- media --------------------------------------------------------------------------


def _aiff_shape(data: bytes) -> str:
    position = 12
    while position + 8 <= len(data):
        tag, size = struct.unpack(">4sI", data[position : position + 8])
        if tag == b"COMM":
            channels, frames, bits, exponent, mantissa = struct.unpack(
                ">hIhHQ", data[position + 8 : position + 26]
            )
            rate = mantissa * 2.0 ** (exponent - 16383 - 63)
            return f"{frames / rate:.3g} s, {rate:.0f} Hz, {channels} ch, {bits} bit"
        position += 8 + size + size % 2
    return ""


def _media_shape(suffix: str, data: bytes) -> str:
    """Shape of one image or recording, or nothing where it cannot be told."""
    try:
        if suffix in _IMAGES:
            from PIL import Image

            with Image.open(io.BytesIO(data)) as image:
                bands = "".join(image.getbands())
                return f"{image.width}x{image.height} {bands}"
        if suffix == ".wav":
            with wave.open(io.BytesIO(data)) as sound:
                rate = sound.getframerate()
                return (
                    f"{sound.getnframes() / rate:.3g} s, {rate} Hz, "
                    f"{sound.getnchannels()} ch, {8 * sound.getsampwidth()} bit"
                )
        if suffix in (".aif", ".aiff"):
            return _aiff_shape(data)
    except Exception:  # an odd file is listed without its shape
        return ""
    return ""


# --- files --------------------------------------------------------------------------


def _patterns(names: Iterable[str]) -> dict[str, list[str]]:
    """Names grouped under patterns: ``train/*.jpg``, ``train/*/geometry.xyz``."""
    split = []  # folder, file name, suffix
    for name in sorted(names):
        folder, _, file = name.rpartition("/")
        split.append((folder, file, posixpath.splitext(file)[1]))
    children: dict[str, set[str]] = {}
    for folder in {folder for folder, _, _ in split}:
        parts = folder.split("/") if folder else []
        for depth, part in enumerate(parts):
            children.setdefault("/".join(parts[:depth]), set()).add(part)

    @functools.cache
    def folder_pattern(folder: str) -> str:
        parts = folder.split("/") if folder else []
        shown = [
            "*" if len(children["/".join(parts[:depth])]) > _MANY else part
            for depth, part in enumerate(parts)
        ]
        return "".join(f"{part}/" for part in shown)

    count = collections.Counter((folder, suffix) for folder, _, suffix in split)
    groups: dict[str, list[str]] = {}
    for folder, file, suffix in split:
        many = count[folder, suffix] > _MANY
        # At the top level, tables are listed one by one however many there are.
        if not folder and suffix.lower() in (".csv", ".json", ".txt"):
            many = False
        pattern = folder_pattern(folder) + (f"*{suffix}" if many else file)
        groups.setdefault(pattern, []).append(f"{folder}/{file}" if folder else file)
    return groups


def _describe_group(pattern: str, names: list[str], first: bytes) -> Entry:
    suffix = PurePosixPath(names[0]).suffix.lower()
    shape = _media_shape(suffix, first)
    example = f"{PurePosixPath(names[0]).name}" if "*" in pattern else ""
    words = [f"{len(names)} files" if len(names) > 1 else ""]
    words.append(f"first {example}" if example else "")
    words.append(shape or (f"{len(first)} bytes" if len(names) == 1 else ""))
    head = ""
    if suffix in (".txt", ".xyz") and first:
        lines = first[:2000].decode("utf-8", "replace").split("\n")
        head = "\n".join(_short(line, 100) for line in lines[:3])
        if len(names) == 1:
            count = first.count(b"\n")
            words = [f"{count} lines of text"]
    return Entry(pattern, ", ".join(word for word in words if word), head)


def _describe_archive(
    name: str, path: Path, wide: int, beside: dict[str, int]
) -> list[Entry]:
    members = {
        member: size
        for member, size in archives.list_members(path).items()
        if not PurePosixPath(member).name.startswith(".") and "__MACOSX" not in member
    }
    entries = []
    for pattern, names in _patterns(members).items():
        suffix = PurePosixPath(names[0]).suffix.lower()
        if beside.get(names[0]) == members[names[0]]:
            entries.append(Entry(name, f"{names[0]} once more, zipped"))
            continue
        if suffix == ".csv" and path.suffix == ".zip":
            import zipfile

            with zipfile.ZipFile(path) as archive, archive.open(names[0]) as raw:
                text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
                entry = _describe_csv(pattern, text, members[names[0]], wide)
        elif suffix == ".json":
            entry = _describe_json(pattern, archives.read_member(path, names[0]), wide)
        else:
            data = b""
            if members[names[0]] <= _COUNT_BYTES:
                data = archives.read_member(path, names[0])
            entry = _describe_group(pattern, names, data)
        entries.append(dataclasses.replace(entry, name=f"{name} > {entry.name}"))
    return entries


def describe(public: Path | str, wide: int = 12) -> tuple[Entry, ...]:
    """The listing of a folder, tables first.

    Args:
        public: folder with a task's public data.
        wide: tables with more (groups of) columns than this are abbreviated.

    Raises:
        TaskError: there is no such folder, or a file in it cannot be read.
    """
    return _describe(str(Path(public).resolve()), wide)


@functools.lru_cache(maxsize=64)
def _describe(public: str, wide: int) -> tuple[Entry, ...]:
    root = Path(public)
    if not root.is_dir():
        raise TaskError(f"there is no data folder {root}")
    names = [
        (Path(folder) / name).relative_to(root).as_posix()
        for folder, _, files in os.walk(root)
        for name in files
        if not name.startswith(".")
    ]
    entries: list[Entry] = []
    try:
        top = {name: (root / name).stat().st_size for name in names if "/" not in name}
        for pattern, group in _patterns(names).items():
            path = root / group[0]
            size, suffix = path.stat().st_size, path.suffix.lower()
            if len(group) == 1 and archives.is_archive(path):
                entries += _describe_archive(pattern, path, wide, top)
            elif len(group) == 1 and suffix == ".csv":
                with path.open(encoding="utf-8-sig", newline="") as text:
                    entries.append(_describe_csv(pattern, text, size, wide))
            elif len(group) == 1 and suffix == ".json":
                entries.append(_describe_json(pattern, path.read_bytes(), wide))
            else:
                data = path.read_bytes() if size <= _COUNT_BYTES else b""
                entries.append(_describe_group(pattern, group, data))
    except OSError as error:
        raise TaskError(f"the data in {root} cannot be read: {error}") from error
    # Stable order: tables before media, each by name.
    entries.sort(key=lambda entry: (not entry.head and "JSON" not in entry.what,))
    return tuple(entries)
