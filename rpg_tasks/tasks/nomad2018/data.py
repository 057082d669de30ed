"""Mixed oxides: two energies from composition, lattice and positions."""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rpg_tasks.kit import (
    Media,
    SplitRule,
    SyntheticData,
    TableLayout,
    write_csv,
    write_file,
)

_GROUPS = np.array([12, 33, 167, 194, 206, 227])
_ATOMS = (10, 20, 30, 40)
_METALS = ("Al", "Ga", "In")
# Lattice edge per metal (Vegard's law mixes them), angstrom.
_EDGE = np.array([4.9, 5.1, 5.6])


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Band gap bows with composition; distorted cells cost energy.

    The distortion shows in the atom positions alone, so reading geometry.xyz pays for
    the formation energy. Rows are numbered from 1 in both parts.
    """
    n = n_train + n_test
    share = rng.dirichlet((0.9, 0.9, 0.9), n)
    share = np.round(share * 32) / 32
    share[:, 2] = np.clip(1 - share[:, 0] - share[:, 1], 0, 1)
    group = rng.integers(0, _GROUPS.size, n)
    atoms = rng.choice(_ATOMS, n)
    edge = share @ _EDGE * (1 + 0.006 * rng.normal(size=n))
    stretch = 1 + 0.25 * np.linspace(-1, 1, _GROUPS.size)[group]
    lattice = np.stack([edge, edge * stretch, edge * atoms / 10 / stretch], 1)
    lattice *= 1 + 0.004 * rng.normal(size=(n, 3))
    angles = np.full((n, 3), 90.0) + 0.02 * rng.normal(size=(n, 3))
    angles[group == 0, 1] += 13.0
    angles[group == 3, 2] += 30.0
    distortion = rng.gamma(2.0, 0.04, n)
    offset = rng.normal(0, 0.25, (2, _GROUPS.size))
    al, ga, indium = share.T
    gap = (
        5.2 * al + 3.1 * ga + 1.2 * indium
        - 1.4 * al * indium - 0.6 * ga * indium
        + offset[0, group] + 0.5 * np.sin(6 * al) * (group % 2)
        - 2.0 * distortion + 0.08 * rng.normal(size=n)
    )  # fmt: skip
    energy = (
        0.05 + 0.55 * al * indium + 0.2 * al * ga + 0.3 * ga * indium
        + 0.15 * np.abs(offset[1, group]) * (1 + indium)
        + 0.9 * distortion + 0.008 * rng.normal(size=n)
    )  # fmt: skip
    ids = np.r_[1 : n_train + 1, 1 : n_test + 1]
    frame = _table(ids, _GROUPS[group], atoms, share, lattice, angles)
    frame["formation_energy_ev_natom"] = np.clip(energy, 0, None).round(4)
    frame["bandgap_energy_ev"] = np.clip(gap, 0.01, None).round(4)
    for i in range(n):
        part = "train" if i < n_train else "test"
        text = _geometry(rng, lattice[i], int(atoms[i]), share[i], distortion[i])
        path = public / part / str(frame["id"].iloc[i]) / "geometry.xyz"
        write_file(path, text.encode())
    targets = ["formation_energy_ev_natom", "bandgap_energy_ev"]
    hidden = frame[n_train:]
    write_csv(frame[:n_train], public / "train.csv")
    write_csv(hidden.drop(columns=targets), public / "test.csv")
    sample = hidden[["id"]].assign(**dict(zip(targets, (0.1779, 1.8892), strict=True)))
    write_csv(sample, public / "sample_submission.csv")
    write_csv(hidden, private / "test.csv")


def _table(
    ids: NDArray[np.int_],
    group: NDArray[np.int_],
    atoms: NDArray[np.int_],
    share: NDArray[np.float64],
    lattice: NDArray[np.float64],
    angles: NDArray[np.float64],
) -> pd.DataFrame:
    """What is known of a cell: composition, lattice vectors and angles."""
    frame = pd.DataFrame(
        {"id": ids, "spacegroup": group, "number_of_total_atoms": atoms.astype(float)}
    )
    for k, metal in enumerate(_METALS):
        frame[f"percent_atom_{metal.lower()}"] = share[:, k].round(4)
    for k in range(3):
        frame[f"lattice_vector_{k + 1}_ang"] = lattice[:, k].round(4)
    for k, name in enumerate(("alpha", "beta", "gamma")):
        frame[f"lattice_angle_{name}_degree"] = angles[:, k].round(4)
    return frame


def _geometry(
    rng: np.random.Generator,
    lattice: np.ndarray,
    atoms: int,
    share: np.ndarray,
    distortion: float,
) -> str:
    """Two metals to three oxygens on a grid, each moved by about `distortion`."""
    lines = ["#synthetic cell, fixed grid plus displacement"]
    lines += [
        "lattice_vector " + " ".join(f"{v:.4f}" for v in row)
        for row in np.diag(lattice)
    ]
    metals = np.array(_METALS)[
        np.minimum(np.searchsorted(np.cumsum(share), rng.random(atoms * 2 // 5)), 2)
    ]
    symbols = [*metals, *["O"] * (atoms - metals.size)]
    cells = np.stack(np.unravel_index(np.arange(atoms), (2, 5, atoms // 10)), 1)
    place = (cells + 0.5) / (2, 5, atoms // 10) * lattice
    place = place + distortion * rng.normal(size=place.shape)
    lines += [
        f"atom {x:.5f} {y:.5f} {z:.5f} {s}"
        for (x, y, z), s in zip(place, symbols, strict=True)
    ]
    return "\n".join(lines) + "\n"


SYNTHETIC = SyntheticData(
    generate,
    small=(2160, 240),
    medium=(2160, 240),
)
SPLIT = SplitRule(stratify=("spacegroup",))
CARVE = TableLayout(
    rename="{}", first=1, media=(Media("train", "test", "{}/geometry.xyz"),)
)
