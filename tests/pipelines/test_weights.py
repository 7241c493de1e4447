"""What people write after --weights: which network it is, what it is called, and one line for every mistake."""

from pathlib import Path

import pytest
import torch
import torchvision

from bownet.config import Data, Evaluation, Net
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import load_backbone, save_backbone
from pipelines.evaluate import evaluation
from pipelines.evaluators import Candidate, Ground
from pipelines.plan import Plan
from pipelines.stages.checkpoint import CheckpointNet
from pipelines.stages.library_net import _downloaded, library_net
from pipelines.store import Artifact, Store
from pipelines.weights import Source, candidates, row_names

DATA = Data(train=60, test=40, novel_per_class=20, image_size=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one network, ours and a foreign file."""
    root = tmp_path_factory.mktemp("weights")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = torchvision.models.resnet18(weights=None).state_dict()
    torch.save({"state_dict": {f"module.encoder_q.{k}": v for k, v in state.items()}}, root / "moco.pth.tar")
    torch.save({"a.weight": torch.zeros(2)}, root / "odd.pt")
    net = Net(arch="wrn-10-1")
    (root / "run").mkdir()
    for name in ("backbone", "run/backbone"):
        save_backbone(build_backbone(net, 1), net, root / f"{name}.safetensors", {})
    Store(root / "store").get(CheckpointNet(net, str(root / "backbone.safetensors"), model="RotNet"))
    return root


def found(folder: Path, *weights: str, arch: str | None = None) -> list[Candidate]:
    settings = Evaluation(weights=tuple(w.format(folder=folder) for w in weights), arch=arch, data=DATA)
    plan = Plan(Store(folder / "store"))
    return candidates(settings, Ground(settings, DATA, 0, plan))


def test_every_form_is_found_with_its_architecture(folder: Path) -> None:
    (key,) = (path.name for path in (folder / "store" / "artifacts" / "checkpoint-net").iterdir())
    forms = [key[:6], f"checkpoint-net/{key[:4]}", "{folder}/moco.pth.tar", "{folder}/run/backbone.safetensors"]
    made = found(folder, *forms, "random:resnet18")
    assert [(c.name, c.arch.arch) for c in made] == [
        (f"RotNet {key[:8]}", "wrn-10-1"),
        (f"RotNet {key[:8]} 2", "wrn-10-1"),
        ("moco", "resnet18"),
        ("backbone", "wrn-10-1"),
        ("random", "resnet18"),
    ]
    assert made[0].net.key == made[1].net.key == key
    assert made[3].net.key == key  # the key of a file is its content, and this one has the same


def test_names_are_short_and_different() -> None:
    def source(short: str, long: str) -> Source:
        return Source((short, long), Net(), lambda name: Artifact("a", "b", "c"))

    assert row_names([source("a", "x/a"), source("b", "x/b")]) == ["a", "b"]
    assert row_names([source("a", "x/a"), source("a", "y/a")]) == ["x/a", "y/a"]
    assert row_names([source("a", "x/a")] * 3) == ["x/a", "x/a 2", "x/a 3"]
    assert row_names([source("a+b@c", "")]) == ["a-b-c"]


def test_arch_is_for_files_of_others_alone(folder: Path) -> None:
    ours, theirs = found(folder, "{folder}/backbone.safetensors", "{folder}/moco.pth.tar", arch="resnet18")
    assert (ours.arch.arch, theirs.arch.arch) == ("wrn-10-1", "resnet18")


MISTAKES = {
    "nothing": ((), None, r"^weights=\(\): name what is to be judged"),
    "twice": (("random:wrn-10-1", "random:wrn-10-1"), None, "^weights=random:wrn-10-1: named twice"),
    "a word": (
        ("resnet50",),
        None,
        "^weights=resnet50: neither a file nor a key; use a key of the store, a file, torch",
    ),
    "no such file": (("no/moco.pth",), None, "^weights=no/moco.pth: there is no such file"),
    "no such key": (("ffffffff",), None, "^weights=ffffffff: no file, and as a key of the store: no such artifact"),
    "unknown arch": (("random:resnet34",), None, "^weights=random:resnet34: known are wrn-"),
    "another arch": (
        ("{folder}/moco.pth.tar",),
        "resnet50",
        "^weights=.*moco.pth.tar: .*looks like a resnet18; use --arch resnet18$",
    ),
    "no arch to be told": (("{folder}/odd.pt",), None, "^weights=.*odd.pt: its names tell no architecture; use --arch"),
    "no net of that arch": (("{folder}/odd.pt",), "resnet18", "^weights=.*odd.pt: no layer1.0.conv1.weight"),
    "another net of torchvision": (
        ("torchvision:vit_b_16",),
        None,
        "^weights=torchvision:vit_b_16: known are torchvision:resnet18, torchvision:resnet18.IMAGENET1K_V1, torchv",
    ),
    "another net of timm": (("timm:vit_base_patch16_224",), None, "^weights=timm:vit_base_patch16_224: known are timm"),
    "an unknown tag": (("timm:resnet50.mine",), None, "^weights=timm:resnet50.mine: known are timm:resnet18.a1_in1k"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(case: str, folder: Path) -> None:
    weights, arch, expected = MISTAKES[case]
    with pytest.raises(ValueError, match=expected) as caught:
        found(folder, *weights, arch=arch)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["torchvision:resnet50", "timm:resnet50.a1_in1k"])
def test_without_a_network_a_librarys_name_is_one_line(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # else it tries for a minute
    _downloaded.cache_clear()  # of other tests in this process
    with pytest.raises(ValueError, match=rf"^weights={name}.*: cannot be downloaded from ") as caught:
        found(folder, name)
    assert str(caught.value).endswith("use a machine with internet, or name a file of weights")
    assert "\n" not in str(caught.value)


def test_a_downloaded_network_is_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's own cache, with a file of random weights in the place of the download."""
    weights = torchvision.models.ResNet18_Weights.IMAGENET1K_V1
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    state = torchvision.models.resnet18(weights=None).state_dict()
    torch.save(state, tmp_path / "hub" / "checkpoints" / Path(weights.url).name)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    made = Store(tmp_path / "store").get(library_net("torchvision", "resnet18")(model="resnet18"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    (again,) = found(tmp_path, "torchvision:resnet18")  # its artifact is enough
    assert (again.name, again.net.key, again.arch.arch) == ("resnet18", made.key, "resnet18")
    backbone = load_backbone(made.local_path("backbone.safetensors"))
    assert torch.equal(backbone.state_dict()["layer4.1.conv2.weight"], state["layer4.1.conv2.weight"])
    assert backbone.input_mean.tolist() == pytest.approx([0.485, 0.456, 0.406])


def planned(tmp_path: Path, **settings: object) -> None:
    given = {"weights": ("random:wrn-10-1",), "data": DATA, **settings}
    evaluation(Evaluation.model_validate(given), Plan(Store(tmp_path / "s")))


REFUSED = {
    "taps that do not exist": (
        {"linear": {"taps": ("conv4",)}},
        "^linear.taps='conv4': wrn-10-1 has block1, block2, block3, pool$",
    ),
    "a class with too few images": (
        {"fewshot": {"shots": (1, 50)}},
        "^evaluators=fewshot: fewshot.shots=.*50 shots and 15 queries need 65 images of each class, the smallest",
    ),
    "no evaluators": ({"evaluators": ()}, r"^evaluators=\(\): name one or more of linear, transfer, fewshot"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_while_planning(case: str, tmp_path: Path) -> None:
    settings, expected = REFUSED[case]
    with pytest.raises(ValueError, match=expected):
        planned(tmp_path, **{"fewshot": {"shots": (1, 5)}, **settings})
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["voc07_svm", "detection"])
def test_voc_of_an_evaluators_own_needs_a_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"^{name}.path=None: data.kind=scenes is not VOC; name the folder"):
        planned(tmp_path, evaluators=(name,))
