"""Inner products: as in double precision, whatever multiplies them."""

import pytest
import torch

from bownet import products
from bownet.products import inner


@pytest.mark.parametrize("shape", [(3, 5, 7), (300, 257, 129), (1000, 640, 333), (70, 2048, 512)])
def test_products_are_those_of_double_precision(shape: tuple[int, int, int]) -> None:
    n, d, k = shape
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, d, generator=generator), torch.randn(k, d, generator=generator)
    room = torch.empty(n, k)
    bound = d * 2.0**-24 * (x.double().abs() @ y.double().abs().T)
    for made in (inner(x, y), inner(x, y, room), inner(x[::2], y)):
        assert made.shape == (len(made), k)
        assert made.is_contiguous()
    assert ((inner(x, y).double() - x.double() @ y.double().T).abs() <= bound).all()
    assert ((inner(x, y, room) - inner(x, y)).abs() <= 2 * bound).all()


@pytest.mark.skipif(not hasattr(torch, "mkldnn_convolution"), reason="torch without oneDNN")
def test_both_ways_give_the_same_up_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(512, 300), torch.randn(400, 300)
    found = []
    for faster in (True, False):
        monkeypatch.setattr(products, "_convolves_faster", lambda faster=faster: faster)
        found.append(inner(x, y))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-4)


def test_other_types_are_multiplied_as_torch_does() -> None:
    x, y = torch.randn(400, 300).double(), torch.randn(200, 300).double()
    assert torch.equal(inner(x, y), x @ y.T)
