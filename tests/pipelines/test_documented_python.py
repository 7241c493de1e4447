"""Every piece of Python that README and documentation show is run, with the files and names that its page speaks of."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from conftest import ROOT
from documented import pages, python_blocks
from PIL import Image

from bownet.config import Fewshot, Net
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import save_backbone
from bownet.tasks.rotation import RotationTask
from bownet.words.vocabulary_file import Vocabulary
from evaluation.fewshot import fewshot_accuracies
from evaluation.voc_detection import CLASSES
from pipelines.evaluators import Evaluator
from pipelines.records import Record, write_record
from pipelines.stages.fewshot import EPISODES
from pipelines.store import Artifact, Stage, Store, Workspace

ELSEWHERE = {
    "extend.md": "tests/test_project.py",
    "tasks.md": "tests/bownet/test_task_registry.py",
}
NET = Net(arch="wrn-10-1")


@dataclass(frozen=True)
class Episodes(Stage):
    """As the few-shot evaluator leaves them: random features on the same episodes."""

    seed: int
    name = "fewshot"
    version = 1

    def build(self, work: Workspace) -> dict[str, Any]:
        labels = torch.arange(100) % 5
        settings = Fewshot(shots=(1, 5), ways=5, queries=5, episodes=50)
        features = torch.randn(100, 8, generator=torch.Generator().manual_seed(self.seed))
        accuracies = fewshot_accuracies(features, labels, settings)
        work.write_npy(EPISODES, torch.stack([*accuracies.values()]).numpy())
        card = {"data": {"test": {"split": "test", "sha256": "0" * 64}}, "solver": settings.model_dump(mode="json")}
        work.write_json("protocol.json", {**card, "seeds": {"episodes": settings.seed}})
        return {}


def words_of_files() -> dict[str, Any]:
    """Two images, a teacher and its vocabulary, and the record of a run."""
    for i, name in enumerate(("cat.jpg", "dog.jpg")):
        pixels = np.random.default_rng(i).integers(0, 255, (40, 60, 3), np.uint8)
        Image.fromarray(pixels).save(name)
    net = build_backbone(NET, seed=0)
    save_backbone(net, NET, Path("backbone.safetensors"), {})
    centroids = torch.randn(8, net.tap_channels["block3"], generator=torch.Generator().manual_seed(0))
    Vocabulary(centroids, "0" * 16, "block3").save("vocabulary.safetensors")
    rows = [{"name": "BoWNet", "metrics": {"linear/top1": 50.0}, "artifacts": {"backbone": "student/0a"}}]
    write_record("store", Record("0a", {"name": "demo", "seed": 0}, rows, 1.0))
    return {"features": torch.randn(2, net.tap_channels["block3"], 4, 4)}


def dino() -> dict[str, Any]:
    state = torchvision.models.resnet50(weights=None).state_dict()
    torch.save({"teacher": {f"backbone.{name}": value for name, value in state.items()}}, "dino_resnet50_pretrain.pth")
    return {}


def training() -> dict[str, Any]:
    images = np.random.default_rng(0).integers(0, 255, (32, 16, 16, 3), np.uint8)
    return {"task": RotationTask(build_backbone(NET, seed=0), 1, 2), "images_NHWC": images, "targets": None}


def judging() -> dict[str, Any]:
    """Two results on the same episodes; an image with a cat, which the detector finds, and an empty one."""
    year = Path("VOCdevkit/VOC2007")
    (year / "ImageSets/Main").mkdir(parents=True)
    (year / "Annotations").mkdir()
    (year / "ImageSets/Main/test.txt").write_text("000001\n000002\n")
    size = "<size><width>80</width><height>60</height><depth>3</depth></size>"
    box = "<bndbox><xmin>9</xmin><ymin>9</ymin><xmax>40</xmax><ymax>40</ymax></bndbox>"
    cat = f"<object><name>cat</name><truncated>0</truncated><difficult>0</difficult>{box}</object>"
    for name, things in (("000001", cat), ("000002", "")):
        (year / f"Annotations/{name}.xml").write_text(f"<annotation>{size}{things}</annotation>")
    found = (np.array([[8.0, 8.0, 40.0, 40.0]]), np.array([CLASSES.index("cat")]), np.array([0.9]))
    nothing = (np.zeros((0, 4)), np.zeros(0, int), np.zeros(0))
    store = Store("store")
    names = {"Evaluator": Evaluator, "MineScore": Artifact}  # the latter is only named
    return names | {"one": store.get(Episodes(1)), "other": store.get(Episodes(2)), "outputs": [found, nothing]}


def too_shallow(text: str) -> list[str]:
    """What stands below an item of a list and is indented by less than Python-Markdown's four: the list ends there."""
    found, code, before = [], "", ""
    for line in text.splitlines():
        fence = re.match(r"( *)(```)", line)
        if re.match(r" {1,3}[^ ]", line) and (fence or not before.strip()) and not code:
            found.append(line)
        if fence:
            code = "" if code else fence[2]
        before = line
    return found


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_lists_go_on_behind_their_code(page: Path) -> None:
    assert not too_shallow(page.read_text("utf-8"))


def test_a_shallow_indent_is_found() -> None:
    text = "1. one\n\n   ```python\n  x\n   ```\n\n   more\n2. two\n   lines"
    assert too_shallow(text) == ["   ```python", "   more"]
    assert too_shallow("1. one\n\n    ```\n\n  x\n    ```\n\n    more\n") == []


GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "README.md": words_of_files,
    "api.md": words_of_files,
    "words.md": words_of_files,
    "weights.md": dino,
    "training.md": training,
    "evaluation.md": judging,
}


@pytest.mark.parametrize("page", [page for page in pages() if python_blocks(page)], ids=lambda page: page.name)
def test_it_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in ELSEWHERE:
        assert page.name in (ROOT / ELSEWHERE[page.name]).read_text("utf-8")
        return
    monkeypatch.chdir(tmp_path)
    names = GIVEN[page.name]()
    for block in python_blocks(page):
        is_entry = block.startswith('"')  # of a dictionary
        exec(compile(f"entry = {{{block}}}" if is_entry else block, str(page), "exec"), names)
    assert RESULT.get(page.name, lambda names: True)(names)


RESULT: dict[str, Callable[[dict[str, Any]], bool]] = {
    "README.md": lambda names: names["words"].shape == (2, 8, 8),
    "api.md": lambda names: torch.allclose(names["bags"].sum(1), torch.ones(2)) and names["record"].run == "0a",
    "words.md": lambda names: names["words"].shape == (2, 4, 4),
    "training.md": lambda names: len(names["history"]) == 10,
    "evaluation.md": lambda names: list(names["entry"]) == ["mine"] and names["truth"].images == ("000001", "000002"),
}
