"""ImageNet: the layouts in which it is found, and the lists that tell the classes of a flat val/."""

from pathlib import Path

import numpy as np
import pytest
from made_images import names_of, read_all, value_of, write
from scipy.io import savemat

from bownet.config import Data
from bownet.images.sources import open_source

FISH, HEN = "n01440764", "n01514859"
VAL = {"ILSVRC2012_val_00000001": HEN, "ILSVRC2012_val_00000002": FISH, "ILSVRC2012_val_00000003": HEN}


def imagenet(path: Path) -> Data:
    return Data(kind="imagenet", path=str(path))


def write_train(root: Path) -> Path:
    return write(root, {f"train/{w}/{w}_{i}.JPEG": v + i for w, v in ((HEN, 100), (FISH, 50)) for i in range(5)})


def write_flat(root: Path) -> Path:
    write_train(root)
    return write(root, {f"val/{name}.JPEG": i for i, name in enumerate(VAL)})


def solution(root: Path) -> None:
    """Kaggle's list is not in order, and has all boxes of an image."""
    lines = [f"{name},{wnid} 1 2 3 4 {wnid} 5 6 7 8" for name, wnid in VAL.items()]
    (root / "LOC_val_solution.csv").write_text("\n".join(["ImageId,PredictionString", *reversed(lines)]))


def caffe(root: Path) -> None:
    (root / "val.txt").write_text("".join(f"{name}.JPEG {[FISH, HEN].index(wnid)}\n" for name, wnid in VAL.items()))


def truth(root: Path) -> None:
    """The devkit numbers classes in an order of its own, and its inner nodes too."""
    data = root / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    synsets = np.array([(1, HEN, "hen", "", 0), (2, FISH, "tench", "", 0), (3, "n00000001", "animal", "", 2)], kind)
    savemat(data / "meta.mat", {"synsets": synsets})
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n1\n")


def check(root: Path) -> None:
    source = open_source(imagenet(root))
    test = source.splits["test"]
    assert source.splits["train"].labels.tolist() == [0] * 5 + [1] * 5
    assert [p.rpartition("/")[2] for p in names_of(test)] == [f"{name}.JPEG" for name in VAL]
    assert test.labels.tolist() == [1, 0, 1]
    assert [value_of(p) for p in read_all(test)] == [0, 1, 2]


@pytest.mark.parametrize("write_list", [solution, caffe, truth])
def test_flat_validation_images(tmp_path: Path, write_list: object) -> None:
    write_list(write_flat(tmp_path))
    check(tmp_path)


def test_the_layout_of_kaggle(tmp_path: Path) -> None:
    write_flat(tmp_path / "ILSVRC/Data/CLS-LOC")
    (tmp_path / "LOC_synset_mapping.txt").write_text(f"{FISH} tench, Tinca tinca\n{HEN} hen\n")
    solution(tmp_path)
    check(tmp_path)
    assert open_source(imagenet(tmp_path)).categories == (f"tench ({FISH})", f"hen ({HEN})")


def test_validation_images_in_class_folders(tmp_path: Path) -> None:
    write(write_train(tmp_path), {f"val/{HEN}/1.JPEG": 7, f"val/{FISH}/2.JPEG": 8, "val/n99999999/3.JPEG": 9})
    source = open_source(imagenet(tmp_path))
    assert source.categories == (FISH, HEN)
    assert source.splits["test"].labels.tolist() == [0, 1]
    assert [value_of(p) for p in read_all(source.splits["test"])] == [8, 7]
    assert names_of(source.splits["train"])[0] == f"train/{FISH}/{FISH}_0.JPEG"
    assert "1 validation images of classes that train/ has not were left out" in source.notes


def test_without_validation_images_some_are_held_out(tmp_path: Path) -> None:
    source = open_source(imagenet(write_train(tmp_path)))
    assert {s: np.bincount(x.labels).tolist() for s, x in source.splits.items()} == {"train": [4, 4], "test": [1, 1]}


def test_messages(tmp_path: Path) -> None:
    def fails(message: str) -> None:
        with pytest.raises(ValueError, match=message) as caught:
            open_source(imagenet(tmp_path))
        assert "\n" not in str(caught.value)

    fails(r"no train/ there; unpack ILSVRC2012_img_train")
    (tmp_path / "train").mkdir()
    fails(r"no images in train/<wnid>/")
    write_flat(tmp_path)
    fails(r"val/ are in no class folders, and no list is there; add LOC_val_solution.csv, val.txt, or both")
    (tmp_path / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n1\n")
    fails(r"ground_truth.txt is there but not meta.mat")
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 65\n")
    fails(r"val.txt numbers 66 classes, train/ has 2; complete train/ or use LOC_val_solution.csv")
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 1\n")
    fails(r"val.txt has no class for ILSVRC2012_val_00000002.JPEG \(2 images\)")
    write(tmp_path, {"train/loose.JPEG": 1})
    fails(r"images in train/ itself; sort them into train/<wnid>/")
