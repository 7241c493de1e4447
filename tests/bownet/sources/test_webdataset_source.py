"""WebDataset: tar files written here in the usual form, read by seeking."""

import gzip
import pickle
import tarfile
from io import BytesIO
from pathlib import Path

import fsspec
import numpy as np
import pytest
from made_images import encoded, names_of, read_all, value_of

from bownet.config import Data
from bownet.images.decode import BadImage
from bownet.images.sources import open_source
from bownet.images.sources.webdataset import expand_braces, open_webdataset


def shards(path: Path | str, **settings: object) -> Data:
    return Data(kind="webdataset", path=str(path), **settings)


def tar(path: Path, members: dict[str, bytes]) -> Path:
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, BytesIO(content))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(file.getvalue()) if path.name.endswith("gz") else file.getvalue())
    return path


def sample(key: str, value: int, label: object) -> dict[str, bytes]:
    return {f"{key}.cls": str(label).encode(), f"{key}.jpg": encoded(value, kind="JPEG"), f"{key}.json": b"{}"}


def usual(folder: Path, ending: str = "tar") -> Path:
    tar(folder / f"train-0000.{ending}", sample("a/0001", 1, 0) | sample("a/0002", 2, 1))
    tar(folder / f"train-0001.{ending}", sample("0003", 3, 1) | sample("0004", 4, 0) | sample("0005", 5, 10))
    tar(folder / f"test-0000.{ending}", sample("0006", 6, 1))
    return folder


@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tgz"])
def test_usual_shards(tmp_path: Path, ending: str) -> None:
    source = open_source(shards(usual(tmp_path, ending)))
    train, test = source.splits["train"], source.splits["test"]
    assert source.categories == ("0", "1", "10")
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1, 1, 0, 2], [1])
    assert [value_of(p) for p in read_all(train)] == [1, 2, 3, 4, 5]
    assert names_of(train)[1:3] == [f"train-0000.{ending}#a/0002.jpg", f"train-0001.{ending}#0003.jpg"]
    part = pickle.loads(pickle.dumps(train.part(np.array([4, 0, 3]))))
    assert [value_of(p) for p in part.read()] == [5, 1, 4]
    assert source.bytes_per_image == len(encoded(1, kind="JPEG"))


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("train-{0000..0001}.tar", 5),
        ("train-*.tar", 5),
        ("train-000[1].tar", 3),
        ("train-0000.tar", 2),
        ("{test,train}-0000.tar", 2),
    ],
)
def test_patterns(tmp_path: Path, path: str, count: int) -> None:
    assert len(open_webdataset(shards(usual(tmp_path) / path)).splits["train"]) == count


def test_braces() -> None:
    assert expand_braces("a-{08..11}.tar") == ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]
    assert expand_braces("{x,y}/{0..1}") == ["x/0", "x/1", "y/0", "y/1"]


def test_labels_in_json_and_names_of_classes(tmp_path: Path) -> None:
    members = {"1.png": encoded(1), "1.json": b'{"label": "dog"}', "2.json": b'{"label": "cat"}', "2.png": encoded(2)}
    source = open_webdataset(shards(tar(tmp_path / "x.tar", members)))
    assert (source.categories, source.splits["train"].labels.tolist()) == (("cat", "dog"), [1, 0])


def test_samples_that_are_not_whole(tmp_path: Path) -> None:
    members = (
        sample("1", 1, 0)
        | {"2.cls": b"1", "2.txt": b"no image"}
        | sample("3", 3, 1)
        | {"4.png": encoded(4), "README": b""}
    )
    source = open_webdataset(shards(tar(tmp_path / "x.tar", members)))
    assert names_of(source.splits["train"]) == ["x.tar#1.jpg", "x.tar#3.jpg"]
    assert source.notes == ("1 samples without an image were left out", "1 images without a label were left out")


def test_without_labels(tmp_path: Path) -> None:
    members = {f"{i}.png": encoded(i) for i in range(5)}
    source = open_source(shards(tar(tmp_path / "x.tar", members)))
    assert {s: (len(x), x.labels) for s, x in source.splits.items()} == {"train": (4, None), "test": (1, None)}


def test_remote_shards(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    for file in usual(tmp_path).iterdir():
        memory.pipe(f"/shards/{file.name}", file.read_bytes())
    for path in ("memory://shards", "memory://shards/train-{0000..0001}.tar"):
        train = open_webdataset(shards(path)).splits["train"]
        assert [value_of(p) for p in train.part(np.array([1, 2])).read()] == [2, 3]
    assert open_webdataset(shards("memory://shards")).fingerprint == open_webdataset(shards(tmp_path)).fingerprint


def test_a_shard_that_is_cut_or_gone_while_reading(tmp_path: Path) -> None:
    train = open_webdataset(shards(usual(tmp_path))).splits["train"]
    first, second = tmp_path / "train-0000.tar", tmp_path / "train-0001.tar"
    content = second.read_bytes()
    second.write_bytes(content[: int(train.offsets[3]) + 10])
    first.unlink()
    pictures = read_all(train)
    assert len(pictures) == 5
    assert [isinstance(p.content, BadImage) for p in pictures] == [True, True, False, True, True]
    assert all(p.content.reason.startswith("cannot be read: ") for p in pictures if isinstance(p.content, BadImage))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"this is no tar file" * 100, "x.tar is not a whole tar file"),
        (None, r"no shards \(.tar, .tar.gz, .tgz\) there"),
    ],
)
def test_messages(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content:
        (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        open_source(shards(tmp_path))
    assert "\n" not in str(caught.value)


def test_more_messages(tmp_path: Path) -> None:
    whole = usual(tmp_path / "a") / "train-0001.tar"
    whole.write_bytes(whole.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"train-0001.tar is not a whole tar file .*; fetch it again"):
        open_source(shards(tmp_path / "a"))
    tar(tmp_path / "b/x.tar", {"1.txt": b"text"})
    with pytest.raises(ValueError, match=r"no images \(such as .jpg, .png\) in its shards"):
        open_source(shards(tmp_path / "b"))
    with pytest.raises(ValueError, match=r"x-0.tar: does not exist"):
        open_source(shards(tmp_path / "x-{0..3}.tar"))
