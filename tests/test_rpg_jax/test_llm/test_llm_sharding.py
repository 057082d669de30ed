"""Meshes: 8 fake devices and 2 real processes against one device."""

import os
import socket
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import llm_mesh_program as program
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from repo_paths import ROOT, SUPPORT

from rpg_jax.llm import distributed, make_ppo, sharding
from rpg_jax.llm.checkpoint import Checkpoints, ppo_items
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import model_for

BIG = 2**10


def launch(*arguments, devices=1):
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(ROOT)]),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            str(SUPPORT / "llm_mesh_program.py"),
            *arguments,
        ],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    ("shape", "stacked", "spec"),
    [
        ((BIG, 2 * BIG), False, P(None, "fsdp")),
        ((2 * BIG, BIG), False, P("fsdp", None)),
        ((64, BIG, 32), True, P(None, "fsdp", None)),
        ((4 * BIG, 32), True, P(None, "fsdp")),  # never the scanned axis
        ((BIG + 1, BIG - 1), False, P()),  # nothing divides
        ((BIG + 1, 64), False, P(None, "fsdp")),  # the next best axis
        ((8, 8), False, P()),  # too small to be worth it
        ((), False, P()),
    ],
)
def test_the_largest_axis_that_divides_is_split(shape, stacked, spec):
    assert sharding.leaf_spec(shape, 4, stacked=stacked) == spec
    assert sharding.leaf_spec(shape, 1, stacked=stacked) == P()


def test_a_state_on_a_mesh_of_one_device_keeps_its_values():
    mesh = sharding.make_mesh(devices=jax.devices()[:1])
    assert mesh.axis_names == ("data", "fsdp")
    params = model_for(program.CONFIG).init(jax.random.key(0))
    placed = sharding.place(params, sharding.tree_shardings(params, mesh))
    jax.tree.map(np.testing.assert_array_equal, placed, params)
    key = sharding.place(jax.random.key(3), sharding.replicated(mesh))
    assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key)


def test_misfits_are_refused():
    with pytest.raises(ValueError, match="does not use 1 devices"):
        sharding.make_mesh(2, 3, devices=jax.devices()[:1])

    class Eight:
        size = 8

    with pytest.raises(ValueError, match="multiple of the mesh's 8"):
        make_ppo(program.CONFIG, PPOHyper(microbatch=4), mesh=Eight())


def test_rewards_wait_for_the_deadline_and_not_for_a_script():
    boards = []

    def collect(board):
        boards.append(board)
        board.put(0, 1.5, 0.2)
        board.put(2, -1.0, 3.0)
        time.sleep(3600)

    begun = time.monotonic()
    rewards = distributed.share_rewards(collect, 3, deadline_s=0.3)
    assert 0.3 <= time.monotonic() - begun < 30
    assert rewards.valid.tolist() == [True, False, True]
    assert rewards.reward.tolist() == [1.5, 0.0, -1.0]
    assert boards[0].put(1, 9.0, 9.0) is False  # too late: refused, not mixed in
    assert rewards.reward[1] == 0


def test_rewards_return_as_soon_as_all_are_in_and_failures_are_told():
    def collect(board):
        for row in range(3):
            board.put(row, row, 1.0)

    begun = time.monotonic()
    assert distributed.share_rewards(collect, 3, deadline_s=600).valid.all()
    assert time.monotonic() - begun < 60

    def bad(board):
        board.put(0, float("nan"), 1.0)

    with pytest.raises(distributed.RewardError, match="reward nan"):
        distributed.share_rewards(bad, 3, deadline_s=600)


@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_that_is_not_there_is_refused(row):
    board = distributed.RewardBoard(3)
    with pytest.raises(ValueError, match=rf"Row {row} lies outside \[0, 3\)"):
        board.put(row, 1.0, 1.0)
    assert not board.close().valid.any()


@pytest.mark.slow
def test_eight_devices_equal_one_to_rounding(tmp_path):
    run = launch("devices", str(tmp_path / "out.npz"), devices=8)
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    with np.load(tmp_path / "out.npz") as saved:
        leaves = [k.split("/")[1] for k in saved.files if k.startswith("one/")]
        assert len(leaves) > 20
        for mesh in ("2x4", "8x1"):
            for leaf in leaves:
                np.testing.assert_allclose(
                    saved[f"{mesh}/{leaf}"], saved[f"one/{leaf}"], atol=1e-5, rtol=1e-4
                )


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


@pytest.mark.slow
def test_two_processes_take_a_step_together_and_agree_with_one(tmp_path):
    port = str(free_port())
    runs = [launch("process", str(tmp_path), port, str(i)) for i in range(2)]
    try:
        outputs = [run.communicate(timeout=600)[0] for run in runs]
    finally:
        for run in runs:
            run.kill()
    assert [run.returncode for run in runs] == [0, 0], "\n".join(outputs)

    ppo, state, batch = program.start(None)
    mask = batch.completion_mask & (np.arange(15) != 4)[:, None]
    alone, _ = ppo.update(state, batch._replace(completion_mask=mask))
    with Checkpoints(tmp_path / "checkpoints") as store:
        snapshot = store.restore(ppo_items(state))
    assert snapshot.meta == {"processes": 2}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5),
        snapshot.items["params"],
        alone.params,
    )


def test_a_process_that_finds_no_coordinator_says_what_to_do():
    port = free_port()
    with pytest.raises(RuntimeError, match=f"No process 0 listens at localhost:{port}"):
        distributed.initialize(f"localhost:{port}", 2, 1, timeout_s=0.3)
    with pytest.raises(RuntimeError, match="host:port"):
        distributed.initialize("localhost", 2, 1)
    distributed.initialize(None, 1, 0)  # one process has nobody to join
