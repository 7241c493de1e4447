"""Backbones: shapes of every tap, what is computed and what is not, weights in and out, seeds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchvision
from torch import Generator, Tensor, nn

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.resnet import ResNet
from bownet.nets.taps import Backbone, global_pool
from bownet.nets.wide_resnet import ResidualLayer, WideResNet


def images(n: int, side: int) -> Tensor:
    return torch.rand(n, 3, side, side, generator=Generator().manual_seed(0))


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("arch", "side", "expected"),
    [
        ("wrn-10-2", 32, {"block1": (32, 32, 32), "block2": (64, 16, 16), "block3": (128, 8, 8), "pool": (128,)}),
        ("wrn-16-1", 84, {"block1": (16, 84, 84), "block2": (32, 42, 42), "block3": (64, 21, 21), "pool": (64,)}),
        (
            "resnet18",
            224,
            {
                "conv2": (64, 56, 56),
                "conv3": (128, 28, 28),
                "conv4": (256, 14, 14),
                "conv5": (512, 7, 7),
                "pool5": (512,),
            },
        ),
        (
            "resnet50",
            64,
            {
                "conv2": (256, 16, 16),
                "conv3": (512, 8, 8),
                "conv4": (1024, 4, 4),
                "conv5": (2048, 2, 2),
                "pool5": (2048,),
            },
        ),
    ],
)
def test_shape_of_every_tap(arch: str, side: int, expected: dict[str, tuple[int, ...]]) -> None:
    net = build_backbone(Net(arch=arch), seed=0).eval()
    with torch.no_grad():
        found = net(images(1, side), net.taps)
    assert {tap: tuple(f.shape[1:]) for tap, f in found.items()} == expected
    assert net.taps == tuple(expected)
    assert net.pooled == net.taps[-1]
    for tap, shape in expected.items():
        assert net.tap_channels[tap] == shape[0]
        assert net.tap_strides[tap] == (side // shape[1] if len(shape) == 3 else 0)
    torch.testing.assert_close(found[net.pooled], found[net.taps[-2]].mean((2, 3)))


def wrn_parameters(depth: int, widen: int) -> int:
    """The usual WRN without its classifier: a batch norm (2 values a channel) before each 3x3 layer and at the end."""
    total = 3 * 16 * 9
    c_in = 16
    for c_out in (16 * widen, 32 * widen, 64 * widen):
        for _ in range((depth - 4) // 6):
            total += 2 * c_in + 9 * c_in * c_out + 2 * c_out + 9 * c_out * c_out
            total += c_in * c_out if c_in != c_out else 0
            c_in = c_out
    return total + 2 * c_in


@pytest.mark.parametrize(
    ("depth", "widen", "published"),
    [(28, 10, 36_479_194 - 6_410), (16, 2, 691_674 - 1_290)],  # with ten classes, less their classifiers
)
def test_parameter_count_of_wide_resnets(depth: int, widen: int, published: int) -> None:
    with torch.device("meta"):
        assert count(WideResNet(depth, widen)) == wrn_parameters(depth, widen) == published


@pytest.mark.parametrize(("depth", "published"), [(18, 11_689_512 - 513_000), (50, 25_557_032 - 2_049_000)])
def test_parameter_count_of_resnets(depth: int, published: int) -> None:
    with torch.device("meta"):
        assert count(ResNet(depth)) == published


@pytest.mark.parametrize(
    ("arch", "modules", "tap", "expected"),
    [
        ("wrn-10-1", ("stem", "block1", "block2", "block3"), "block2", [1, 1, 1, 0]),
        ("wrn-10-1", ("stem", "block1", "block2", "block3"), "block1", [1, 1, 0, 0]),
        ("wrn-10-1", ("stem", "block1", "block2", "block3"), "pool", [1, 1, 1, 1]),
        ("resnet18", ("conv1", "layer1", "layer2", "layer3", "layer4"), "conv3", [1, 1, 1, 0, 0]),
    ],
)
def test_stops_after_the_last_tap(arch: str, modules: tuple[str, ...], tap: str, expected: list[int]) -> None:
    net = build_backbone(Net(arch=arch), seed=0).eval()
    calls = dict.fromkeys(modules, 0)

    def counting(name: str) -> Any:
        def hook(*_: Any) -> None:
            calls[name] += 1

        return hook

    for name in modules:
        net.get_submodule(name).register_forward_hook(counting(name))
    found = net(images(1, 32), (tap,))
    assert list(found) == [tap]
    assert list(calls.values()) == expected


def test_order_and_repetition_of_taps_do_not_matter() -> None:
    net = build_backbone(Net(arch="wrn-10-1"), seed=0).eval()
    x = images(2, 16)
    together = net(x, ("pool", "block1", "pool"))
    assert set(together) == {"pool", "block1"}
    for tap in together:  # a later stage must not write into an earlier feature
        assert torch.equal(together[tap], net(x, (tap,))[tap])


@pytest.mark.parametrize("arch", ["wrn-10-2", "resnet18"])
def test_later_stages_leave_earlier_features_alone(arch: str) -> None:
    net = build_backbone(Net(arch=arch), seed=0).eval()
    x = images(2, 32)
    together = net(x, net.taps)
    for tap in net.taps:
        assert torch.equal(together[tap], net(x, (tap,))[tap])


def test_unknown_tap_lists_the_known() -> None:
    net = WideResNet(10, 1)
    with pytest.raises(ValueError, match="tap='conv4': WideResNet has block1, block2, block3, pool"):
        net(images(1, 16), ("block1", "conv4"))
    with pytest.raises(ValueError, match="depth=12: a WRN has 6n"):
        WideResNet(12, 1)
    with pytest.raises(ValueError, match="depth=34: known ResNets are 18, 50"):
        ResNet(34)


@pytest.mark.parametrize("depth", [18, 50])
def test_torchvision_weights_go_in_and_out_unchanged(depth: int) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        theirs = getattr(torchvision.models, f"resnet{depth}")(weights=None)
    for module in theirs.modules():  # statistics other than 0 and 1, so that they are seen to travel
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.fill_(0.1)
            module.running_var.fill_(1.5)
    ours = build_backbone(Net(arch=f"resnet{depth}"), seed=2)
    keys = ours.load_state_dict(theirs.state_dict(), strict=False)
    assert sorted(keys.missing_keys) == ["input_mean", "input_std"]
    assert sorted(keys.unexpected_keys) == ["fc.bias", "fc.weight"]

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ours.set_input_statistics(mean, std)
    theirs.fc = nn.Identity()
    x = images(2, 64)
    standardised = (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    with torch.no_grad():
        expected = theirs.eval()(standardised)
        found = ours.eval()(x, ("pool5",))["pool5"]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

    back = {name: value for name, value in ours.state_dict().items() if not name.startswith("input_")}
    assert set(back) == {name for name in theirs.state_dict() if not name.startswith("fc.")}


def same_weights(a: Backbone, b: Backbone) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("arch", ["wrn-10-1", "resnet18"])
def test_seed_decides_the_weights_and_the_global_state_does_not_move(arch: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        state = torch.get_rng_state()
        first = build_backbone(Net(arch=arch), seed=7)
        assert torch.equal(state, torch.get_rng_state())
        torch.manual_seed(4)
        assert same_weights(first, build_backbone(Net(arch=arch), seed=7))
        assert not same_weights(first, build_backbone(Net(arch=arch), seed=8))


def test_input_statistics_travel_with_the_weights() -> None:
    a, b = (build_backbone(Net(arch="wrn-10-1"), seed=s).eval() for s in (0, 1))
    a.set_input_statistics((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert a.state_dict()["input_mean"].tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert a.state_dict()["input_std"].tolist() == pytest.approx([0.4, 0.5, 0.6])
    x = images(2, 16)
    before = b(x, ("pool",))["pool"]
    b.load_state_dict(a.state_dict())
    after = b(x, ("pool",))["pool"]
    assert torch.equal(after, a(x, ("pool",))["pool"])
    assert not torch.equal(before, after)
    a.set_input_statistics((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))  # the same net sees other values
    shifted = (x - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1)) / torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
    torch.testing.assert_close(a(shifted, ("pool",))["pool"], after)


@pytest.mark.parametrize("training", [True, False])
def test_features_of_a_wide_resnet_have_passed_norm_and_relu(training: bool) -> None:
    net = build_backbone(Net(arch="wrn-16-2"), seed=0).train(training)
    for tap, feature in net(images(8, 32), ("block1", "block2", "block3")).items():
        assert feature.min() == 0, tap
        if training:  # batch norm makes each channel standard normal-like: about half of it is cut
            assert 0.3 < (feature == 0).float().mean() < 0.7, tap


def test_global_pool_by_hand() -> None:
    assert global_pool(torch.tensor([[[[1.0, 2.0], [3.0, 6.0]]]])).tolist() == [[3.0]]


@pytest.mark.parametrize("arch", ["wrn-10-1", "wrn-10-2"])
def test_plain_wide_resnet_reference(arch: str) -> None:
    """WRN-10-k written out by hand with the same weights. At width 1 the first shortcut carries the raw stem."""
    net = build_backbone(Net(arch=arch), seed=0).eval()
    x = images(2, 16)
    p = net.state_dict()

    def norm(h: Tensor, name: str) -> Tensor:
        mean, var = p[f"{name}.running_mean"], p[f"{name}.running_var"]
        h = (h - mean.view(-1, 1, 1)) / (var.view(-1, 1, 1) + 1e-5).sqrt()
        return (h * p[f"{name}.weight"].view(-1, 1, 1) + p[f"{name}.bias"].view(-1, 1, 1)).clamp(min=0)

    def conv(h: Tensor, name: str, stride: int = 1, padding: int = 1) -> Tensor:
        return torch.nn.functional.conv2d(h, p[f"{name}.weight"], None, stride, padding)

    stem = conv((x - 0.5) / 0.25, "stem")
    h = norm(stem, "block1.0.norm1")
    for block, stride in (("block1", 1), ("block2", 2), ("block3", 2)):
        inner = norm(conv(h, f"{block}.0.conv1", stride), f"{block}.0.norm2")
        narrow = arch == "wrn-10-1" and block == "block1"
        h = conv(inner, f"{block}.0.conv2") + (stem if narrow else conv(h, f"{block}.0.shortcut", stride, 0))
        h = norm(h, f"{block}.1")
        torch.testing.assert_close(net(x, (block,))[block], h, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_adding_in_place_changes_no_bit(dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features and gradients, beside the same layer with a sum that has memory of its own."""

    def plain(self: ResidualLayer, x: Tensor) -> Tensor:
        a = x if self.activated else torch.relu(self.norm1(x))
        h = self.conv2(torch.relu(self.norm2(self.conv1(a))))
        return h + (x if isinstance(self.shortcut, nn.Identity) else self.shortcut(a))

    def bits() -> list[Tensor]:
        net = build_backbone(Net(arch="wrn-16-1"), seed=0).to(memory_format=torch.channels_last)
        with torch.autocast("cpu", dtype, enabled=dtype is not None):
            feature = net(images(4, 16), ("pool",))["pool"]
        feature.float().square().sum().backward()
        return [feature, *(p.grad for p in net.parameters() if p.grad is not None)]

    ours = bits()
    monkeypatch.setattr(ResidualLayer, "forward", plain)
    assert all(torch.equal(a, b) for a, b in zip(ours, bits(), strict=True))
