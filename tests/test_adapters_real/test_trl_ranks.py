"""Two ranks charge one price, that of one rank with all of the rows."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from repo_paths import ROOT

pytest.importorskip("trl")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def start(folder, way, ranks):
    """The results of a job of so many ranks, 8 rows a step in all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    support = ROOT / "tests" / "support"
    path = os.pathsep.join([str(ROOT), str(support)])
    started = []
    for rank in range(ranks):
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        if ranks > 1:
            environment |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "ACCELERATE_USE_CPU": "true",
            }
        command = [sys.executable, str(support / "trl_rank_program.py")]
        started.append(
            subprocess.Popen(
                [*command, str(folder), way, str(8 // ranks)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    results = []
    for process in started:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err[-4000:]
        line = next(x for x in out.splitlines() if x.startswith("RESULT "))
        results.append(json.loads(line.removeprefix("RESULT ")))
    return results


@pytest.mark.parametrize("way", ["price", "attach"])
def test_two_ranks_charge_the_price_of_one(tmp_path, way):
    (alone,) = start(tmp_path / "one", way, 1)
    first, second = start(tmp_path / "two", way, 2)
    assert first["charged"] == second["charged"] == alone["charged"]
    assert first["end"] == second["end"] == alone["end"]
    assert len(set(alone["charged"])) == 2  # the first step pays its own rate
    for one, two, both in zip(
        first["seen"], second["seen"], alone["seen"], strict=True
    ):
        np.testing.assert_allclose(np.sort(one + two), np.sort(both), atol=1e-6)
