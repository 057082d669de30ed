"""What a run knows from its attempts: rate, parents, best value, clocks.

A pure function of the ledger, in its order. Feeding a ledger again gives the same
numbers bit for bit, so nothing of this is stored anywhere else.
"""

from typing import Any

import numpy as np

from experiments.config.arms import price
from experiments.loop.baseline import ParentBaseline, parent_features
from experiments.loop.learn import Rows, make_signals, on_policy_rate, rows_of
from experiments.loop.price import RateModel
from experiments.loop.repeats import Firsts
from experiments.loop.select import Entry, Parents
from experiments.policies.base import Signals
from experiments.records.recorded import NO_SCRIPT, Located, is_repeat, spent_s
from experiments.records.rewards import MIN_SECONDS
from experiments.records.spec import RunSpec
from rpg_tasks.scores import oriented


class Accounts:
    """Takes in one step after the other; see the module."""

    def __init__(self, spec: RunSpec):
        self.spec = spec
        chains = spec.protocol.chains
        self.rate = RateModel(spec.protocol.rate, chains=chains)
        self.reuses = spec.protocol.reuses
        self.parents = Parents(spec.protocol.buffer_capacity, distinct=self.reuses)
        #: First runs of programs; empty where repeats are run.
        self.firsts = Firsts()
        learning = spec.protocol.learning
        self._baseline: ParentBaseline | None = None
        if learning.advantage == "parent":
            self._baseline = ParentBaseline(learning.baseline_batches, chains)
        self.ranking_price = 0.0
        self.on_policy = 0.0
        self.best: float | None = None  # value
        self.best_score: float | None = None
        self.attempts = 0
        #: Why a chain's last answer gave no script.
        self.errors: list[str | None] = [None] * chains
        self.execution_s = np.zeros(chains)
        self.attempt_s = np.zeros(chains)

    def next_states(self) -> list[Entry | None]:
        """The parents of the next step, at the price of the moment."""
        protocol = self.spec.protocol
        return self.parents.next_states(
            self.spec.arm, self.ranking_price, protocol.chains
        )

    def take(self, step: int, located: list[Located]) -> tuple[Signals, dict[str, Any]]:
        """Account for a whole step.

        Returns:
            What the policy learns from, and the step's numbers for ``metrics.jsonl``.
        """
        arm = self.spec.arm
        records = [record for _, record in located]
        rows = rows_of(records)
        repeated = rows.known & np.array([is_repeat(record) for record in records])
        rho, after = self._observe(rows, rows.known & ~repeated)
        second = price(
            arm.advantage_price, arm, estimated=rho, on_policy=self.on_policy
        )
        signals = self._signals(rows, records, second)
        ranked_at = self.ranking_price
        self.ranking_price = price(
            arm.ranking_price, arm, estimated=after, on_policy=self.on_policy
        )
        for offset, record in located:
            self._add(offset, record)
        numbers = {
            "step": step,
            "arm": arm.name,
            "seed": self.spec.seed,
            "attempts": self.attempts,
            "rho": rho,
            "rho_next": after,
            "price": second,
            "ranking_price": ranked_at,
            "on_policy_rate": self.on_policy,
            "mean_reward": _mean(rows.reward, rows.known),
            "mean_relative": _mean(signals.relative, rows.known),
            "valid_share": _mean(rows.valid, rows.known),
            "mean_delta_s": _mean(rows.seconds, rows.known),
            "best_score": self.best_score,
            "infrastructure": int((~rows.known).sum()),
            "parents": [record["parent"] for record in records],
            "relative": signals.relative.tolist(),
            "weight": signals.weight.tolist(),
            "charged_s": signals.charged.tolist(),
            "clock": {
                "execution_s": float(self.execution_s.mean()),
                "attempt_s": float(self.attempt_s.mean()),
            },
        }
        if self.reuses:
            numbers["repeats"] = int(repeated.sum())
        if self.spec.protocol.learning.plain_advantage:
            # With a critic, whitening or KL in the reward only the policy knows them.
            numbers["advantage"] = signals.advantage.tolist()
        return signals, numbers

    def _observe(self, rows: Rows, first: np.ndarray) -> tuple[float, float]:
        """Feed the rate model; the rate that the batch pays, and the one after it.

        Args:
            rows: the batch.
            first: rows that count. A repeat earns nothing new, and its seconds were
                not spent again.
        """
        before, earlier = self.rate.rate, self.rate.seen > 0
        after = self.rate.observe(
            rows.value, rows.seconds, rows.valid, first, rows.chain
        )
        if first.any():
            self.on_policy = on_policy_rate(rows._replace(known=first))
        held_out = self.spec.protocol.rate.leave_one_out and earlier
        return (before if held_out else after), after

    def _signals(
        self, rows: Rows, records: list[dict[str, Any]], second: float
    ) -> Signals:
        features = None
        if self._baseline is not None:
            # Parents were ranked before this step: its own attempts are added later.
            features = parent_features(records, self.parents.by_id())
        return make_signals(
            self.spec.arm,
            self.spec.protocol.rule,
            rows,
            price=second,
            limit_s=self.spec.limit_s,
            baseline=self._baseline,
            features=features,
        )

    def _add(self, offset: int, record: dict[str, Any]) -> None:
        self.attempts += 1
        error = record["reason"] if record["status"] == NO_SCRIPT else None
        self.errors[record["chain"]] = error
        if record["delta_s"] is None:
            return
        if self.reuses:
            self.firsts.add(offset, record)
        chain = record["chain"]
        # As in a rate: an answer without a script must not leave a budget as it is.
        spent = spent_s(record)
        self.execution_s[chain] += max(spent, MIN_SECONDS)
        self.attempt_s[chain] += max(spent + record["generation_s"], MIN_SECONDS)
        if not record["valid"]:
            return
        value, score = record["value"], record["score"]
        program = record.get("program_sha256")
        self.parents.add(
            Entry(record["run_id"], offset, value, record["delta_s"], program)
        )
        self.best = value if self.best is None else max(self.best, value)
        task = self.spec.scoring.task
        if self.best_score is None or oriented(task, score) > oriented(
            task, self.best_score
        ):
            self.best_score = score


def _mean(values: np.ndarray, known: np.ndarray) -> float | None:
    return float(values[known].mean()) if known.any() else None
