"""One price for many callers: threads, processes, steps, files."""

import math
import multiprocessing
import pickle
import threading

import numpy as np
import pytest

from rpg_jax.adapters import RelativeReward, RewardRateServer
from rpg_jax.adapters.service import RateClient

THREADS, CALLS = 16, 10_000


def test_sixteen_threads_lose_nothing():
    rng = np.random.default_rng(0)
    reward, seconds = rng.lognormal(0, 2, (2, THREADS, CALLS)).tolist()
    server = RewardRateServer()

    def work(mine):
        for row in zip(reward[mine], seconds[mine], strict=True):
            server.charge(*row, step=1)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.counts() == {"rows": THREADS * CALLS, "skipped": 0, "steps": 0}
    rate = math.fsum(np.ravel(reward)) / math.fsum(np.ravel(seconds))
    assert server.charge(1.0, 1.0, step=2) == rate


def test_a_step_has_one_price_in_any_order():
    rng = np.random.default_rng(1)
    rows = rng.uniform(0.1, 9, (4, 6, 2))
    prices = []
    for _ in range(3):
        server = RewardRateServer(rows_per_step=6, initial_rate=0.5)
        prices.append(
            [
                {server.charge(*row.tolist()) for row in rng.permutation(step)}
                for step in rows
            ]
        )
    assert prices[0] == prices[1] == prices[2]
    assert all(len(step) == 1 for step in prices[0])
    assert prices[0][0] == {0.5}


def test_late_rows_are_charged_what_their_step_was():
    server = RewardRateServer()
    assert server.charge(1.0, 2.0, step=7) == 0.0
    assert server.charge(9.0, 2.0, step=8) == 0.5
    assert server.charge(1.0, 2.0, step=7) == 0.0
    assert server.charge(0.0, 1.0, step=8) == 0.5
    kept = math.exp(-3 / 256)
    want = (kept * 1.0 + 10.0) / (kept * 2.0 + 5.0)
    np.testing.assert_allclose(server.charge(0.0, 1.0, step=9), want)


def test_a_call_without_steps_is_a_step_as_in_one_process():
    server, relative = RewardRateServer(), RelativeReward()
    shared = RelativeReward(server=server)
    rng = np.random.default_rng(2)
    for _ in range(5):
        batch = rng.uniform(0.1, 3.0, (2, 7))
        np.testing.assert_array_equal(shared(*batch), relative(*batch))
        np.testing.assert_array_equal(
            shared(*batch, update=False), relative(*batch, update=False)
        )
    assert shared.rate == relative.rate
    with pytest.raises(ValueError, match="settings of its own"):
        RelativeReward(server=server, initial_rate=0.1)


def test_rows_that_are_not_finite_are_counted():
    server = RewardRateServer()
    server.charge([1.0, math.nan, 1.0], [2.0, 1.0, math.inf])
    assert server.counts() == {"rows": 1, "skipped": 2, "steps": 1}
    assert server.rate == 0.5
    for bad in ([-1.0], [1.0, 2.0]):
        with pytest.raises(ValueError, match="seconds"):
            server.charge([1.0], bad)
    with pytest.raises(ValueError, match="rows_per_step"):
        RewardRateServer(rows_per_step=0)


def test_the_file_is_kept_and_read_again(tmp_path):
    path = tmp_path / "rate.json"
    server = RewardRateServer(path=path, rows_per_step=2)
    for _ in range(2):
        server.charge(1.0, 4.0)
    again = RewardRateServer(path=path, rows_per_step=2)
    assert again.rate == server.rate == 0.25
    alone = RelativeReward()
    alone.load(path)
    assert alone.rate == 0.25
    server.charge(3.0, 4.0)  # an open step counts as ended in a checkpoint
    again.load_state_dict(server.state_dict())
    server.charge(3.0, 4.0)
    assert 0.25 < again.rate < server.rate


def child(client, rows, out):
    out.put([client.charge(*row) for row in rows])


def test_processes_share_one_price():
    rows = np.random.default_rng(3).uniform(1, 5, (2, 50, 2)).tolist()
    server = RewardRateServer(rows_per_step=100, initial_rate=0.125)
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    with server.serve() as service:
        client = pickle.loads(pickle.dumps(service.client()))
        started = [
            context.Process(target=child, args=(client, mine, out)) for mine in rows
        ]
        for process in started:
            process.start()
        prices = out.get(timeout=120) + out.get(timeout=120)
        for process in started:
            process.join()
        assert set(prices) == {0.125}
        flat = np.array(rows).reshape(-1, 2)
        want = math.fsum(flat[:, 0]) / math.fsum(flat[:, 1])
        assert client.rate == server.rate == want
        assert client.counts()["rows"] == 100
        client.load_state_dict(client.state_dict())
        with pytest.raises(ValueError, match="seconds must be >= 0"):
            client.charge(1.0, -1.0)
        stranger = RateClient(service.address, key=b"another")
        with pytest.raises(Exception, match="digest"):
            stranger.charge(1.0, 1.0)
    with pytest.raises(ConnectionError, match="reward-rate server at"):
        RateClient(("127.0.0.1", 1), key=b"key").charge(1.0, 1.0)
