"""Sizes and checksums of a directory's files: damage is found before data are used."""

import json
import os
import zlib
from pathlib import Path

MISSING = "it has no manifest, so nothing says whether its files are whole"
UNFINISHED = "its saving was cut short"


def write(path: Path, root: Path) -> None:
    """Record every file below a directory; the manifest appears whole or not at all.

    Args:
        path: of the manifest, outside `root`.
        root: the directory.
    """
    temporary = path.with_suffix(".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(inventory(root), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def damage(path: Path, root: Path) -> str:
    """What is wrong with a directory's files, or an empty string.

    Args:
        path: of the manifest.
        root: the directory.
    """
    try:
        wanted = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return MISSING
    except (OSError, ValueError) as error:
        return f"its manifest cannot be read: {error}"
    found = inventory(root, sizes_only=True)
    for name, (size, _) in wanted.items():
        if name not in found:
            return f"{name} is missing"
        if found[name][0] != size:
            return f"{name} has {found[name][0]} of {size} bytes"
    found = inventory(root)
    for name, entry in wanted.items():
        if list(found[name]) != list(entry):
            return f"{name} has a wrong checksum"
    return ""


def inventory(root: Path, *, sizes_only: bool = False) -> dict[str, tuple[int, int]]:
    """Size in bytes and CRC-32 (0 if not asked for) of every file below a directory."""
    found = {}
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        crc = 0
        if not sizes_only:
            with open(path, "rb") as file:
                while block := file.read(2**20):
                    crc = zlib.crc32(block, crc)
        found[str(path.relative_to(root))] = (path.stat().st_size, crc)
    return found
