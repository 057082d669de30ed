"""Sound: coloured noise and chirps."""

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]


def coloured_noise(rng: np.random.Generator, frames: int, power: float) -> Samples:
    """Noise with spectrum f^-power, scaled to unit variance."""
    spectrum = np.fft.rfft(rng.normal(size=frames))
    spectrum *= np.maximum(np.arange(spectrum.size), 4.0) ** (-power / 2)
    noise = np.fft.irfft(spectrum, frames)
    scaled: Samples = noise / noise.std()
    return scaled


def sweep(start: float, stop: float, frames: int, rate: int) -> Samples:
    """Windowed chirp from `start` to `stop` Hz."""
    f = np.linspace(start, stop, frames)
    return np.sin(2 * np.pi * np.cumsum(f) / rate) * np.hanning(frames)
