"""All checks at once: table, ``theory.csv`` and a figure (PNG, PDF)."""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bandit.theory.iteration import check_band, check_termination
from bandit.theory.npg import check_boltzmann, check_rate
from bandit.theory.problems import Check, PerProblem
from bandit.theory.sums import check_rate_of_sums


class Curves(NamedTuple):
    """What ``report`` draws."""

    band: dict[float, PerProblem]  # gamma -> lowest tail rate over rho*
    edges: dict[float, PerProblem]  # gamma -> proved lower edge over rho*
    steps: Int[np.ndarray, " problems"]  # Dinkelbach steps
    error: Float[np.ndarray, "problems steps"]  # rho* - running average, over rho*
    bound: Float[np.ndarray, "problems steps"]  # its bound, over rho*
    visits: Float[np.ndarray, " points"]  # decisions
    sums_rate: Float[np.ndarray, " points"]  # C-UCB's rate
    plug_in_rate: Float[np.ndarray, " points"]
    best_rate: float


def run(seed: int = 0) -> tuple[list[Check], Curves]:
    """All checks and what the figure needs."""
    band, lowest, edges = check_band(seed)
    termination, steps = check_termination(seed)
    rate, path = check_rate(seed)
    sums, growth = check_rate_of_sums()
    rows = [*band, *termination, *check_boltzmann(seed), *rate, *sums]
    scale = path.best[:, None]
    return rows, Curves(
        band=lowest,
        edges=edges,
        steps=steps,
        error=path.error / scale,
        bound=path.bound / scale,
        visits=growth.visits,
        sums_rate=growth.sums_rate,
        plug_in_rate=growth.plug_in_rate,
        best_rate=growth.best_rate,
    )


def draw(curves: Curves, path: Path) -> None:
    """Four panels: band, steps, error against bound, C-UCB's rate; PNG and PDF."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    band, steps, error, sums = figure.subplots(2, 2).ravel()
    for gamma, lowest in curves.band.items():
        band.scatter(
            curves.edges[gamma], lowest, s=3, label=f"γ = {gamma}", rasterized=True
        )
    limits = [min(0.0, *(e.min() for e in curves.edges.values())), 1.05]
    limits[0] = max(limits[0], -1.0)
    band.plot(limits, limits, color="black", linewidth=0.8)
    band.set(
        xlim=limits,
        xlabel="proved lower edge / ρ*",
        ylabel="lowest rate of the tail / ρ*",
        title="Approximate Dinkelbach stays above its edge",
    )
    band.legend(markerscale=3, frameon=False)
    values, counts = np.unique(curves.steps, return_counts=True)
    steps.bar(values, counts, color="#1b5e9b")
    steps.set(
        xlabel="greedy policies evaluated",
        ylabel="problems",
        title="Exact Dinkelbach ends after a few steps",
    )
    k = np.arange(1, curves.error.shape[1] + 1)
    moving = curves.error[:, -1] > 1e-9
    for row in np.flatnonzero(moving)[:8]:
        line = error.loglog(k, curves.error[row], linewidth=1.2)[0]
        error.loglog(k, curves.bound[row], "--", linewidth=0.8, color=line.get_color())
    error.set(
        xlabel="NPG steps k",
        ylabel="(ρ* − running average rate) / ρ*",
        title="Error (solid) and its bound (dashed), 8 problems",
    )
    sums.semilogx(curves.visits, curves.sums_rate, label="C-UCB: cells' sums")
    sums.semilogx(curves.visits, curves.plug_in_rate, label="plug-in: cells' means")
    sums.axhline(curves.best_rate, color="black", linestyle=":", label="ρ*")
    sums.set(
        xlabel="decisions",
        ylabel="estimate of the optimal rate",
        title="E1 without noise: C-UCB's rate is inconsistent",
    )
    sums.legend(frameon=False)
    for suffix in (".png", ".pdf"):
        figure.savefig(path.with_suffix(suffix), dpi=150)


def report(folder: Path | str, *, seed: int = 0) -> int:
    """Run the checks, write ``theory.csv`` and the figure, print a table.

    Returns:
      0 if every statement held, else 1.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows, curves = run(seed)
    with (folder / "theory.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Check._fields)
        writer.writerows(rows)
    draw(curves, folder / "theory")
    for row in rows:
        mark = "held  " if row.held else "FAILED"
        print(f"{mark} {row.name}: {row.quantity}: {row.value:.6g} ({row.required})")
    failed = sum(not row.held for row in rows)
    if failed:
        print(f"{failed} of {len(rows)} statements failed")
    return 1 if failed else 0
