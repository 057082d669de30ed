"""99 species from 192 measured features and a mask of the leaf."""

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from rpg_tasks.kit import (
    Media,
    Pixels,
    SplitRule,
    SyntheticData,
    TableLayout,
    image_bytes,
    one_hot,
    write_csv,
    write_file,
)

_NAMES = """
Acer_Capillipes Acer_Circinatum Acer_Mono Acer_Opalus Acer_Palmatum Acer_Pictum
Acer_Platanoids Acer_Rubrum Acer_Rufinerve Acer_Saccharinum Alnus_Cordata
Alnus_Maximowiczii Alnus_Rubra Alnus_Sieboldiana Alnus_Viridis Arundinaria_Simonii
Betula_Austrosinensis Betula_Pendula Callicarpa_Bodinieri Castanea_Sativa
Celtis_Koraiensis Cercis_Siliquastrum Cornus_Chinensis Cornus_Controversa
Cornus_Macrophylla Cotinus_Coggygria Crataegus_Monogyna Cytisus_Battandieri
Eucalyptus_Glaucescens Eucalyptus_Neglecta Eucalyptus_Urnigera Fagus_Sylvatica
Ginkgo_Biloba Ilex_Aquifolium Ilex_Cornuta Liquidambar_Styraciflua
Liriodendron_Tulipifera Lithocarpus_Cleistocarpus Lithocarpus_Edulis
Magnolia_Heptapeta Magnolia_Salicifolia Morus_Nigra Olea_Europaea Phildelphus
Populus_Adenopoda Populus_Grandidentata Populus_Nigra Prunus_Avium Prunus_X_Shmittii
Pterocarya_Stenoptera Quercus_Afares Quercus_Agrifolia Quercus_Alnifolia
Quercus_Brantii Quercus_Canariensis Quercus_Castaneifolia Quercus_Cerris
Quercus_Chrysolepis Quercus_Coccifera Quercus_Coccinea Quercus_Crassifolia
Quercus_Crassipes Quercus_Dolicholepis Quercus_Ellipsoidalis Quercus_Greggii
Quercus_Hartwissiana Quercus_Ilex Quercus_Imbricaria Quercus_Infectoria_sub
Quercus_Kewensis Quercus_Nigra Quercus_Palustris Quercus_Phellos
Quercus_Phillyraeoides Quercus_Pontica Quercus_Pubescens Quercus_Pyrenaica
Quercus_Rhysophylla Quercus_Rubra Quercus_Semecarpifolia Quercus_Shumardii
Quercus_Suber Quercus_Texana Quercus_Trojana Quercus_Variabilis Quercus_Vulcanica
Quercus_x_Hispanica Quercus_x_Turneri Rhododendron_x_Russellianum Salix_Fragilis
Salix_Intergra Sorbus_Aria Tilia_Oliveri Tilia_Platyphyllos Tilia_Tomentosa
Ulmus_Bergmanniana Viburnum_Tinus Viburnum_x_Rhytidophylloides Zelkova_Serrata
"""
LEAF_SPECIES: tuple[str, ...] = tuple(_NAMES.split())


_LATENT = 24


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """Species are points in 24 latent dimensions; features are three mixed views of it.

    About ten leaves per species: a linear model on scaled features does well, hundreds
    of trees do not, and the masks repeat a part of the latent vector.
    """
    n = n_train + n_test
    species = rng.permutation(np.arange(n) % len(LEAF_SPECIES))
    centre = rng.normal(size=(len(LEAF_SPECIES), _LATENT))
    latent = centre[species] + 0.85 * rng.normal(size=(n, _LATENT))
    blocks = {}
    for block in ("margin", "shape", "texture"):
        mix = rng.normal(size=(_LATENT, 64)) / np.sqrt(_LATENT)
        view = latent @ mix + 0.35 * rng.normal(size=(n, 64))
        level = {"margin": 0.016, "shape": 0.0006, "texture": 0.016}[block]
        spread = rng.uniform(0.3, 0.9, 64)
        for k in range(64):
            values = level * np.exp(spread[k] * view[:, k] - spread[k] ** 2 / 2)
            blocks[f"{block}{k + 1}"] = values.round(9 if block == "shape" else 6)
    ids = rng.permutation(np.arange(1, n + 1 + n // 2))[:n]
    frame = pd.DataFrame({"id": ids, "species": np.array(LEAF_SPECIES)[species]})
    frame = pd.concat([frame, pd.DataFrame(blocks)], axis=1)
    for i, z in zip(ids, latent, strict=True):
        write_file(public / "images" / f"{i}.jpg", image_bytes(_mask(z), "jpeg"))
    # Not stratified, as in the competition: a species may be absent from the test.
    test = np.zeros(n, dtype=bool)
    test[rng.choice(n, n_test, replace=False)] = True
    hidden = frame[test]
    write_csv(frame[~test], public / "train.csv")
    write_csv(hidden.drop(columns="species"), public / "test.csv")
    sample = pd.DataFrame({"id": hidden["id"], **dict.fromkeys(LEAF_SPECIES, 1 / 99)})
    write_csv(sample, public / "sample_submission.csv")
    ids = hidden["id"].to_numpy()
    answers = one_hot(hidden["species"].to_numpy(), LEAF_SPECIES, id=ids)
    write_csv(answers, private / "test.csv")


def _mask(z: np.ndarray) -> Pixels:
    """White superformula outline on black; six latent numbers set its shape.

    r(t) = (|cos(m t / 4)|^n2 + |sin(m t / 4)|^n3)^(-1 / n1).
    """
    t = np.linspace(0, 2 * np.pi, 120, endpoint=False)
    lobes = 2 + np.round(3 * (1 + np.tanh(z[0])))
    n1, n2, n3 = (0.8, 2.0, 2.0) * np.exp(0.5 * z[1:4])
    wave = np.abs(np.cos(lobes * t / 4)) ** n2 + np.abs(np.sin(lobes * t / 4)) ** n3
    r = np.clip(wave ** (-1 / n1), 0.2, 3)
    r *= 1 + 0.06 * np.sin((9 + np.round(3 * z[4])) * t)
    x, y = r * np.cos(t) * np.exp(0.3 * z[5]), r * np.sin(t)
    scale = 22 / max(np.abs(x).max(), np.abs(y).max())
    width, height = (int(2 * scale * np.abs(v).max()) + 6 for v in (x, y))
    canvas = Image.new("L", (width, height))
    points = [
        (width / 2 + scale * a, height / 2 + scale * b)
        for a, b in zip(x, y, strict=True)
    ]
    ImageDraw.Draw(canvas).polygon(points, fill=255)
    return np.asarray(canvas)


SYNTHETIC = SyntheticData(
    generate,
    small=(891, 99),
    medium=(891, 99),
    scale="masks ~48 px",
)
SPLIT = SplitRule(stratify=("species",))
CARVE = TableLayout(label="species", media=(Media("images", "images", "{}.jpg"),))
