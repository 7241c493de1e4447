"""A vocabulary as a file that people can take away: features in, visual words out (equation 1).

The file is safetensors: loading it runs no code of the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bownet.words.grid import MAX_WORDS
from bownet.words.nearest import nearest_index
from bownet.words.pca import PCA

# One entry of metadata: safetensors writes several in no fixed order, and equal vocabularies shall be equal files.
_ABOUT = "bownet.vocabulary"
_FORMAT = 1


@dataclass(frozen=True)
class Vocabulary:
    """K centroids in the space of a teacher's features, or of their principal components."""

    centroids_KC: Tensor
    teacher: str  # key of the artifact whose features these are
    tap: str
    pca: PCA | None = None
    statistics: dict[str, Any] = field(default_factory=dict)  # of the data and of k-means; JSON

    def __post_init__(self) -> None:
        shape = tuple(self.centroids_KC.shape)
        if len(shape) != 2 or not 1 <= shape[0] <= MAX_WORDS:
            raise ValueError(f"centroids {shape}: expected [words, channels] with 1..{MAX_WORDS} words")
        if not torch.isfinite(self.centroids_KC).all():
            raise ValueError(f"centroids {shape}: some are not finite, so this is no vocabulary")
        if self.pca and self.pca.components != shape[1]:
            raise ValueError(f"centroids {shape}: the PCA gives {self.pca.components} components")

    @property
    def size(self) -> int:
        return len(self.centroids_KC)

    @property
    def channels(self) -> int:
        """Of the teacher's features."""
        return len(self.pca.mean_D) if self.pca else self.centroids_KC.shape[1]

    @torch.no_grad()
    def assign(self, features: Tensor) -> Tensor:
        """Words int64 [N] of vectors [N, C], or [N, h, w] of maps [N, C, h, w]; on the features' device."""
        if features.ndim not in (2, 4):
            raise ValueError(f"features {tuple(features.shape)}: expected [N, C] or [N, C, h, w]")
        if features.shape[1] != self.channels:
            raise ValueError(f"features have {features.shape[1]} channels, words of {self.tap} take {self.channels}")
        bad = (~torch.isfinite(features).flatten(1).all(1)).nonzero()[:, 0].tolist()
        if bad:
            named = ", ".join(map(str, bad[:8])) + (", ..." if len(bad) > 8 else "")
            raise ValueError(f"features: {len(bad)} of {len(features)} are not finite (numbers {named})")
        rows = features if features.ndim == 2 else features.permute(0, 2, 3, 1).flatten(0, 2)
        rows = rows.to(self.centroids_KC.dtype)
        if self.pca:
            rows = self.pca.transform(rows)
        words = nearest_index(rows.contiguous(), self.centroids_KC.to(rows.device))
        return words if features.ndim == 2 else words.view(len(features), *features.shape[2:])

    def require_teacher(self, teacher: str, tap: str) -> None:
        """Words of one teacher's features mean nothing for another's."""
        if (teacher, tap) != (self.teacher, self.tap):
            raise ValueError(
                f"this vocabulary was made of {self.tap} of teacher {self.teacher}, not of {tap} of {teacher}; "
                "use that teacher or make a new vocabulary"
            )

    def save(self, path: str | Path) -> None:
        about: dict[str, Any] = {
            "format": _FORMAT,
            "size": self.size,
            "channels": self.channels,
            "teacher": self.teacher,
            "tap": self.tap,
            "statistics": self.statistics,
        }
        tensors = {"centroids": self.centroids_KC}
        if self.pca:
            about["pca"] = {"explained": self.pca.explained, "whiten": self.pca.whiten}
            tensors["pca.mean"] = self.pca.mean_D
            tensors["pca.projection"] = self.pca.projection_CD
            tensors["pca.variance"] = self.pca.variance_C
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(whole, path, {_ABOUT: json.dumps(about, sort_keys=True)})

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        if not Path(path).is_file():
            raise ValueError(f"{path}: there is no such file")
        try:
            with safe_open(path, "pt") as file:
                about = json.loads((file.metadata() or {}).get(_ABOUT, "null"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except SafetensorError as error:
            raise ValueError(f"{path}: not a vocabulary file ({error})") from None
        if about is None or "centroids" not in tensors:
            raise ValueError(f"{path}: not a vocabulary file, it names no vocabulary")
        if about["format"] != _FORMAT:
            raise ValueError(f"{path}: a vocabulary of format {about['format']}, this program reads {_FORMAT}")
        pca = None
        if "pca" in about:
            pca = PCA(tensors["pca.mean"], tensors["pca.projection"], tensors["pca.variance"], **about["pca"])
        try:
            return cls(tensors["centroids"], about["teacher"], about["tap"], pca, about["statistics"])
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
