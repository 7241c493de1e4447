"""Image folders: layouts, classes, what is left out, and messages for people."""

import os
import shutil
from pathlib import Path

import fsspec
import numpy as np
import pytest
from made_images import encoded, names_of, read_all, value_of, write

from bownet.config import Data
from bownet.images.sources import open_source
from bownet.images.sources.folder import open_folder


def folder(path: Path | str, **settings: object) -> Data:
    return Data(kind="folder", path=str(path), **settings)


def pets(path: Path) -> Path:
    return write(path, {"dog/b.png": 1, "dog/a.png": 2, "cat/deep/down/x.JPEG": 3, "cat/y.jpg": 4})


def test_folders_are_classes_in_order_of_name(tmp_path: Path) -> None:
    source = open_folder(folder(pets(tmp_path)))
    assert source.categories == ("cat", "dog")
    train = source.splits["train"]
    assert names_of(train) == ["cat/deep/down/x.JPEG", "cat/y.jpg", "dog/a.png", "dog/b.png"]
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert [value_of(p) for p in read_all(train)] == [3, 4, 2, 1]
    assert [value_of(p) for p in train.part(np.array([3, 0])).read()] == [1, 3]
    assert [*source.splits] == ["train"]
    sizes = [os.path.getsize(tmp_path / name) for name in names_of(train)]
    assert source.bytes_per_image == sum(sizes) // 4


def test_a_part_carries_only_its_rows(tmp_path: Path) -> None:
    part = open_folder(folder(pets(tmp_path))).splits["train"].part(np.array([2]))
    assert part.names == ["dog/a.png"]


def test_splits_are_folders_too(tmp_path: Path) -> None:
    write(tmp_path, {f"{s}/{c}/{i}.png": 0 for s in ("train", "val", "test") for c in "ab" for i in range(2)})
    source = open_folder(folder(tmp_path))
    assert {s: names_of(x)[0] for s, x in source.splits.items()} == {
        "train": "train/a/0.png",
        "val": "val/a/0.png",
        "test": "test/a/0.png",
    }
    shutil.rmtree(tmp_path / "test")
    source = open_folder(folder(tmp_path))
    assert names_of(source.splits["test"])[0] == "val/a/0.png"
    assert "the validation images are used as test images" in source.notes


def test_a_test_folder_without_classes_gives_way_to_val(tmp_path: Path) -> None:
    write(tmp_path, {f"{s}/{c}/{i}.png": 0 for s in ("train", "val") for c in "ab" for i in range(2)})
    write(tmp_path, {"test/1.png": 0})
    source = open_folder(folder(tmp_path))
    assert {s: len(x) for s, x in source.splits.items()} == {"train": 4, "test": 4}
    assert "1 test images in no class folder were left out" in source.notes


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write(tmp_path, {f"{c}/{i}.png": 0 for c in ("train", "bus") for i in range(2)})
    assert open_folder(folder(tmp_path)).categories == ("bus", "train")


def test_other_classes_in_test_are_novel(tmp_path: Path) -> None:
    write(tmp_path, {f"train/{c}/{i}.png": 0 for c in "ab" for i in range(4)})
    write(tmp_path, {f"test/{c}/{i}.png": 0 for c in "cd" for i in range(2)})
    source = open_source(folder(tmp_path))
    assert source.categories == ("a", "b", "c", "d")
    assert source.splits["novel"].labels.tolist() == [2, 2, 3, 3]
    assert np.unique(source.splits["test"].labels).tolist() == [0, 1]


@pytest.mark.parametrize(
    "files",
    [
        {f"{i}.png": i for i in range(10)},
        {f"one/{i}.png": i for i in range(10)},
        {f"{i}/image.png": i for i in range(10)},  # a folder per image is not a class per image
    ],
)
def test_images_without_classes_have_no_labels_but_a_test_split(tmp_path: Path, files: dict[str, int]) -> None:
    source = open_source(folder(write(tmp_path, files), test_fraction=0.3))
    assert source.categories == ()
    assert {s: (len(x), x.labels) for s, x in source.splits.items()} == {"train": (7, None), "test": (3, None)}
    everything = [p.name for s in source.splits.values() for p in read_all(s)]
    assert sorted(everything) == sorted(files)


def test_labels_none_ignores_folders(tmp_path: Path) -> None:
    source = open_folder(folder(pets(tmp_path), labels="none"))
    assert source.categories == ()
    assert source.splits["train"].labels is None
    assert len(source.splits["train"]) == 4


def test_what_is_no_image_is_counted(tmp_path: Path) -> None:
    pets(tmp_path)
    for name in ("a.txt", "dog/b.txt", "dog/.hidden.png", "cat/Thumbs.db", ".git/x.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    source = open_folder(folder(tmp_path))
    assert len(source.splits["train"]) == 4
    assert "4 files that are not images were ignored (2 .txt, 1 .db, 1 hidden)" in source.notes


def test_links_to_folders_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", {"1.png": 7, "2.png": 8})
    root = pets(tmp_path / "set")
    (root / "linked").symlink_to(elsewhere)
    (root / "dog" / "again").symlink_to(root)
    assert open_folder(folder(root)).categories == ("cat", "dog", "linked")


def test_the_fingerprint_is_of_the_images_not_of_their_place(tmp_path: Path) -> None:
    first = open_folder(folder(pets(tmp_path / "a"))).fingerprint
    assert open_folder(folder(pets(tmp_path / "elsewhere"))).fingerprint == first
    assert open_folder(folder(tmp_path / "a", labels="none")).fingerprint != first
    (tmp_path / "a/dog/a.png").write_bytes(encoded(2, size=(50, 50)))
    assert open_folder(folder(tmp_path / "a")).fingerprint != first
    (tmp_path / "elsewhere/dog/a.png").rename(tmp_path / "elsewhere/dog/c.png")
    assert open_folder(folder(tmp_path / "elsewhere")).fingerprint != first


def test_a_relative_path_means_the_same_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pets(tmp_path / "set")
    monkeypatch.chdir(tmp_path)
    train = open_folder(folder("set")).splits["train"]
    monkeypatch.chdir("/")
    assert [value_of(p) for p in read_all(train)] == [3, 4, 2, 1]


def test_a_remote_folder(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for name, value in {"cat/1.png": 1, "cat/2.png": 2, "dog/1.png": 3, "dog/2.png": 4, "note.txt": 0}.items():
        memory.pipe(f"/pets/{name}", encoded(value))
    source = open_folder(folder("memory://pets"))
    assert source.categories == ("cat", "dog")
    assert [(p.name, value_of(p)) for p in source.splits["train"].part(np.array([1, 2])).read()] == [
        ("cat/2.png", 2),
        ("dog/1.png", 3),
    ]


@pytest.mark.parametrize(
    ("files", "settings", "message"),
    [
        ({}, {}, "no images below it; files must end in .bmp"),
        ({"a/1.png": 0, "a/2.png": 0}, {"labels": "folders"}, "labels=folders: one class folder in .*labels none"),
        ({"1.png": 0}, {"labels": "folders"}, "labels=folders: no class folders"),
        ({"1.png": 0}, {}, "1 images, too few to hold any out"),
    ],
)
def test_messages(tmp_path: Path, files: dict[str, int], settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        open_source(folder(write(tmp_path, files), **settings))
    assert "\n" not in str(caught.value)


def test_messages_about_the_path(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data.path=.*gone: does not exist; name the folder with the images"):
        open_source(folder(tmp_path / "gone"))
    with pytest.raises(ValueError, match=r"1.png: is a file; name the folder with the images"):
        open_source(folder(write(tmp_path, {"1.png": 0}) / "1.png"))
    with pytest.raises(ValueError, match=r"memory://not-there: does not exist"):
        open_source(folder("memory://not-there"))
    with pytest.raises(ValueError, match=r"nope://x: neither pyarrow .* nor fsspec .* opens it"):
        open_source(folder("nope://x"))
