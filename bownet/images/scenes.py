"""The embedded data set: small pictures drawn from a seed, of objects whose category is a shape with a texture.

In: a layout (which categories, where, how large), or just labels, and a seed. Out: uint8 images, boxes, categories.
Nothing is stored or downloaded. Image `i` of a seed is always the same picture, whichever shard draws it.

Colour, position, size and the direction of a pattern are drawn independently of the category, so a classifier has
to see form and texture. Light comes from above and objects stand on a ground, so that "upright" means something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]  # float32 everywhere; numpy's stubs widen what they cannot follow

SHAPES = ("tree", "house", "mushroom", "arch", "vase")
TEXTURES = ("plain", "striped", "checked", "dotted")
CATEGORIES = tuple(f"{texture} {shape}" for shape in SHAPES for texture in TEXTURES)
# Every shape and every texture occurs among the base categories; a novel one is a combination never seen.
NOVEL = (1, 3, 4, 6, 9, 12, 15, 18)
BASE = tuple(c for c in range(len(CATEGORIES)) if c not in NOVEL)

MAX_OBJECTS = 4
_CLUTTER = 3
_OVERSAMPLE = 2
_CHUNK_PIXELS = 16384
_GRIDS = (4, 8, 16)  # octaves of the ground's and the sky's value noise
_PER_OBJECT = 14
_PER_CLUTTER = 8
_PER_IMAGE = 12


@dataclass(frozen=True)
class Layout:
    """What stands where. `category_NM` is -1 where there is no object; centres and radii are fractions of a side."""

    category_NM: NDArray[np.int64]
    x_NM: Floats
    y_NM: Floats
    radius_NM: Floats


@dataclass(frozen=True)
class Drawing:
    """Images with the extent of each object: `box_NM4` is (x0, y0, x1, y1) in pixels, x1 and y1 exclusive."""

    images_NHWC: NDArray[np.uint8]
    box_NM4: NDArray[np.int64]
    visible_NM: Floats  # share of an object that is neither covered nor outside the picture


def labels(count: int, categories: tuple[int, ...]) -> NDArray[np.int64]:
    """A balanced, interleaved list of `count` categories: every prefix is as balanced as it can be."""
    return np.asarray(categories, dtype=np.int64)[np.arange(count) % len(categories)]


def uniforms(seed: int, start: int, count: int, width: int) -> Floats:
    """`width` uniform numbers for each of the images start..start+count, the same for any split into shards."""
    rows = [
        np.random.Generator(np.random.Philox(key=[seed, i])).random(width, np.float32)
        for i in range(start, start + count)
    ]
    return np.stack(rows) if rows else np.zeros((0, width), np.float32)


def draw_labelled(category_N: NDArray[np.int64], size: int, seed: int, start: int = 0) -> NDArray[np.uint8]:
    """One object per image, of the given category. `start` is the index of the first image within its set."""
    n = len(category_N)
    r = uniforms(seed, start, n, 3)
    layout = Layout(
        category_NM=category_N.reshape(n, 1),
        x_NM=0.36 + 0.28 * r[:, 0:1],
        y_NM=0.40 + 0.22 * r[:, 1:2],
        radius_NM=0.28 + 0.16 * r[:, 2:3],
    )
    return draw(layout, size, size, seed + 1, start).images_NHWC


def layout_of_scenes(count: int, seed: int, start: int = 0) -> Layout:
    """Random scenes of one to four objects, spread over the picture so that they overlap only in part."""
    r = uniforms(seed, start, count, 1 + 4 * MAX_OBJECTS)
    number_N = 1 + (r[:, 0] * MAX_OBJECTS).astype(np.int64)
    r = r[:, 1:].reshape(count, MAX_OBJECTS, 4)
    category_NM = (r[..., 0] * len(CATEGORIES)).astype(np.int64)
    category_NM[np.arange(MAX_OBJECTS) >= number_N[:, None]] = -1
    cell_NM = (np.arange(MAX_OBJECTS) + 0.5) / number_N[:, None]  # one column of the picture each, then jitter
    return Layout(
        category_NM=category_NM,
        x_NM=np.clip(cell_NM + (r[..., 1] - 0.5) * 0.25, 0.1, 0.9).astype(np.float32),
        y_NM=0.35 + 0.35 * r[..., 2],
        radius_NM=(0.10 + 0.14 * r[..., 3]) * (1.5 - 0.12 * number_N[:, None]).astype(np.float32),
    )


def draw(layout: Layout, height: int, width: int, seed: int, start: int = 0) -> Drawing:
    """Draw a layout: background, objects from back to front, clutter that covers parts, sensor noise."""
    n = len(layout.category_NM)
    step = max(1, _CHUNK_PIXELS // (height * width))  # a few images at a time stay in the processor's cache
    parts = []
    for i in range(0, n, step):
        rows = slice(i, i + step)
        part = Layout(layout.category_NM[rows], layout.x_NM[rows], layout.y_NM[rows], layout.radius_NM[rows])
        parts.append(_draw_chunk(part, height, width, seed, start + i))
    return Drawing(
        *(np.concatenate(a) for a in zip(*((d.images_NHWC, d.box_NM4, d.visible_NM) for d in parts), strict=True))
    )


def _draw_chunk(layout: Layout, height: int, width: int, seed: int, start: int) -> Drawing:
    n, m = layout.category_NM.shape
    grid_width = sum(g * g for g in _GRIDS)
    r = uniforms(seed, start, n, _PER_IMAGE + grid_width + m * _PER_OBJECT + _CLUTTER * _PER_CLUTTER)
    image_r, rest = r[:, :_PER_IMAGE], r[:, _PER_IMAGE:]
    grid_r, rest = rest[:, :grid_width], rest[:, grid_width:]
    object_r = rest[:, : m * _PER_OBJECT].reshape(n, m, _PER_OBJECT)
    clutter_r = rest[:, m * _PER_OBJECT :].reshape(n, _CLUTTER, _PER_CLUTTER)

    s = _OVERSAMPLE
    hh, ww = height * s, width * s
    y_HW, x_HW = np.meshgrid(_centres(hh), _centres(ww), indexing="ij")
    x_HW = x_HW * (width / height)  # square pixels: one unit is the height in both directions
    noise_NHW = _value_noise(grid_r, hh, ww)
    canvas = _background(image_r, noise_NHW, x_HW, y_HW)
    covered = np.zeros((n, m, hh, ww), np.float32)

    for j in range(m):
        here = np.flatnonzero(layout.category_NM[:, j] >= 0)
        if len(here):
            x0, y0, r0 = (
                a[here, j, None, None] for a in (layout.x_NM * (width / height), layout.y_NM, layout.radius_NM)
            )
            alpha, colour = _object(layout.category_NM[here, j], x0, y0, r0, object_r[here, j], x_HW, y_HW, 1.0 / hh)
            _shadow(canvas, here, x0, y0, r0, x_HW, y_HW)
            covered[here, :j] *= 1 - alpha[:, None]
            covered[here, j] = alpha
            canvas[here] += alpha[..., None] * (colour - canvas[here])
    _clutter(canvas, covered, clutter_r, x_HW, y_HW, 1.0 / hh)
    box_NM4 = _boxes(covered > 0.5, s)  # of what can be seen, as PASCAL VOC's annotators drew them
    whole_NM = (layout.radius_NM * hh) ** 2 * _SHAPE_AREAS[np.maximum(layout.category_NM, 0) // len(TEXTURES)]
    visible_NM = np.minimum(1, covered.sum((2, 3)) / np.maximum(whole_NM, 1e-6)).astype(np.float32)

    exposure = 0.8 + 0.4 * image_r[:, 9]
    canvas = canvas * exposure[:, None, None, None]
    pixels = canvas.reshape(n, height, s, width, s, 3).mean((2, 4))
    grain = np.stack([_grain(seed, start + i, height, width) for i in range(n)])
    pixels = pixels + (0.01 + 0.03 * image_r[:, 10])[:, None, None, None] * grain
    return Drawing((np.clip(pixels, 0, 1) * 255).round().astype(np.uint8), box_NM4, visible_NM)


def _centres(n: int) -> Floats:
    return ((np.arange(n) + 0.5) / n).astype(np.float32)


def _grain(seed: int, index: int, height: int, width: int) -> Floats:
    rng = np.random.Generator(np.random.Philox(key=[seed + (1 << 32), index]))
    return rng.standard_normal((height, width, 3), np.float32)


def _value_noise(grid_r: Floats, height: int, width: int) -> Floats:
    """Sum of bilinear noise grids, coarse to fine, in about [0, 1]."""
    total = np.zeros((len(grid_r), height, width), np.float32)
    weight, offset = 0.5, 0
    for g in _GRIDS:
        grid = grid_r[:, offset : offset + g * g].reshape(-1, g, g)
        rows, cols = _interpolation(g, height), _interpolation(g, width)
        total += weight * np.einsum("hg,ngk,wk->nhw", rows, grid, cols, optimize=True)
        weight, offset = weight / 2, offset + g * g
    return total / (1 - weight * 2 + 0.5)


def _interpolation(g: int, n: int) -> Floats:
    """The n x g matrix of linear interpolation from g grid values to n pixels."""
    at = _centres(n) * (g - 1)
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(g, dtype=np.float32)))


def _background(r: Floats, noise_NHW: Floats, x_HW: Floats, y_HW: Floats) -> Floats:
    """A rough wall or open land: two noisy colours that meet in a tilted line, which often lies outside the picture.

    Neither side is always the brighter or the rougher one, so that the background alone does not tell what is up.
    """
    first = _hsv(r[:, 0], 0.1 + 0.5 * r[:, 1], 0.25 + 0.65 * r[:, 2])[:, None, None, :]
    second = _hsv(r[:, 3], 0.1 + 0.5 * r[:, 4], 0.25 + 0.65 * r[:, 5])[:, None, None, :]
    slope = ((r[:, 7] - 0.5) * 0.8)[:, None, None]
    horizon = (0.40 + 1.0 * r[:, 6])[:, None, None]  # above 1: no ground in sight
    is_ground = np.clip((y_HW + slope * (x_HW - 0.5) - horizon) * 16 + 3 * (noise_NHW - 0.5), 0, 1)[..., None]
    shade = 1 + (0.3 + 0.9 * r[:, 8, None, None]) * (noise_NHW - 0.5)
    return ((first + is_ground * (second - first)) * shade[..., None]).astype(np.float32)


def _object(
    category_N: NDArray[np.int64],
    x0: Floats,
    y0: Floats,
    radius: Floats,
    r: Floats,
    x_HW: Floats,
    y_HW: Floats,
    pixel: float,
) -> tuple[Floats, Floats]:
    """Coverage [n, H, W] and colour [n, H, W, 3] of one object per image."""
    tilt = (r[:, 0] - 0.5)[:, None, None] * 0.7  # at most 20 degrees either way
    stretch = np.exp((r[:, 1] - 0.5) * 0.5)[:, None, None]
    dx, dy = x_HW - x0, y_HW - y0
    u = (np.cos(tilt) * dx + np.sin(tilt) * dy) / (radius * stretch)
    v = (-np.sin(tilt) * dx + np.cos(tilt) * dy) / (radius / stretch)
    shape_N, texture_N = np.divmod(category_N, len(TEXTURES))
    outside = np.empty_like(u)
    for k, shape in enumerate(_SHAPE_FUNCTIONS):
        here = shape_N == k
        outside[here] = shape(u[here], v[here])
    alpha = np.clip(0.5 - outside * radius / (2 * pixel), 0, 1)

    turn = (r[:, 2] * np.pi)[:, None, None]
    frequency = (7 + 6 * r[:, 3])[:, None, None]  # radians per radius: two to four periods across
    p = frequency * (np.cos(turn) * u + np.sin(turn) * v) + r[:, 4, None, None] * 6.2832
    q = frequency * (-np.sin(turn) * u + np.cos(turn) * v) + r[:, 5, None, None] * 6.2832
    mix = np.zeros_like(u)
    for k, texture in enumerate(_TEXTURE_FUNCTIONS):
        here = texture_N == k
        mix[here] = np.clip(0.5 + 3 * texture(p[here], q[here]), 0, 1)
    first = _hsv(r[:, 6], 0.2 + 0.8 * r[:, 7], 0.35 + 0.65 * r[:, 8])
    second = _hsv(r[:, 9], 0.2 + 0.8 * r[:, 10], (0.35 + 0.65 * r[:, 8] + 0.35 + 0.3 * r[:, 11]) % 1.0)
    colour = first[:, None, None] + mix[..., None] * (second - first)[:, None, None]
    light = 1.08 - 0.10 * (v + 1) + 0.20 * (r[:, 12, None, None] - 0.5) * u
    return alpha.astype(np.float32), (colour * light[..., None]).astype(np.float32)


def _shadow(
    canvas: Floats, here: NDArray[np.int64], x0: Floats, y0: Floats, radius: Floats, x_HW: Floats, y_HW: Floats
) -> None:
    """Darken a flat ellipse under each object, in place."""
    d = ((x_HW - x0) / radius) ** 2 + ((y_HW - y0 - radius) / (0.3 * radius)) ** 2
    canvas[here] *= (1 - 0.25 * np.clip(1.3 - d, 0, 1))[..., None]


def _clutter(canvas: Floats, covered: Floats, r: Floats, x_HW: Floats, y_HW: Floats, pixel: float) -> None:
    """Draw small plain discs and bars over everything, in place, and take what they hide from the coverage."""
    for j in range(_CLUTTER):
        a = r[:, j, :, None, None]
        dx, dy = x_HW - a[:, 1] * x_HW.max(), y_HW - a[:, 2]
        disc = np.sqrt(dx**2 + dy**2) - (0.02 + 0.07 * a[:, 3])
        angle = a[:, 3] * np.pi
        bar = np.maximum(
            np.abs(np.cos(angle) * dx + np.sin(angle) * dy) - (0.10 + 0.20 * a[:, 4]),
            np.abs(-np.sin(angle) * dx + np.cos(angle) * dy) - 0.025,
        )
        alpha = np.clip(0.5 - np.where(a[:, 0] < 0.3, disc, bar) / (2 * pixel), 0, 1) * (a[:, 0] < 0.7)
        colour = _hsv(r[:, j, 5], r[:, j, 6], r[:, j, 7])[:, None, None, :]
        canvas += alpha[..., None] * (colour - canvas)
        covered *= 1 - alpha[:, None]


def _boxes(mask_NMHW: NDArray[np.bool_], oversample: int) -> NDArray[np.int64]:
    """Tight pixel boxes of the masks; zeros where a mask is empty."""
    rows, cols = np.asarray(mask_NMHW.any(3)), np.asarray(mask_NMHW.any(2))
    height, width = rows.shape[-1], cols.shape[-1]
    x0, y0 = cols.argmax(-1), rows.argmax(-1)
    x1, y1 = width - cols[..., ::-1].argmax(-1), height - rows[..., ::-1].argmax(-1)
    box = np.stack([x0 // oversample, y0 // oversample, -(-x1 // oversample), -(-y1 // oversample)], -1)
    return np.where(np.expand_dims(rows.any(-1), -1), box, 0).astype(np.int64)


def _hsv(h: Floats, s: Floats, v: Floats) -> Floats:
    """Hue, saturation, value in [0, 1] to RGB, last axis 3."""
    k = (np.array([5, 3, 1], np.float32) + h[..., None] * 6) % 6
    return (v[..., None] * (1 - s[..., None] * np.clip(np.minimum(k, 4 - k), 0, 1))).astype(np.float32)


# Shapes: negative inside, about the distance to the edge, in the square [-1, 1] x [-1, 1] with v pointing down.


def _box(u: Floats, v: Floats, x: float, y: float, half_width: float, half_height: float) -> Floats:
    return np.maximum(np.abs(u - x) - half_width, np.abs(v - y) - half_height)


def _disc(u: Floats, v: Floats, x: float, y: float, radius: float) -> Floats:
    return np.sqrt((u - x) ** 2 + (v - y) ** 2) - radius


def _roof(u: Floats, v: Floats, top: float, bottom: float, half_width: float) -> Floats:
    return np.maximum(v - bottom, np.abs(u) - half_width * (v - top) / (bottom - top))


def _tree(u: Floats, v: Floats) -> Floats:
    return np.minimum(_roof(u, v, -1.0, 0.45, 0.85), _box(u, v, 0, 0.7, 0.17, 0.3))


def _house(u: Floats, v: Floats) -> Floats:
    return np.minimum(_roof(u, v, -1.0, -0.25, 1.0), _box(u, v, 0, 0.35, 0.7, 0.65))


def _mushroom(u: Floats, v: Floats) -> Floats:
    return np.minimum(np.maximum(_disc(u, v, 0, 0.0, 0.98), v), _box(u, v, 0, 0.5, 0.24, 0.5))


def _arch(u: Floats, v: Floats) -> Floats:
    hole = np.minimum(_box(u, v, 0, 0.5, 0.42, 0.6), _disc(u, v, 0, -0.1, 0.42))
    return np.maximum(_box(u, v, 0, 0, 0.88, 0.95), -hole)


def _vase(u: Floats, v: Floats) -> Floats:
    neck = np.minimum(_box(u, v, 0, -0.5, 0.2, 0.45), _box(u, v, 0, -0.86, 0.45, 0.12))
    return np.minimum(_disc(u, v, 0, 0.33, 0.66), neck)


_SHAPE_FUNCTIONS = (_tree, _house, _mushroom, _arch, _vase)
_V, _U = 2 * np.stack(np.meshgrid(_centres(200), _centres(200), indexing="ij")) - 1
# For a radius of one. The stretch keeps areas.
_SHAPE_AREAS = np.array([4 * np.mean(shape(_U, _V) < 0) for shape in _SHAPE_FUNCTIONS], np.float32)


# Textures: positive where the second colour is, as functions of two phases at right angles.


def _plain(p: Floats, q: Floats) -> Floats:
    return np.full_like(p, -1)


def _striped(p: Floats, q: Floats) -> Floats:
    return np.sin(p)


def _checked(p: Floats, q: Floats) -> Floats:
    return np.sin(0.75 * p) * np.sin(0.75 * q)


def _dotted(p: Floats, q: Floats) -> Floats:
    return np.cos(p) + np.cos(q) - 0.7


_TEXTURE_FUNCTIONS = (_plain, _striped, _checked, _dotted)
