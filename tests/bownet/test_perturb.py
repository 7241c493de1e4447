"""The perturbation g(x) against torchvision, image by image, and the statistics of its draws."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Generator, Tensor
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms.v2 import functional as V

from bownet.config import Perturbation
from bownet.images import perturb as P
from bownet.images.augment import to_float

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


def untouched(n: int, height: int, width: int) -> P.Draws:
    """Draws that leave an image of height x width as it is."""
    return P.Draws(
        window_4N=np.array([[0], [0], [height], [width]]).repeat(n, 1),
        flip_N=np.zeros(n, bool),
        place_N=np.full(n, -1),
        others_3N=np.arange(3)[:, None].repeat(n, 1),
        amount_4N=np.array([[1.0], [1], [1], [0]]).repeat(n, 1),
        grey_N=np.zeros(n, bool),
        sigma_N=np.zeros(n),
    )


@pytest.mark.parametrize(("height", "width"), [(20, 24), (7, 9), (41, 50), (10, 48)])
def test_resized_crop_equals_torchvision(x: Tensor, height: int, width: int) -> None:
    windows = [(0, 0, 20, 24), (3, 5, 9, 11), (10, 0, 10, 24), (19, 23, 1, 1), (2, 1, 17, 2)]
    flips = [True, False, True, False, True]
    ours = P.resized_crop(x, np.array(windows).T, np.array(flips), (height, width))
    for i, (top, left, h, w) in enumerate(windows):
        expected = V.resized_crop(
            x[i], top, left, h, w, [height, width], interpolation=InterpolationMode.BILINEAR, antialias=True
        )
        torch.testing.assert_close(ours[i], expected.flip(2) if flips[i] else expected, atol=1e-5, rtol=0)


def test_square_crops_of_stored_pictures_equal_torchvision() -> None:
    """Rows and columns share their weights here, and pixels are uint8 with the channels last."""
    images = torch.randint(0, 256, (4, 12, 12, 3), generator=seeded(2), dtype=torch.uint8)
    windows = [(0, 0, 12, 12), (3, 5, 7, 4), (1, 0, 11, 9), (6, 6, 2, 3)]
    flips = [True, False, True, False]
    for side in (12, 8, 30):
        ours = P.resized_crop(images, np.array(windows).T, np.array(flips), (side, side))
        for i, window in enumerate(windows):
            image = images[i].permute(2, 0, 1) / 255
            expected = V.resized_crop(image, *window, [side, side], antialias=True)
            torch.testing.assert_close(ours[i], expected.flip(2) if flips[i] else expected, atol=1e-5, rtol=0)


def test_whole_images_are_only_mirrored() -> None:
    images = torch.randint(0, 256, (3, 5, 7, 3), generator=seeded(2), dtype=torch.uint8)
    windows = np.array([[0, 0, 5, 7]] * 3).T
    x = images.permute(0, 3, 1, 2) / 255
    ours = P.resized_crop(images, windows, np.array([False, True, False]), (5, 7))
    assert torch.equal(ours, torch.stack([x[0], x[1].flip(2), x[2]]))
    before = x.clone()
    assert torch.equal(P.resized_crop(x, windows, np.array([False, True, False]), (5, 7)), ours)
    assert torch.equal(x, before)


def test_resize_matrix_by_hand() -> None:
    # Window 1..5 of six pixels to two: scale 2, centres at 2 and 4, triangle of half-width 2, cut at the window.
    expected = torch.tensor([[0, 3, 3, 1, 0, 0], [0, 0, 1, 3, 3, 0]]) / 7
    start, length, flip = np.array([1, 1]), np.array([4, 4]), np.array([False, True])
    plain, mirrored = P._resize_matrices(start, length, flip, np.array([1, 255]), 6, 2, torch.device("cpu"))
    torch.testing.assert_close(plain, expected)
    torch.testing.assert_close(mirrored, expected.flip(0) / 255)


NAMES = ("brightness", "contrast", "saturation", "hue")
FACTORS = (0.6, 0.9, 1.0, 1.25, 1.4)
TURNS = (-0.5, -0.1, 0.0, 0.07, 0.5)


@pytest.mark.parametrize("name", NAMES)
def test_colour_operations_equal_torchvision(x: Tensor, name: str) -> None:
    amounts = TURNS if name == "hue" else FACTORS
    draws = replace(untouched(5, 20, 24), place_N=np.array([2, 0, 3, 1, 2]))
    draws.amount_4N[NAMES.index(name)] = amounts
    ours = P.apply(x, draws, (20, 24))
    for i, amount in enumerate(amounts):
        torch.testing.assert_close(ours[i], getattr(V, f"adjust_{name}")(x[i], amount), atol=2e-6, rtol=0)


def test_luminance_equals_torchvision(x: Tensor) -> None:
    torch.testing.assert_close(P.luminance(x), V.rgb_to_grayscale(x), atol=1e-6, rtol=0)
    by_hand = 0.2989 * 0.5 + 0.587 * 0.25 + 0.114 * 1.0
    pixel = torch.tensor([0.5, 0.25, 1.0]).view(1, 3, 1, 1)
    assert P.luminance(pixel).item() == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize(("side", "kernel"), [(16, 3), (64, 7), (230, 23)])
def test_blur_equals_torchvision(side: int, kernel: int) -> None:
    x = torch.rand(3, 3, side, side + 5, generator=seeded(3))
    sigmas = (0.1, 0.7, 2.0)
    ours = P.blur(x, np.array(sigmas))
    for i, sigma in enumerate(sigmas):
        torch.testing.assert_close(ours[i], V.gaussian_blur(x[i], [kernel, kernel], [sigma]), atol=5e-6, rtol=0)


def order(draws: P.Draws, i: int) -> list[int]:
    if draws.place_N[i] < 0:
        return []
    operations = draws.others_3N[:, i].tolist()
    operations.insert(draws.place_N[i], P.HUE)
    return operations


@pytest.mark.parametrize("size", [(12, 12), (9, 14)])
def test_everything_together_equals_torchvision_image_by_image(size: tuple[int, int]) -> None:
    """All 24 orders of the colour operations, with and without each step, in one batch."""
    n = 96
    config = Perturbation(blur_probability=0.3, grey_probability=0.3, hue=0.5)
    images = torch.randint(0, 256, (n, 12, 12, 3), generator=seeded(2), dtype=torch.uint8)
    draws = P.draw(n, 12, 12, config, seeded(3))
    draws.others_3N[:, :24] = np.array(list(itertools.permutations(range(3))) * 4).T
    draws.place_N[:24] = np.arange(4).repeat(6)
    assert (draws.place_N == -1).sum() > 5
    ours = P.apply(images, draws, size)
    assert ours.shape == (n, 3, *size)
    for i in range(n):
        y = V.resized_crop(images[i].permute(2, 0, 1) / 255, *draws.window_4N[:, i].tolist(), size, antialias=True)
        y = V.horizontal_flip(y) if draws.flip_N[i] else y
        for k in order(draws, i):
            y = getattr(V, f"adjust_{NAMES[k]}")(y, draws.amount_4N[k, i].item())
        y = V.rgb_to_grayscale(y, 3) if draws.grey_N[i] else y
        y = V.gaussian_blur(y, [3, 3], [draws.sigma_N[i].item()]) if draws.sigma_N[i] else y
        torch.testing.assert_close(ours[i], y, atol=2e-5, rtol=0, msg=f"image {i}")


def test_stored_pictures_and_their_floats_give_the_same() -> None:
    images = torch.randint(0, 256, (20, 16, 16, 3), generator=seeded(2), dtype=torch.uint8)
    ours = P.perturb(images, Perturbation(), seeded(1))
    torch.testing.assert_close(ours, P.perturb(to_float(images), Perturbation(), seeded(1)), atol=1e-6, rtol=0)
    assert P.perturb(images, Perturbation(), seeded(1), size=24).shape == (20, 3, 24, 24)


def test_autocast_does_not_round_pixels() -> None:
    images = torch.randint(0, 256, (20, 16, 16, 3), generator=seeded(2), dtype=torch.uint8)
    with torch.autocast("cpu", torch.bfloat16):
        inside = P.perturb(images, Perturbation(), seeded(1))
    assert torch.equal(inside, P.perturb(images, Perturbation(), seeded(1)))


def test_draws_have_torchvisions_distributions() -> None:
    n = 20_000
    config = Perturbation(brightness=0.4, contrast=0.3, saturation=1.0, hue=0.1, blur_probability=0.5)
    draws = P.draw(n, 32, 32, config, seeded(4))
    for name, strength, amount in zip(NAMES, (0.4, 0.3, 1.0, 0.1), draws.amount_4N, strict=True):
        middle = 0 if name == "hue" else 1
        quantiles = np.quantile((amount - middle) / strength, [0, 0.25, 0.5, 0.75, 1])
        assert quantiles == pytest.approx([-1, -0.5, 0, 0.5, 1], abs=0.03), name
    orders = Counter(tuple(order(draws, i)) for i in range(n))
    assert orders.pop(()) == pytest.approx(0.2 * n, rel=0.06)
    assert len(orders) == 24
    assert list(orders.values()) == pytest.approx([0.8 * n / 24] * 24, rel=0.16)  # four standard deviations
    shares = [draws.flip_N, draws.place_N >= 0, draws.grey_N, draws.sigma_N > 0]
    assert [s.mean() for s in shares] == pytest.approx([0.5, 0.8, 0.2, 0.5], abs=0.015)
    sigma = draws.sigma_N[draws.sigma_N > 0]
    assert np.quantile(sigma, [0, 0.5, 1]) == pytest.approx([0.1, 1.05, 2.0], abs=0.03)
    assert np.abs(np.corrcoef(np.stack(shares)) - np.eye(4)).max() < 0.03


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
    assert out.max() <= 1


@pytest.mark.parametrize(("height", "width", "area"), [(32, 32, (0.2, 1.0)), (60, 80, (0.08, 0.6))])
def test_crops_are_distributed_as_torchvisions(height: int, width: int, area: tuple[float, float]) -> None:
    n, aspect = 6000, (3 / 4, 4 / 3)
    r_KN = torch.rand(P.CROP_DRAWS, n, generator=seeded(10)).numpy()
    ours = torch.from_numpy(P.crop_windows(r_KN, height, width, area, aspect).T).double()
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
    windows = P.crop_windows(np.random.default_rng(12).random((P.CROP_DRAWS, 3)), height, width, area, aspect)
    expected = RandomResizedCrop.get_params(torch.empty(3, height, width), list(area), list(aspect))
    for i in range(3):
        assert tuple(windows[:, i]) == expected
