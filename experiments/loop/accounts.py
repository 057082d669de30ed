"""What a run knows from its attempts: rate, parents, best value, clocks.

A pure function of the ledger, in its order. Feeding a ledger again gives the same
numbers bit for bit, so nothing of this is stored anywhere else.
"""

from typing import Any

import numpy as np

from experiments.loop.baseline import ParentBaseline, parent_features
from experiments.loop.horizon import UNKNOWN, Horizon
from experiments.loop.learn import Rows, make_signals, rows_of
from experiments.loop.objective import BestOfK
from experiments.loop.price import RateModel, Worth
from experiments.loop.rates import RateBook, Rates
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
        #: Of the reward, whatever the arm learns from.
        self.rates = RateBook(spec.protocol.rate, chains)
        self.objective: BestOfK | None = None
        if spec.arm.objective == "max-at-k":
            self.objective = BestOfK(spec.protocol.max_at_k, chains)
            self._rates_of_w = RateBook(spec.protocol.rate, chains)
        self.reuses = spec.protocol.reuses
        # Else the lucky runs of one noisy script would fill all places.
        distinct = self.reuses or spec.scoring.noisy
        self.parents = Parents(spec.protocol.buffer_capacity, distinct=distinct)
        #: First runs of programs; empty where repeats are run.
        self.firsts = Firsts()
        learning = spec.protocol.learning
        self._baseline: ParentBaseline | None = None
        if learning.advantage == "parent":
            self._baseline = ParentBaseline(learning.baseline_batches, chains)
        self.ranking_price = 0.0
        self.best: float | None = None  # value
        self.best_score: float | None = None
        self.attempts = 0
        #: Why a chain's last answer gave no script.
        self.errors: list[str | None] = [None] * chains
        self.execution_s = np.zeros(chains)
        self.attempt_s = np.zeros(chains)

    @property
    def rate(self) -> RateModel:
        """The rate model of the reward."""
        return self.rates.model

    @property
    def _worth(self) -> Worth | None:
        """What takes the place of values in the ranking."""
        by_w = self.spec.protocol.max_at_k.rank_by == "objective"
        return self.objective.worth if self.objective is not None and by_w else None

    def next_states(self) -> list[Entry | None]:
        """The parents of the next step, at the price of the moment."""
        protocol = self.spec.protocol
        return self.parents.next_states(
            self.spec.arm, self.ranking_price, protocol.chains, self._worth
        )

    def take(
        self, step: int, located: list[Located], horizon: Horizon = UNKNOWN
    ) -> tuple[Signals, dict[str, Any]]:
        """Account for a whole step.

        Args:
            step: its number.
            located: its records.
            horizon: what was left of the budget before it.

        Returns:
            What the policy learns from, and the step's numbers for ``metrics.jsonl``.
        """
        arm = self.spec.arm
        records = [record for _, record in located]
        rows = rows_of(records)
        repeated = rows.known & np.array([is_repeat(record) for record in records])
        first = rows.known & ~repeated
        of_reward, after = self.rates.observe(rows, first, rows.value)
        paid, ranked, more, signal_rows = of_reward, after, {}, rows
        if self.objective is not None:
            signal_rows, paid, later, about = self._take_w(rows, first, horizon)
            ranked = later if self._worth is not None else after
            more = {"max_at_k": about}
        second = paid.price(arm.advantage_price, arm)
        signals = self._signals(signal_rows, records, second)
        prices: dict[str, Any] = {
            "price": second,
            "ranking_price": self.ranking_price,
            "greedy_rate": paid.greedy,
            "own_rate": paid.own,
            "rho": of_reward.greedy,
            "rho_next": after.greedy,
            "on_policy_rate": after.on_policy,
        }
        self.ranking_price = ranked.price(arm.ranking_price, arm)
        for offset, record in located:
            self._add(offset, record)
        numbers = self._numbers(step, records, signals, rows) | prices | more
        if self.reuses:
            numbers["repeats"] = int(repeated.sum())
        return signals, numbers

    def _take_w(
        self, rows: Rows, first: np.ndarray, horizon: Horizon
    ) -> tuple[Rows, Rates, Rates, dict[str, Any]]:
        """The batch with w in place of its values in the reward; rates of w, numbers.

        A penalty or a bonus stays what it is.
        """
        assert self.objective is not None
        w, about = self.objective.earned(rows, horizon)
        paid, after = self._rates_of_w.observe(
            rows, first, w, worth=self.objective.worth
        )
        beside = np.where(rows.valid, rows.reward - rows.value, rows.reward)
        return rows._replace(reward=w + beside), paid, after, about

    def _numbers(
        self,
        step: int,
        records: list[dict[str, Any]],
        signals: Signals,
        rows: Rows,
    ) -> dict[str, Any]:
        """Those of the batch itself; the rest of them are prices."""
        numbers: dict[str, Any] = {
            "step": step,
            "arm": self.spec.arm.name,
            "seed": self.spec.seed,
            "attempts": self.attempts,
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
        if self.spec.protocol.learning.plain_advantage:
            # With a critic, whitening or KL in the reward only the policy knows them.
            numbers["advantage"] = signals.advantage.tolist()
        return numbers

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
            cap_gainless=self.spec.protocol.learning.caps,
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
