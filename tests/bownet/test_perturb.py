"""The perturbation g(x) against torchvision, image by image, and the statistics of its draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Generator, Tensor
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms.v2 import functional as V

from bownet.config import Perturbation
from bownet.images import perturb as P

NOTHING = Perturbation(crop_area=(1, 1), crop_aspect=(1, 1), jitter_probability=0, grey_probability=0)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.fixture
def x() -> Tensor:
    """Five random images, with some grey, black, white and pure pixels, where hue is a corner case."""
    x = torch.rand(5, 3, 20, 24, generator=seeded(1))
    x[0, :, :4] = 0
    x[1, :, :4] = 1
    x[2, :, :4] = 0.3
    x[3, :, :4] = torch.tensor([1.0, 0.0, 0.0])[:, None, None]
    return x


@pytest.mark.parametrize(("height", "width"), [(20, 24), (7, 9), (41, 50), (10, 48)])
def test_resized_crop_equals_torchvision(x: Tensor, height: int, width: int) -> None:
    windows = [(0, 0, 20, 24), (3, 5, 9, 11), (10, 0, 10, 24), (19, 23, 1, 1), (2, 1, 17, 2)]
    crop = P.Crop(*torch.tensor(windows).T)
    ours = P.resized_crop(x, crop, height, width)
    for i, (top, left, h, w) in enumerate(windows):
        expected = V.resized_crop(
            x[i], top, left, h, w, [height, width], interpolation=InterpolationMode.BILINEAR, antialias=True
        )
        torch.testing.assert_close(ours[i], expected, atol=1e-5, rtol=0)


def test_resize_matrix_by_hand() -> None:
    # Window 1..5 of six pixels to two: scale 2, centres at 2 and 4, triangle of half-width 2, cut at the window.
    matrix = P._resize_matrix(torch.tensor([1]), torch.tensor([4]), 6, 2)[0]
    expected = torch.tensor([[0, 3, 3, 1, 0, 0], [0, 0, 1, 3, 3, 0]]) / 7
    torch.testing.assert_close(matrix, expected)


FACTORS = (0.6, 0.9, 1.0, 1.25, 1.4)
TURNS = (-0.5, -0.1, 0.0, 0.07, 0.5)


@pytest.mark.parametrize(
    ("name", "amounts"),
    [("brightness", FACTORS), ("contrast", FACTORS), ("saturation", FACTORS), ("hue", TURNS)],
)
def test_colour_operations_equal_torchvision(x: Tensor, name: str, amounts: tuple[float, ...]) -> None:
    ours = getattr(P, f"adjust_{name}")(x, torch.tensor(amounts))
    for i, amount in enumerate(amounts):
        torch.testing.assert_close(ours[i], getattr(V, f"adjust_{name}")(x[i], amount), atol=2e-6, rtol=0)


def test_luminance_equals_torchvision(x: Tensor) -> None:
    torch.testing.assert_close(P.luminance(x), V.rgb_to_grayscale(x), atol=1e-6, rtol=0)
    by_hand = 0.2989 * 0.5 + 0.587 * 0.25 + 0.114 * 1.0
    pixel = torch.tensor([0.5, 0.25, 1.0]).view(1, 3, 1, 1)
    assert P.luminance(pixel).item() == pytest.approx(by_hand, abs=1e-6)


def test_jitter_applies_each_images_operations_in_its_own_order() -> None:
    config = Perturbation()
    x = torch.rand(40, 3, 6, 6, generator=seeded(2))
    on_N = torch.arange(40) % 4 != 0
    ours = P.colour_jitter(x, on_N, config, seeded(9))
    draws = seeded(9)
    order_N4 = torch.rand(40, 4, generator=draws).argsort(1)
    amount_4N = torch.stack([torch.rand(40, generator=draws) * 2 - 1 for _ in range(4)])
    for i in range(40):
        y = x[i]
        for k in order_N4[i].tolist() if on_N[i] else []:
            name = ("brightness", "contrast", "saturation", "hue")[k]
            amount = getattr(config, name) * amount_4N[k, i].item()
            y = getattr(V, f"adjust_{name}")(y, amount if name == "hue" else 1 + amount)
        torch.testing.assert_close(ours[i], y, atol=1e-5, rtol=0)


def test_every_image_has_a_draw_of_its_own_and_the_seed_decides() -> None:
    one = torch.rand(1, 3, 16, 16, generator=seeded(3))
    x = one.repeat(32, 1, 1, 1)
    out = P.perturb(x, Perturbation(), seeded(5))
    assert out.shape == x.shape
    assert len({tuple(image.flatten().tolist()) for image in out}) == 32
    assert torch.equal(out, P.perturb(x, Perturbation(), seeded(5)))
    assert not torch.equal(out, P.perturb(x, Perturbation(), seeded(6)))
    assert torch.equal(x, one.repeat(32, 1, 1, 1))  # the input is left alone


def test_global_random_state_is_neither_read_nor_moved() -> None:
    x = torch.rand(4, 3, 8, 8, generator=seeded(3))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = P.perturb(x, Perturbation(), seeded(5))
        torch.manual_seed(2)
        state = torch.get_rng_state()
        assert torch.equal(first, P.perturb(x, Perturbation(), seeded(5)))
        assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    "config",
    [
        NOTHING,
        NOTHING.model_copy(
            update={"jitter_probability": 1.0, "brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}
        ),
    ],
)
def test_no_op_is_the_image_or_its_mirror(config: Perturbation) -> None:
    x = torch.rand(64, 3, 9, 9, generator=seeded(4))
    out = P.perturb(x, config, seeded(6))
    plain = [(out[i] - x[i]).abs().max().item() < 1e-6 for i in range(64)]
    mirrored = [(out[i] - x[i].flip(2)).abs().max().item() < 1e-6 for i in range(64)]
    assert all(a != b for a, b in zip(plain, mirrored, strict=True))
    assert 16 < sum(mirrored) < 48  # half of 64, four standard deviations


def test_probability_of_grey() -> None:
    x = torch.rand(4000, 3, 3, 3, generator=seeded(5))
    out = P.perturb(x, NOTHING.model_copy(update={"grey_probability": 0.2}), seeded(7))
    grey = (out.amax(1) - out.amin(1)).amax((1, 2)) == 0
    assert grey.float().mean().item() == pytest.approx(0.2, abs=0.026)  # four standard deviations
    torch.testing.assert_close(out[grey][:, :1].mean((2, 3)), P.luminance(x[grey]).mean((2, 3)))


def test_probability_of_jitter() -> None:
    x = torch.rand(4000, 3, 1, 1, generator=seeded(6))  # a flip changes nothing
    out = P.perturb(x, NOTHING.model_copy(update={"jitter_probability": 0.8}), seeded(8))
    changed = (out - x).abs().amax((1, 2, 3)) > 1e-6
    assert changed.float().mean().item() == pytest.approx(0.8, abs=0.026)


def test_output_stays_in_range() -> None:
    x = torch.rand(200, 3, 8, 8, generator=seeded(7)).round()  # the extremes themselves
    strong = Perturbation(brightness=1, contrast=1, saturation=1, hue=0.5, jitter_probability=1)
    out = P.perturb(x, strong, seeded(9))
    assert out.min() >= 0
    assert out.max() <= 1 + 1e-6


@pytest.mark.parametrize(("height", "width", "area"), [(32, 32, (0.2, 1.0)), (60, 80, (0.08, 0.6))])
def test_crops_are_distributed_as_torchvisions(height: int, width: int, area: tuple[float, float]) -> None:
    n, aspect = 6000, (3 / 4, 4 / 3)
    crop = P.draw_crops(n, height, width, area, aspect, seeded(10))
    ours = torch.stack([crop.top_N, crop.left_N, crop.height_N, crop.width_N], 1).double()
    image = torch.empty(3, height, width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        drawn = [RandomResizedCrop.get_params(image, list(area), list(aspect)) for _ in range(n)]
    theirs = torch.tensor(drawn).double()
    assert (ours[:, 0] + ours[:, 2]).max() <= height
    assert (ours[:, 1] + ours[:, 3]).max() <= width
    assert ours.min() >= 0

    def described(c: Tensor) -> dict[str, Tensor]:
        top, left, h, w = c.unbind(1)
        places = {"top": top / (height - h).clamp(min=1), "left": left / (width - w).clamp(min=1)}
        return {"area": h * w / (height * width), "aspect": (w / h).log()} | places

    for name, a in described(ours).items():
        b = described(theirs)[name]
        error = 4 * math.sqrt((a.var() + b.var()) / n)
        assert a.mean().item() == pytest.approx(b.mean().item(), abs=error), name
        quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
        spread = np.quantile(a, quantiles) - np.quantile(b, quantiles)
        assert np.abs(spread).max() < 0.05 * (b.max() - b.min()).item(), name


@pytest.mark.parametrize(("height", "width"), [(20, 60), (60, 20), (30, 30)])
def test_where_nothing_fits_the_centre_is_cut_as_torchvision_does(height: int, width: int) -> None:
    area, aspect = (1.0, 1.0), (1.2, 1.3)  # the whole area at an aspect that no image here has
    crop = P.draw_crops(3, height, width, area, aspect, seeded(12))
    expected = RandomResizedCrop.get_params(torch.empty(3, height, width), list(area), list(aspect))
    for i in range(3):
        assert (crop.top_N[i], crop.left_N[i], crop.height_N[i], crop.width_N[i]) == expected
