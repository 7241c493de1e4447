"""The words stage on a real Ray, against features that are computed and compared one by one."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bownet import load_backbone, visual_words
from bownet.config import Data, Net, Vocabulary
from bownet.config.data import Storage
from bownet.images.augment import to_float
from bownet.nets.build import build_backbone
from bownet.words.vocabulary import online_words
from bownet.words.vocabulary_file import Vocabulary as VocabularyFile
from pipelines.machine import Machine
from pipelines.stages.images import Images
from pipelines.stages.pictures import load_split, names_of, shards_of
from pipelines.stages.shards import teacher_of
from pipelines.stages.teacher import RandomNet
from pipelines.stages.vocabulary import BuildVocabulary
from pipelines.stages.words import Quantize, load_words
from pipelines.store import Artifact, Store, Workspace

NET = Net(arch="wrn-10-1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> dict[str, Artifact]:
    store = Store(tmp_path_factory.mktemp("store"), machine=machine)
    images = store.get(Images(Data(train=60, test=12, novel_per_class=1, image_size=24, shard_size=25)))
    net = store.get(RandomNet(NET, 0, images, model="random"))
    settings = Vocabulary(size=12, tap="block3", max_points_per_word=None, pca=8)
    vocabulary = store.get(BuildVocabulary(settings, 0, images, net, NET, model="BoWNet"))
    words = store.get(Quantize(images, net, vocabulary, True, model="BoWNet"))
    again = store.get(Quantize(images, net, vocabulary, True, words, model="BoWNet x2"))
    return {"images": images, "net": net, "vocabulary": vocabulary, "words": words, "again": again}


def test_every_position_of_both_views_has_its_nearest_word(made: dict[str, Artifact]) -> None:
    words = load_words(made["words"])
    assert (words.dtype, words.shape) == (np.uint16, (60, 2, 6, 6))
    file = VocabularyFile.load(made["vocabulary"].local_path("vocabulary.safetensors"))
    assert (file.tap, file.teacher, file.size) == ("block3", made["net"].key, 12)
    assert file.pca is not None
    pixels = torch.from_numpy(load_split(made["images"], "train"))
    teacher = teacher_of(made["net"])
    for view, x in enumerate((pixels, pixels.flip(2))):
        with torch.no_grad():
            maps = teacher(to_float(x), ("block3",))["block3"]  # N C h w
        for i in range(0, 60, 7):
            for row in range(6):
                for column in range(6):
                    vector = file.pca.transform(maps[i, :, row, column][None])
                    distance = (vector - file.centroids_KC).square().sum(1)
                    assert distance[int(words[i, view, row, column])] <= distance.min() * (1 + 1e-4)


def test_parts_of_a_shard_give_the_same_vectors_and_words(
    made: dict[str, Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole shards of 25 images against parts of 7, 7, 7 and 4."""
    from pipelines.stages import maps, vocabulary, words

    images, net, stage = made["images"], made["net"], made["words"].stage
    assert isinstance(stage, Quantize)
    whole = Workspace(str(tmp_path / "whole"), "artifacts/vocabulary/x")
    parts = Workspace(str(tmp_path / "parts"), "artifacts/vocabulary/x")
    for work, at_a_time in ((whole, 250), (parts, 7)):
        monkeypatch.setattr(maps, "AT_A_TIME", at_a_time)
        for row in shards_of(images, "train"):
            vocabulary._sample_shard(row, images, net, "block3", 5, 0, work)
            made_of = words._words(row, stage)
            np.testing.assert_array_equal(made_of, made["words"].read_npy(f"{row['name']}.words.npy"))
    assert whole.scratch.files() == parts.scratch.files() != {}
    for name in whole.scratch.files():
        np.testing.assert_array_equal(whole.scratch.read_npy(name), parts.scratch.read_npy(name))


def test_the_map_of_an_odd_image_is_rounded_up(tmp_path: Path) -> None:
    images = Store(tmp_path).plan(Images(Data(train=60, test=12, novel_per_class=1, image_size=18)))
    net = Store(tmp_path).plan(RandomNet(NET, 0, images, model="random"))
    planned = BuildVocabulary(Vocabulary(size=12, tap="block3"), 0, images, net, NET, model="BoWNet")
    x = torch.zeros(1, 3, 18, 18)
    assert planned.geometry().grid == build_backbone(NET, 0)(x, ("block3",))["block3"].shape[-1] == 5
    assert planned.geometry().vectors == 60 * 3 * 3
    assert planned.estimate().memory_bytes > 60 * (18 * 18 * 3 + 4 * 16 * 18 * 18)  # images and a map of the first tap


def test_words_of_a_batch_are_those_of_the_stage(made: dict[str, Artifact]) -> None:
    file = VocabularyFile.load(made["vocabulary"].local_path("vocabulary.safetensors"))
    pixels = torch.from_numpy(load_split(made["images"], "train"))[:16]
    online = online_words(teacher_of(made["net"]), file, to_float(pixels))
    assert online.shape == (16, 1, 6, 6)
    assert (online[:, 0].numpy() == load_words(made["words"])[:16, 0]).mean() > 0.999


@pytest.mark.parametrize("storage", ["auto", "encoded"])
def test_words_of_files_are_those_of_the_stage(storage: Storage, tmp_path: Path, machine: Machine) -> None:
    """Of images that are larger than what is seen of them, and no squares."""
    for i in range(20):
        pixels = np.random.default_rng(i).integers(0, 255, (9, 12, 3), np.uint8)
        Image.fromarray(pixels).resize((60, 45)).save(tmp_path / f"{i:02d}.png")
    store = Store(tmp_path / "store", machine=machine)
    data = Data(kind="folder", path=str(tmp_path), labels="none", image_size=32, storage=storage)
    images = store.get(Images(data))
    net = store.get(RandomNet(NET, 0, images, model="random"))
    settings = Vocabulary(size=6, tap="block3", max_points_per_word=None)
    vocabulary = store.get(BuildVocabulary(settings, 0, images, net, NET, model="BoWNet"))
    words = store.get(Quantize(images, net, vocabulary, model="BoWNet"))
    names = [name for row in shards_of(images, "train") for name in names_of(images, row)]
    teacher = load_backbone(net.local_path("backbone.safetensors"))
    file = VocabularyFile.load(vocabulary.local_path("vocabulary.safetensors"))
    mine = visual_words([tmp_path / name for name in names], teacher, file, size=32, storage=storage)
    assert len(np.unique(mine)) > 1
    assert (mine == load_words(words)[:, 0]).mean() > 0.999


def test_health_counts_what_is_there(made: dict[str, Artifact]) -> None:
    words, health = load_words(made["words"]), made["words"].read_json("health.json")
    counts = np.bincount(words.ravel(), minlength=12)
    share = counts[counts > 0] / counts.sum()
    assert health["perplexity"] == pytest.approx(np.exp(-(share * np.log(share)).sum()))
    assert (health["used"], health["images"], health["positions"]) == ((counts > 0).sum(), 60, 60 * 72)
    assert health["drift_nmi"] is None
    assert made["again"].read_json("health.json")["drift_nmi"] == pytest.approx(1.0)  # the same words


def test_words_of_another_teacher_are_refused(made: dict[str, Artifact], tmp_path: Path, machine: Machine) -> None:
    store = Store(made["images"].root, machine=machine)
    other = store.get(RandomNet(NET, 1, made["images"], model="random"))
    with pytest.raises(ValueError, match="this vocabulary was made of block3 of teacher"):
        store.get(Quantize(made["images"], other, made["vocabulary"], model="BoWNet"))


def test_a_killed_stage_makes_only_the_missing_words(made: dict[str, Artifact], machine: Machine) -> None:
    words = made["words"]
    where, expected = Path(words.folder.path()), load_words(words)
    (where / "manifest.json").unlink()
    (where / "train-00001.words.npy").unlink()
    before = {p.name: p.stat().st_mtime_ns for p in where.glob("*.words.npy")}
    assert words.stage is not None
    again = Store(words.root, machine=machine).get(words.stage)
    after = {p.name: p.stat().st_mtime_ns for p in where.glob("*.words.npy")}
    assert {name for name in after if before.get(name) != after[name]} == {"train-00001.words.npy"}
    np.testing.assert_array_equal(load_words(again), expected)
