"""What the training loop may ask of a task besides its loss: new targets, between epochs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray
from torch import Tensor


@runtime_checkable
class Renews(Protocol):
    """A task whose targets change while it learns."""

    def renew(self, epoch: int, images: Iterable[Tensor]) -> NDArray[Any] | None:
        """Called before each epoch 0, 1, ... in every process, also in the first one after a resume.

        `images` are all training images in their order, uint8 [n, H, W, 3] in batches of any size; they are read only
        if they are needed. Returns one target per image, or None to go on with those that there are. What a resumed
        run must know to go on is in the task's state dict.
        """
        ...
