"""Fine-tuning of a detector: rates by hand, which images a step shows, exact resuming, and what it can learn."""

from typing import Any

import numpy as np
import pytest
import torch
from detection_images import SHARED, InHand, squares, voc_images

from bownet.config import Detection, Net
from bownet.images.sources.voc import CLASSES
from bownet.nets.build import build_backbone
from bownet.training import Shard
from bownet.training.checkpoint import unpack
from evaluation.detection.backends import build_detector
from evaluation.detection.detector import Detector
from evaluation.detection.training import PARTS, Watch, decayed_groups, ends_of_parts, fit, rate, step_rows
from evaluation.detection.views import plain_view
from evaluation.voc_detection import GroundTruth, gather, voc_detection

TINY: dict[str, Any] = {
    "steps": 4,
    "drops": (3,),
    "warmup": 2,
    "batch": 2,
    "lr": 0.04,
    "train_sizes": (48, 64),
    "test_size": 64,
    "regions": 4,
    "proposals": 10,
}


def new(settings: Detection, classes: int = 2, arch: str = "resnet18") -> Detector:
    return build_detector(settings, build_backbone(Net(arch=arch), 0), classes, 0)


def test_the_rate() -> None:
    """Linear from a thousandth, in proportion to the batch, times 0.1 after each drop; detectron2's formula."""
    settings = Detection(steps=100, drops=(50, 80), batch=8, lr=0.02, warmup=10)
    assert [rate(settings, step) for step in (0, 5, 10, 49)] == pytest.approx([1e-5, 0.01 * 0.5005, 0.01, 0.01])
    assert [rate(settings, step) for step in (50, 79, 80, 99)] == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4])
    assert rate(Detection(steps=10, drops=(), warmup=0), 0) == 0.02


def test_every_pass_shows_every_image_once() -> None:
    shown = np.concatenate([step_rows(10, 4, 7, step) for step in range(5)])  # two passes in batches of 4
    assert sorted(shown[:10]) == sorted(shown[10:]) == list(range(10))
    assert shown[:10].tolist() != shown[10:].tolist()
    assert step_rows(3, 8, 7, 0).tolist() == np.concatenate([step_rows(3, 1, 7, s) for s in range(8)]).tolist()
    assert step_rows(10, 10, 7, 0).tolist() != step_rows(10, 10, 8, 0).tolist()


def test_norms_are_not_decayed_and_frozen_weights_not_trained() -> None:
    made = new(Detection(freeze=2, regions=4, proposals=10))
    decayed, norms = decayed_groups(made, 1e-4)
    named = {id(p): name for name, p in made.named_parameters()}
    assert {named[id(p)].rpartition(".")[0].rpartition(".")[2] for p in norms["params"]} <= {"bn1", "bn2", "norm", "1"}
    assert all(p.ndim > 1 or named[id(p)].endswith("bias") for p in decayed["params"])
    assert (decayed["weight_decay"], norms["weight_decay"]) == (1e-4, 0.0)
    count = sum(p.requires_grad for p in made.parameters())
    assert len(decayed["params"]) + len(norms["params"]) == count
    assert not any(name.startswith("trunk.layer1") for name in map(named.get, map(id, decayed["params"])))


def test_a_resumed_run_ends_with_the_same_weights() -> None:
    settings, pictures = Detection(**TINY), squares(6)
    states: list[bytes] = []
    whole = new(settings)
    history = fit(whole, pictures, settings, 5, watch=Watch(save=states.append))
    assert [unpack(state).running["steps"] for state in states] == [1, 2, 3, 4]
    assert [(record["step"], record["workers"]) for record in history] == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert history[-1]["loss"] == pytest.approx(sum(history[-1][k] for k in ("objectness", "proposal", "class", "box")))
    again = new(settings)
    torch.manual_seed(99)  # whatever the process has done meanwhile
    resumed = fit(again, pictures, settings, 5, resume=states[1])
    assert [r["loss"] for r in resumed] == [r["loss"] for r in history]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    other = new(settings)
    fit(other, pictures, settings, 6)
    assert not torch.equal(
        whole.state_dict()["trunk.layer2.0.conv1.weight"], other.state_dict()["trunk.layer2.0.conv1.weight"]
    )


def test_the_parts_of_a_long_run() -> None:
    assert ends_of_parts(100) == {*range(4, 101, 4)}
    assert ends_of_parts(24_000) == {*range(960, 24_001, 960)}
    assert ends_of_parts(3) == {1, 2, 3}
    assert len(ends_of_parts(60)) == PARTS


def test_what_diverges_is_told() -> None:
    settings, saved = Detection(**TINY), list[bytes]()
    broken = new(settings)
    broken.get_parameter("heads.box_predictor.cls_score.bias").data.fill_(torch.nan)
    told = r"loss=nan at step 1 of 4, at a rate of 5e-06: it diverged, use a smaller detection.lr"
    with pytest.raises(ValueError, match=told):
        fit(broken, squares(2), settings, 0, watch=Watch(save=saved.append))
    assert not saved, "a checkpoint must be good"


def test_too_many_workers() -> None:
    settings = Detection(**TINY)
    with pytest.raises(ValueError, match=r"detection.batch=2: too few images for 3 workers"):
        fit(new(settings), squares(4), settings, 0, shard=Shard(0, 3))


def ap50(detector: Detector, pictures: InHand, settings: Detection, classes: tuple[str, ...]) -> float:
    """In 0..1, of the images that it was trained on."""
    detector.eval()
    found = []
    for i, (pixels, _) in enumerate(pictures.pictures):
        (one,) = detector.detect([plain_view(pixels, settings.test_size, settings.max_size)])
        found.append((i, one.boxes_D4, one.labels_D, one.scores_D))
    there = [o for _, o in pictures.pictures]
    boxes = torch.cat([o.boxes_M4 for o in there]).double().numpy()
    boxes[:, :2] += 1  # VOC's pixels
    truth = GroundTruth(
        tuple(map(str, range(len(there)))),
        classes,
        np.repeat(np.arange(len(there)), [len(o) for o in there]),
        torch.cat([o.labels_M for o in there]).numpy(),
        boxes,
        torch.cat([o.difficult_M for o in there]).numpy(),
    )
    return voc_detection(gather(found), truth).metrics["ap50"] / 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not (SHARED / "VOCdevkit").exists(), reason="../shared/data is not here")
def test_it_learns_twenty_images_by_heart() -> None:
    """A fresh ResNet-18 at a short side of 192, and few regions, so that two cores do it in a quarter of an hour.

    The images are the first wide ones with at most four objects, none smaller than the smallest anchor at this size.
    """
    settings = Detection(
        steps=600,
        drops=(450,),
        batch=4,
        lr=0.16,
        warmup=20,
        train_sizes=(192,),
        test_size=192,
        freeze=0,
        regions=16,
        proposals=100,
    )
    pictures = voc_images(20, most=4, smallest=1 / 6)
    backbone = build_backbone(Net(arch="resnet18"), 0)
    backbone.set_input_statistics([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    detector = build_detector(settings, backbone, len(CLASSES), 0)
    assert ap50(detector, pictures, settings, CLASSES) < 0.05, "before training it must know nothing"
    fit(detector, pictures, settings, 0)
    assert ap50(detector, pictures, settings, CLASSES) > 0.9
