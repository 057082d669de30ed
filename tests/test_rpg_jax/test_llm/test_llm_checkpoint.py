"""Checkpoints: round trips, damage, and runs that are killed at random moments."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import llm_tiny as tiny
import numpy as np
import optax
import pytest
from repo_paths import ROOT, SUPPORT

from rpg_jax.llm import make_ppo, manifest
from rpg_jax.llm.checkpoint import (
    CheckpointError,
    Checkpoints,
    fingerprint,
    ppo_items,
    with_ppo_items,
)
from rpg_jax.llm.hyper import PPOHyper
from rpg_jax.llm.models import model_for

CONFIG = tiny.llama(layers=1)


def make_items(value=1.0):
    value = float(value)
    params = {"w": jnp.full((3, 4), value), "low": jnp.full(5, value, jnp.bfloat16)}
    return {
        "params": params,
        "optimizer": {"policy": optax.adamw(1e-3).init(params), "critic": None},
        "key": {"key": jax.random.key(int(value))},
        "buffer": {"count": np.int32(value), "rewards": np.arange(3.0)},
        "estimator": (),
    }


def assert_same(a, b):
    def same(x, y):
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            assert x.dtype == y.dtype
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(x, y)

    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(same, a, b)


@pytest.fixture
def store(tmp_path):
    with Checkpoints(tmp_path / "run") as store:
        yield store


@pytest.fixture
def three(store):
    for step in (1, 2, 3):
        store.save(step, make_items(step), {"ledger_offset": 100 * step})
    return store


def test_types_keys_and_metadata_come_back(three):
    snapshot = three.restore(make_items(0))
    assert snapshot.step == 3
    assert snapshot.meta == {"ledger_offset": 300}
    assert_same(snapshot.items, make_items(3))
    state = snapshot.items["optimizer"]["policy"]
    assert isinstance(state[0], optax.ScaleByAdamState)
    # The restored key goes on like the saved one.
    a = jax.random.split(snapshot.items["key"]["key"])
    np.testing.assert_array_equal(
        jax.random.key_data(a), jax.random.key_data(jax.random.split(jax.random.key(3)))
    )


def test_only_the_newest_are_kept_and_an_empty_directory_gives_none(tmp_path):
    with Checkpoints(tmp_path, max_to_keep=2) as store:
        assert store.restore(make_items()) is None
        for step in range(4):
            store.save(step, make_items(step))
        assert store.steps() == [2, 3]
    assert len(list(tmp_path.glob("manifest_*.json"))) == 2
    with pytest.raises(ValueError, match="at least 2"):
        Checkpoints(tmp_path, max_to_keep=1)


def files_of(directory, step):
    root = directory / f"step_{step:08d}"
    return sorted((p for p in root.rglob("*") if p.is_file()), key=lambda p: p.name)


def largest(directory, step):
    return max(files_of(directory, step), key=lambda p: p.stat().st_size)


def truncate(directory, step):
    path = largest(directory, step)
    path.write_bytes(path.read_bytes()[:-7])


def flip(directory, step):
    path = largest(directory, step)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


def remove(directory, step):
    largest(directory, step).unlink()


def empty(directory, step):
    shutil.rmtree(directory / f"step_{step:08d}")
    (directory / f"step_{step:08d}").mkdir()


def break_manifest(directory, step):
    (directory / f"manifest_{step:08d}.json").write_text("{")


DAMAGES = [truncate, flip, remove, empty, break_manifest]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(three, damage):
    damage(three.directory, 3)
    with pytest.warns(RuntimeWarning, match=r"step_00000003 is damaged .*falling back"):
        snapshot = three.restore(make_items(0))
    assert snapshot.step == 2
    assert_same(snapshot.items, make_items(2))
    # The run goes on and saves step 3 again, over nothing that was there.
    three.save(3, make_items(5))
    assert_same(three.restore(make_items(0)).items, make_items(5))


def test_a_step_saved_again_leaves_one_copy_once_the_new_one_is_whole(
    three, monkeypatch
):
    def asides():
        return [p.name for p in three.directory.glob("aside-*")]

    three.save(3, make_items(5))
    assert asides() == []
    assert_same(three.restore(make_items(0)).items, make_items(5))

    # Like a kill before the manifest: what was moved aside must still be there.
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "write", full)
        with pytest.raises(CheckpointError, match="No space left"):
            three.save(3, make_items(6))
    assert asides() == ["aside-1-step_00000003"]
    assert files_of(three.directory, 3)  # orbax had written it

    three.save(4, make_items(4))
    assert asides() == []
    assert three.restore(make_items(0)).step == 4


def test_without_its_manifest_a_checkpoint_is_read_only_if_asked_for(three):
    (three.directory / "manifest_00000003.json").unlink()
    with pytest.raises(CheckpointError, match=r"00003: it has no manifest.*unverified"):
        three.restore(make_items(0))
    with Checkpoints(three.directory, unverified=True) as store:
        assert_same(store.restore(make_items(0)).items, make_items(3))
    flip(three.directory, 2)  # what has a manifest is checked all the same
    shutil.rmtree(three.directory / "step_00000003")
    with Checkpoints(three.directory, unverified=True) as store:
        with pytest.warns(RuntimeWarning, match="wrong checksum"):
            found = store.restore(make_items(0))
        assert found.step == 1


def test_what_was_being_saved_when_the_process_died_is_no_checkpoint(
    three, monkeypatch, tmp_path
):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(manifest, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        three.save(4, make_items(4))
    assert files_of(three.directory, 4)  # orbax had written it
    assert three.restore(make_items(0)).step == 3
    with Checkpoints(tmp_path / "first") as store:
        with pytest.raises(KeyboardInterrupt):
            store.save(1, make_items(1))
        assert store.restore(make_items(0)) is None
    # Saved again, it is whole.
    monkeypatch.undo()
    three.save(4, make_items(4))
    assert three.restore(make_items(0)).step == 4
    assert not list(three.directory.glob("unfinished_*"))


def test_nothing_readable_is_an_error_and_not_a_fresh_start(three):
    for step in (1, 2, 3):
        truncate(three.directory, step)
    with (
        pytest.warns(RuntimeWarning, match="damaged"),
        pytest.raises(CheckpointError, match="None of the 3 checkpoints"),
    ):
        three.restore(make_items(0))


@pytest.mark.parametrize("change", ["shape", "dtype", "missing", "structure"])
def test_a_checkpoint_of_another_model_is_refused_with_a_reason(three, change):
    items = make_items(0)
    if change == "shape":
        items["params"]["w"] = jnp.zeros((3, 5))
    elif change == "dtype":
        items["params"]["w"] = jnp.zeros((3, 4), jnp.bfloat16)
    elif change == "missing":
        items["critic"] = {"w": jnp.zeros(3)}
    else:
        items["params"] = {"other": jnp.zeros((3, 4))}
    with pytest.raises(CheckpointError, match="another model, optimizer"):
        three.restore(items)


def test_a_full_disk_is_one_clear_error_and_loses_nothing(three, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(three._manager, "save", full)
    with pytest.raises(CheckpointError, match=r"No space left.*free some space"):
        three.save(4, make_items(4))
    assert three.restore(make_items(0)).step == 3


def test_a_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="Cannot use"):
        Checkpoints(tmp_path / "file")


def test_fingerprints_tell_weights_apart():
    params = model_for(CONFIG).init(jax.random.key(0))
    other = {**params, "norm": params["norm"].at[3].add(1e-6)}
    assert fingerprint(params) == fingerprint(jax.tree.map(jnp.copy, params))
    assert fingerprint(params) != fingerprint(other)
    assert fingerprint(None) == ""


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(tmp_path, rank):
    params = model_for(CONFIG).init(jax.random.key(0))
    batches = [tiny.random_batch(CONFIG, params, seed=i) for i in range(3)]
    hyper = PPOHyper(
        learning_rate=1e-3,
        microbatch=4,
        minibatches=2,
        lora_rank=rank,
        advantage="critic",
        mismatch_warn=1e9,
    )
    ppo = make_ppo(CONFIG, hyper)

    def start():
        return ppo.init(jax.random.key(1), params)

    straight = start()
    for batch in batches:
        straight, _ = ppo.update(straight, batch)
    with Checkpoints(tmp_path) as store:
        state, _ = ppo.update(start(), batches[0])
        store.save(1, ppo_items(state))
    with Checkpoints(tmp_path) as store:
        fresh = start()
        state = with_ppo_items(fresh, store.restore(ppo_items(fresh)).items)
    for batch in batches[1:]:
        state, _ = ppo.update(state, batch)
    assert_same(state, straight)


# --- a real process, killed ---------------------------------------------------------


def start_run(directory, steps, cache):
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(ROOT)]),
        "JAX_PLATFORMS": "cpu",
        # Bitwise equality needs the same program, not luck: compile once, load after.
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    (directory / "ready").unlink(missing_ok=True)
    program = [sys.executable, str(SUPPORT / "llm_train_program.py"), str(directory)]
    return subprocess.Popen(
        [*program, str(steps)], env=env, stderr=subprocess.PIPE, text=True
    )


def digest(directory):
    return json.loads((directory / "result.json").read_text())["digest"]


def run_and_kill(directory, steps, cache, rng, kills_left):
    """Run to the end, killing it at random moments; returns the kills that hit."""
    kills = 0
    while True:
        run = start_run(directory, steps, cache)
        if kills >= kills_left:
            _, errors = run.communicate()
            assert run.returncode == 0, errors
            return kills
        if rng.random() < 0.85:  # mostly while it trains, sometimes while it starts
            while not (directory / "ready").exists() and run.poll() is None:
                time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.7))
        run.send_signal(signal.SIGKILL)
        killed = run.wait() == -signal.SIGKILL
        errors = run.stderr.read()
        run.stderr.close()
        kills += killed
        if not killed:  # it ended first
            assert run.returncode == 0, errors
            return kills


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_twenty_times_the_run_ends_bitwise_equal(tmp_path):
    steps, wanted, cache = 60, 20, tmp_path / "cache"
    whole = tmp_path / "whole"
    whole.mkdir()
    run = start_run(whole, steps, cache)
    _, errors = run.communicate()
    assert run.returncode == 0, errors

    rng, kills = random.Random(0), 0
    while (
        kills < wanted
    ):  # a run that ends before it was killed enough starts from the beginning
        broken = tmp_path / f"broken-{kills}"
        broken.mkdir()
        kills += run_and_kill(broken, steps, cache, rng, wanted - kills)
        assert digest(broken) == digest(whole)
        ledgers = [(d / "ledger.jsonl").read_bytes() for d in (broken, whole)]
        assert ledgers[0] == ledgers[1]
        assert len(ledgers[0].splitlines()) == steps
