"""The detector of torchvision's parts: where its weights come from, what is frozen, anchors and losses by hand."""

import numpy as np
import pytest
import torch
from detection_images import squares, view_of
from torch import nn

from bownet.config import Detection, Net
from bownet.nets.build import build_backbone
from bownet.nets.resnet import ResNet
from evaluation.detection.backends import build_detector, check_backend
from evaluation.detection.c4 import Anchors, C4Detector, Regions, found_in, renamed, torchvision_detector
from evaluation.detection.weights import load_verified

SMALL = Regions(8, 10)


def backbone(seed: int = 1, arch: str = "resnet18") -> ResNet:
    """With statistics as training leaves them, so that nothing passes for another by its initial value."""
    net = build_backbone(Net(arch=arch), seed)
    assert isinstance(net, ResNet)
    generator = torch.Generator().manual_seed(seed)
    for name, value in [*net.named_parameters(), *net.named_buffers()]:
        if value.ndim == 1 and value.is_floating_point():
            noise = 0.1 * torch.randn(value.shape, generator=generator)
            value.data += noise.abs() if name.endswith("var") else noise
    net.set_input_statistics([0.4, 0.5, 0.6], [0.2, 0.25, 0.3])
    return net


def detector(freeze: int = 2, classes: int = 2, seed: int = 0) -> C4Detector:
    return torchvision_detector(backbone(), classes, freeze, seed, SMALL)


def test_every_weight_of_the_backbone_is_in_the_detector() -> None:
    net, made = backbone(), detector()
    state = made.state_dict()
    for name, value in renamed(net).items():
        if name in state:
            assert torch.equal(state[name], value), name
        else:
            assert name.endswith("num_batches_tracked"), name
    new = {name.rpartition(".")[0] for name in made.new}
    assert new == {
        "rpn.head.conv.0.0",
        "rpn.head.cls_logits",
        "rpn.head.bbox_pred",
        "heads.box_head.norm",
        "heads.box_predictor.cls_score",
        "heads.box_predictor.bbox_pred",
    }


def test_the_map_is_the_tap_conv4_of_the_backbone() -> None:
    net, made = backbone().eval(), detector().eval()
    pixels, there = squares(1, side=80).pictures[0]
    with torch.no_grad():
        ours, sizes = made.features([view_of(pixels, there)])
        expected = net(torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255, ["conv4"])["conv4"]
    assert sizes == [(80, 80)]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_smaller_images_are_padded_after_scaling() -> None:
    made, (large, small) = detector().eval(), (squares(1, side=80).pictures[0][0], squares(1, side=48).pictures[0][0])
    seen = []
    made.trunk.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    made.features([view_of(large), view_of(small)])
    assert seen[0].shape == (2, 3, 80, 80)
    assert (seen[0][1, :, 48:] == 0).all()
    assert (seen[0][1, :, :, 48:] == 0).all()
    expected = (small[5, 7, 2] / 255 - 0.6) / 0.3
    assert seen[0][1, 2, 5, 7].item() == pytest.approx(expected, abs=1e-6)


def test_weights_that_do_not_fit_are_named() -> None:
    net = C4Detector(ResNet(18), 2, 0, SMALL, 0)
    weights = renamed(backbone())

    def backbone_part(name: str) -> bool:
        return name.startswith(("trunk.", "heads.box_head.layer4.", "input_"))

    short = {name: value for name, value in weights.items() if name != "trunk.layer3.1.bn2.running_var"}
    with pytest.raises(ValueError, match=r"trunk.layer3.1.bn2.running_var: .* it would stay random"):
        load_verified(net, short, backbone_part)
    with pytest.raises(
        ValueError, match=r"trunk.conv1.weight: has shape \(64, 3, 3, 3\) in the backbone and \(64, 3, 7"
    ):
        load_verified(net, weights | {"trunk.conv1.weight": torch.zeros(64, 3, 3, 3)}, backbone_part)
    with pytest.raises(ValueError, match=r"trunk.layer9.weight: the backbone has it and the detector does not"):
        load_verified(net, weights | {"trunk.layer9.weight": torch.zeros(1)}, backbone_part)


@pytest.mark.parametrize(
    ("freeze", "trained"),
    [(0, "conv1 bn1 layer1 layer2 layer3 layer4"), (2, "layer2 layer3 layer4"), (4, "layer4"), (5, "")],
)
def test_frozen_stages(freeze: int, trained: str) -> None:
    made = detector(freeze)
    parts = {p.partition(".")[0]: m for p, m in made.trunk.named_children()}
    parts |= {"layer4": made.heads.box_head.layer4}
    learns = [name for name, m in parts.items() if any(p.requires_grad for p in m.parameters())]
    assert learns == trained.split()
    norms = [name for name, m in parts.items() if any(isinstance(x, nn.BatchNorm2d) for x in m.modules())]
    assert set(norms) == {name for name in learns if name != "conv1"}
    assert made.heads.box_head.norm.weight.requires_grad, "new layers always learn"


def test_a_step_leaves_frozen_stages_and_moves_all_others() -> None:
    made = detector(2).train()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    optimiser = torch.optim.SGD([p for p in made.parameters() if p.requires_grad], lr=0.1)
    views = [view_of(pixels, there) for pixels, there in squares(2).pictures]
    torch.stack([*made(views, 3).values()]).sum().backward()
    optimiser.step()
    frozen = ("trunk.conv1", "trunk.bn1", "trunk.layer1", "input_")
    for name, value in made.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith(frozen), name


def test_the_seed_decides_and_the_global_state_is_left_alone() -> None:
    made = detector().train()
    views = [view_of(pixels, there) for pixels, there in squares(2).pictures]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, second, other = made(views, 1), made(views, 1), made(views, 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    one, same, two = detector(seed=1), detector(seed=1), detector(seed=2)
    weights = [d.heads.box_predictor.cls_score.weight for d in (one, same, two)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(torch.get_rng_state(), state)
    assert weights[0].std().item() == pytest.approx(0.01, rel=0.1)


def test_anchors() -> None:
    """Centres at multiples of 16 from the corner; sizes first, then height / width of 1/2, 1 and 2."""
    from torchvision.models.detection.image_list import ImageList

    images = ImageList(torch.zeros(1, 3, 40, 50), [(40, 50)])
    (found,) = Anchors()(images, [torch.zeros(1, 8, 3, 4)])
    assert found.shape == (3 * 4 * 15, 4)
    assert found[1].tolist() == [-16, -16, 16, 16]
    wide = [-(32 * 2**0.5) / 2, -32 / 2**0.5 / 2, 32 * 2**0.5 / 2, 32 / 2**0.5 / 2]
    torch.testing.assert_close(found[0], torch.tensor(wide))
    second_row = found[4 * 15 + 15 + 4]  # one place down, one to the right; the square of 64
    assert second_row.tolist() == [16 - 32, 16 - 32, 16 + 32, 16 + 32]
    assert found[14].tolist() == pytest.approx([-(512 / 2**0.5) / 2, -(512 * 2**0.5) / 2, 181.0193, 362.0387], abs=1e-3)


def test_the_loss_of_proposals_by_a_plain_loop() -> None:
    rpn = detector().rpn
    generator = torch.Generator().manual_seed(0)
    objectness, deltas = torch.randn(40, 1, generator=generator), torch.randn(40, 4, generator=generator)
    labels = [
        torch.tensor([1.0, 0, -1, 0, 1] * 4),
        torch.tensor([0.0, 0, -1, -1, 1] * 4),
    ]  # fewer than 256: all are seen
    targets = [torch.randn(20, 4, generator=generator) for _ in range(2)]
    found, placed = 0.0, 0.0
    for i in range(40):
        label, logit = labels[i // 20][i % 20].item(), objectness[i].item()
        if label >= 0:
            chance = 1 / (1 + np.exp(-logit))
            found -= np.log(chance if label == 1 else 1 - chance)
        if label == 1:
            placed += (deltas[i] - targets[i // 20][i % 20]).abs().sum().item()
    ours = rpn.compute_loss(objectness, deltas, labels, targets)
    assert [value.item() for value in ours] == pytest.approx([found / 512, placed / 512], rel=1e-5)


def test_the_loss_of_the_heads_by_hand() -> None:
    """Layers without weights say the same of every region: scores 0, 1, 2 and deltas 0..11."""
    heads = detector(classes=2).heads.train()
    with torch.no_grad():
        for layer in (heads.box_predictor.cls_score, heads.box_predictor.bbox_pred):
            layer.weight.zero_()
            layer.bias.copy_(torch.arange(float(len(layer.bias))))
    there = torch.tensor([[4.0, 4, 36, 36]])
    proposals = [torch.cat([there, torch.tensor([[40.0, 40, 60, 60]])])]
    targets = [{"boxes": there, "labels": torch.tensor([2])}]
    _, losses = heads({"conv4": torch.randn(1, 256, 4, 4)}, proposals, [(64, 64)], targets)
    # The object itself joins the proposals: two regions of class 2, exactly placed, and one of the background.
    total = np.log(1 + np.e + np.e**2)
    assert losses["class"].item() == pytest.approx((2 * (total - 2) + total) / 3, rel=1e-5)
    assert losses["box"].item() == pytest.approx(2 * (8 + 9 + 10 + 11) / 3, rel=1e-5)


def test_found_boxes_are_in_the_pixels_of_the_image() -> None:
    view = view_of(np.zeros((50, 100, 3), np.uint8))
    view = type(view)(view.pixels_CHW, None, (100, 400))  # of a larger image
    boxes = torch.tensor([[10.0, 10, 20, 30], [90, 40, 130, 60], [120, 10, 130, 20]])
    found = found_in(view, boxes, torch.tensor([1, 0, 1]), torch.tensor([0.9, 0.8, 0.7]))
    assert found.boxes_D4.tolist() == [[40, 20, 80, 60], [360, 80, 400, 100]]
    assert found.labels_D.tolist() == [1, 0]


def test_detections_are_within_the_image_and_sorted() -> None:
    made = detector().eval()
    with torch.no_grad():
        made.heads.box_predictor.cls_score.weight.mul_(100)
    pixels, _ = squares(1, side=80).pictures[0]
    (found,) = made.detect([view_of(pixels)])
    assert len(found.scores_D) > 0
    assert (found.scores_D.diff() <= 0).all()
    assert (found.boxes_D4 >= 0).all()
    assert (found.boxes_D4 <= 80).all()
    assert set(found.labels_D.tolist()) <= {0, 1}


def test_back_ends() -> None:
    with pytest.raises(ValueError, match=r"detection.backend=caffe: unknown; there are torchvision, detectron2"):
        check_backend("caffe")
    with pytest.raises(ValueError, match="arch=wrn-28-10: detection by torchvision has resnet50 and resnet18"):
        check_backend("torchvision", "wrn-28-10")
    with pytest.raises(ValueError, match="net=WideResNet: detection needs a resnet50"):
        build_detector(Detection(), build_backbone(Net(arch="wrn-10-1"), 0), 2, 0)
    made = build_detector(Detection(regions=8, proposals=10, freeze=1), backbone(), 2, 0)
    assert isinstance(made, C4Detector)
    assert made.heads.fg_bg_sampler.batch_size_per_image == 8


def test_the_protocol_in_numbers() -> None:
    made = build_detector(Detection(), backbone(arch="resnet50"), 20, 0)
    assert isinstance(made, C4Detector)
    assert made.heads.box_predictor.cls_score.out_features == 21
    assert made.heads.fg_bg_sampler.batch_size_per_image == 512
    assert (made.rpn._pre_nms_top_n, made.rpn._post_nms_top_n) == (
        {"training": 12000, "testing": 6000},
        {"training": 2000, "testing": 1000},
    )
    assert made.heads.box_head.norm.num_features == 2048
