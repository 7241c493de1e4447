"""Small sets of every format that presets and documentation name, in the folders where these look for them."""

import os
from pathlib import Path

import pytest
from PIL import Image

from bownet.images.scenes_voc import write_vocdevkit
from tests.bownet.sources.made_cifar import write_cifar10, write_cifar100

CLASSES = [f"n{i:08d}" for i in range(32)]


def images(folder: Path, names: list[str]) -> None:
    """One small image under all these names."""
    folder.mkdir(parents=True)
    first = folder / "one.jpg"
    Image.new("RGB", (96, 84), (200, 100, 50)).save(first)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(first, folder / name)
    first.unlink()


def write_miniimagenet(folder: Path) -> None:
    """20 novel classes of 65 images, the fewest that 50 examples and 15 queries need; 10 others, for 512 clusters."""
    parts = {"train": CLASSES[:10], "val": CLASSES[10:12], "test": CLASSES[12:]}
    names = {wnid: [f"{wnid}_{i}.jpg" for i in range(65)] for wnid in CLASSES}
    images(folder / "images", [name for of_class in names.values() for name in of_class])
    for part, classes in parts.items():
        lines = [f"{name},{wnid}" for wnid in classes for name in names[wnid]]
        (folder / f"{part}.csv").write_text("\n".join(["filename,label", *lines]))


def write_imagenet(folder: Path) -> None:
    """Enough images for 20,000 words of a map of 7x7, also of a fifth of them."""
    images(folder / "train", [f"{wnid}/{wnid}_{i}.JPEG" for wnid in CLASSES for i in range(100)])
    images(folder / "val", [f"{wnid}/{wnid}_{i}.JPEG" for wnid in CLASSES for i in range(2)])


def write_places205(folder: Path) -> None:
    names = [f"a/abbey/{i}.jpg" for i in range(300)] + [f"b/bar/{i}.jpg" for i in range(300)]
    images(folder / "images256", names)
    lines = [f"{name} {int(name.startswith('b'))}" for name in names]
    (folder / "train_places205.csv").write_text("\n".join(lines[10:-10]))
    (folder / "val_places205.csv").write_text("\n".join(lines[:10] + lines[-10:]))


def write_all_sets(root: Path, patch: pytest.MonkeyPatch) -> None:
    """As root/data/..., and `root` becomes the folder that programs start in."""
    write_cifar10(root / "data/cifar10", patch, test_labels=[i % 10 for i in range(650)], times=10)
    write_cifar100(root / "data/cifar100", patch, train=600, test=6500)
    write_miniimagenet(root / "data/mini-imagenet")
    write_imagenet(root / "data/imagenet")
    write_places205(root / "data/places205")
    write_vocdevkit(root / "data", trainval=150, test=60, seed=0, height=60, width=80)
    write_vocdevkit(root / "data", trainval=10, test=1, seed=0, height=60, width=80, year="2012")
    patch.chdir(root)
