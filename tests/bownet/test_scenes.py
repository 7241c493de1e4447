"""The embedded data set: reproducible, shardable, balanced, not solvable by colour, with boxes that fit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bownet.images import scenes
from bownet.images.scenes import BASE, CATEGORIES, NOVEL, SHAPES, TEXTURES, Layout, draw, draw_labelled, labels


def one_object(category: int, x: float, y: float, radius: float) -> Layout:
    place = [np.full((1, 1), value, np.float32) for value in (x, y, radius)]
    return Layout(np.full((1, 1), category), *place)


def test_same_seed_same_pixels_other_seed_other_pixels() -> None:
    category_N = labels(20, BASE)
    first = draw_labelled(category_N, 32, seed=3)
    assert first.shape == (20, 32, 32, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, draw_labelled(category_N, 32, seed=3))
    other = draw_labelled(category_N, 32, seed=4)
    assert all((a != b).any() for a, b in zip(first, other, strict=True))


def test_pictures_do_not_depend_on_the_split_into_shards() -> None:
    category_N = labels(100, BASE)
    whole = draw_labelled(category_N, 32, seed=7)
    halves = [draw_labelled(category_N[s : s + 50], 32, seed=7, start=s) for s in (0, 50)]
    assert np.array_equal(whole, np.concatenate(halves))
    odd = [draw_labelled(category_N[a:b], 32, seed=7, start=a) for a, b in ((0, 1), (1, 38), (38, 100))]
    assert np.array_equal(whole, np.concatenate(odd))


def test_scenes_do_not_depend_on_the_split_into_shards() -> None:
    whole = scenes.layout_of_scenes(10, seed=2)
    part = scenes.layout_of_scenes(4, seed=2, start=6)
    for name in ("category_NM", "x_NM", "y_NM", "radius_NM"):
        assert np.array_equal(getattr(whole, name)[6:], getattr(part, name))
    a, b = draw(whole, 30, 40, seed=3), draw(part, 30, 40, seed=3, start=6)
    assert np.array_equal(a.images_NHWC[6:], b.images_NHWC)
    assert np.array_equal(a.box_NM4[6:], b.box_NM4)
    assert np.array_equal(a.visible_NM[6:], b.visible_NM)


def test_every_prefix_of_the_labels_is_balanced() -> None:
    category_N = labels(100, BASE)
    for n in (12, 30, 100):
        counts = np.bincount(category_N[:n], minlength=len(CATEGORIES))[list(BASE)]
        assert counts.sum() == n
        assert counts.max() - counts.min() <= 1


def test_base_has_every_shape_and_texture_and_no_novel_combination() -> None:
    assert not set(BASE) & set(NOVEL)
    assert sorted(BASE + NOVEL) == list(range(20))
    shapes, textures = zip(*(divmod(c, len(TEXTURES)) for c in BASE), strict=True)
    assert set(shapes) == set(range(len(SHAPES)))
    assert set(textures) == set(range(len(TEXTURES)))
    assert CATEGORIES[9] == "striped mushroom"  # 9 = 2 * 4 + 1


def nearest_mean_accuracy(x_ND: NDArray[np.float64], y_N: NDArray[np.int64]) -> float:
    """Fit class means on the first half, classify the second."""
    half = len(x_ND) // 2
    mean_KD = np.stack([x_ND[:half][y_N[:half] == c].mean(0) for c in BASE])
    distance_NK = ((x_ND[half:, None] - mean_KD) ** 2).sum(2)
    return float((np.asarray(BASE)[distance_NK.argmin(1)] == y_N[half:]).mean())


def test_colour_alone_does_not_tell_the_category() -> None:
    y_N = labels(2400, BASE)
    mean_rgb = draw_labelled(y_N, 16, seed=0).mean((1, 2))
    chance = 1 / len(BASE)
    assert nearest_mean_accuracy(mean_rgb, y_N) < 1.8 * chance  # 4 standard deviations above chance is 0.115
    tinted = mean_rgb + 10 * y_N[:, None]  # the same classifier finds colours that do depend on the category
    assert nearest_mean_accuracy(tinted, y_N) > 3 * chance


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Black ground, no shadow, no clutter, no grain: every pixel that is not black belongs to an object."""
    monkeypatch.setattr(scenes, "_CLUTTER", 0)
    monkeypatch.setattr(scenes, "_background", lambda r, noise, x, y: np.zeros((*noise.shape, 3), np.float32))
    monkeypatch.setattr(scenes, "_shadow", lambda *_: None)
    monkeypatch.setattr(scenes, "_grain", lambda seed, i, h, w: np.zeros((h, w, 3), np.float32))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("category", [0, 4, 8, 12, 16])  # the five plain shapes
@pytest.mark.parametrize(("x", "y", "radius"), [(0.5, 0.5, 0.3), (0.3, 0.6, 0.12), (0.02, 0.5, 0.25), (0.7, 0.95, 0.2)])
def test_box_is_tight(category: int, x: float, y: float, radius: float) -> None:
    drawing = draw(one_object(category, x, y, radius), 60, 80, seed=category)
    lit = [(i, j) for i in range(60) for j in range(80) if drawing.images_NHWC[0, i, j].max() > 12]
    rows, cols = [i for i, _ in lit], [j for _, j in lit]
    brute = [min(cols), min(rows), max(cols) + 1, max(rows) + 1]
    assert np.abs(drawing.box_NM4[0, 0] - brute).max() <= 1  # half a pixel is lit at a soft edge


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("category", range(20))
def test_visible_share_of_a_free_object_is_one(category: int) -> None:
    assert draw(one_object(category, 0.5, 0.5, 0.25), 80, 80, seed=1).visible_NM[0, 0] == pytest.approx(1, abs=0.04)


@pytest.mark.usefixtures("bare")
def test_visible_share_at_the_edge_and_behind_another_object() -> None:
    # Halves of mirror-symmetric shapes; the tilt, up to 20 degrees, moves the line of symmetry a little.
    shares = [draw(one_object(c, 0.0, 0.5, 0.3), 80, 80, seed=1).visible_NM[0, 0] for c in (0, 4, 8, 12, 16)]
    assert shares == pytest.approx([0.5] * 5, abs=0.08)
    place = [np.full((1, 2), value, np.float32) for value in (0.5, 0.5, 0.3)]
    place[2][0, 0] = 0.05  # a small vase behind a large house
    hidden = draw(Layout(np.array([[16, 4]]), *place), 80, 80, seed=1)
    assert hidden.visible_NM[0, 0] == pytest.approx(0, abs=1e-3)
    assert hidden.box_NM4[0, 0].tolist() == [0, 0, 0, 0]
    assert hidden.visible_NM[0, 1] == pytest.approx(1, abs=0.04)


def test_areas_by_hand() -> None:
    # House: roof 2 x 0.75 / 2, walls 1.4 x 1.3, less the strip 1.4 x 0.05 where they meet.
    assert scenes._SHAPE_AREAS[1] == pytest.approx(0.75 + 1.82 - 0.07, abs=0.03)
    # Mushroom: half a disc of radius 0.98 and a stem 0.48 x 1.
    assert scenes._SHAPE_AREAS[2] == pytest.approx(np.pi * 0.98**2 / 2 + 0.48, abs=0.03)
