"""Principal components of feature vectors, learned on a sample: vectors in, fewer numbers per vector out.

Section 4.1 applies it before k-means in the first round from a base of random weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_CHUNK = 16384
_FLAT = 1e-10  # of the first variance: a direction that does not vary


@dataclass(frozen=True)
class PCA:
    """x ↦ (x - mean) @ projectionᵀ; whitened components have variance 1."""

    mean_D: Tensor
    projection_CD: Tensor
    variance_C: Tensor  # of each component before whitening, falling
    explained: float  # share of the whole variance that the components hold
    whiten: bool

    @property
    def components(self) -> int:
        return len(self.projection_CD)

    def transform(self, x_ND: Tensor) -> Tensor:
        """Vectors [N, D] as components [N, C]."""
        if x_ND.shape[1] != len(self.mean_D):
            raise ValueError(f"feature vectors have {x_ND.shape[1]} channels, the PCA takes {len(self.mean_D)}")
        return (x_ND - self.mean_D.to(x_ND)) @ self.projection_CD.T.to(x_ND)


@torch.no_grad()
def fit_pca(x_ND: Tensor, components: int, whiten: bool = False) -> PCA:
    """Eigenvectors of the covariance, in double precision; their largest entry is positive."""
    n, d = x_ND.shape
    if not 1 <= components <= d:
        raise ValueError(f"vocabulary.pca={components}: the features have {d} channels, use 1..{d}")
    if components >= n:
        raise ValueError(f"vocabulary.pca={components}: needs more than the {n} feature vectors of the sample")
    mean_D = sum(x.double().sum(0) for x in x_ND.split(_CHUNK)) / n
    assert isinstance(mean_D, Tensor)
    if not torch.isfinite(mean_D).all():
        raise ValueError("vocabulary.pca: the sample holds feature vectors that are not finite")
    covariance_DD = torch.zeros(d, d, dtype=torch.float64, device=x_ND.device)
    for x in x_ND.split(_CHUNK):
        centred = x.double() - mean_D
        covariance_DD.addmm_(centred.T, centred)
    values, vectors = torch.linalg.eigh(covariance_DD / (n - 1))
    variance_D, vectors_DD = values.flip(0).clamp(min=0), vectors.T.flip(0)
    if variance_D[0] <= _FLAT**2 * mean_D.square().sum():
        raise ValueError(f"vocabulary.pca: all {n} feature vectors are the same, the teacher has collapsed")
    varying = int((variance_D > _FLAT * variance_D[0]).sum())
    if whiten and components > varying:
        raise ValueError(
            f"vocabulary.pca={components}: the features vary in {varying} directions only and others cannot be "
            f"whitened, use 1..{varying}"
        )
    projection = vectors_DD[:components]
    sign_C = projection.gather(1, projection.abs().argmax(1, keepdim=True)).sign()
    projection = projection * sign_C
    variance_C = variance_D[:components]
    if whiten:
        projection = projection / variance_C.sqrt()[:, None]
    explained = float(variance_C.sum() / variance_D.sum())
    return PCA(mean_D.float(), projection.float(), variance_C.float(), explained, whiten)
