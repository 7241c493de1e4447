"""The voc07_svm stage on a real Ray: drawn and real VOC images, resuming, and what is refused before any compute."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bownet.config import Data, Net, Voc07Svm
from bownet.images.augment import to_float
from bownet.images.scenes_voc import NAMES, write_vocdevkit
from bownet.images.views import squashed_view
from evaluation.pooling import pool_map
from evaluation.voc07_svm import presence, voc07_svm
from pipelines.machine import Machine
from pipelines.plan import Plan
from pipelines.stages.fan_out import PARTS_PER_CPU, dealt, fan_out
from pipelines.stages.images import Images, opened
from pipelines.stages.pictures import annotations_of
from pipelines.stages.shards import teacher_of
from pipelines.stages.teacher import RandomNet
from pipelines.stages.voc07_svm import Voc07SvmScore, voc_data
from pipelines.store import Artifact, Store

DEVKIT = Path(__file__).resolve().parents[3] / "shared" / "data" / "VOCdevkit"
ARCH = Net(arch="wrn-10-1")
SETTINGS = Voc07Svm(image_size=32, costs="vissl", taps=("block3", "pool"), max_iter=20)


@pytest.fixture(scope="module")
def devkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("voc")
    write_vocdevkit(root, trainval=120, test=60, seed=1, height=60, width=80)
    return root / "VOCdevkit"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> Store:
    return Store(tmp_path_factory.mktemp("store"), machine=machine)


def stage_for(store: Any, devkit: Path, settings: Voc07Svm = SETTINGS) -> Voc07SvmScore:
    data = voc_data(settings, Data(kind="voc", path=str(devkit))).model_copy(update={"shard_size": 50})
    images = store.get(Images(data))
    net = store.get(RandomNet(ARCH, 0, images, model="random"))
    return Voc07SvmScore(settings, images, net, ARCH, model="random")


@pytest.fixture(scope="module")
def scored(store: Store, devkit: Path) -> Artifact:
    return store.get(stage_for(store, devkit))


def features(images: Artifact, net: Artifact, devkit: Path, split: str, tap: str) -> Any:
    """Image after image, from the files themselves."""
    backbone, found = teacher_of(net), []
    names = (devkit / "VOC2007/ImageSets/Main" / f"{split}.txt").read_text().split()
    for name in names:
        pixels = squashed_view((devkit / "VOC2007/JPEGImages" / f"{name}.jpg").read_bytes(), 32, 37)
        with torch.inference_mode():
            maps = backbone(to_float(torch.from_numpy(np.array(pixels))[None]), (tap,))[tap]
        found.append(pool_map(maps, "9k").flatten(1)[0].numpy())
    return np.stack(found)


def test_the_stage_gives_what_the_evaluator_gives(scored: Artifact, devkit: Path) -> None:
    stage = scored.stage
    assert isinstance(stage, Voc07SvmScore)
    labels = [presence(annotations_of(stage.images, split), sorted(NAMES)) for split in ("train", "test")]
    given = [
        {tap: features(stage.images, stage.net, devkit, split, tap) for tap in SETTINGS.taps}
        for split in ("trainval", "test")
    ]
    expected = voc07_svm(given[0], given[1], labels[0], labels[1], sorted(NAMES), SETTINGS)
    metrics = scored.read_json("metrics.json")
    assert metrics.keys() == {"voc07_svm/block3/map", "voc07_svm/pool/map"}
    assert metrics == pytest.approx({f"voc07_svm/{k}": v for k, v in expected.metrics.items()}, abs=1e-3)
    details = scored.read_json("details.json")
    for tap, wanted in expected.details["taps"].items():
        for name, row in wanted["classes"].items():
            assert details[tap]["classes"][name]["cost"] == row["cost"]
        assert details[tap]["fits"] == (11 * 3 + 1) * len(NAMES)
    positive = float((labels[1] == 1).mean()) * 100
    assert metrics["voc07_svm/pool/map"] > 1.3 * positive


def test_the_card(scored: Artifact) -> None:
    card = scored.read_json("protocol.json")
    assert card["data"]["train"] == {"split": "trainval07", "images": 120, "classes": len(NAMES)}
    assert card["data"]["test"] == {"split": "test07", "images": 60, "classes": len(NAMES)}
    assert card["view"]["test"] == "short side 37, then squashed to 32x32, no crop"
    assert card["pooling"].keys() == {"block3", "pool"}
    assert "64 values" in card["pooling"]["pool"]
    assert card["solver"]["class_weight"] == {"1": 2, "-1": 1}
    assert card["solver"]["costs"] == "vissl"


def test_other_costs_are_another_artifact_and_another_path_is_not(scored: Artifact, store: Store) -> None:
    stage = scored.stage
    assert isinstance(stage, Voc07SvmScore)

    def key(**change: Any) -> str:
        settings = stage.settings.model_copy(update=change)
        return store.plan(Voc07SvmScore(settings, stage.images, stage.net, model="x")).key

    assert key() == scored.key
    assert key(path="elsewhere") == scored.key
    assert len({key(), key(costs="goyal"), key(seed=1), key(taps=("pool",)), key(folds=2), key(pool="global")}) == 6


def test_an_interrupted_build_goes_on_where_it_was(devkit: Path, tmp_path: Path, machine: Machine) -> None:
    """A finished tap is not fitted again, and features that are there are not computed again."""
    store = Store(tmp_path, machine=machine)
    stage = stage_for(store, devkit, SETTINGS.model_copy(update={"taps": ("block2", "pool")}))
    planned = store.plan(stage)
    planned.scratch.write_json("block2.json", {"metrics": {"map": 12.5}, "details": {"left": "by the first try"}})
    for row in stage.images.info["shards"]:
        rows = row["stop"] - row["start"]
        for tap in ("block2", "pool"):
            wave = np.arange(row["start"], row["stop"])[:, None] % np.arange(2, 7)
            planned.scratch.write_npy(f"{row['name']}.{tap}.npy", np.ones((rows, 5), np.float32) + wave)
    done = store.get(stage)
    assert done.read_json("metrics.json")["voc07_svm/block2/map"] == 12.5
    assert done.read_json("details.json")["block2"] == {"left": "by the first try"}
    assert done.read_json("details.json")["pool"]["values"] == 5


def test_spread_over_ray_units_come_back_in_order(machine: Machine) -> None:
    shared = np.arange(100)

    def pick(shared: Any, units: list[int]) -> list[int]:
        assert not shared.flags.writeable  # the object store's own memory
        return [int(shared[unit]) * 10 for unit in units]

    run = fan_out(machine, "test", "numbers")
    for units in ([3], [*range(100)], [*range(99, 20, -1)]):
        assert run(pick, shared, units) == [10 * unit for unit in units]


def test_units_are_dealt_out_once_in_mixtures_that_become_small_at_the_end() -> None:
    for count, cpus in ((1, 2), (20, 2), (240, 2), (1580, 3), (240, 500)):
        parts = dealt(count, cpus)
        assert sorted(i for part in parts for i in part) == [*range(count)]
        assert max(map(len, parts)) <= max(1, count / (PARTS_PER_CPU * cpus))  # the 16th of what a CPU has to do
        assert [*map(len, parts[-min(count, cpus) :])] == [1] * min(count, cpus)
    of_1580 = dealt(1580, 2)
    assert all(max(part) - min(part) > 1400 for part in of_1580[:16])


def test_one_cpu_gives_the_same_bits(scored: Artifact, machine: Machine) -> None:
    """On Ray, and in this process with as many threads as it likes."""
    stage = scored.stage
    assert isinstance(stage, Voc07SvmScore)
    rng = np.random.default_rng(0)
    given = {"a": rng.normal(size=(120, 300))}, {"a": rng.normal(size=(60, 300))}
    labels = [presence(annotations_of(stage.images, split), sorted(NAMES)) for split in ("train", "test")]
    arguments = (*given, *labels, sorted(NAMES), SETTINGS)
    assert voc07_svm(*arguments) == voc07_svm(*arguments, fan_out(machine, "test", "SVMs"))


# What is refused: a plan is made, and nothing is built.


def spoilt(devkit: Path, folder: Path, change: Any) -> Path:
    root = folder / "VOCdevkit"
    shutil.copytree(devkit, root)
    change(root / "VOC2007")
    opened.cache_clear()
    return root


def no_annotations(year: Path) -> None:
    shutil.rmtree(year / "Annotations")


def some_broken(year: Path) -> None:
    for name in ("000003", "000004"):
        (year / "Annotations" / f"{name}.xml").write_text("<annotation><obj")


def box_outside(year: Path) -> None:
    file = year / "Annotations" / "000002.xml"
    text = file.read_text()
    start, stop = text.index("<xmax>") + 6, text.index("</xmax>")
    file.write_text(text[:start] + "82" + text[stop:])


def box_outside_without_size(year: Path) -> None:
    box_outside(year)
    file = year / "Annotations" / "000002.xml"
    file.write_text(file.read_text().replace("<width>80", "<width>0"))


def one_class(year: Path) -> None:
    for file in (year / "Annotations").glob("*.xml"):
        text = file.read_text()
        for name in NAMES:
            text = text.replace(f"<name>{name}</name>", f"<name>{NAMES[0]}</name>")
        file.write_text(text)


def all_difficult_in_test(year: Path) -> None:
    for name in (year / "ImageSets/Main/test.txt").read_text().split():
        file = year / "Annotations" / f"{name}.xml"
        parts = file.read_text().split("<object>")
        hard = [p.replace("<difficult>0", "<difficult>1") if f"<name>{NAMES[1]}<" in p else p for p in parts]
        file.write_text("<object>".join(hard))


def empty_test(year: Path) -> None:
    (year / "ImageSets/Main/test.txt").write_text("")


def unknown_class(year: Path) -> None:
    file = year / "Annotations" / "000001.xml"
    file.write_text(file.read_text().replace("<object>\n\t\t<name>", "<object>\n\t\t<name>x", 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (no_annotations, r"120 of 120 train images have no annotation .*000001.xml: cannot be read: No such file"),
        (some_broken, r"2 of 120 train images have no annotation that can be read \(VOC2007/Annotations/000003.xml"),
        (box_outside, r"VOC2007/Annotations/000002.xml: the box .*,82,.* is outside of the image of 80x60 pixels"),
        (box_outside_without_size, r"000002.xml: the box .* is outside of the image of 80x60 pixels; mend the XML"),
        (one_class, r"voc07_svm: data.path=.*: .* has 0, .* training images: voc07_svm.folds=3 needs at least 3"),
        (all_difficult_in_test, rf"no test image has a {NAMES[1]} that is not difficult \(\d+ only difficult ones\)"),
        (empty_test, r"VOC2007/ImageSets/Main/test.txt lists no images"),
        (unknown_class, r"an object is a 'x.*'; there are "),
    ],
)
def test_bad_input_is_refused_by_the_plan(devkit: Path, tmp_path: Path, change: Any, message: str) -> None:
    plan = Plan(Store(tmp_path / "store"))
    with pytest.raises(ValueError, match=message) as raised:
        plan.get(stage_for(plan, spoilt(devkit, tmp_path, change)))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "store" / "artifacts").exists()


def test_unknown_taps_and_a_missing_path_are_refused(devkit: Path, tmp_path: Path) -> None:
    plan = Plan(Store(tmp_path / "store"))
    with pytest.raises(
        ValueError, match=r"voc07_svm.taps=conv9: there is no such tap, use block1, block2, block3, pool"
    ):
        plan.get(stage_for(plan, devkit, Voc07Svm(taps=("conv9",))))
    with pytest.raises(ValueError, match=r"voc07_svm.path=None: data.kind=scenes is not VOC; name the folder"):
        voc_data(Voc07Svm(), Data())
    raw = plan.get(Images(Data(kind="voc", path=str(devkit), voc_train="trainval07", storage="raw")))
    assert "needs files of VOC" in str(Voc07SvmScore.obstacle(raw, Voc07Svm()))
    assert plan.get(stage_for(plan, devkit)).stage_name == "voc07-svm"
    assert "180 images" in plan.steps[-1].estimate.counts


@pytest.mark.skipif(not DEVKIT.exists(), reason="../shared/data is not here")
def test_real_images(store: Store) -> None:
    """An untrained network is better than chance on 250 real images."""
    settings = Voc07Svm(image_size=32, costs="vissl", taps=("block2",), pool="global", max_iter=100)
    stage = stage_for(store, DEVKIT, settings)
    stage.check()
    done = store.get(stage)
    details = done.read_json("details.json")["block2"]
    assert len(details["classes"]) == 20
    test = presence(annotations_of(stage.images, "test"), stage.images.info["categories"])
    chance = 100 * float(((test == 1).sum(0) / (test != 0).sum(0)).mean())
    assert done.read_json("metrics.json")["voc07_svm/block2/map"] > 1.3 * chance
    assert done.read_json("protocol.json")["data"]["train"]["images"] == 250
