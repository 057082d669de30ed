"""Regenerate results/mle_bench from the records that are committed there.

    python -m benchmarks.committed_report            # compare; exit code 1: they differ
    python -m benchmarks.committed_report --write    # write tables and figures again

Compares the tables byte for byte. Figures are compared by --figures alone: their bytes
depend on versions of matplotlib and its fonts.
"""

import argparse
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments.reporting.build import build

RESULTS = Path(__file__).parent.parent / "results" / "mle_bench"
TABLES = ("tables.md", "arms.csv", "contests.csv", "learning.csv")


def unpack(target: Path) -> list[Path]:
    """Unpack all archives of records into a folder; the experiments' folders."""
    for archive in sorted((RESULTS / "records").glob("*.tar.xz")):
        with tarfile.open(archive) as file:
            file.extractall(target, filter="data")
    return sorted(path for path in target.iterdir() if path.is_dir())


def figure_names() -> list[str]:
    """The figures that are committed."""
    return sorted(path.name for path in (RESULTS / "figures").glob("*.png"))


def differences(report: Path, *, figures: bool = False) -> list[str]:
    """Committed files that a report's folder does not have byte for byte."""
    pairs = {RESULTS / name: report / name for name in TABLES}
    if figures:
        pairs |= {RESULTS / "figures" / n: report / n for n in figure_names()}
    return [
        str(kept.relative_to(RESULTS))
        for kept, made in pairs.items()
        if not made.exists() or kept.read_bytes() != made.read_bytes()
    ]


def write(report: Path) -> None:
    """Copy a report's tables and the committed figures over those in results/."""
    for name in TABLES:
        shutil.copyfile(report / name, RESULTS / name)
    for name in figure_names():
        shutil.copyfile(report / name, RESULTS / "figures" / name)


def main(argv: Sequence[str] | None = None) -> int:
    """Build the report of the committed records; compare it, or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="replace the files")
    parser.add_argument("--figures", action="store_true", help="compare figures too")
    flags = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        runs, report = Path(folder, "runs"), Path(folder, "report")
        build(unpack(runs), report)
        if flags.write:
            write(report)
        found = differences(report, figures=flags.figures)
    for name in found:
        print(f"results/mle_bench/{name} is not what its records give")
    if not found:
        print("results/mle_bench is what its records give")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
