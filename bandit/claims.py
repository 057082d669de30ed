"""The paper's claims about the bandit, and ours, checked cell by cell on paired trials.

A comparison is 'lower', 'tie' or 'higher' by the mean paired difference of final regret
against two of its standard errors. A claim holds in a cell, or it fails there and is
named; nothing is averaged over cells.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bandit.analysis import standard_error
from bandit.sweep import Cell, CellResult

BAND = 2.0
FIELDS = (
    "claim",
    "selection",
    "env",
    "num_arms",
    "num_contexts",
    "first",
    "second",
    "first_mean",
    "second_mean",
    "diff_mean",
    "diff_se",
    "verdict",
    "holds",
)


class Claim(NamedTuple):
    """One comparison that is claimed to hold in every cell.

    Attributes:
      name: short, for tables.
      text: what is claimed.
      first: agent whose regret is compared.
      second: agent it is compared with.
      allowed: verdicts under which the claim holds.
    """

    name: str
    text: str
    first: str
    second: str
    allowed: tuple[str, ...]


CLAIMS = (
    Claim(
        "paper-1",
        "NPG-NIW's regret is similar to or lower than tuned C-UCB's",
        "npg-niw",
        "cucb-tuned",
        ("lower", "tie"),
    ),
    Claim(
        "paper-2",
        "SPG-NIW is worse than NPG-NIW",
        "spg-niw",
        "npg-niw",
        ("higher",),
    ),
    Claim(
        "paper-3",
        "C-UCB with the theorem's constants is worse than tuned C-UCB",
        "cucb-theory",
        "cucb-tuned",
        ("higher",),
    ),
    Claim(
        "plug-in",
        "C-UCB with the plug-in rate beats or ties NPG-NIW",
        "cucb-plugin",
        "npg-niw",
        ("lower", "tie"),
    ),
    Claim(
        "ours-1",
        "IMED, untuned, is lower than NPG-NIW, tuned",
        "imed",
        "npg-niw",
        ("lower",),
    ),
    Claim(
        "ours-2",
        "IMED, untuned, is lower than tuned C-UCB",
        "imed",
        "cucb-tuned",
        ("lower",),
    ),
    Claim(
        "ours-3",
        "IMED, untuned, is not worse than C-UCB with the plug-in rate, tuned",
        "imed",
        "cucb-plugin",
        ("lower", "tie"),
    ),
)


def verdict(differences: np.ndarray) -> str:
    """'lower', 'tie' or 'higher' by the mean against two standard errors, [S].

    'unknown' where there is no standard error: one trial says nothing.
    """
    mean, error = differences.mean(), float(standard_error(differences))
    if not np.isfinite(error):
        return "unknown"
    if abs(mean) <= BAND * error:
        return "tie"
    return "lower" if mean < 0 else "higher"


def _final(result: CellResult, selection: str) -> np.ndarray:
    index = result.selection.index(selection) if selection in result.selection else 0
    return result.regret[-1, index]


def rows(cells: dict[Cell, CellResult]) -> Iterable[dict]:
    """One row per claim, way of tuning and cell in which both agents were run."""
    by_place: dict[tuple, dict[str, CellResult]] = {}
    for cell, result in cells.items():
        place = (cell.env, cell.num_arms, cell.num_contexts)
        by_place.setdefault(place, {})[cell.agent.name] = result
    for claim in CLAIMS:
        for selection in ("median", "mean"):
            for (env, num_arms, num_contexts), agents in by_place.items():
                if not {claim.first, claim.second} <= set(agents):
                    continue
                pair = [agents[claim.first], agents[claim.second]]
                if not any(selection in result.selection for result in pair):
                    continue
                first, second = (_final(result, selection) for result in pair)
                judged = verdict(first - second)
                yield {
                    "claim": claim.name,
                    "selection": selection,
                    "env": env,
                    "num_arms": num_arms,
                    "num_contexts": num_contexts,
                    "first": claim.first,
                    "second": claim.second,
                    "first_mean": float(first.mean()),
                    "second_mean": float(second.mean()),
                    "diff_mean": float((first - second).mean()),
                    "diff_se": float(standard_error(first - second)),
                    "verdict": judged,
                    "holds": str(judged in claim.allowed),
                }


def _place(row: dict) -> str:
    """A cell in which a claim fails, or cannot be judged."""
    name = f"{row['env']} K={row['num_arms']}"
    if row["verdict"] == "unknown":
        return f"{name} (one trial: unknown)"
    return f"{name} ({row['diff_mean']:+.0f} ± {row['diff_se']:.0f})"


def markdown(table: list[dict]) -> str:
    """A summary for people: each claim's count of cells, and where it fails.

    Args:
      table: rows of ``rows``, as made or as read back from claims.csv.
    """
    lines = [
        "| claim | tuned by | lower | tie | higher | holds in | fails in |",
        "|---|---|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        for selection in ("median", "mean"):
            part = [
                row
                for row in table
                if (row["claim"], row["selection"]) == (claim.name, selection)
            ]
            if not part:
                continue
            counts = [
                sum(row["verdict"] == name for row in part)
                for name in ("lower", "tie", "higher")
            ]
            failed = [_place(row) for row in part if str(row["holds"]) != "True"]
            lines.append(
                f"| {claim.text} | {selection} | "
                + " | ".join(map(str, counts))
                + f" | {len(part) - len(failed)} of {len(part)} | "
                + (", ".join(failed) or "none")
                + " |"
            )
    return "\n".join(lines) + "\n"
