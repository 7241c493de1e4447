"""The perturbation g(x) and CutMix on 128 pictures of 32x32, against torchvision per image and kornia per batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Generator, Tensor
from torchvision.transforms import v2

from benchmarks.harness import Result, compare
from bownet.config import Perturbation
from bownet.images.cutmix import draw_mix
from bownet.images.perturb import perturb
from bownet.images.scenes import CATEGORIES, draw_labelled

BATCH, SIDE, CLASSES = 128, 32, 100
CONFIG = Perturbation()
JITTER = (CONFIG.brightness, CONFIG.contrast, CONFIG.saturation, CONFIG.hue)


def measure(small: bool) -> list[Result]:
    """With one thread and with two."""
    return [against_torchvision(threads, small) for threads in (1, 2)]


def measure_kornia(small: bool) -> list[Result]:
    return [result for threads in (1, 2) for result in against_kornia(threads, small)]


def against_torchvision(threads: int, small: bool = False) -> Result:
    """Crop, flip, jitter, grey and CutMix; torchvision's transforms draw once per call, so they are called per image.

    On floats, because that is torchvision's faster way here.
    """
    images = pictures()
    generator = Generator().manual_seed(0)
    label_N = torch.arange(BATCH) % CLASSES
    y_NK = torch.nn.functional.one_hot(label_N, CLASSES).float()
    transform = v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.RandomResizedCrop(SIDE, scale=CONFIG.crop_area, ratio=CONFIG.crop_aspect, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(*JITTER)], CONFIG.jitter_probability),
            v2.RandomGrayscale(CONFIG.grey_probability),
        ]
    )
    cutmix = v2.CutMix(num_classes=CLASSES)
    planar = images.permute(0, 3, 1, 2).contiguous()

    def ours() -> tuple[Tensor, Tensor]:
        x = perturb(images, CONFIG, generator)
        mix = draw_mix(BATCH, SIDE, SIDE, generator)
        return mix.images(x), mix.targets(y_NK)

    def other() -> tuple[Tensor, Tensor]:
        return cutmix(torch.stack([transform(image) for image in planar]), label_N)

    return compare(_name("torchvision v2, with CutMix", threads), ours, other, 5, threads, *_effort(small))


def against_kornia(threads: int, small: bool = False) -> list[Result]:
    """The same without CutMix; kornia draws per image, but one order of the jitter's operations per batch."""
    try:
        import kornia.augmentation as K
    except ImportError:
        print("kornia is not installed: that comparison is left out (pip install kornia)")
        return []
    images = pictures()
    generator = Generator().manual_seed(0)
    augment = K.AugmentationSequential(
        K.RandomResizedCrop(
            (SIDE, SIDE), scale=CONFIG.crop_area, ratio=CONFIG.crop_aspect, cropping_mode="resample"
        ),  # its faster way
        K.RandomHorizontalFlip(),
        K.ColorJitter(*JITTER, p=CONFIG.jitter_probability),
        K.RandomGrayscale(p=CONFIG.grey_probability),
        data_keys=["input"],
        same_on_batch=False,
    )

    def ours() -> Tensor:
        return perturb(images, CONFIG, generator)

    def other() -> Tensor:
        return augment(images.permute(0, 3, 1, 2).float().div_(255))

    return [compare(_name("kornia", threads), ours, other, 3, threads, *_effort(small))]


def pictures() -> Tensor:
    return torch.from_numpy(draw_labelled(np.arange(BATCH) % len(CATEGORIES), SIDE, seed=0))


def _name(peer: str, threads: int) -> str:
    return f"perturbation against {peer}, {threads} thread{'s' if threads > 1 else ''}"


def _effort(small: bool) -> tuple[int, float]:
    return (3, 0.02) if small else (25, 0.05)
