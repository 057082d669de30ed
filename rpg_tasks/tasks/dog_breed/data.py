"""120 breeds, each a coat, markings and a build."""

from pathlib import Path

import numpy as np
import pandas as pd

from rpg_tasks.kit import (
    Media,
    Pixels,
    SplitRule,
    SyntheticData,
    TableLayout,
    hex_ids,
    image_bytes,
    one_hot,
    smooth_noise,
    stratified_choice,
    write_csv,
    write_file,
)

_NAMES = """
affenpinscher afghan_hound african_hunting_dog airedale american_staffordshire_terrier
appenzeller australian_terrier basenji basset beagle bedlington_terrier
bernese_mountain_dog black-and-tan_coonhound blenheim_spaniel bloodhound bluetick
border_collie border_terrier borzoi boston_bull bouvier_des_flandres boxer
brabancon_griffon briard brittany_spaniel bull_mastiff cairn cardigan
chesapeake_bay_retriever chihuahua chow clumber cocker_spaniel collie
curly-coated_retriever dandie_dinmont dhole dingo doberman english_foxhound
english_setter english_springer entlebucher eskimo_dog flat-coated_retriever
french_bulldog german_shepherd german_short-haired_pointer giant_schnauzer
golden_retriever gordon_setter great_dane great_pyrenees greater_swiss_mountain_dog
groenendael ibizan_hound irish_setter irish_terrier irish_water_spaniel
irish_wolfhound italian_greyhound japanese_spaniel keeshond kelpie kerry_blue_terrier
komondor kuvasz labrador_retriever lakeland_terrier leonberg lhasa malamute malinois
maltese_dog mexican_hairless miniature_pinscher miniature_poodle miniature_schnauzer
newfoundland norfolk_terrier norwegian_elkhound norwich_terrier old_english_sheepdog
otterhound papillon pekinese pembroke pomeranian pug redbone rhodesian_ridgeback
rottweiler saint_bernard saluki samoyed schipperke scotch_terrier scottish_deerhound
sealyham_terrier shetland_sheepdog shih-tzu siberian_husky silky_terrier
soft-coated_wheaten_terrier staffordshire_bullterrier standard_poodle
standard_schnauzer sussex_spaniel tibetan_mastiff tibetan_terrier toy_poodle
toy_terrier vizsla walker_hound weimaraner welsh_springer_spaniel
west_highland_white_terrier whippet wire-haired_fox_terrier yorkshire_terrier
"""
DOG_BREEDS: tuple[str, ...] = tuple(_NAMES.split())


def generate(
    rng: np.random.Generator, n_train: int, n_test: int, public: Path, private: Path
) -> None:
    """120 breeds: coat colours, markings and build from a latent vector per breed."""
    n = n_train + n_test
    breed = rng.permutation(np.arange(n) % len(DOG_BREEDS))
    latent = rng.normal(size=(len(DOG_BREEDS), 12))
    frame = pd.DataFrame(
        {"id": hex_ids(rng, n, 32), "breed": np.array(DOG_BREEDS)[breed]}
    )
    test = stratified_choice(rng, frame["breed"], n_test)
    for i, b, t in zip(frame["id"], breed, test, strict=True):
        place = public / ("test" if t else "train") / f"{i}.jpg"
        z = latent[b] + 0.3 * rng.normal(size=12)
        write_file(place, image_bytes(_dog(rng, z), "jpeg", 95))
    hidden = frame[test]
    write_csv(frame[~test], public / "labels.csv")
    sample = pd.DataFrame({"id": hidden["id"], **dict.fromkeys(DOG_BREEDS, 1 / 120)})
    write_csv(sample, public / "sample_submission.csv")
    ids = hidden["id"].to_numpy()
    answers = one_hot(hidden["breed"].to_numpy(), DOG_BREEDS, id=ids)
    write_csv(answers, private / "test.csv")


def _dog(rng: np.random.Generator, z: np.ndarray) -> Pixels:
    coat = 130 + 48 * np.tanh(z[:3]) + 26 * z[3]
    mark = 130 + 60 * np.tanh(z[4:7])
    y, x = np.mgrid[:48, :48]
    x, y = x - 24 + rng.normal(0, 1.5), y - 26 + rng.normal(0, 1.5)
    wide, tall = 13 + 2.5 * np.tanh(z[7]), 14 + 2.5 * np.tanh(z[8])
    head = (x / wide) ** 2 + (y / tall) ** 2 < 1
    ear_y, ear_r = -11 + 6 * np.tanh(z[9]), 5 + 1.5 * np.tanh(z[10])
    ears = (
        ((np.abs(x) - wide + 2) / ear_r) ** 2 + ((y - ear_y) / (ear_r * 1.4)) ** 2
    ) < 1
    stripes = (
        np.sin((0.45 + 0.2 * np.tanh(z[11])) * (x + y * np.tanh(z[8])) + 1.0) > 0.4
    )
    ground = rng.uniform(60, 200, 3)
    pixels = np.empty((48, 48, 3))
    pixels[:] = ground + 15 * smooth_noise(rng, (48, 48), 4)[..., None]
    pixels[head] = coat
    pixels[head & stripes] = 0.45 * coat + 0.55 * mark
    pixels[ears] = mark
    for side in (-5, 5):
        pixels[np.hypot(x - side, y + 3) < 1.6] = 15
    pixels[np.hypot(x, y - 5) < 2.4] = 25
    return pixels * rng.uniform(0.93, 1.07) + rng.normal(0, 6, pixels.shape)


SYNTHETIC = SyntheticData(
    generate,
    small=(840, 120),
    medium=(4800, 600),
    scale="images 48x48",
)
SPLIT = SplitRule(stratify=("breed",))
CARVE = TableLayout(
    train="labels.csv",
    test=None,
    label="breed",
    media=(Media("train", "test", "{}.jpg"),),
)
