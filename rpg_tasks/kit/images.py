"""Images: encoding, smooth noise, and pixels as rows of a table."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[Any]


def image_bytes(pixels: Pixels, kind: str, quality: int = 90) -> bytes:
    """Encode [H, W] or [H, W, 3] pixels (any float or int, 0-255) as jpeg, png, tiff.

    Args:
        pixels: values outside 0..255 are clipped.
        kind: a Pillow format name, "jpeg", "png", "tiff" or "bmp".
        quality: jpeg quality.
    """
    image = Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8))
    buffer = io.BytesIO()
    options = {"quality": quality} if kind == "jpeg" else {}
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def smooth_noise(
    rng: np.random.Generator, shape: tuple[int, int], cells: int
) -> Pixels:
    """Standard-normal noise on a `cells` x `cells` grid, enlarged to `shape`."""
    coarse = Image.fromarray(rng.normal(size=(cells, cells)).astype(np.float32))
    return np.asarray(coarse.resize(shape[::-1], Image.Resampling.BICUBIC))


def pixel_table(paths: list[Path]) -> pd.DataFrame:
    """Pixels as rows: id {image}_{row}_{column} counted from 1, value in [0, 1]."""
    ids: list[str] = []
    values = []
    for path in paths:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("L")) / 255.0
        rows, columns = pixels.shape
        ids += [
            f"{path.stem}_{r}_{c}"
            for r in range(1, rows + 1)
            for c in range(1, columns + 1)
        ]
        values.append(pixels.ravel())
    return pd.DataFrame({"id": ids, "value": np.concatenate(values)})
