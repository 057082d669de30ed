"""Reports of training runs: one page, figures and tables from their records.

    python -m experiments.report runs/mle_bench/RUN
    python -m experiments.report RUN_A RUN_B --out=report

Reads only what the runs recorded. Runs that are not finished are reported as far as
they got.
"""

import sys
from collections.abc import Sequence

from absl import flags

from experiments import cli
from experiments.cli import OUT, PLOT

CURVE = flags.DEFINE_enum(
    "curve", "best", ["best", "last", "mean"], "Score in the budget curves."
)
flags.declare_key_flag("out")
flags.declare_key_flag("plot")
# The shared flag, as it is meant here.
flags.FLAGS["out"].help = "Folder of the report, or its page (.html); RUN/report."


def main(folders: Sequence[str]) -> int:
    """Builds the report of the folders and prints its tables."""
    if not folders:
        raise cli.UsageError(
            "name the folder of a run: python -m experiments.report RUN [RUN...]"
        )
    from experiments.config.errors import LedgerError
    from experiments.reporting.build import build
    from experiments.reporting.runs import ReportError
    from experiments.reporting.terminal import show, working

    try:
        with working() as progress:
            report = build(folders, OUT.value, curve=CURVE.value, progress=progress)
    except (ReportError, LedgerError) as error:
        raise cli.UsageError(str(error)) from error
    except OSError as error:
        print(f"error: cannot write the report: {error}", file=sys.stderr)
        return 1
    show(report, plot=PLOT.value)
    return 0


if __name__ == "__main__":
    _folders, _rest = cli.split_folders(sys.argv)
    cli.run(lambda: main(_folders), _rest)
