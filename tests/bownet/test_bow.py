"""Bags of words: equations 3 and 4 by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Generator

from bownet.words.bow import bow_targets, entropy


def test_count_by_hand() -> None:
    words_NHW = torch.tensor([[[0, 0], [2, 1]], [[3, 3], [3, 3]]])
    expected = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 0.0, 1.0]])
    torch.testing.assert_close(bow_targets(words_NHW, 4), expected)


def test_binary_by_hand() -> None:
    words_NHW = torch.tensor([[[0, 0], [2, 1]], [[3, 3], [3, 0]]])
    third = 1 / 3
    expected = torch.tensor([[third, third, third, 0.0], [0.5, 0.0, 0.0, 0.5]])
    torch.testing.assert_close(bow_targets(words_NHW, 4, mode="binary"), expected)


def test_border_is_dropped() -> None:
    words_NHW = torch.tensor([[[9, 9, 9, 9], [9, 0, 1, 9], [9, 1, 1, 9], [9, 9, 9, 9]]])
    expected = torch.zeros(1, 10)
    expected[0, :2] = torch.tensor([0.25, 0.75])
    torch.testing.assert_close(bow_targets(words_NHW, 10, drop_border=True), expected)
    assert bow_targets(words_NHW, 10, drop_border=False)[0, 9].item() == 0.75


def test_views_are_counted_together() -> None:
    words = torch.tensor([[[[0, 0], [0, 1]], [[1, 1], [2, 1]]]])  # one image, two views
    torch.testing.assert_close(bow_targets(words, 3), torch.tensor([[3.0, 4.0, 1.0]]) / 8)
    torch.testing.assert_close(bow_targets(words, 3, mode="binary"), torch.ones(1, 3) / 3)
    framed = torch.nn.functional.pad(words, (1, 1, 1, 1), value=2)
    torch.testing.assert_close(bow_targets(framed, 3, drop_border=True), torch.tensor([[3.0, 4.0, 1.0]]) / 8)


@pytest.mark.parametrize("mode", ["count", "binary"])
def test_equals_a_loop_and_sums_to_one(mode: str) -> None:
    words = torch.randint(0, 50, (6, 2, 5, 7), generator=Generator().manual_seed(0))
    y_NK = bow_targets(words.to(torch.uint16), 50, mode, drop_border=True)  # type: ignore[arg-type]
    torch.testing.assert_close(y_NK.sum(1), torch.ones(6))
    for n in range(6):
        bag = [0.0] * 50
        for view in range(2):
            for i in range(1, 4):
                for j in range(1, 6):
                    k = int(words[n, view, i, j])
                    bag[k] = bag[k] + 1 if mode == "count" else 1
        assert y_NK[n].tolist() == pytest.approx([v / sum(bag) for v in bag])


def test_largest_word_of_uint16() -> None:
    words_NHW = torch.tensor([[[65535, 0]]]).to(torch.uint16)
    y_NK = bow_targets(words_NHW, 65536)
    assert y_NK[0].nonzero()[:, 0].tolist() == [0, 65535]


def test_entropy_by_hand() -> None:
    y_NK = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 0.0]])
    expected = torch.tensor([0.0, math.log(4), 1.5 * math.log(2)])
    torch.testing.assert_close(entropy(y_NK), expected)


@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 1, 5), (1, 4, 2, 9)])
def test_nothing_left_is_an_error_with_a_remedy(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"word map .*nothing is left without its border; use drop_border=False"):
        bow_targets(torch.zeros(shape, dtype=torch.int64), 4, drop_border=True)


def test_pyramid_by_hand() -> None:
    words_NHW = torch.tensor([[[0, 0, 1, 1], [0, 2, 1, 1], [3, 3, 0, 1], [3, 3, 2, 2]]])
    expected = torch.tensor(
        [
            [4 / 16, 5 / 16, 3 / 16, 4 / 16],  # the whole
            [3 / 4, 0, 1 / 4, 0],  # above left
            [0, 1, 0, 0],  # above right
            [0, 0, 0, 1],  # below left
            [1 / 4, 1 / 4, 2 / 4, 0],  # below right
        ]
    )
    torch.testing.assert_close(bow_targets(words_NHW, 4, pyramid=True), expected[None])
    binary = expected.gt(0).float()
    torch.testing.assert_close(
        bow_targets(words_NHW, 4, "binary", pyramid=True), (binary / binary.sum(1, keepdim=True))[None]
    )
    framed = torch.nn.functional.pad(words_NHW, (1, 1, 1, 1), value=2)
    torch.testing.assert_close(bow_targets(framed, 4, drop_border=True, pyramid=True), expected[None])


def test_pyramid_of_an_odd_map_shares_the_middle() -> None:
    words_NHW = torch.tensor([[[0, 1, 2], [3, 4, 5], [6, 7, 8]]])
    y = bow_targets(words_NHW, 9, pyramid=True)[0]
    parts = [row.nonzero()[:, 0].tolist() for row in y[1:]]
    assert parts == [[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]
    assert y[1, 0].item() == 0.25
    torch.testing.assert_close(y[0], torch.ones(9) / 9)
    single = bow_targets(torch.tensor([[[3]]]), 4, pyramid=True)[0]
    assert single[:, 3].tolist() == [1] * 5


def test_words_of_the_flip_go_to_the_quarter_they_came_from() -> None:
    image = torch.tensor([[[0, 1], [2, 3]]])
    both = torch.stack([image, image.flip(2)], 1)  # a net that sees no difference: the flip's words are flipped
    torch.testing.assert_close(bow_targets(both, 4, pyramid=True), bow_targets(image, 4, pyramid=True))


def test_entropy_of_pyramids() -> None:
    y = bow_targets(torch.tensor([[[0, 1], [2, 3]]]), 4, pyramid=True)
    torch.testing.assert_close(entropy(y), torch.tensor([[math.log(4), 0, 0, 0, 0]]))


def test_unknown_mode_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"student.bow='tfidf': known are count, binary"):
        bow_targets(torch.zeros(1, 2, 2), 4, mode="tfidf")  # type: ignore[arg-type]
