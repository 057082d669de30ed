"""The paper's claims about the bandit, and ours, checked cell by cell on paired trials.

A comparison is 'lower', 'tie' or 'higher' by the mean paired difference of final regret
against two of its standard errors. A claim holds in a cell, or it fails there and is
named; nothing is averaged over cells.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from bandit.analysis import Row, standard_error
from bandit.sweep import SELECTIONS, Cell, CellResult

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


#: What the mark of some claims says.
FOOTNOTE = (
    "¹ Chosen once, on seeds 1000-1099 of the small study (X = 4), which no reported "
    "number uses: tuned to that study, though not to a cell."
)
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
        "IMED at its one setting¹ is lower than NPG-NIW tuned per cell",
        "imed",
        "npg-niw",
        ("lower",),
    ),
    Claim(
        "ours-2",
        "IMED at its one setting¹ is lower than C-UCB tuned per cell",
        "imed",
        "cucb-tuned",
        ("lower",),
    ),
    Claim(
        "ours-3",
        "IMED at its one setting¹ is not worse than C-UCB with the plug-in rate tuned "
        "per cell",
        "imed",
        "cucb-plugin",
        ("lower", "tie"),
    ),
)


def verdict(differences: Float[np.ndarray, " trials"]) -> str:
    """'lower', 'tie' or 'higher' by the mean against two standard errors.

    'unknown' where there is no standard error: one trial has no standard error.

    Raises:
      ValueError: there is no trial.
    """
    error = float(standard_error(differences))
    mean = float(np.mean(differences))
    if not np.isfinite(error):
        return "unknown"
    if abs(mean) <= BAND * error:
        return "tie"
    return "lower" if mean < 0 else "higher"


def _final(result: CellResult, selection: str) -> Float[np.ndarray, " trials"]:
    index = result.selection.index(selection) if selection in result.selection else 0
    return np.asarray(result.regret[-1, index])


def rows(cells: Mapping[Cell, CellResult]) -> Iterator[Row]:
    """One row per claim, way of tuning and cell in which both agents were run."""
    by_place: dict[tuple[str, int, int], dict[str, CellResult]] = {}
    for cell, result in cells.items():
        by_place.setdefault(cell.place, {})[cell.agent.name] = result
    for claim in CLAIMS:
        for selection in SELECTIONS:
            for place, agents in by_place.items():
                if not {claim.first, claim.second} <= set(agents):
                    continue
                pair = [agents[claim.first], agents[claim.second]]
                if any(selection in result.selection for result in pair):
                    first, second = (_final(result, selection) for result in pair)
                    yield _row(claim, selection, place, first, second)


def _row(
    claim: Claim,
    selection: str,
    place: tuple[str, int, int],
    first: Float[np.ndarray, " trials"],
    second: Float[np.ndarray, " trials"],
) -> Row:
    judged = verdict(first - second)
    env, num_arms, num_contexts = place
    return {
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


def _place(row: Row, with_contexts: bool) -> str:
    """A cell in which a claim fails, or cannot be judged."""
    name = f"{row['env']} K={row['num_arms']}"
    if with_contexts:
        name += f" X={row['num_contexts']}"
    if row["verdict"] == "unknown":
        return f"{name} (one trial: unknown)"
    return f"{name} ({row['diff_mean']:+.0f} ± {row['diff_se']:.0f})"


def _line(claim: Claim, selection: str, part: Sequence[Row]) -> str:
    with_contexts = len({row["num_contexts"] for row in part}) > 1
    counts = [
        str(sum(row["verdict"] == name for row in part))
        for name in ("lower", "tie", "higher")
    ]
    failed = [_place(row, with_contexts) for row in part if str(row["holds"]) != "True"]
    holds = f"{len(part) - len(failed)} of {len(part)}"
    where = ", ".join(failed) or "none"
    return f"| {claim.text} | {selection} | {' | '.join(counts)} | {holds} | {where} |"


def markdown(table: Sequence[Row]) -> str:
    """A summary for people: each claim's count of cells, and where it fails.

    Args:
      table: rows of ``rows``, as made or as read back from claims.csv.
    """
    lines = [
        "| claim | tuned by | lower | tie | higher | holds in | fails in |",
        "|---|---|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        for selection in SELECTIONS:
            part = [
                row
                for row in table
                if (row["claim"], row["selection"]) == (claim.name, selection)
            ]
            if part:
                lines.append(_line(claim, selection, part))
    if any("¹" in line for line in lines):
        lines += ["", FOOTNOTE]
    return "\n".join(lines) + "\n"
