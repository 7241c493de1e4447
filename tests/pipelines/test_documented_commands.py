"""Every command that README and documentation show is carried out, with files of the kinds that it names.

Programs that train are asked for their plan, which refuses all that would fail later; the others do what they do.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torchvision
from all_sets import images, write_all_sets
from conftest import ROOT
from documented import Command, commands

from pipelines.records import read_records, write_record
from pipelines.stages.library_net import library_net
from pipelines.store import Store

TRAINS = ("full.py", "sweep.py", "evaluate.py")
ELSEWHERE = {  # why some are not carried out here
    "pip": "installs what other tests use where it is there",
    "pip-audit": "asks the network",
    ".": "the environment that these tests run in",
    "export": "variables of ray's own programs: tests/pipelines/test_jobs.py",
    "tests.chaos": "kills for twenty minutes",
}


@dataclass(frozen=True)
class Place:
    """A folder with all that commands name, and what stands for the names."""

    names: Mapping[str, str]
    student: str  # its key

    def put(self, words: tuple[str, ...]) -> list[str]:
        names = {**self.names}
        names |= {"3f2a": self.student} if words[1].endswith("figures.py") else {}
        names |= {"DIR": "parquet"} if "parquet" in words else {}
        names |= {"S": "1"} if words[-2:] == ("--seed", "S") else {}
        return [name for word in words if (name := names.get(word, word))]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, smoke: dict[str, Any]) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("documented")
    shutil.copytree(smoke["store"], root / "store")
    with pytest.MonkeyPatch.context() as patch:
        write_all_sets(root, patch)
        write_another_run(smoke["store"], root / "store")
        images(
            root / "photos", [f"{kind}/{i}.jpg" for kind in ("cat", "dog", "ibis", "newt", "wren") for i in range(330)]
        )
        write_parquet(root / "parquet", root / "photos/cat/0.jpg")
        net = torchvision.models.resnet50(weights=None)
        torch.save({"state_dict": {f"module.encoder_q.{k}": v for k, v in net.state_dict().items()}}, root / "moco.tar")
        hub = root / "hub/checkpoints"
        hub.mkdir(parents=True)
        published = torchvision.models.ResNet50_Weights.IMAGENET1K_V2  # in the place of the download
        torch.save(net.state_dict(), hub / Path(published.url).name)
        patch.setenv("TORCH_HOME", str(root))
        resnet = Store("store").get(library_net("torchvision", "resnet50")(model="resnet50"))
        os.link(resnet.local_path("backbone.safetensors"), "backbone.safetensors")
        of_student = {row["name"]: row["artifacts"]["backbone"] for row in smoke["report"]["rows"]}["BoWNet"]
        names = {"DIR": "photos", "IMAGENET": "data/imagenet", "PLACES205": "data/places205"}
        names |= dict.fromkeys(("moco.pth.tar", "moco_v2_800ep_pretrain.pth.tar"), "moco.tar")
        names |= {
            "3f2a": resnet.key[:8],
            "KEY": resnet.key[:8],
            "timm:resnet50.a1_in1k": "",
        }  # its hub cannot be stood in for
        yield Place(names, of_student.rpartition("/")[2][:8])


def write_another_run(of: Path, store: Path) -> None:
    """Like the last one of a store, before it and with more words."""
    last = read_records(str(of))[-1]
    vocabulary = {**last.settings["vocabulary"], "size": 2 * last.settings["vocabulary"]["size"]}
    earlier = {"run": "0" * 32, "finished": "2000-01-01T00:00:00+00:00"}
    write_record(str(store), replace(last, settings={**last.settings, "vocabulary": vocabulary}, **earlier))


def write_parquet(folder: Path, image: Path) -> None:
    """As hubs publish CIFAR-10: 650 test images, 65 of each class."""
    folder.mkdir()
    for split, count in (("train", 2000), ("test", 650)):
        pictures = [{"bytes": image.read_bytes(), "path": f"{i}.jpg"} for i in range(count)]
        table = pa.table({"image": pictures, "label": [i % 10 for i in range(count)]})
        pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")


@pytest.mark.parametrize("command", commands(), ids=str)
def test_it_is_carried_out(
    command: Command, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command.words
    if words[:3] == ("ray", "job", "submit") and "--" in words and "..." not in words:
        behind = words.index("--") + 1
        has_options(words[:behind])
        words = words[behind:]
    name = words[1 + (words[1:2] == ("-m",))] if words[0] == "python" else words[0]
    if name in ELSEWHERE:
        return
    if words[0] == "make":
        done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0 or "make demo first" in done.stderr, done.stderr
    elif words[0] == "python":
        code = run(place.put(words), monkeypatch)
        printed = capsys.readouterr()
        assert code == 0, printed.out + printed.err
    elif words[0] in ("ray", "mlflow"):
        has_options(words)
    else:
        assert os.access(ROOT / words[0], os.X_OK)


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """A program as Python runs it, in this process."""
    program = Path(words[1]).name
    planned = program in TRAINS and not {"--list", "--help", "--dry-run"} & {*words}
    module = words[1] == "-m"
    monkeypatch.setattr(sys, "argv", [*words[2 if module else 1 :], *(["--dry-run"] if planned else [])])
    try:
        if module:
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        elif words[1].startswith(("benchmarks/", "examples/")):
            monkeypatch.setattr(sys, "argv", [words[1], "--help"])  # tests/benchmarks, test_examples.py run them
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
        else:
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def has_options(words: tuple[str, ...]) -> None:
    """The program has such a command, with these options."""
    if words[0] == "ray":
        from ray.scripts.scripts import cli as program
    else:
        from mlflow.cli import cli as program
    found: click.Command = program
    rest = [*words[1:]]
    while isinstance(found, click.Group):
        found = found.commands[rest.pop(0)]
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = {re.sub("=.*", "", word) for word in rest if word.startswith("--") and word != "--"}
    assert given <= known
