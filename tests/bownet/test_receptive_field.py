"""Receptive fields against sums of kernel sizes and strides, by hand."""

import pytest

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.receptive_field import receptive_field


@pytest.mark.parametrize(
    ("arch", "tap", "side", "stride"),
    [
        ("wrn-10-1", "block1", 7, 1),  # three 3x3 convolutions
        ("wrn-10-1", "block2", 13, 2),  # 7 + 2, then two more pixels of twice the size on each side
        ("wrn-10-1", "block3", 25, 4),  # 13 + 4 + 8
        ("wrn-16-2", "block1", 11, 1),
        ("resnet18", "conv2", 43, 4),  # 7x7 and pooling see 11; four 3x3 at stride 4 add 8 each
        ("resnet18", "conv3", 99, 8),  # 43 + 8, then three at stride 8
    ],
)
def test_by_hand(arch: str, tap: str, side: int, stride: int) -> None:
    found = receptive_field(build_backbone(Net(arch=arch), 0), tap)
    assert (found.side, found.stride) == (side, stride)


def test_the_centre() -> None:
    """Position i of a map at stride 1 is pixel i; at stride 4 it is pixel 4i, as padding keeps the first one."""
    net = build_backbone(Net(arch="wrn-10-1"), 0)
    assert [receptive_field(net, "block1").centre(i) for i in (0, 5)] == [0.5, 5.5]
    assert [receptive_field(net, "block3").centre(i) for i in (0, 5)] == [0.5, 20.5]


def test_a_vector_has_none() -> None:
    with pytest.raises(ValueError, match="tap='pool': sees the whole image"):
        receptive_field(build_backbone(Net(arch="wrn-10-1"), 0), "pool")
