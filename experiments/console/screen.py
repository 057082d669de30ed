"""What a user sees: the first screen, one live table, the last table.

On a terminal the table is redrawn in place; elsewhere (a file, a pipe, CI) every step
is one line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table

from experiments.config.budget import Budget
from experiments.loop.algorithm import Loop
from experiments.records.phases import PHASES
from experiments.records.results import FROM_TABLE, Row, mean, pooled_rate
from rpg_tasks.goal import Goal
from rpg_tasks.goals import get_goal

_WIDTH = 118  # of tables in a file
_COLUMNS_EXPLAINED = (
    "n: runs (seeds). valid: share of scripts that got a score. reward, δ s: reward "
    "and seconds of an attempt. reward/s: all rewards over all seconds, what rpg is "
    "after. best val.: best score on the validation split; test: that script's score "
    "on the private test (↑ higher is better, ↓ lower)."
)
#: Where the data of a speedrun come from.
SPEEDRUN = "speedrun"
COLUMNS = ("step", "budget", "ρ̂ /s", "reward", "valid", "δ s", "best score")


def number(value: float | None, form: str = ".4g") -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else format(value, form)


def percent(value: float | None) -> str:
    """A share, in per cent."""
    return "–" if value is None else f"{100 * value:.0f}%"


def _grid(title: str, names: Sequence[str], left: int = 1) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for at, name in enumerate(names):
        table.add_column(
            name,
            justify="left" if at < left else "right",
            no_wrap=name not in ("task", "arm"),  # names give way to numbers
            overflow="fold",
        )
    return table


def nobody(*_: Any) -> None:
    """Nobody else looks on."""


class Screen:
    """Prints what happens.

    Args:
        console: where to; standard output by default.
    """

    def __init__(self, console: Console | None = None):
        if console is None:
            console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
        self.console = console
        self.live = console.is_terminal and not console.is_dumb_terminal
        self._live: Live | None = None
        self._loops: list[Loop] = []
        self._last: dict[Path, dict[str, Any]] = {}
        self._budget = Budget(steps=1)
        self._now = ""
        self._spinner = Spinner("dots")
        self._title = ""
        self.on_step: Callable[[Loop, dict[str, Any]], None] = nobody
        self.on_begin: Callable[[Sequence[Loop]], None] = nobody

    def say(self, text: str = "") -> None:
        """Print a line as it is."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def facts(self, facts: Sequence[tuple[str, str]]) -> None:
        """Print the first screen: one fact a line."""
        width = max(len(name) for name, _ in facts)
        for name, text in facts:
            self.say(f"{name:<{width}}  {text}")

    def note(self, text: str) -> None:
        """Say something that the user should know."""
        self.say(f"note: {text}")

    def fail(self, text: str) -> None:
        """One line on standard error."""
        print(f"error: {' '.join(text.split())}", file=sys.stderr, flush=True)

    # ---- while it runs

    def begin(self, task: Goal, loops: list[Loop], budget: Budget) -> None:
        """Show the runs of a task; each has numbers from its next step on."""
        self._loops, self._budget, self._last = loops, budget, {}
        self._now = ""
        self._title = f"{task.short}: {task.metric_text}"
        self.on_begin(loops)
        for loop in loops:
            if loop.next_step:
                self.note(f"{loop.spec.name} goes on at step {loop.next_step}")
        if self.live:
            self._live = Live(
                console=self.console,
                refresh_per_second=4,
                get_renderable=self._view,
            )
            self._live.start()

    def end(self) -> None:
        """Leave the table as it is."""
        self._now = ""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def begin_step(self, loop: Loop) -> None:
        """Say which run is at work."""
        self._now = f"{loop.spec.name}, step {loop.next_step}"

    def step(self, loop: Loop, metrics: dict[str, Any]) -> None:
        """Take in a step's numbers."""
        self._last[loop.folder] = metrics
        self.on_step(loop, metrics)
        if not self.live:
            self.say(self._line(loop, metrics))

    def final(self, folder: Path, record: dict[str, Any]) -> None:
        """Say what the private test gave."""
        run = f"{record['task']}-{record['arm']}-s{record['seed']}"
        if record["status"] == "valid":
            outcome = f"test score {record['score']:.5g}"
        else:
            outcome = f"private test: {record['status']} ({record['reason']})"
        text = (
            f"{run}: validation {record['validation_score']:.5g}, {outcome} "
            f"(step {record['step']}, chain {record['chain']})"
        )
        if "instead_of" in record:
            text += (
                f"; it is number {record['place']} by validation, tested because the "
                "best script failed its private test"
            )
        self._now = ""
        if record["best"] or "instead_of" in record or record["status"] != "valid":
            self.say(text)

    def _share(self, loop: Loop) -> str:
        if loop.replaying:
            return "replay"
        return percent(min(self._budget.share(loop.used()), 9.99))

    def _line(self, loop: Loop, m: dict[str, Any]) -> str:
        return (
            f"{loop.spec.name}: step {m['step']}, budget {self._share(loop)}, "
            f"rho {number(m['rho_next'])}/s, reward {number(m['mean_reward'], '.3f')}, "
            f"valid {percent(m['valid_share'])}, {number(m['mean_delta_s'], '.2f')} s "
            f"an attempt, best {number(m['best_score'], '.5g')}"
            + (f", {m['infrastructure']} lost" if m["infrastructure"] else "")
        )

    def _view(self) -> Any:
        table = _grid(self._title, ("run", *COLUMNS))
        for loop in self._loops:
            m = self._last.get(loop.folder)
            name = f"{loop.spec.arm.name} s{loop.spec.seed}"
            if m is None:
                table.add_row(name, *["–"] * len(COLUMNS))
                continue
            table.add_row(
                name,
                str(m["step"]),
                self._share(loop),
                number(m["rho_next"]),
                number(m["mean_reward"], ".3f"),
                percent(m["valid_share"]),
                number(m["mean_delta_s"], ".2f"),
                number(m["best_score"], ".5g"),
            )
        if not self._now:
            return table
        self._spinner.update(text=f" {escape(self._now)}")
        grid = Table.grid()
        grid.add_row(table)
        grid.add_row(self._spinner)
        return grid

    # ---- the end

    def results(
        self,
        rows: Sequence[Row],
        *,
        loading_s: float = 0.0,
        compiled_s: float = 0.0,
    ) -> None:
        """A line per task and arm, then where time went.

        Means over seeds, but reward/s: all seeds' rewards over all their seconds.

        Args:
            rows: of result.csv.
            loading_s: seconds of loading the model and the data, before all clocks.
            compiled_s: seconds of compilation, which no run's clock has.
        """
        # A real competition's thresholds mean nothing to synthetic data's scores.
        real = {
            r["task"] for r in rows if not r["data"].startswith(("synthetic", SPEEDRUN))
        }
        table = _grid(
            "Results, means over seeds",
            (
                *("task", "arm", "n", "steps", "valid", "reward", "δ s"),
                *("reward/s", "best val.", "test"),
                *(("medals",) if real else ()),
            ),
            left=2,
        )
        groups = dict.fromkeys((row["task"], row["arm"]) for row in rows)
        for task, arm in groups:
            part = [r for r in rows if (r["task"], r["arm"]) == (task, arm)]
            medals = [row["medal"] for row in part if row["medal"] and task in real]
            table.add_row(
                f"{task} {'↑' if get_goal(task).higher_is_better else '↓'}",
                arm,
                str(len(part)),
                number(mean(part, "steps"), ".3g"),
                percent(mean(part, "valid_share")),
                number(mean(part, "mean_reward"), ".3f"),
                number(mean(part, "mean_delta_s"), ".2f"),
                number(pooled_rate(part)),
                number(mean(part, "best_validation_score"), ".5g"),
                number(mean(part, "test_score"), ".5g"),
                *((", ".join(medals) or "–",) if real else ()),
            )
        table.caption = _COLUMNS_EXPLAINED
        table.caption_justify = "left"
        self.console.print(table)
        shares = phase_shares(rows)
        if shares:
            text = ", ".join(f"{name} {percent(s)}" for name, s in shares.items())
            if any(row["data"].endswith(FROM_TABLE) for row in rows):
                text = f"virtual: {text}"
            apart = {"loading": loading_s, "compilation": compiled_s}
            said = [f"{s:.0f} s of {name}" for name, s in apart.items() if s >= 1]
            if said:
                text += f"; and {' and '.join(said)}, not counted"
            self.say(f"time    {text}")


def phase_shares(rows: Sequence[Row]) -> dict[str, float]:
    """Share of the time of each phase, over all runs; empty without any."""
    spent = {p: sum(row[f"{p}_s"] or 0.0 for row in rows) for p in PHASES}
    whole = sum(spent.values())
    return {p: s / whole for p, s in spent.items()} if whole > 0 else {}
