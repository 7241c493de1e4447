"""The augmentation of training under a protocol: a random resized crop and a flip, nothing done to colours."""

from __future__ import annotations

from bownet.config import Perturbation

ASPECT = (3 / 4, 4 / 3)
PLAIN = Perturbation(jitter_probability=0, grey_probability=0, blur_probability=0)


def random_crops(area: tuple[float, float], decoded: bool) -> Perturbation:
    """For `perturb`. `decoded`: images are windows that were cut out of their files already, and are only flipped."""
    area, aspect = ((1.0, 1.0), (1.0, 1.0)) if decoded else (area, ASPECT)
    return PLAIN.model_copy(update={"crop_area": area, "crop_aspect": aspect})
