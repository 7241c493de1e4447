"""Two rates of one core that the model of large clusters starts from."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

import numpy as np
from PIL import Image

from bownet.images.views import random_view

SECONDS = 1.0


def decoding() -> float:
    """JPEG files per second, of ImageNet's usual size, decoded and cropped to 224 pixels as for training."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, (24, 32, 3), np.uint8)
    noise = rng.normal(0, 12, (375, 500, 3))
    pixels = np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC)) + noise
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return _per_second(lambda: random_view(file.getvalue(), 224, (0.08, 1.0), (3 / 4, 4 / 3), rng))


def adding_gigabytes() -> float:
    """Gigabytes per second of a worker's sums that are added to those of the others."""
    total, part = np.zeros(4_000_000), np.ones(4_000_000)
    return _per_second(lambda: np.add(total, part, out=total)) * part.nbytes / 1e9


def _per_second(call: Callable[[], object]) -> float:
    call()
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        call()
        count += 1
    return count / (time.perf_counter() - started)
