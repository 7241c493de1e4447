"""The images stage on a real Ray: shards that hold what the files hold, resumed, with bad images told, not dropped."""

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from bownet.config import Data
from bownet.images import scenes
from bownet.images.decode import decode
from bownet.images.views import fit_square
from pipelines.machine import Machine
from pipelines.stages.images import Images
from pipelines.stages.pictures import (
    class_counts_of,
    count_of,
    fewshot_split,
    labels_of,
    load_split,
    names_of,
    pixels_of,
    shards_of,
)
from pipelines.store import Artifact, Store

RNG = np.random.default_rng(0)


def write_jpeg(path: Path, height: int, width: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    blocks = RNG.integers(256, size=(4, 4, 3), dtype=np.uint8)
    Image.fromarray(blocks).resize((width, height), Image.Resampling.BICUBIC).save(path, quality=92)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of twelve JPEGs of mixed sizes."""
    root = tmp_path_factory.mktemp("photos")
    for c in ("ant", "bee", "cat"):
        for i in range(12):
            write_jpeg(root / c / f"{i:02d}.jpg", int(RNG.integers(20, 70)), int(RNG.integers(20, 70)))
    return root


def settings(folder: Path, **more: Any) -> Data:
    return Data(kind="folder", path=str(folder), shard_size=7, test_fraction=0.25, **more)


def built(folder: Path, root: Path, machine: Machine, **more: Any) -> Artifact:
    return Store(root, machine=machine).get(Images(settings(folder, **more)))


def every_name(images: Artifact) -> list[str]:
    return [n for row in images.info["shards"] for n in names_of(images, row)]


def pixels_by_name(images: Artifact) -> dict[str, NDArray[np.uint8]]:
    return {
        name: pixels
        for row in images.info["shards"]
        for name, pixels in zip(names_of(images, row), pixels_of(images, row), strict=True)
    }


def test_raw_shards_hold_every_image_once_under_its_name(folder: Path, tmp_path: Path, machine: Machine) -> None:
    images = built(folder, tmp_path, machine, image_size=24)
    assert images.info["counts"] == {"train": 27, "test": 9}
    assert sorted(every_name(images)) == sorted(str(p.relative_to(folder)) for p in folder.rglob("*.jpg"))
    stored = pixels_by_name(images)
    for name, pixels in stored.items():
        whole = decode((folder / name).read_bytes())
        assert isinstance(whole, np.ndarray)
        np.testing.assert_array_equal(pixels, fit_square(whole, 24), err_msg=name)
    for split in ("train", "test"):
        names = [n for row in shards_of(images, split) for n in names_of(images, row)]
        labels = [images.info["categories"][label] for label in labels_of(images, split)]
        assert labels == [name.split("/")[0] for name in names]
    assert class_counts_of(images, "train") == [9, 9, 9]


def test_statistics_are_those_of_the_training_pixels(folder: Path, tmp_path: Path, machine: Machine) -> None:
    images = built(folder, tmp_path, machine, image_size=24)
    pixels = load_split(images, "train").reshape(-1, 3) / 255
    np.testing.assert_allclose(images.info["mean"], pixels.mean(0), atol=1e-6)
    np.testing.assert_allclose(images.info["std"], pixels.std(0), atol=1e-6)
    sizes = np.array([Image.open(p).size[::-1] for p in folder.rglob("*.jpg")])
    assert images.info["height_width"]["min"] == sizes.min(0).tolist()
    assert images.info["height_width"]["max"] == sizes.max(0).tolist()
    np.testing.assert_allclose(images.info["height_width"]["mean"], sizes.mean(0), atol=0.01)


def test_encoded_shards_hold_the_bytes_of_the_files(folder: Path, tmp_path: Path, machine: Machine) -> None:
    images = built(folder, tmp_path, machine, image_size=32, storage="encoded")
    for row in images.info["shards"]:
        content = images.read_bytes(f"{row['name']}.bytes")
        offsets = images.read_npy(f"{row['name']}.offsets.npy")
        for i, name in enumerate(names_of(images, row)):
            assert content[offsets[i] : offsets[i + 1]] == (folder / name).read_bytes(), name
    assert load_split(images, "test").shape == (9, 32, 32, 3)


def test_an_interrupted_stage_makes_only_the_missing_shard(folder: Path, tmp_path: Path, machine: Machine) -> None:
    images = built(folder, tmp_path, machine, image_size=24)
    expected = load_split(images, "train")
    where = Path(images.folder.path())
    (where / "manifest.json").unlink()
    (where / "train-00001.json").unlink()  # as if it had been killed between the pixels and the record
    before = {p.name: p.stat().st_mtime_ns for p in where.iterdir()}
    again = built(folder, tmp_path, machine, image_size=24)
    after = {p.name: p.stat().st_mtime_ns for p in where.iterdir()}
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {"manifest.json", "train-00001.json", "train-00001.images.npy"}
    np.testing.assert_array_equal(load_split(again, "train"), expected)


def test_the_key_is_of_the_images_not_of_their_place(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "elsewhere")
    store = Store(tmp_path / "store")
    here, there = (store.plan(Images(settings(at))).key for at in (folder, tmp_path / "elsewhere"))
    assert here == there
    write_jpeg(tmp_path / "elsewhere" / "ant" / "new.jpg", 30, 30)
    from pipelines.stages.images import opened

    opened.cache_clear()
    assert store.plan(Images(settings(tmp_path / "elsewhere"))).key != here


def test_bad_images_are_listed_and_tolerated_up_to_the_limit(folder: Path, tmp_path: Path, machine: Machine) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "ant" / "00.jpg").write_bytes(b"")
    whole = (broken / "bee" / "01.jpg").read_bytes()
    (broken / "bee" / "01.jpg").write_bytes(whole[: len(whole) // 2])
    (broken / "cat" / "zz.jpg").symlink_to(tmp_path / "nowhere.jpg")
    with pytest.raises(Exception, match=r"data.max_bad_fraction=0.01: 1 of \d+ \w+ images cannot be read") as caught:
        built(broken, tmp_path / "store", machine, image_size=24)
    assert "raise data.max_bad_fraction" in str(caught.value)
    images = built(broken, tmp_path / "store", machine, image_size=24, max_bad_fraction=0.5)
    assert {image["name"] for image in images.info["bad"]} == {"ant/00.jpg", "bee/01.jpg", "cat/zz.jpg"}
    assert all(image["reason"] for image in images.info["bad"])
    names = every_name(images)
    assert len(names) == len(set(names)) == 34
    assert sum(images.info["counts"].values()) == 34
    assert images.stage is not None
    assert "3 of 37 images cannot be read" in str(images.stage.remark(images))


def test_scenes_are_the_same_whatever_the_shards(tmp_path: Path, machine: Machine) -> None:
    def drawn(shard_size: int) -> Artifact:
        data = Data(train=240, test=120, novel_per_class=16, image_size=16, shard_size=shard_size)
        return Store(tmp_path, machine=machine).get(Images(data))

    one, many = drawn(1000), drawn(50)
    for split in ("train", "test", "novel"):
        np.testing.assert_array_equal(load_split(one, split), load_split(many, split))
        np.testing.assert_array_equal(labels_of(one, split), labels_of(many, split))
    expected = scenes.draw_labelled(scenes.labels(240, scenes.BASE), 16, 0, 0)
    np.testing.assert_array_equal(load_split(one, "train"), expected)
    assert (count_of(one, "novel"), fewshot_split(one)) == (16 * len(scenes.NOVEL), "novel")


def test_pixels_without_files_are_raw_at_any_size(tmp_path: Path, machine: Machine) -> None:
    large = Data(train=24, test=12, novel_per_class=1, image_size=128)
    Images(large).check()
    images = Store(tmp_path, machine=machine).get(Images(large))
    assert images.info["bad"] == []
    assert load_split(images, "train").shape == (24, 128, 128, 3)
    for kind, path in (("scenes", None), ("cifar10", "x"), ("cifar100", "x")):
        data = Data.model_validate({"kind": kind, "path": path, "image_size": 128})
        assert data.is_raw
        with pytest.raises(
            ValueError, match=rf"^data.storage=encoded: data.kind={kind} has no files that could be kept"
        ):
            Images(data.model_copy(update={"storage": "encoded"})).check()


def test_a_png_of_16_bits_and_an_upside_down_jpeg_are_stored_rightly(tmp_path: Path, machine: Machine) -> None:
    source = tmp_path / "odd"
    for c in ("a", "b"):
        for i in range(4):
            write_jpeg(source / c / f"{i}.jpg", 32, 32)
    deep = np.full((32, 32), 200 * 257, np.uint16)
    Image.fromarray(deep).save(source / "a" / "deep.png")
    half = np.zeros((32, 32, 3), np.uint8)
    half[:16] = 255
    turned = Image.fromarray(half)
    exif = turned.getexif()
    exif[0x0112] = 3  # stored upside down
    buffer = io.BytesIO()
    turned.save(buffer, "JPEG", exif=exif, quality=95)
    (source / "b" / "turned.jpg").write_bytes(buffer.getvalue())
    images = built(source, tmp_path / "store", machine, image_size=32)
    stored = pixels_by_name(images)
    assert (stored["a/deep.png"] == 200).all()
    assert stored["b/turned.jpg"][:12].max() < 40
    assert stored["b/turned.jpg"][-12:].min() > 215
