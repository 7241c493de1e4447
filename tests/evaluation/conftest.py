"""Features of real images: a small network that was never trained, on CIFAR-10 and MiniImageNet."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from bownet.config import Data, Net
from bownet.images.augment import to_float
from bownet.images.decode import decode
from bownet.images.sources import open_source
from bownet.images.views import fit_square
from bownet.nets.build import build_backbone
from bownet.nets.taps import freeze

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


class Real(NamedTuple):
    features_ND: torch.Tensor
    labels_N: torch.Tensor


def real_features(data: Data, split: str, count: int, size: int) -> Real:
    """The pooled feature of a split's images, evenly spaced over it."""
    listing = open_source(data).splits[split]
    rows = np.linspace(0, len(listing) - 1, count).astype(np.int64)
    assert listing.labels is not None
    pixels = []
    for picture in listing.part(rows).read():
        decoded = decode(picture.content) if isinstance(picture.content, bytes) else picture.content
        assert isinstance(decoded, np.ndarray), picture.name
        pixels.append(fit_square(decoded, size))
    backbone = freeze(build_backbone(Net(arch="wrn-10-1"), 0))
    with torch.inference_mode():
        features = backbone(to_float(torch.from_numpy(np.stack(pixels))), ("pool",))["pool"]
    labels = torch.unique(torch.from_numpy(np.asarray(listing.labels)[rows]), return_inverse=True)[1]
    return Real(features.clone(), labels)


@pytest.fixture(scope="session")
def cifar() -> dict[str, Real]:
    if not (SHARED / "cifar10").is_dir():
        pytest.skip("../shared/data/cifar10 is not here")
    data = Data(kind="parquet", path=str(SHARED / "cifar10"))
    return {"train": real_features(data, "train", 1000, 32), "test": real_features(data, "test", 400, 32)}


@pytest.fixture(scope="session")
def miniimagenet() -> Real:
    if not (SHARED / "mini-imagenet").is_dir():
        pytest.skip("../shared/data/mini-imagenet is not here")
    data = Data(kind="miniimagenet", path=str(SHARED / "mini-imagenet"), image_size=84)
    return real_features(data, "novel", 600, 32)
