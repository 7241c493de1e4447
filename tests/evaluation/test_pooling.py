"""Pooling of maps: the benchmark's table, the rule for all other networks, and the words of it."""

import pytest
import torch
import torch.nn.functional as F

from evaluation.pooling import Pool, in_words, places, pool_map, values


@pytest.mark.parametrize(
    ("channels", "side", "kernel", "stride", "out"),
    [(256, 56, 16, 8, 6), (512, 28, 13, 5, 4), (1024, 14, 8, 3, 3), (2048, 7, 6, 1, 2)],
)
def test_the_table_of_resnet50_at_224_pixels(channels: int, side: int, kernel: int, stride: int, out: int) -> None:
    x = torch.randn(2, channels, side, side, generator=torch.Generator().manual_seed(0))
    pooled = pool_map(x, "9k")
    assert pooled.shape == (2, channels, out, out)
    torch.testing.assert_close(pooled, F.avg_pool2d(x, kernel, stride))
    last = x[1, 3, (out - 1) * stride :, :kernel]  # the window in the last row, first column
    assert pooled[1, 3, -1, 0].item() == pytest.approx(last[:kernel].mean().item(), abs=1e-6)
    assert in_words(channels, side, "9k") == f"average pool {kernel}/{stride} -> {channels}x{out}x{out}"
    assert 8192 <= values(channels, side, "9k") <= 9216


@pytest.mark.parametrize(
    ("channels", "side", "pool", "out"),
    [
        (640, 8, "9k", 3),  # 5760 values; 4x4 would be 10240
        (16, 32, "9k", 24),
        (16, 8, "9k", 8),  # no more than the map has
        (64, 56, "9k", 12),  # ResNet-18 is not in the table
        (20000, 7, "9k", 1),
        (512, 7, "4x4", 4),
        (512, 3, "4x4", 3),
        (512, 7, "global", 1),
    ],
)
def test_other_maps(channels: int, side: int, pool: Pool, out: int) -> None:
    assert places(channels, side, pool) == out
    pooled = pool_map(torch.ones(1, channels, side, side), pool).flatten(1)
    assert pooled.shape == (1, values(channels, side, pool)) == (1, channels * out**2)
    torch.testing.assert_close(pooled, torch.ones_like(pooled))


def test_global_is_the_mean_over_places() -> None:
    x = torch.arange(8.0).view(1, 2, 2, 2)
    assert pool_map(x, "global").tolist() == [[1.5, 5.5]]
    assert in_words(2, 2, "global") == "global average of 2x2 -> 2"


@pytest.mark.parametrize("pool", ["global", "9k", "4x4"])
def test_a_vector_stays(pool: Pool) -> None:
    x = torch.randn(3, 5)
    assert pool_map(x, pool) is x
    assert values(5, 0, pool) == 5
    assert in_words(5, 0, pool) == "the network's own global average, 5 values"
