"""One process at a time writes to a run's folder."""

import subprocess
import sys

import pytest

from experiments.config.errors import UsageError
from experiments.records import rundir

_TRY = """
import sys
from pathlib import Path
from experiments import cli
from experiments.records import rundir
try:
    with rundir.sole_writer(Path(sys.argv[1])):
        print("writing")
except cli.UsageError as error:
    print(error)
"""


def _other_process(folder):
    run = subprocess.run(
        [sys.executable, "-c", _TRY, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout


def test_a_second_writer_is_refused_while_the_first_is_at_work(tmp_path):
    folder = rundir.open_run(tmp_path / "run", {"a": 1}, resume=False)
    with rundir.sole_writer(folder):
        assert "another process is writing to" in _other_process(folder)
    assert _other_process(folder) == "writing\n"


def test_the_folder_is_free_after_an_error(tmp_path):
    folder = rundir.open_run(tmp_path / "run", {"a": 1}, resume=False)
    with pytest.raises(ZeroDivisionError), rundir.sole_writer(folder):
        raise ZeroDivisionError
    with rundir.sole_writer(folder):
        pass
    with (
        rundir.sole_writer(folder),
        pytest.raises(UsageError, match="another process"),
        rundir.sole_writer(folder),
    ):
        pass
