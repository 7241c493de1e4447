"""The perturbation g(x) of section 2.3, one independent draw per image, on the whole batch and its device.

Random resized crop (antialiased bilinear), flip, colour jitter in random order, grey. Floats in [0, 1], NCHW.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bownet.config import Perturbation
from bownet.images.augment import flip_some


@dataclass(frozen=True)
class Crop:
    """A window per image, in pixels: top, left, height, width."""

    top_N: Tensor
    left_N: Tensor
    height_N: Tensor
    width_N: Tensor


def perturb(x_NCHW: Tensor, config: Perturbation, generator: Generator) -> Tensor:
    """g(x): every image gets its own crop, flip, jitter and greyness."""
    n, _, h, w = x_NCHW.shape
    crop = draw_crops(n, h, w, config.crop_area, config.crop_aspect, generator)
    x = flip_some(resized_crop(x_NCHW, crop, h, w), generator)
    jittered = _uniform(n, generator, x) < config.jitter_probability
    x = colour_jitter(x, jittered, config, generator)
    grey = _uniform(n, generator, x) < config.grey_probability
    return torch.where(grey[:, None, None, None], luminance(x).expand_as(x), x)


def draw_crops(
    n: int, height: int, width: int, area: tuple[float, float], aspect: tuple[float, float], generator: Generator
) -> Crop:
    """Ten tries per image as torchvision's RandomResizedCrop makes them: the first that fits, else the centre."""
    tries = (10, n)
    device = generator.device
    target = height * width * (area[0] + (area[1] - area[0]) * torch.rand(tries, generator=generator, device=device))
    low, high = math.log(aspect[0]), math.log(aspect[1])
    ratio = torch.exp(low + (high - low) * torch.rand(tries, generator=generator, device=device))
    w = torch.round(torch.sqrt(target * ratio)).long()
    h = torch.round(torch.sqrt(target / ratio)).long()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.int().argmax(0, keepdim=True)
    w, h, fits_N = w.gather(0, first)[0], h.gather(0, first)[0], fits.any(0)
    w = torch.where(fits_N, w, min(width, round(height * aspect[1])))
    h = torch.where(fits_N, h, min(height, round(width / aspect[0])))
    top = (torch.rand(n, generator=generator, device=device) * (height - h + 1)).long()
    left = (torch.rand(n, generator=generator, device=device) * (width - w + 1)).long()
    return Crop(torch.where(fits_N, top, (height - h) // 2), torch.where(fits_N, left, (width - w) // 2), h, w)


def resized_crop(x_NCHW: Tensor, crop: Crop, height: int, width: int) -> Tensor:
    """Cut each image's window and scale it to height x width: two small matrix products per image."""
    _, _, h, w = x_NCHW.shape
    device = x_NCHW.device
    rows_NHh = _resize_matrix(crop.top_N.to(device), crop.height_N.to(device), h, height).to(x_NCHW.dtype)
    cols_NWw = _resize_matrix(crop.left_N.to(device), crop.width_N.to(device), w, width).to(x_NCHW.dtype)
    return rows_NHh[:, None] @ x_NCHW @ cols_NWw[:, None].transpose(2, 3)


def _resize_matrix(start_N: Tensor, length_N: Tensor, n_in: int, n_out: int) -> Tensor:
    """Weights [N, n_out, n_in] of an antialiased bilinear resize of the window start..start+length to n_out pixels."""
    device = start_N.device
    scale = length_N[:, None, None] / n_out
    centre = start_N[:, None, None] + (torch.arange(n_out, device=device)[:, None] + 0.5) * scale
    pixel = torch.arange(n_in, device=device) + 0.5
    weight = (1 - (pixel - centre).abs() / scale.clamp(min=1)).clamp(min=0)
    inside = (pixel > start_N[:, None, None]) & (pixel < (start_N + length_N)[:, None, None])
    weight = weight * inside
    return weight / weight.sum(2, keepdim=True)


def colour_jitter(x_NCHW: Tensor, on_N: Tensor, config: Perturbation, generator: Generator) -> Tensor:
    """Brightness, contrast, saturation and hue, each image in an order of its own, where `on_N`."""
    n = len(x_NCHW)
    order_N4 = torch.rand(n, 4, generator=generator, device=generator.device).argsort(1).to(x_NCHW.device)
    amounts = [_uniform(n, generator, x_NCHW) * 2 - 1 for _ in range(4)]
    strength = (config.brightness, config.contrast, config.saturation, config.hue)
    operations = (adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue)
    x = x_NCHW.clone(memory_format=torch.contiguous_format)
    for place in range(4):
        for k, operation in enumerate(operations):
            if strength[k] > 0:
                rows = torch.nonzero(on_N & (order_N4[:, place] == k))[:, 0]
                shift = 0.0 if operation is adjust_hue else 1.0
                x[rows] = operation(x[rows], shift + strength[k] * amounts[k][rows])
    return x


def luminance(x_NCHW: Tensor) -> Tensor:
    """ITU-R 601 grey, [N, 1, H, W]."""
    return (x_NCHW * x_NCHW.new_tensor([0.2989, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)


def adjust_brightness(x_NCHW: Tensor, factor_N: Tensor) -> Tensor:
    return (x_NCHW * factor_N[:, None, None, None]).clamp(0, 1)


def adjust_contrast(x_NCHW: Tensor, factor_N: Tensor) -> Tensor:
    return _blend(x_NCHW, luminance(x_NCHW).mean((2, 3), keepdim=True), factor_N)


def adjust_saturation(x_NCHW: Tensor, factor_N: Tensor) -> Tensor:
    return _blend(x_NCHW, luminance(x_NCHW), factor_N)


def _blend(x: Tensor, other: Tensor, factor_N: Tensor) -> Tensor:
    f = factor_N[:, None, None, None]
    return (f * x + (1 - f) * other).clamp(0, 1)


def adjust_hue(x_NCHW: Tensor, turn_N: Tensor) -> Tensor:
    """Shift the hue by a fraction of a turn, in HSV space."""
    r, g, b = x_NCHW.unbind(1)
    high, low = x_NCHW.amax(1), x_NCHW.amin(1)
    spread = high - low
    safe = torch.where(spread == 0, torch.ones_like(spread), spread)
    hue = torch.where(high == r, (g - b) / safe, torch.where(high == g, 2 + (b - r) / safe, 4 + (r - g) / safe))
    hue = (hue / 6 + turn_N[:, None, None]) % 1.0
    k = (x_NCHW.new_tensor([5.0, 3.0, 1.0]).view(3, 1, 1) + 6 * hue[:, None]) % 6
    return high[:, None] - spread[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)


def _uniform(n: int, generator: Generator, like: Tensor) -> Tensor:
    return torch.rand(n, generator=generator, device=generator.device).to(like)
