"""The last test of a speedrun: fresh seeds, another text, and the noise floor.

Some scripts reach the target by luck. A run's best is trained again with seeds that it
has never seen; it is confirmed where every one of them crosses.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.config.crossing import Crossing
from experiments.config.reward_rule import RewardRule
from experiments.loop import grade
from experiments.records.final import FINAL
from experiments.records.ledger import Ledger
from experiments.records.recorded import INFRASTRUCTURE
from experiments.records.rundir import write_json
from experiments.records.texts import Texts, encoded
from experiments.running.final import ranked_attempts
from experiments.running.speedrun_work import grade_run, verified
from rpg_tasks.speedrun.record import Speedrun
from rpg_tasks.speedrun.verify import Loss, VerificationError, Verifier
from sandbox_exec.protocol import RunRecord, ScriptJob, ScriptPool

#: Above every training seed of a run (those are below 2^31); odd, even, odd.
SEEDS = (2**31 + 1, 2**31 + 2, 2**31 + 5)
NOISE = "noise.json"


@dataclasses.dataclass(frozen=True)
class Trial:
    """One fresh seed: seconds, losses on both texts, why there is none."""

    seed: int
    seconds: float | None
    loss: float | None
    final_loss: float | None
    reason: str | None
    lost: bool = False


def verdict(trials: Sequence[Trial], crossing: Crossing) -> str:
    """``confirmed``, or ``not confirmed``: one fresh seed that misses is enough."""
    crossed = [t for t in trials if t.loss is not None and crossing.crossed(t.loss)]
    return "confirmed" if trials and len(crossed) == len(trials) else "not confirmed"


class SpeedrunFinal:
    """Trains scripts with fresh seeds.

    Args:
        pool: trains.
        verifier: of the validation text.
        other: of the final text.
        job: makes training jobs.
        crossing: the target.
        rule: gives the clock.
    """

    def __init__(
        self,
        pool: ScriptPool,
        verifier: Verifier,
        other: Verifier,
        job: Callable[[bytes, str, tuple[str, ...]], ScriptJob],
        crossing: Crossing,
        rule: RewardRule,
    ):
        self._pool, self._job = pool, job
        self._verifier, self._other = verifier, other
        self._crossing, self._rule = crossing, rule

    def trials(self, script: bytes, name: str) -> list[Trial]:
        """A script with each of the fresh seeds."""
        waiting = [
            self._pool.submit(self._job(script, f"{name}-{seed}", (f"--seed={seed}",)))
            for seed in SEEDS
        ]
        return [
            self._trial(future.result(), script, seed)
            for seed, future in zip(SEEDS, waiting, strict=True)
        ]

    def _trial(self, run: RunRecord, script: bytes, seed: int) -> Trial:
        found, other = None, None
        try:
            if run.ok and run.submission_bytes is not None:
                data = run.submission_bytes
                found = self._verifier.verify(run.run_id, script, data)
                other = self._other.verify(f"{run.run_id}-final", script, data)
        except VerificationError as error:
            return Trial(seed, None, None, None, str(error), lost=True)
        done = verified(run, seed, found or Loss(None, "it left no model", 0.0))
        fields, _ = grade.outcome(
            done, lambda one: grade_run(one, self._crossing, self._rule)
        )
        cpu = self._rule.script_clock == "cpu"
        return Trial(
            seed=seed,
            seconds=run.cpu_s if cpu else run.delta_s,
            loss=None if found is None else found.loss,
            final_loss=None if other is None else other.loss,
            reason=fields["reason"],
            lost=fields["status"] == INFRASTRUCTURE,
        )

    def noise_floor(self, baseline: bytes, out: Path) -> list[str]:
        """What one script's seconds and losses differ by, over seeds; kept in a file.

        A gain of seconds below the spread of one script means nothing.
        """
        if (out / NOISE).exists():
            return []
        trials = [t for t in self.trials(baseline, "baseline") if t.seconds is not None]
        seconds = [t.seconds for t in trials if t.seconds is not None]
        losses = [t.loss for t in trials if t.loss is not None]
        if len(seconds) < 2 or len(losses) < 2:
            return ["noise   the baseline's fresh seeds left too few models"]
        spread = max(seconds) - min(seconds)
        write_json(
            out / NOISE,
            {
                "seconds": seconds,
                "losses": losses,
                "floor_share": spread / statistics.fmean(seconds),
            },
        )
        crossed = sum(self._crossing.crossed(loss) for loss in losses)
        return [
            f"noise   baseline on {len(seconds)} fresh seeds: "
            f"{statistics.fmean(seconds):.2f} s (spread {spread:.2f} s, "
            f"{100 * spread / statistics.fmean(seconds):.0f}%), loss "
            f"{statistics.fmean(losses):.3f} (sd {statistics.stdev(losses):.3f}), "
            f"{crossed} of {len(losses)} cross"
        ]

    def score(
        self, folder: Path, speedrun: Speedrun, steps: int
    ) -> tuple[dict[str, Any] | None, list[str]]:
        """Test a run's best script and append to ``final.jsonl``; record and lines."""
        ranked = ranked_attempts(folder, speedrun, steps=steps)
        if not ranked:
            return None, ["no script crossed: nothing to confirm"]
        best = ranked[0]
        with Ledger(folder / FINAL) as ledger:
            if len(ledger):
                return None, []
            script = encoded(Texts(folder / "scripts").load(best["script_sha256"]))
            trials = self.trials(script, f"{best['run_id']}-final")
            record = self._record(best, trials)
            ledger.append(record)
        crossed = [t for t in trials if t.loss is not None and self._crosses(t.loss)]
        finals = [t.final_loss for t in trials if t.final_loss is not None]
        on_final = f"{statistics.fmean(finals):.3f}" if finals else "none"
        return record, [
            f"best {best['score']:.2f} s; {len(crossed)} of {len(trials)} fresh seeds "
            f"cross: {record['verdict']}; mean "
            f"{_mean([t.seconds for t in trials]):.2f} s; loss on the final text "
            f"{on_final}"
        ]

    def _crosses(self, loss: float) -> bool:
        return self._crossing.crossed(loss)

    def _record(self, best: dict[str, Any], trials: Sequence[Trial]) -> dict[str, Any]:
        confirmed = verdict(trials, self._crossing)
        valid = confirmed == "confirmed"
        lost = any(t.lost for t in trials)
        status = "valid" if valid else INFRASTRUCTURE if lost else "invalid"
        return {
            "run_id": f"{best['run_id']}-final",
            "of": best["run_id"],
            **{k: best[k] for k in ("task", "arm", "seed", "step", "chain")},
            **{k: best[k] for k in ("script_sha256", "script_file")},
            "best": True,
            "validation_score": best["score"],
            "validation_execution_s": best["execution_s"],
            "status": status,
            "reason": None if valid else confirmed,
            "valid": valid,
            "score": _mean([t.seconds for t in trials]) if valid else None,
            "medal": None,
            "above_median": None,
            "verdict": confirmed,
            "trials": [dataclasses.asdict(trial) for trial in trials],
        }


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else float("nan")
