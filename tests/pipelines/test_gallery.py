"""Figures of a run: patches against the images they are cut from, and every figure as a picture that can be opened."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, environment
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from PIL import Image

from bownet.config import Data, Net, Vocabulary
from bownet.nets.receptive_field import ReceptiveField
from pipelines import figures, gallery
from pipelines.command_line import parse
from pipelines.drawing.confusion import draw_confusion
from pipelines.drawing.curves import draw_curves
from pipelines.drawing.lines import draw_lines, draw_named
from pipelines.drawing.neighbours import draw_neighbours, nearest
from pipelines.drawing.save import save
from pipelines.drawing.scatter import draw_scatter
from pipelines.drawing.style import sign
from pipelines.drawing.word_maps import borders, draw_word_maps, edges, short
from pipelines.drawing.words import chosen, words_figure
from pipelines.evaluators import Row
from pipelines.full import experiment
from pipelines.gallery import with_figures
from pipelines.machine import Machine
from pipelines.plan import Plan
from pipelines.stages.features import Features
from pipelines.stages.gallery import Gallery
from pipelines.stages.images import Images
from pipelines.stages.patches import EACH, WordPatches, some_shards, words_to_show
from pipelines.stages.pictures import load_split
from pipelines.stages.teacher import RandomNet
from pipelines.stages.vocabulary import BuildVocabulary
from pipelines.stages.word_maps import some_images
from pipelines.stages.words import Quantize, load_words
from pipelines.store import Artifact, Store

NET = Net(arch="wrn-10-1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, machine: Machine) -> dict[str, Artifact]:
    store = Store(tmp_path_factory.mktemp("store"), machine=machine)
    images = store.get(Images(Data(train=60, test=24, novel_per_class=1, image_size=24, shard_size=25)))
    net = store.get(RandomNet(NET, 0, images, model="random"))
    settings = Vocabulary(size=6, tap="block2", max_points_per_word=None)
    vocabulary = store.get(BuildVocabulary(settings, 0, images, net, NET, model="BoWNet"))
    words = store.get(Quantize(images, net, vocabulary, model="BoWNet"))
    features = store.get(Features(images, net, NET, model="random"))
    return {
        "images": images,
        "words": words,
        "features": features,
        "few": store.get(Features(images, net, NET, splits=("test",), model="random")),
        "patches": store.get(WordPatches(images, net, vocabulary, words, model="BoWNet")),
        "gallery": store.get(Gallery(images, net, features, before=features, before_name="same", model="random")),
    }


def test_patches_are_where_their_words_are(made: dict[str, Artifact]) -> None:
    """block2 has a stride of 2 and sees 13 pixels; the patch is 12 wide, as half of the image is."""
    told, patches = made["patches"].read_json("words.json"), made["patches"].read_npy("patches.npy")
    pixels, words = load_split(made["images"], "train"), load_words(made["words"])[:, 0]
    assert patches.shape == (len(told), EACH, 12, 12, 3)
    checked = 0
    for slot, word in enumerate(told):
        assert len(set(word["images"])) == len(word["images"])  # each from another image
        for i, (name, (row, column)) in enumerate(zip(word["images"], word["places"], strict=True)):
            number = int(name.rpartition("#")[2])
            assert words[number, row, column] == word["word"]
            top, left = (min(max(round(2 * at + 0.5 - 6), 0), 12) for at in (row, column))
            np.testing.assert_array_equal(patches[slot, i], pixels[number, top : top + 12, left : left + 12])
            assert word["squares"][i] == [round(top / 24, 4), round(left / 24, 4), 0.5]
            checked += 1
    assert checked > 20


def test_shares_and_classes_are_counted(made: dict[str, Artifact]) -> None:
    told, words = made["patches"].read_json("words.json"), load_words(made["words"])[:, 0]
    labels = np.concatenate(
        [made["images"].read_json(f"{row['name']}.json")["labels"] for row in made["images"].info["shards"]][:3]
    )
    for word in told:
        of_class = np.bincount(labels, (words == word["word"]).sum((1, 2)))
        assert word["share"] == pytest.approx((words == word["word"]).mean())
        assert word["purity"] == pytest.approx(of_class.max() / of_class.sum())


def test_figures_are_pictures(made: dict[str, Artifact]) -> None:
    assert made["gallery"].info["figures"] == ["tsne.png", "neighbours.png"]  # there is no classifier, no training
    assert made["patches"].info["figures"] == ["words.png", "word-maps.png"]
    for name in ("patches", "gallery"):
        for file in made[name].info["figures"]:
            with Image.open(Path(made[name].local_path(file))) as picture:
                assert min(picture.size) > 300


def test_features_of_test_images_only_are_the_same_and_are_kept_apart(made: dict[str, Artifact]) -> None:
    whole, few = made["features"], made["few"]
    assert whole.key != few.key
    assert [name for name in few.folder.files() if name.endswith(".npy")] == ["test.pool.npy"]
    np.testing.assert_array_equal(few.read_npy("test.pool.npy"), whole.read_npy("test.pool.npy"))


def test_images_without_labels_have_a_map_and_neighbours(tmp_path: Path, machine: Machine) -> None:
    for i, pixels in enumerate(np.random.default_rng(0).integers(0, 255, (40, 16, 16, 3), np.uint8)):
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
    store = Store(tmp_path / "store", machine=machine)
    images = store.get(Images(Data(kind="folder", path=str(tmp_path), labels="none", image_size=16)))
    net = store.get(RandomNet(NET, 0, images, model="random"))
    (row,) = with_figures([Row("random", {"backbone": net}, arch=NET)], store)
    assert row.artifacts["gallery"].info["figures"] == ["tsne.png", "neighbours.png"]


def planned(root: Path, *settings: str) -> list[Row]:
    plan = Plan(Store(root))
    return with_figures(experiment(parse(None, ["smoke", "--rounds", "2", *settings]).experiment, plan), plan)


def test_figures_need_no_evaluator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is judged by nothing has features of test images for them; who is not judged at all has curves."""
    (last,) = planned(tmp_path, "--judged", "last", "--evaluators", "finetune")
    assert {"features", "gallery", "gallery of RotNet", "gallery of BoWNet"} <= last.artifacts.keys()
    assert last.artifacts["features"].stage.splits == ("test",)  # type: ignore[union-attr]
    monkeypatch.setattr(gallery, "MOST_TEST", 100)  # of 120
    (last,) = planned(tmp_path, "--judged", "last", "--evaluators", "finetune")
    assert "features" not in last.artifacts
    assert last.artifacts["gallery"].stage.features is None  # type: ignore[union-attr]


def test_a_network_that_was_not_judged_is_meant_by_the_key_of_its_curves(tmp_path: Path) -> None:
    (last,) = planned(tmp_path, "--judged", "last")
    meant = figures.meant(last, last.artifacts["gallery of RotNet"].key[:8])
    assert (meant.name, meant.artifacts["gallery"]) == ("RotNet", last.artifacts["gallery of RotNet"])
    assert figures.meant(last, last.artifacts["gallery"].key) is last
    assert figures.meant(last, "") is last


def test_an_online_classifier_has_its_confusions_drawn(tmp_path: Path) -> None:
    for row in planned(tmp_path, "--linear.features", "online", "--evaluators", "linear"):
        assert row.artifacts["gallery"].stage.linear == row.artifacts["linear"]  # type: ignore[union-attr]
        assert not any(role.startswith("gallery of") for role in row.artifacts)


def test_images_with_word_maps_are_of_several_shards_and_classes(made: dict[str, Artifact]) -> None:
    some = some_images(made["images"], 6)
    assert [row["name"] for row, _ in some] == ["train-00000"] * 2 + ["train-00001"] * 2 + ["train-00002"] * 2
    labels = [made["images"].read_json(f"{row['name']}.json")["labels"][i] for row, i in some]
    assert len(set(labels)) == 6


def test_borders_between_words_by_hand() -> None:
    """Of [[1, 1], [1, 2]]: left of the 2 and above it."""
    words = np.array([[1, 1], [1, 2]], np.uint16)
    assert borders(words) == [[(1.0, 1.0), (1.0, 2.0)], [(1.0, 1.0), (2.0, 1.0)]]


def test_words_are_painted_where_their_patches_are_cut() -> None:
    """Three positions, a stride of 2 and a first middle of 0.5, on 6 pixels: middles are at 0.5, 2.5 and 4.5."""
    field = ReceptiveField(side=13, stride=2, offset=0.5)
    assert edges(3, field, 6).tolist() == [0, 1.5, 3.5, 6]
    assert edges(3, ReceptiveField(13, 2, 1.0), 6).tolist() == [0, 2, 4, 6]  # cells of a stride from the corner on
    words = np.array([[1, 1, 1], [1, 2, 1], [1, 1, 1]], np.uint16)
    axes = draw_word_maps(np.zeros((1, 6, 6, 3), np.uint8), words[None], field, ["a"], "made").axes[1]
    assert (axes.get_xlim(), axes.get_ylim()) == ((-0.5, 5.5), (5.5, -0.5))  # as imshow has it: pixel 0 around 0
    (lines,) = [one for one in axes.collections if isinstance(one, LineCollection)]
    corners = {(float(x), float(y)) for segment in lines.get_segments() for x, y in segment}
    assert corners == {(x, y) for x in (1.0, 3.0) for y in (1.0, 3.0)}
    assert [text.get_position() for text in axes.texts] == [(0.25, 0.25), (2.0, 2.0)]


def test_long_names_are_shortened_at_their_beginning() -> None:
    assert short("n01440764/n01440764_10026.JPEG") == "n01440764_10026.JPEG"
    assert short("a/an-image-with-a-very-long-name-0001.jpg") == "…ry-long-name-0001.jpg"


def test_rows_of_words_say_what_was_left_out() -> None:
    told = [{"images": ["a"] * n, "share": s, "purity": p} for n, s, p in ((16, 0.5, 0.2), (16, 0.3, 0.9), (3, 0.2, 1))]
    assert chosen(told) == {
        "most frequent": [0, 1],
        "purest": [1, 0],
        "any": chosen(told)["any"],
        "rarest with\n16 images": [1, 0],
    }
    assert [*chosen(told[:2])][-1] == "rarest"


@pytest.mark.parametrize("format", ["png", "svg", "pdf"])
def test_the_same_figure_has_the_same_bytes(format: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        figure = draw_lines({"one": [(1.0, 2.0, 0.5)], "two": [(1.0, 3.0, 0.5)]}, "made", "n", "%")
        sign(figure, "the data")
        sign(figure, "the run")
        save(figure, tmp_path / name, format)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    if format == "svg":
        assert "the run" in (tmp_path / "a").read_text()
        assert "the data" not in (tmp_path / "a").read_text()


NAMES = ["US$ 10_% $", "$_a_b$", "_x", "a$b", r"\$5$"]


def drawn_with(names: list[str]) -> dict[str, Figure]:
    """Every kind of figure that shows names of classes, files, networks or runs."""
    count = len(names)
    pixels, numbers = np.zeros((count, 8, 8, 3), np.uint8), np.arange(count)
    told = [
        {"word": i, "share": 0.1, "purity": 0.5, "class": name, "images": [name] * 16} for i, name in enumerate(names)
    ]
    found = {name: np.zeros((1, 1), np.int64) for name in names}
    field = ReceptiveField(side=4, stride=2, offset=0.5)
    return {
        "confusion": draw_confusion(np.eye(count), names, names[0]),
        "scatter": draw_scatter(np.eye(count, 2, dtype=np.float32), numbers, names, names[0]),
        "words": words_figure(np.zeros((count, 16, 8, 8, 3), np.uint8), told, names[0]),
        "maps": draw_word_maps(pixels, np.zeros((count, 4, 4), np.uint16), field, names, names[0]),
        "neighbours": draw_neighbours(pixels, None, [0], found, names[0]),
        "lines": draw_lines({name: [(1.0, 2.0, 0.5)] for name in names}, names[0], names[0], "%"),
        "named": draw_named([(name, 1.0, 0.5) for name in names], names[0], names[0]),
        "curves": draw_curves([{"epoch": 1, "loss": 1.0, "lr": 0.1}], names[0]),
    }


def test_names_are_drawn_as_they_stand(tmp_path: Path) -> None:
    """Matplotlib takes what is between dollars for a formula, and hides what begins with an underscore in a legend."""
    for kind, figure in drawn_with(NAMES).items():
        sign(figure, NAMES[0])
        for format in ("png", "svg"):
            save(figure, tmp_path / f"{kind}.{format}", format)
        assert "<!-- US$ 10_% $" in (tmp_path / f"{kind}.svg").read_text(), kind
    for kind in ("scatter", "lines"):
        written = (tmp_path / f"{kind}.svg").read_text()
        assert [name for name in NAMES if f"<!-- {name} -->" not in written] == [], kind


def test_neighbours_by_hand() -> None:
    features = np.array([[1, 0], [2, 0.1], [0, 1], [0.1, 3], [1, 1]], np.float32)
    assert nearest(features, [0, 2], 2).tolist() == [[1, 4], [3, 4]]


def test_words_of_a_large_vocabulary_are_chosen() -> None:
    counts = np.random.default_rng(0).integers(0, 50, (3000, 4))
    shown = words_to_show(counts)
    assert len(shown) == len(set(shown.tolist())) == 1024
    most, least = counts.sum(1).argmax(), counts.sum(1).argmin()
    assert {int(most), int(least)} <= set(shown.tolist())
    assert words_to_show(np.array([[1, 0], [0, 0], [3, 4]])).tolist() == [0, 2]


def test_shards_are_spread_over_the_images() -> None:
    rows = [{"start": i * 1000, "stop": (i + 1) * 1000} for i in range(10)]
    assert [row["start"] for row in some_shards(rows)] == [0, 2000, 5000, 7000]
    assert some_shards(rows[:2]) == rows[:2]


BROKEN = """
import sys
from pipelines import full
from pipelines.drawing import words
from pipelines.reporting import page

def fail(*_):
    raise KeyError("no such colour")

words.words_figure = page.write_page = fail
sys.exit(full.main())
"""


def test_a_figure_that_fails_costs_no_result(smoke: dict[str, Any], tmp_path: Path) -> None:
    """All is cached but patches of words, which cannot be drawn, as the page cannot be."""
    store = tmp_path / "store"
    shutil.copytree(smoke["store"], store, ignore=shutil.ignore_patterns("patches", "pages", "mlflow*"))
    before = {*(store / "results").iterdir()}
    told = ["smoke", "--store", str(store), "--json", str(tmp_path / "report.json")]
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, *told], capture_output=True, text=True, env=environment(), timeout=200, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = [line for line in done.stdout.splitlines() if "left out" in line]
    patches, page = (line.partition("; the traceback is in ") for line in said)
    assert patches[0] == "BoWNet: patches of words left out: internal: KeyError: 'no such colour'"
    assert page[0] == "page left out: internal: KeyError: 'no such colour'"
    assert "in fail\n" in Path(patches[2]).read_text()
    assert "linear top1" in done.stdout
    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [row["metrics"] for row in rows] == [row["metrics"] for row in smoke["report"]["rows"]]
    assert {"patches", "predictions"}.isdisjoint(rows[-1]["artifacts"])
    assert "gallery" in rows[-1]["artifacts"]
    assert len({*(store / "results").iterdir()} - before) == 1
