"""PCA against scikit-learn, and by hand."""

from __future__ import annotations

import pytest
import torch
from sklearn.decomposition import PCA as TheirPCA
from torch import Generator, Tensor

from bownet.words.pca import fit_pca


def correlated(n: int, d: int) -> Tensor:
    generator = Generator().manual_seed(0)
    return torch.randn(n, d, generator=generator) @ torch.randn(d, d, generator=generator) + 5


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("components", [1, 4, 12])
def test_equals_scikit_learn(components: int, whiten: bool) -> None:
    x = correlated(20_000, 12)  # more than one chunk
    pca = fit_pca(x, components, whiten)
    theirs = TheirPCA(components, whiten=whiten, svd_solver="full").fit(x.double().numpy())
    expected = torch.from_numpy(theirs.transform(x.double().numpy())).float()
    torch.testing.assert_close(pca.transform(x), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        pca.variance_C, torch.from_numpy(theirs.explained_variance_).float(), rtol=1e-4, atol=1e-4
    )
    assert pca.explained == pytest.approx(theirs.explained_variance_ratio_.sum())
    assert pca.components == components
    assert pca.projection_CD.dtype == torch.float32
    if whiten:
        torch.testing.assert_close(pca.transform(x).T.cov(correction=1).view(components, -1), torch.eye(components))


def test_by_hand() -> None:
    x = torch.tensor([[3.0, 0.0], [0.0, 4.0], [6.0, -4.0]])  # on a line through (3, 0), in the direction (3, -4) / 5
    pca = fit_pca(x, 1)
    torch.testing.assert_close(pca.mean_D, torch.tensor([3.0, 0.0]))
    torch.testing.assert_close(pca.projection_CD, torch.tensor([[-0.6, 0.8]]))  # the largest entry is positive
    torch.testing.assert_close(pca.variance_C, torch.tensor([25.0]))
    assert pca.explained == pytest.approx(1)
    torch.testing.assert_close(pca.transform(x), torch.tensor([[0.0], [5.0], [-5.0]]))
    torch.testing.assert_close(fit_pca(x, 1, whiten=True).transform(x), torch.tensor([[0.0], [1.0], [-1.0]]))


def test_what_cannot_be_fitted_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"vocabulary.pca=13: the features have 12 channels, use 1..12"):
        fit_pca(correlated(50, 12), 13)
    with pytest.raises(ValueError, match=r"vocabulary.pca=0: the features have 12 channels"):
        fit_pca(correlated(50, 12), 0)
    with pytest.raises(ValueError, match=r"vocabulary.pca=7: needs more than the 7 feature vectors of the sample"):
        fit_pca(correlated(7, 12), 7)
    line = torch.arange(20.0)[:, None].repeat(1, 3)
    assert fit_pca(line, 2).explained == pytest.approx(1)
    with pytest.raises(ValueError, match=r"vocabulary.pca=2: the features vary in 1 directions only .* use 1..1"):
        fit_pca(line, 2, whiten=True)
    with pytest.raises(ValueError, match=r"all .*30 feature vectors are the same"):
        fit_pca(torch.ones(30, 3), 2)
    bad = correlated(50, 12)
    bad[3, 4] = torch.nan
    with pytest.raises(ValueError, match=r"the sample holds feature vectors that are not finite"):
        fit_pca(bad, 2)
    with pytest.raises(ValueError, match=r"feature vectors have 5 channels, the PCA takes 12"):
        fit_pca(correlated(50, 12), 2).transform(torch.zeros(1, 5))
