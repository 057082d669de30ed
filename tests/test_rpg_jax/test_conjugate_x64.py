"""Double precision, in a process of its own: x64 is a global switch of JAX."""

import os
import subprocess
import sys

from repo_paths import SUPPORT

CHECKS = SUPPORT / "x64_checks.py"


def test_float64_accuracy_in_a_separate_process():
    done = subprocess.run(
        [sys.executable, str(CHECKS)],
        env={**os.environ, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
        cwd=CHECKS.parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [
        "niw",
        "dinkelbach",
        "boltzmann",
        "quantile",
        "weights",
    ]
