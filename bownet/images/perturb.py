"""The perturbation g(x) of section 2.3: a batch of pictures goes in, floats in [0, 1] come out, on the batch's device.

Random resized crop (antialiased bilinear), flip, colour jitter in random order, grey, blur; every image has its own
draw. The draws are made on the CPU, so that their counts are known without waiting for a GPU: images are sorted by
what happens to them, and each operation runs in place over one run of neighbours, never over an image it would
leave alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Generator, Tensor

from bownet.config import Perturbation

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_TRIES = 10  # of a crop that fits, as torchvision makes them
CROP_DRAWS = 2 * _TRIES + 2

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Draws:
    """What happens to each image of a batch."""

    window_4N: NDArray[np.int64]
    """Top, left, height and width of the crop in pixels."""
    flip_N: NDArray[np.bool_]
    place_N: NDArray[np.int64]
    """Where hue comes among the four colour operations, 0..3; -1 where colours are left alone."""
    others_3N: NDArray[np.int64]
    """BRIGHTNESS, CONTRAST and SATURATION in the order in which they come."""
    amount_4N: Floats
    """Factors of brightness, contrast and saturation; the turn of the hue as a fraction of a circle."""
    grey_N: NDArray[np.bool_]
    sigma_N: Floats
    """Standard deviation of the blur in pixels; 0 where there is none."""


def perturb(images: Tensor, config: Perturbation, generator: Generator, size: int | None = None) -> Tensor:
    """g(x): uint8 NHWC as stored, or floats NCHW -> floats NCHW, `size` pixels square or of the images' own size."""
    n = len(images)
    height, width = images.shape[1:3] if images.dtype == torch.uint8 else images.shape[2:]
    draws = draw(n, height, width, config, generator)
    with torch.autocast(images.device.type, enabled=False):  # eight bits of mantissa are too few for pixels
        return apply(images, draws, (size, size) if size else (height, width))


def draw(n: int, height: int, width: int, config: Perturbation, generator: Generator) -> Draws:
    """All random numbers of a batch in one call. The distributions are those of torchvision's transforms."""
    r_KN = torch.rand(CROP_DRAWS + 13, n, generator=generator, device=generator.device)
    crop, r = r_KN[:CROP_DRAWS].cpu().numpy(), r_KN[CROP_DRAWS:].cpu().numpy()
    strength = np.array([[config.brightness], [config.contrast], [config.saturation], [config.hue]])
    low, high = config.blur_sigma
    return Draws(
        window_4N=crop_windows(crop, height, width, config.crop_area, config.crop_aspect),
        flip_N=r[0] < 0.5,
        place_N=np.where(r[1] < config.jitter_probability, (4 * r[2]).astype(np.int64), -1),
        others_3N=r[3:6].argsort(0),
        amount_4N=np.array([[1], [1], [1], [0]]) + strength * (2 * r[6:10] - 1),
        grey_N=r[10] < config.grey_probability,
        sigma_N=np.where(r[11] < config.blur_probability, low + (high - low) * r[12], 0),
    )


def crop_windows(
    r_KN: Floats, height: int, width: int, area: tuple[float, float], aspect: tuple[float, float]
) -> NDArray[np.int64]:
    """CROP_DRAWS uniform numbers per image -> top, left, height, width [4, N] as of torchvision's RandomResizedCrop.

    Of ten tries the first that fits counts; where none does, the largest window in the middle whose aspect is allowed.
    """
    target = height * width * (area[0] + (area[1] - area[0]) * r_KN[:_TRIES])
    low, high = math.log(aspect[0]), math.log(aspect[1])
    ratio = np.exp(low + (high - low) * r_KN[_TRIES : 2 * _TRIES])
    w, h = np.rint(np.sqrt(target * ratio)), np.rint(np.sqrt(target / ratio))
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first, image, fits_N = fits.argmax(0), np.arange(fits.shape[1]), fits.any(0)
    w = np.where(fits_N, w[first, image], min(width, round(height * aspect[1])))
    h = np.where(fits_N, h[first, image], min(height, round(width / aspect[0])))
    top = np.where(fits_N, np.floor(r_KN[-2] * (height - h + 1)), (height - h) // 2)
    left = np.where(fits_N, np.floor(r_KN[-1] * (width - w + 1)), (width - w) // 2)
    return np.stack([top, left, h, w]).astype(np.int64)


@torch.no_grad()
def apply(images: Tensor, draws: Draws, size: tuple[int, int]) -> Tensor:
    """Do to each image what was drawn for it."""
    sort_N = np.argsort(-draws.place_N, kind="stable")
    x = resized_crop(_select(images, sort_N), draws.window_4N[:, sort_N], draws.flip_N[sort_N], size)
    _colour_jitter_(x, draws.place_N[sort_N], draws.others_3N[:, sort_N], draws.amount_4N[:, sort_N])
    if (rows := np.flatnonzero(draws.grey_N[sort_N])).size:
        _replace_(x, rows, luminance(_select(x, rows)).expand(-1, 3, -1, -1))
    if (rows := np.flatnonzero(draws.sigma_N[sort_N])).size:
        _replace_(x, rows, blur(_select(x, rows), draws.sigma_N[sort_N][rows]))
    return _select(x, np.argsort(sort_N)).clamp_(0, 1)  # rounding may leave them by 1e-7


def resized_crop(
    images: Tensor, window_4N: NDArray[np.int64], flip_N: NDArray[np.bool_], size: tuple[int, int]
) -> Tensor:
    """Cut each image's window, scale it to `size` and mirror some: two small matrix products per image."""
    stored = images.dtype == torch.uint8
    x = images if stored else images.permute(0, 2, 3, 1)
    n, h, w, c = x.shape
    top, left, height, width = window_4N
    if size == (h, w) and (height == h).all() and (width == w).all():  # photos that were cropped when they were decoded
        x = x.permute(0, 3, 1, 2).float().div(255 if stored else 1).contiguous()
        rows = np.flatnonzero(flip_N)
        return _replace_(x, rows, _select(x, rows).flip(3))
    whole = 255.0 if stored else 1.0
    straight_N = np.zeros_like(flip_N)
    if (h, size[0]) == (w, size[1]):  # both kinds at once: fewer, larger steps
        start_2N, length_2N, flip_2N = np.stack([top, left]), np.stack([height, width]), np.stack([straight_N, flip_N])
        divisor_2N = np.array([[whole], [1.0]]).repeat(n, 1)
        both = (start_2N.ravel(), length_2N.ravel(), flip_2N.ravel(), divisor_2N.ravel())
        rows_NHh, cols_NWw = _resize_matrices(*both, h, size[0], x.device).chunk(2)
    else:
        rows_NHh = _resize_matrices(top, height, straight_N, np.full(n, whole), h, size[0], x.device)
        cols_NWw = _resize_matrices(left, width, flip_N, np.ones(n), w, size[1], x.device)
    x = torch.bmm(rows_NHh, x.float().reshape(n, h, w * c))
    x = x.view(n, size[0], w, c).permute(0, 3, 1, 2).reshape(n, c * size[0], w)
    return torch.bmm(x, cols_NWw.transpose(1, 2)).view(n, c, *size)


def _resize_matrices(
    start_N: NDArray[np.int64],
    length_N: NDArray[np.int64],
    flip_N: NDArray[np.bool_],
    divisor_N: Floats,
    n_in: int,
    n_out: int,
    device: torch.device,
) -> Tensor:
    """Weights [N, n_out, n_in] of an antialiased bilinear resize of the window start..start+length to n_out pixels.

    Each row sums to 1 / divisor, so that the scaling of stored pixels to [0, 1] costs nothing.
    """
    start_N1, end_N1 = start_N[:, None], (start_N + length_N)[:, None]
    step_N1 = length_N[:, None] / n_out
    reach_N1 = np.maximum(step_N1, 1)  # half the width of the triangle
    first_N1, way_N1 = np.where(flip_N[:, None], end_N1, start_N1), np.where(flip_N[:, None], -step_N1, step_N1)
    centre_NH = (first_N1 + (np.arange(n_out) + 0.5) * way_N1) / reach_N1
    pixel_h = np.arange(n_in) + 0.5
    pixel_Nh = np.where((pixel_h > start_N1) & (pixel_h < end_N1), pixel_h / reach_N1, np.inf)  # outside: no weight
    distance_NHh = (_float(pixel_Nh, device)[:, None] - _float(centre_NH, device)[:, :, None]).abs_()
    negative_NHh = distance_NHh.sub_(1).clamp_(max=0)
    return negative_NHh.div_(negative_NHh.sum(2, keepdim=True) * _float(divisor_N, device)[:, None, None])


def _colour_jitter_(
    x_NCHW: Tensor, place_N: NDArray[np.int64], others_3N: NDArray[np.int64], amount_4N: Floats
) -> None:
    """Brightness, contrast, saturation and hue in place, each image in an order of its own.

    Images are sorted by the place of hue in their order, the last place first, those without any jitter at the end.
    So the ones that do their next operation before hue are the first ones, and those that do it after hue the last.
    """
    jittered, *before = (int((place_N > j).sum()) for j in range(-1, 3))  # before[j] do their j-th other one before hue
    x_NCP = x_NCHW[:jittered].flatten(2)
    others_3N, amount_4N = others_3N[:, :jittered], amount_4N[:, :jittered]
    factor_3N = amount_4N[others_3N, np.arange(jittered)]
    share_3N = 1 - factor_3N
    k = np.stack([factor_3N, share_3N * (others_3N == SATURATION), share_3N * (others_3N == CONTRAST) / x_NCP.shape[2]])
    k_33N11 = _float(k, x_NCHW.device)[..., None, None]
    weight_N13 = _grey_weights(x_NCP)
    blends = range(3 if share_3N.any() else 0)
    for j in blends:
        _blend_(x_NCP[: before[j]], weight_N13[: before[j]], k_33N11[:, j, : before[j]])
    if amount_4N[HUE].any():
        _turn_hue_(x_NCP, _float(amount_4N[HUE, :, None], x_NCHW.device))
    for j in blends:
        _blend_(x_NCP[before[j] :], weight_N13[before[j] :], k_33N11[:, j, before[j] :])


def luminance(x_NCHW: Tensor) -> Tensor:
    """ITU-R 601 grey, [N, 1, H, W]."""
    return torch.bmm(_grey_weights(x_NCHW), x_NCHW.flatten(2)).unflatten(2, x_NCHW.shape[2:])


def _grey_weights(x: Tensor) -> Tensor:
    return torch.tensor([[0.2989, 0.587, 0.114]], device=x.device).expand(len(x), 1, 3)


def _blend_(x_NCP: Tensor, weight_N13: Tensor, k_3N11: Tensor) -> None:
    """Brightness, contrast and saturation alike, in place: factor * x + share of grey + share of its sum."""
    if not len(x_NCP):
        return
    factor_N11, to_grey_N11, to_sum_N11 = k_3N11
    grey_N1P = torch.bmm(weight_N13, x_NCP)
    other_N1P = torch.addcmul(grey_N1P.sum(2, keepdim=True).mul_(to_sum_N11), grey_N1P, to_grey_N11)
    torch.addcmul(other_N1P, x_NCP, factor_N11, out=x_NCP).clamp_(0, 1)


def _turn_hue_(x_NCP: Tensor, turn_N1: Tensor) -> None:
    """Shift the hue by a fraction of a turn in HSV space, in place.

    With r, g, b scaled to a lowest of 0 and a highest of 1, hue lies 1 + g + b - r sixths of a turn away from red, on
    green's side where g > b: no comparisons, which cost more than arithmetic. Below, hue is measured from cyan.
    """
    r, g, b = x_NCP.unbind(1)
    high, low = x_NCP.amax(1), x_NCP.amin(1)
    spread = (high - low).mul_(6)
    away = (r + low).sub_(g).sub_(b).div_(spread.clamp(min=1e-12)).add_(1 / 3)  # half a turn at red, none at cyan
    hue = away.copysign_(b - g).add_(turn_N1)
    hue.sub_(hue.round())  # at most half a turn either way
    sixth_2 = torch.tensor([[1 / 6], [-1 / 6]], device=x_NCP.device)
    lack = (hue[:, None] + sixth_2).abs_().sub_(1 / 6).clamp_(0, 1 / 6)
    torch.addcmul(high[:, None], spread[:, None], lack, value=-1, out=x_NCP[:, 1:])
    torch.addcmul(low, spread, hue.abs_().sub_(1 / 6).clamp_(0, 1 / 6), out=r)


def blur(x_NCHW: Tensor, sigma_N: Floats) -> Tensor:
    """Gaussian blur with reflected borders, as torchvision's; the kernel spans a tenth of the image, as in SimCLR."""
    n, c, h, w = x_NCHW.shape
    reach = max(1, min(h, w) // 20)  # 11 pixels on either side of the centre for 224, 1 for 32
    kernel_NK = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma_N[:, None]) ** 2)
    kernel_NK /= kernel_NK.sum(1, keepdims=True)
    k_M1K1 = _float(kernel_NK.repeat(c, 0), x_NCHW.device)[:, None, :, None]
    x_1MHW = F.pad(x_NCHW, (reach,) * 4, mode="reflect").flatten(0, 1)[None]
    x_1MHW = F.conv2d(x_1MHW, k_M1K1, groups=n * c)
    return F.conv2d(x_1MHW, k_M1K1.transpose(2, 3), groups=n * c).view(n, c, h, w)


def _select(x: Tensor, rows: NDArray[np.int64]) -> Tensor:
    return x.index_select(0, torch.from_numpy(rows).to(x.device))


def _replace_(x: Tensor, rows: NDArray[np.int64], new: Tensor) -> Tensor:
    return x.index_copy_(0, torch.from_numpy(rows).to(x.device), new)


def _float(values: Floats, device: torch.device) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(device, non_blocking=True)
