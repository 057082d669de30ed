"""PPO updates on a mesh, in a process of their own (device counts are fixed at start).

python llm_mesh_program.py devices OUT           8 fake devices against one
python llm_mesh_program.py process OUT PORT ID   one of two processes
"""

import sys
import time
from pathlib import Path

import jax
import llm_tiny as tiny
import numpy as np
import pytest

from rpg_jax.llm import batch_from_completions, distributed, make_ppo, sharding
from rpg_jax.llm.checkpoint import Checkpoints, ppo_items
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import model_for
from rpg_jax.llm.sampling import sample

CONFIG = tiny.llama(layers=1)
HYPER = PPOHyper(
    learning_rate=1e-3,
    microbatch=8,
    remat=False,
    kl_coef=0.1,
    advantage="critic",
    mismatch_warn=1e9,  # the second update reuses the batch of the first
)


def start(mesh, hyper=HYPER):
    params = model_for(CONFIG).init(jax.random.key(0))
    batch = tiny.random_batch(CONFIG, params, rows=15)
    ppo = make_ppo(CONFIG, hyper, mesh=mesh)
    return ppo, ppo.init(jax.random.key(1), params), batch


def is_split(tree):
    return any(
        leaf.sharding.shard_shape(leaf.shape) != leaf.shape
        for leaf in jax.tree.leaves(tree)
    )


def devices(out):
    assert jax.device_count() == 8
    results = {}
    for name, shape in {"one": None, "2x4": (2, 4), "8x1": (8, 1)}.items():
        mesh = None if shape is None else sharding.make_mesh(*shape)
        ppo, state, batch = start(mesh)
        if shape and shape[1] > 1:
            assert is_split(state.params)
            assert is_split(state.opt_state["policy"][1][0].mu)
            assert is_split(state.frozen)
        state, metrics = ppo.update(state, batch)
        state, metrics = ppo.update(state, batch)
        if shape and shape[1] > 1:
            assert is_split(state.params)
        leaves = jax.tree.leaves((state.params, metrics._asdict()))
        results |= {f"{name}/{i}": np.asarray(x) for i, x in enumerate(leaves)}
    np.savez(out, **results)


def process(out, port, index):
    distributed.initialize(f"localhost:{port}", 2, index, timeout_s=120)
    assert jax.process_count() == 2
    mesh = sharding.make_mesh()
    ppo, state, batch = start(mesh)
    assert is_split(state.params)

    def collect(board):
        for row in range(15):
            if row == 4:
                continue  # its script hangs
            board.put(row, batch.reward[row], 0.1)
        time.sleep(3600)

    begun = time.monotonic()
    rewards = distributed.share_rewards(collect, 15, deadline_s=2.0)
    assert time.monotonic() - begun < 60
    assert rewards.valid.tolist() == [row != 4 for row in range(15)]
    mask = batch.completion_mask & rewards.valid[:, None]
    batch = batch._replace(reward=rewards.reward, completion_mask=mask)
    state, _ = ppo.update(state, batch)
    with Checkpoints(Path(out) / "checkpoints") as store:
        store.save(1, ppo_items(state), {"processes": jax.process_count()})
        snapshot = store.restore(ppo_items(state))
        for a, b in zip(
            jax.tree.leaves(snapshot.items["params"]),
            jax.tree.leaves(state.params),
            strict=True,
        ):
            for x, y in zip(a.addressable_shards, b.addressable_shards, strict=True):
                np.testing.assert_array_equal(x.data, y.data)

    # Sampling and training together: both see the same sharded weights.
    prompts, mask = tiny.prompts(4)
    done = sample(
        jax.random.key(3),
        ppo.policy_params(state),
        CONFIG,
        *(prompts, mask),
        max_new_tokens=6,
        num_samples=4,
        stop_ids=(tiny.STOP,),
    )
    batch = batch_from_completions(prompts, mask, done, np.arange(16.0))
    state, metrics = ppo.update(state, batch)
    assert metrics.mismatch_max < 5e-4
    assert metrics.rows == 16

    def failing(board):
        raise OSError("no sandbox")

    with pytest.raises(distributed.RewardError, match="no sandbox"):
        distributed.share_rewards(failing, 15, deadline_s=30.0)


if __name__ == "__main__":
    sharding.MIN_SHARDED_SIZE = 1  # so that a tiny model is really split
    if sys.argv[1] == "devices":
        devices(sys.argv[2])
    else:
        process(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
