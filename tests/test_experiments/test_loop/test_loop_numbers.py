"""Every number of a run against a recomputation from its records, in plain NumPy.

Nothing of the loop is called below ``_recompute``: formulas are those of the protocol.
"""

import dataclasses

import loop_help as helper
import numpy as np
import pytest

from experiments.config.protocol import PAPER, SOUND
from experiments.config.reward_rule import RewardRule
from experiments.loop.algorithm import Loop

STEPS = 7
CHAINS = 6
LIMIT = 60.0


def _greedy_rate(valid, failed_recent, recent, k):
    """Fixed point of: best k by r - rho d -> their rate, failures on top.

    By bisection over rho of the best k's surplus, not by iteration.
    """
    if not valid:
        return 0.0
    r, d = np.array(valid).T
    k = min(k, len(r))
    p = (len(failed_recent) + 0.5) / (recent + 1.0)
    n_f = len(failed_recent)
    p_ok = 1 - p if n_f else 1.0
    shrink = k / (k + 1e-3)  # the vague prior's weight
    lost = 0.0
    if n_f:
        lost = p * n_f / (n_f + 1e-3) * np.mean(failed_recent)

    def surplus(rho):
        best = np.sort(r - rho * d)[::-1][:k].mean()
        return p_ok * shrink * best - rho * lost

    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if surplus(middle) > 0 else (low, middle)
    return low


def _recompute(records, arm, *, fixed=0.01):
    """Yield each step's numbers; ``records`` by step and chain."""
    valid, batches, buffer = [], [], []
    rate = rank_price = 0.0
    for step in range(1 + max(r["step"] for r in records)):
        rows = [r for r in records if r["step"] == step]
        score = np.array([np.nan if r["score"] is None else r["score"] for r in rows])
        ok = ~np.isnan(score)
        gain = np.where(ok, np.maximum(score - 0.5, 0) / 0.5, 0.0)
        seconds = np.array([r["execution_s"] + r["generation_s"] for r in rows])
        seconds = np.maximum(seconds, 0.1)

        def rank(entry, price=rank_price):
            _, g, s = entry
            return -(g / s if arm == "ratio" else g - price * s)

        order = sorted(buffer, key=rank)[:CHAINS]
        parents = [order[i % len(order)][0] if order else None for i in range(CHAINS)]

        before = rate
        valid += list(zip(gain[ok], seconds[ok], strict=True))
        batches = [*batches, (len(rows), list(seconds[~ok]))][-4:]
        failed = [s for _, batch in batches for s in batch]
        rate = _greedy_rate(valid, failed, sum(n for n, _ in batches), CHAINS)
        rho = before if step else rate
        own = gain.sum() / seconds.sum()
        price = {
            "vanilla": 0.0,
            "search-only": 0.0,
            "ratio": 0.0,
            "duration-weighted": 0.0,
            "fixed-price": fixed,
            "on-policy-rate": own,
        }
        second = price.get(arm, rho)
        rank_price = price.get(arm, rate)
        slowest = seconds[ok].max() if ok.any() else 0.0
        charged = np.where(ok, seconds, np.maximum(seconds, slowest))
        relative = gain / charged if arm == "ratio" else gain - second * charged
        advantage = np.array(
            [relative[i] - np.delete(relative, i).mean() for i in range(len(rows))]
        )
        if arm == "duration-weighted":
            advantage = advantage * charged / charged.mean()
        if (gain > 0).any():
            advantage = np.where(gain > 0, advantage, np.minimum(advantage, 0.0))
        for r, g, s, good in zip(rows, gain, seconds, ok, strict=True):
            if good:
                buffer = [*buffer, (r["run_id"], g, s)][-1280:]
        yield {
            "rho": rho,
            "rho_next": rate,
            "price": second,
            "parents": parents,
            "reward": gain,
            "delta_s": seconds,
            "charged_s": charged,
            "relative": relative,
            "advantage": advantage,
            "mean_reward": gain.mean(),
            "mean_relative": relative.mean(),
            "valid_share": ok.mean(),
            "mean_delta_s": seconds.mean(),
        }


def _run(folder, spec, steps=STEPS):
    policy = helper.ScriptedPolicy(folder)
    with Loop(folder, spec, helper.hooks(policy)) as loop:
        for _ in range(steps):
            loop.step()
    return helper.records(folder), helper.records(folder, "metrics.jsonl")


@pytest.mark.parametrize(
    "arm",
    [
        "rpg",
        "vanilla",
        "search-only",
        "fixed-price",
        "ratio",
        "on-policy-rate",
        "duration-weighted",
    ],
)
def test_every_number_recomputes(tmp_path, arm):
    records, metrics = _run(tmp_path, helper.spec(arm, chains=CHAINS))
    assert len(records) == STEPS * CHAINS
    for expected, found in zip(_recompute(records, arm), metrics, strict=True):
        rows = [r for r in records if r["step"] == found["step"]]
        assert [r["parent"] for r in rows] == expected["parents"] == found["parents"]
        for name in ("reward", "delta_s"):
            np.testing.assert_allclose(
                [r[name] for r in rows], expected[name], rtol=1e-12
            )
        for name in set(expected) - {"parents", "reward", "delta_s"}:
            # The rate is fitted in float32, and with it what it prices.
            np.testing.assert_allclose(
                found[name], expected[name], rtol=2e-5, atol=2e-6, err_msg=name
            )
    assert any(m["rho"] > 0 for m in metrics)
    assert len({tuple(m["parents"]) for m in metrics}) > 2


def test_search_only_never_learns(tmp_path):
    _, metrics = _run(tmp_path, helper.spec("search-only"), steps=3)
    assert [m["learn"] for m in metrics] == [{}] * 3


def test_the_papers_protocol(tmp_path):
    """Slots of lifetime sums, refitted with the batch it charges; -10 - rho limit."""
    protocol = dataclasses.replace(PAPER, chains=CHAINS)
    spec = helper.spec("rpg", protocol=protocol, chains=CHAINS)
    records, metrics = _run(tmp_path, spec, steps=5)
    total_r, total_d = np.zeros(CHAINS), np.zeros(CHAINS)
    kappa, nu, mu, psi = 1e-3, 3.0, np.zeros(2), 1e-3 * np.eye(2)
    best, rng = None, np.random.default_rng(0)
    for found in metrics:
        rows = [r for r in records if r["step"] == found["step"]]
        score = np.array([np.nan if r["score"] is None else r["score"] for r in rows])
        ok = ~np.isnan(score)
        seconds = np.maximum([r["execution_s"] for r in rows], 0.1)
        bonus = ok & (np.ones(len(rows), bool) if best is None else score > best)
        reward = np.where(ok, np.nan_to_num(score) + 0.5 * bonus, -10.0)
        np.testing.assert_allclose([r["reward"] for r in rows], reward, rtol=1e-12)
        if ok.any():
            best = np.nanmax([score[ok].max(), np.nan if best is None else best])
        total_r += np.where(ok, np.nan_to_num(score), 0)
        total_d += seconds
        x = np.stack([total_r, np.log(total_d)], 1)
        n, mean = len(x), x.mean(0)
        kappa, nu, psi = 0.3 * kappa, max(0.3 * nu, 4.0), 0.3 * psi
        gap = mean - mu
        psi = psi + (x - mean).T @ (x - mean)
        psi = psi + kappa * n / (kappa + n) * np.outer(gap, gap)
        mu = (kappa * mu + n * mean) / (kappa + n)
        kappa, nu = kappa + n, nu + n
        df = nu - 1
        root = np.linalg.cholesky(psi * (kappa + 1) / (kappa * df))
        z = rng.standard_normal((40_000, n, 2)) @ root.T
        draws = mu + z / np.sqrt(rng.chisquare(df, (40_000, n, 1)) / df)
        with np.errstate(over="ignore"):
            ratio = draws[..., 0].mean(1) / np.exp(draws[..., 1]).mean(1)
        assert found["rho"] == found["rho_next"]
        # It is the 95th percentile of 1,000 such ratios: 5 standard errors of its rank.
        assert found["rho"] > 0
        assert (
            abs((ratio < found["rho"]).mean() - 0.95) < 5 * (0.95 * 0.05 / 1000) ** 0.5
        )
        charged = np.where(ok, seconds, LIMIT)
        np.testing.assert_allclose(
            found["relative"], reward - found["rho"] * charged, rtol=1e-9
        )


@pytest.mark.parametrize("sign", [1, -1])
def test_a_raw_score_too_large_for_the_update_is_invalid(tmp_path, sign):
    """It would overflow, and its record would stop every resume as well."""
    protocol = dataclasses.replace(SOUND, rule=RewardRule(kind="raw"))
    menu = ((0.9, 5.0), (sign * 1e40, 1.0), (sign * 9e11, 2.0))
    policy = helper.ScriptedPolicy(tmp_path, menu=menu, lr=0.0)
    spec = helper.spec(protocol=protocol)
    with Loop(tmp_path, spec, helper.hooks(policy)) as loop:
        metrics = [loop.step() for _ in range(3)]
    rows = helper.records(tmp_path)
    assert {r["score"] for r in rows} == {0.9, sign * 9e11, None}
    for record in rows:
        if record["score"] is None:
            assert (record["status"], record["reward"]) == ("invalid", 0.0)
            assert (
                record["reason"] == f"a score of {sign}e+40 is beyond 1e+12: no reward"
            )
            assert "medal" not in record
    for one in metrics:
        assert np.isfinite([one["rho_next"], *one["relative"], *one["advantage"]]).all()
    with Loop(tmp_path, spec, helper.hooks(policy), resume=True) as loop:
        assert loop.next_step == 3


def test_a_gain_is_bounded_whatever_the_score(tmp_path):
    policy = helper.ScriptedPolicy(tmp_path, menu=((-1e40, 1.0),))
    with Loop(tmp_path, helper.spec(), helper.hooks(policy)) as loop:
        loop.step()
    assert {r["status"] for r in helper.records(tmp_path)} == {"valid"}
    assert {r["reward"] for r in helper.records(tmp_path)} == {0.0}
