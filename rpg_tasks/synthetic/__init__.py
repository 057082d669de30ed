"""Generators of small, schema-faithful data for the 22 tasks: one row per task.

Each generator writes the layout that `mlebench prepare` leaves (public and private
files) from a seed. What differs from the real data is size: fewer rows, smaller images
and shorter clips, as `describe` says.

Every generator has one signature: (rng, n_train, n_test, public, private), with the
rows of the two parts and the folders to write. To add a task, write a function of that
signature and a row of `RECIPES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from rpg_tasks.synthetic.common import make_rng


@dataclass(frozen=True)
class Recipe:
    """How one task's data are made.

    Attributes:
        source: "module:function" below this package.
        small: rows of the training and test tables (images, clips, pages, sentences).
        medium: the same for the larger size.
        scale: what is smaller than in the real data, besides the rows.
    """

    source: str
    small: tuple[int, int]
    medium: tuple[int, int]
    scale: str = ""


RECIPES: dict[str, Recipe] = {
    "ranzcr-clip": Recipe(
        "medical:ranzcr_clip", (700, 200), (4000, 1000), "images 64x64"
    ),
    "aptos2019": Recipe("medical:aptos2019", (800, 200), (3000, 600), "images 64x64"),
    "mlsp-birds": Recipe(
        "audio:mlsp_birds",
        (180, 64),
        (258, 64),
        "clips of 2 s at 8 kHz; of supplemental_data the histogram of segments only",
    ),
    "siim-isic": Recipe(
        "medical:siim_isic",
        (1500, 400),
        (8000, 2000),
        "images 32x32; no DICOM and no TFRecord copies of them; 6 % positive",
    ),
    "textnorm-en": Recipe("textnorm:textnorm_en", (4000, 1000), (20000, 4000)),
    "textnorm-ru": Recipe("textnorm:textnorm_ru", (4000, 1000), (20000, 4000)),
    "tabular-2021": Recipe("tabular:tabular_2021", (20000, 2000), (200000, 20000)),
    "insults": Recipe("text:insults", (3000, 900), (3947, 2647)),
    "jigsaw-toxic": Recipe("text:jigsaw_toxic", (8000, 2000), (30000, 10000)),
    "histopathologic": Recipe(
        "medical:histopathologic", (900, 300), (5000, 1500), "images 48x48"
    ),
    "aerial-cactus": Recipe("scenes:aerial_cactus", (900, 300), (5000, 1200)),
    "plant-pathology": Recipe(
        "scenes:plant_pathology", (700, 200), (1638, 183), "images 64x48"
    ),
    "pizza": Recipe("text:pizza", (1500, 500), (2878, 1162)),
    "tabular-2022": Recipe("tabular:tabular_2022", (8000, 1500), (100000, 10000)),
    "whale": Recipe("audio:whale", (900, 300), (4000, 1500), "clips of 1 s"),
    "leaf-classif": Recipe("shapes:leaf_classif", (891, 99), (891, 99), "masks ~48 px"),
    "spooky-author": Recipe("text:spooky_author", (2000, 400), (17621, 1958)),
    "nyc-taxi": Recipe("tabular:nyc_taxi", (30000, 1500), (500000, 9914)),
    "dog-breed": Recipe("scenes:dog_breed", (840, 120), (4800, 600), "images 48x48"),
    "dogs-vs-cats": Recipe(
        "scenes:dogs_vs_cats", (1000, 250), (5000, 1000), "images 48x48"
    ),
    "nomad2018": Recipe("geometry:nomad2018", (2160, 240), (2160, 240)),
    "denoising-docs": Recipe(
        "documents:denoising_docs", (12, 4), (48, 12), "pages of 60x120 pixels"
    ),
}


def describe(short: str, size: str) -> str:
    """One line on how the synthetic data of a task differ from the real ones."""
    recipe = RECIPES[short]
    train, test = getattr(recipe, size)
    return f"synthetic data, {train} + {test} rows" + (
        f", {recipe.scale}" if recipe.scale else ""
    )


def generate(short: str, size: str, seed: int, public: Path, private: Path) -> None:
    """Write the data of one task.

    Args:
        short: the task's short name.
        size: "small" or "medium".
        seed: non-negative integer; equal seeds give equal bytes.
        public: folder for what the competition publishes.
        private: folder for the answers.
    """
    recipe = RECIPES[short]
    module, name = recipe.source.split(":")
    function: Callable = getattr(import_module(f"{__name__}.{module}"), name)
    for folder in (public, private):
        folder.mkdir(parents=True, exist_ok=True)
    rows = getattr(recipe, size)
    function(make_rng(short, seed), *rows, public, private)
