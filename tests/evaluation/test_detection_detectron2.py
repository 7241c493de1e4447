"""detectron2 as a back end, where it is installed: the same weights give the same features, losses and detections."""

import copy

import pytest
import torch
from detection_images import squares, view_of
from torch import nn

pytest.importorskip("detectron2", reason="not installed; docs/detection.md says how")

from bownet.config import Detection, Net
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone
from evaluation.detection.backends import build_detector
from evaluation.detection.c4 import C4Detector
from evaluation.detection.detectron2_backend import Detectron2Detector, renamed
from evaluation.detection.training import fit
from evaluation.detection.views import View
from evaluation.detection.weights import load_verified

CLASSES = 2


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    """With the statistics of some images, so that its features are neither huge nor zero."""
    net = build_backbone(Net(arch="resnet50"), 1)
    net.set_input_statistics([0.4, 0.5, 0.6], [0.2, 0.25, 0.3])
    x_NHWC = torch.stack([torch.from_numpy(pixels) for pixels, _ in squares(8, side=96).pictures])
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0  # take what is seen
    with torch.no_grad():
        net.train()(x_NHWC.permute(0, 3, 1, 2) / 255, ["pool5"])
    for norm in norms:
        norm.momentum = 0.1
    return net.eval()


def both(net: Backbone, **settings: int) -> tuple[C4Detector, Detectron2Detector]:
    """The two back ends with the same weights, those of the new layers too."""
    wanted = Detection(**settings)
    ours = build_detector(wanted, net, CLASSES, 0)
    theirs = build_detector(wanted.model_copy(update={"backend": "detectron2"}), net, CLASSES, 0)
    assert isinstance(ours, C4Detector)
    assert isinstance(theirs, Detectron2Detector)
    rpn, heads = theirs.model.proposal_generator.rpn_head, theirs.model.roi_heads.box_predictor
    mine: list[tuple[nn.Module, nn.Module]] = [
        (ours.rpn.head.conv[0][0], rpn.conv),
        (ours.rpn.head.cls_logits, rpn.objectness_logits),
        (ours.rpn.head.bbox_pred, rpn.anchor_deltas),
    ]
    with torch.no_grad():
        for here, there in mine:
            there.load_state_dict(here.state_dict())
        ours.heads.box_predictor.cls_score.weight.mul_(10)  # new layers say next to nothing
        ours.heads.box_predictor.cls_score.bias[0] = -2.0  # and something shall be found
        for name in ("weight", "bias"):
            scores = ours.heads.box_predictor.cls_score.get_parameter(name)
            heads.cls_score.get_parameter(name).copy_(scores.roll(-1, 0))  # its background is the last class
            heads.bbox_pred.get_parameter(name).copy_(ours.heads.box_predictor.bbox_pred.get_parameter(name)[4:])
    return ours, theirs


def views() -> list[View]:
    first, second = squares(2, side=64).pictures
    return [view_of(*first), view_of(second[0][:52], second[1])]


def test_the_same_features(backbone: Backbone) -> None:
    """To 1e-4, in double precision: in single either is 2e-4 away from that, where the largest is 18."""
    ours, theirs = (detector.eval().double() for detector in both(backbone))
    with torch.no_grad():
        here, there = ours.features(views())[0], theirs.features(views())
        alone = copy.deepcopy(backbone).double()(views()[0].pixels_CHW[None].double() / 255, ["conv4"])["conv4"]
        torch.testing.assert_close(theirs.features(views()[:1]), alone, rtol=0, atol=1e-4)
    assert 0.1 < alone.std() < 10
    assert here.dtype == there.dtype == torch.float64
    torch.testing.assert_close(here, there, rtol=0, atol=1e-4)


def test_the_same_features_as_they_are_computed(backbone: Backbone) -> None:
    """In single precision: 1e-4 of the largest."""
    ours, theirs = (detector.eval() for detector in both(backbone))
    with torch.no_grad():
        here, there = ours.features(views())[0], theirs.features(views())
    torch.testing.assert_close(here, there, rtol=0, atol=1e-4 * there.abs().max().item())


def test_the_same_losses(backbone: Backbone) -> None:
    """With more regions than there are proposals none is left to chance but the anchors, which both draw alike."""
    ours, theirs = (detector.train() for detector in both(backbone, regions=2000))
    here, there = ours(views(), 7), theirs(views(), 7)
    assert here.keys() == there.keys()
    for name in here:
        assert here[name].item() == pytest.approx(there[name].item(), rel=1e-3), name


def test_the_same_detections(backbone: Backbone) -> None:
    ours, theirs = (detector.eval() for detector in both(backbone, proposals=40))
    for here, there in zip(ours.detect(views()), theirs.detect(views()), strict=True):
        assert len(here.scores_D) > 2
        assert torch.equal(here.labels_D, there.labels_D)
        torch.testing.assert_close(here.scores_D, there.scores_D, rtol=0, atol=1e-4)
        torch.testing.assert_close(here.boxes_D4, there.boxes_D4, rtol=0, atol=1e-2)


def test_weights_are_verified(backbone: Backbone) -> None:
    _, made = both(backbone)
    assert {name.rpartition(".")[0] for name in made.new} == {
        "model.proposal_generator.rpn_head.conv",
        "model.proposal_generator.rpn_head.objectness_logits",
        "model.proposal_generator.rpn_head.anchor_deltas",
        "model.roi_heads.res5.norm",
        "model.roi_heads.box_predictor.cls_score",
        "model.roi_heads.box_predictor.bbox_pred",
    }
    state = made.state_dict()
    for name, value in renamed(backbone).items():
        assert torch.equal(state[name], value), name
    short = {k: v for k, v in renamed(backbone).items() if k != "model.backbone.res4.5.conv2.norm.running_var"}
    with pytest.raises(ValueError, match=r"model.backbone.res4.5.conv2.norm.running_var: .* it would stay random"):
        load_verified(made, short, lambda name: name.startswith("model.backbone."))


def test_what_is_frozen(backbone: Backbone) -> None:
    _, made = both(backbone, freeze=2)
    learns = {name.split(".")[2] for name, p in made.named_parameters() if p.requires_grad}
    assert {"res3", "res4", "res5"} <= learns
    assert not {"stem", "res2"} & learns
    norms = {name.split(".")[2] for name, m in made.named_modules() if isinstance(m, nn.BatchNorm2d)}
    assert norms == {"res3", "res4", "res5"}


def test_a_few_steps(backbone: Backbone) -> None:
    settings = Detection(
        backend="detectron2", steps=2, drops=(), batch=2, train_sizes=(48, 64), regions=4, proposals=10, warmup=0
    )
    made = build_detector(settings, backbone, CLASSES, 0)
    before = {name: value.clone() for name, value in made.state_dict().items()}
    history = fit(made, squares(4), settings, 0)
    assert set(history[-1]) >= {"loss", "objectness", "proposal", "class", "box"}
    frozen = ("model.backbone.stem", "model.backbone.res2", "model.proposal_generator.anchor_generator")
    for name, value in made.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith(frozen), name


def test_only_a_resnet50() -> None:
    with pytest.raises(ValueError, match=r"detection.backend=detectron2: it is for a resnet50"):
        build_detector(Detection(backend="detectron2"), build_backbone(Net(arch="resnet18"), 0), CLASSES, 0)
