"""Parquet of the Hugging Face form: files written with pyarrow, and CIFAR-10 as the hub publishes it."""

import json
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_images import SHARED, encoded, names_of, read_all, value_of

from bownet.config import Data
from bownet.images.decode import BadImage, decode
from bownet.images.sources import open_source
from bownet.images.sources.names import digest
from bownet.images.sources.parquet import open_parquet

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def parquet(path: Path | str, **settings: object) -> Data:
    return Data(kind="parquet", path=str(path), **settings)


def table(values: list[int | None], labels: list[object] | None, names: list[str] | None = None) -> pa.Table:
    images = [None if v is None else {"bytes": encoded(v), "path": f"{v}.png"} for v in values]
    columns = {"image": pa.array(images, IMAGE)} | ({} if labels is None else {"label": pa.array(labels)})
    made = pa.table(columns)
    if names:
        features = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        made = made.replace_schema_metadata({"huggingface": json.dumps(features)})
    return made


def write(path: Path, made: pa.Table, rows_per_group: int = 2) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(made, path, row_group_size=rows_per_group)
    return path


def hub(folder: Path) -> Path:
    """Train in two files of several row groups each, and test."""
    names = ["cat", "dog", "eel"]
    write(folder / "data/train-00000-of-00002.parquet", table([1, 2, 3, 4, 5], [0, 1, 1, 0, 1], names))
    write(folder / "data/train-00001-of-00002.parquet", table([6, 7, 8], [0, 0, 1], names))
    write(folder / "data/test-00000-of-00001.parquet", table([9, 10], [1, 0], names))
    (folder / "README.md").write_text("about the set")
    return folder


def test_files_of_the_hub(tmp_path: Path) -> None:
    source = open_source(parquet(hub(tmp_path)))
    assert source.categories == ("cat", "dog", "eel")
    train = source.splits["train"]
    assert train.labels.tolist() == [0, 1, 1, 0, 1, 0, 0, 1]
    assert source.splits["test"].labels.tolist() == [1, 0]
    assert [value_of(p) for p in read_all(train)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert names_of(train)[4:6] == ["data/train-00000-of-00002.parquet#4", "data/train-00001-of-00002.parquet#0"]


@pytest.mark.parametrize("rows", [[0], [7], [3, 4, 5, 6], [1, 3, 6], [6, 5, 0, 0, 7], [7, 5, 4, 0], []])
def test_any_rows_in_any_order(tmp_path: Path, rows: list[int]) -> None:
    train = open_parquet(parquet(hub(tmp_path))).splits["train"]
    part = pickle.loads(pickle.dumps(train.part(np.array(rows, np.int64))))
    assert [value_of(p) for p in part.read()] == [row + 1 for row in rows]


def test_many_rows_in_one_group(tmp_path: Path) -> None:
    """More than are in memory at a time, and fewer of them asked for than there are."""
    file = write(tmp_path / "all.parquet", table([i % 256 for i in range(700)], [0, 1] * 350), 700)
    train = open_parquet(parquet(file)).splits["train"]
    rows = np.array([0, 127, 128, 129, 300, 511, 512, 690])
    assert [value_of(p) for p in train.part(rows).read()] == [int(r) % 256 for r in rows]


@pytest.mark.parametrize(
    "names",
    [
        ("train/0000.parquet", "test/0000.parquet"),
        ("my_train.parquet", "my_validation.parquet"),
        ("Train.parquet", "val-0.parquet"),
    ],
)
def test_names_of_splits(tmp_path: Path, names: tuple[str, str]) -> None:
    write(tmp_path / names[0], table([1, 2, 3], [0, 1, 0]))
    write(tmp_path / names[1], table([4, 5], [0, 1]))
    assert {s: len(x) for s, x in open_parquet(parquet(tmp_path)).splits.items()} == {"train": 3, "test": 2}


def test_one_file_is_split_here(tmp_path: Path) -> None:
    file = write(tmp_path / "some.parquet", table(list(range(10)), [0, 1] * 5))
    source = open_source(parquet(file))
    assert {s: len(x) for s, x in source.splits.items()} == {"train": 8, "test": 2}
    assert names_of(source.splits["train"])[0].startswith("some.parquet#")


def test_labels_that_are_names_and_images_that_are_binary(tmp_path: Path) -> None:
    made = pa.table({"picture": [encoded(1), encoded(2), encoded(3)], "kind": ["dog", "cat", "dog"]})
    made = made.set_column(1, "kind", made["kind"].dictionary_encode())
    write(tmp_path / "a.parquet", made)
    source = open_parquet(parquet(tmp_path, image_column="picture", label_column="kind"))
    assert source.categories == ("cat", "dog")
    assert source.splits["train"].labels.tolist() == [1, 0, 1]
    assert [value_of(p) for p in read_all(source.splits["train"])] == [1, 2, 3]


def test_numbers_without_names_are_numbered_anew(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", table([1, 2, 3], [30, 4, 30]))
    source = open_parquet(parquet(tmp_path))
    assert (source.categories, source.splits["train"].labels.tolist()) == (("4", "30"), [1, 0, 1])


def test_without_a_label_column(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", table([1, 2, 3], None))
    source = open_parquet(parquet(tmp_path))
    assert source.splits["train"].labels is None
    assert source.notes == ("data.label_column=label: the columns are image; there are no labels",)


def test_empty_images_and_labels(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", table([1, None, 3, 4], [0, 1, None, 1]))
    write(tmp_path / "test.parquet", table([5, 6], [-1, -1]))  # the hub's way to withhold labels
    write(tmp_path / "validation.parquet", table([7], [0]))
    source = open_parquet(parquet(tmp_path))
    pictures = read_all(source.splits["train"])
    assert [p.name for p in pictures] == ["train.parquet#0", "train.parquet#1", "train.parquet#3"]
    assert pictures[1].content == BadImage("no image in this row")
    assert source.splits["train"].labels.tolist() == [0, 1, 1]
    assert [value_of(p) for p in read_all(source.splits["test"])] == [7]
    assert source.notes == (
        "the test images have no labels and were left out",
        "the validation images are used as test images",
        "1 train images without a label were left out",
    )


def test_a_remote_folder(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for file in hub(tmp_path).rglob("*.parquet"):
        memory.pipe(f"/hub/{file.relative_to(tmp_path)}", file.read_bytes())
    there = open_parquet(parquet("memory://hub"))
    assert there.fingerprint == open_parquet(parquet(tmp_path)).fingerprint
    assert [value_of(p) for p in there.splits["train"].part(np.array([4, 5])).read()] == [5, 6]


def test_the_fingerprint_follows_labels(tmp_path: Path) -> None:
    first = open_parquet(parquet(write(tmp_path / "a/x.parquet", table([1, 2], [0, 1])))).fingerprint
    assert open_parquet(parquet(write(tmp_path / "b/x.parquet", table([1, 2], [0, 1])))).fingerprint == first
    assert open_parquet(parquet(write(tmp_path / "c/x.parquet", table([1, 2], [1, 0])))).fingerprint != first


def test_the_fingerprint_follows_the_column_of_images(tmp_path: Path) -> None:
    """Also where columns are equally large; the usual one is no part of it, as in the keys of older stores."""
    same = [encoded(1), encoded(2)]
    file = write(tmp_path / "x.parquet", pa.table({"image": same, "left": same, "label": [0, 1]}))
    usual, left = (open_parquet(parquet(file, image_column=c)).fingerprint for c in ("image", "left"))
    size = pq.read_metadata(file).row_group(0).column(0).total_compressed_size
    assert usual == digest("parquet", ["0", "1"], "train", ["x.parquet"], [2], [size], np.array([0, 1]))
    assert left != usual


def test_a_file_that_is_gone_or_cut_while_reading(tmp_path: Path) -> None:
    file = write(tmp_path / "x.parquet", table([1, 2, 3], [0, 1, 0]))
    train = open_parquet(parquet(file)).splits["train"]
    file.write_bytes(file.read_bytes()[:100])
    cut = read_all(train)
    file.unlink()
    gone = read_all(train)
    for pictures in (cut, gone):
        assert [p.name for p in pictures] == ["x.parquet#0", "x.parquet#1", "x.parquet#2"]
        assert all(p.content.reason.startswith("cannot be read: ") for p in pictures)


@pytest.mark.parametrize(
    ("made", "settings", "message"),
    [
        (table([1], [0]), {"image_column": "img"}, r"image_column=img: x.parquet has image, label; name the column"),
        (table([1], [0]), {"image_column": "label"}, r"image_column=label: is int64 in x.parquet, not encoded images"),
        (table([1], [[0, 1]]), {}, r"label_column=label: is list<.*> in x.parquet, not a class number or name"),
        (table([1], [5], ["a"]), {}, r"label_column=label: class 5 occurs, but the file names 1 classes"),
        (table([1, 2], [1, 1], ["a", "b"]), {}, r"all training images are of one class, b; name data with more"),
        (table([], None), {}, r"its Parquet files have no rows"),
    ],
)
def test_messages(tmp_path: Path, made: pa.Table, settings: dict[str, str], message: str) -> None:
    write(tmp_path / "x.parquet", made)
    with pytest.raises(ValueError, match=message) as caught:
        open_source(parquet(tmp_path, **settings))
    assert "\n" not in str(caught.value)


def test_messages_about_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no .parquet files below it"):
        open_source(parquet(tmp_path))
    with pytest.raises(ValueError, match=r"gone: does not exist"):
        open_source(parquet(tmp_path / "gone"))
    (tmp_path / "x.parquet").write_bytes(b"PAR1 half a file")
    with pytest.raises(ValueError, match=r"x.parquet is not a whole Parquet file .*; fetch it again"):
        open_source(parquet(tmp_path))
    for name in ("test.parquet", "val.parquet"):
        write(tmp_path / "splits" / name, table([1, 2], [0, 1]))
    with pytest.raises(ValueError, match=r"only test and val images there; add training images"):
        open_source(parquet(tmp_path / "splits"))


@pytest.mark.skipif(not (SHARED / "cifar10").exists(), reason="../shared/data is not here")
def test_cifar10_of_the_hub() -> None:
    source = open_source(parquet(SHARED / "cifar10", train=1000))
    assert {s: len(x) for s, x in source.splits.items()} == {"train": 1000, "test": 5000}
    assert np.bincount(source.splits["train"].labels).tolist() == [100] * 10
    assert np.bincount(source.splits["test"].labels).tolist() == [500] * 10
    size = sum(file.stat().st_size for file in (SHARED / "cifar10").glob("*.parquet"))
    assert source.bytes_per_image == pytest.approx(size / 25_000, rel=0.02)
    expected = pq.read_table(SHARED / "cifar10" / "test-00000-of-00001.parquet")
    rows = np.array([0, 999, 1000, 4999])
    for row, picture in zip(rows, source.splits["test"].part(rows).read(), strict=True):
        assert picture.content == expected["image"][int(row)]["bytes"].as_py()
        assert decode(picture.content).shape == (32, 32, 3)
        assert picture.name == f"test-00000-of-00001.parquet#{row}"
