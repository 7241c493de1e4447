"""A backbone as a file: what goes in comes out, equal nets are equal files, and other files are refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bownet.config import Net
from bownet.nets.build import build_backbone
from bownet.nets.checkpoint import load_backbone, save_backbone


@pytest.mark.parametrize("arch", ["wrn-10-1", "resnet18"])
def test_features_survive_the_file(arch: str, tmp_path: Path) -> None:
    net = build_backbone(Net(arch=arch), seed=3).eval()
    net.set_input_statistics((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    save_backbone(net, Net(arch=arch), tmp_path / "net.safetensors", {"key": "abc"})
    loaded = load_backbone(tmp_path / "net.safetensors").eval()
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded(x, (net.pooled,))[net.pooled], net(x, (net.pooled,))[net.pooled])


def test_equal_nets_are_equal_files(tmp_path: Path) -> None:
    for i in range(8):
        save_backbone(
            build_backbone(Net(arch="wrn-10-1"), 0), Net(arch="wrn-10-1"), tmp_path / str(i), {"key": "k", "a": "b"}
        )
    assert len({(tmp_path / str(i)).read_bytes() for i in range(8)}) == 1


def test_another_file_or_missing_weights_are_refused(tmp_path: Path) -> None:
    save_file({"w": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(ValueError, match="names no architecture"):
        load_backbone(tmp_path / "other")
    net = build_backbone(Net(arch="wrn-10-1"), 0)
    save_backbone(net, Net(arch="wrn-10-2"), tmp_path / "wrong", {})
    with pytest.raises(ValueError, match=r"wrong: .* not those of a wrn-10-2 \(Missing key.*\); save it again"):
        load_backbone(tmp_path / "wrong")


def test_a_file_that_cannot_be_read_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "torn").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    for name in ("torn", "absent"):
        with pytest.raises(ValueError, match=f"{name}: cannot be read as safetensors") as caught:
            load_backbone(tmp_path / name)
        assert "\n" not in str(caught.value)
