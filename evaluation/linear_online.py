"""Linear classifiers on a frozen network that runs in every step (section 4.2): random crops in, one head a tap out.

A task for the training loop. All heads learn in one pass: their losses are added up, and as no parameter is in two of
them each head learns as it would alone. The network cannot learn: it is in evaluation mode and has no gradients, and
its fingerprint before and after says so.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bownet.config import Linear, Optimiser, Perturbation
from bownet.images.perturb import perturb
from bownet.nets.taps import Backbone, freeze
from evaluation.pooling import Pool, pool_map


class OnlineLinear(nn.Module):
    """Targets are class numbers 0, 1, ..., one per image."""

    def __init__(
        self, backbone: Backbone, heads: Mapping[str, nn.Module], pool: Pool, crops: Perturbation | None = None
    ) -> None:
        super().__init__()
        backbone.check_taps(tuple(heads))
        self.backbone = freeze(backbone)
        self.heads = nn.ModuleDict(heads)
        self.pool, self.crops = pool, crops
        self.may_rise = True  # with the protocols' rates and features as they are, at first it does

    def train(self, mode: bool = True) -> OnlineLinear:
        super().train(mode)
        self.backbone.eval()  # batch norm must not follow what it sees
        return self

    def logits(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Scores of every class by each tap's head."""
        with torch.no_grad():
            maps = self.backbone(x_NCHW, tuple(self.heads))
            feature = {tap: pool_map(maps[tap].float(), self.pool).flatten(1) for tap in self.heads}
        return {tap: head(feature[tap]) for tap, head in self.heads.items()}

    def forward(self, images_NHWC: Tensor, labels: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        assert self.crops is not None, "training needs crops"
        x, label_N = perturb(images_NHWC, self.crops, generator), labels.long()
        logits = self.logits(x)
        losses = [F.cross_entropy(logits_NC, label_N) for logits_NC in logits.values()]
        right = {f"accuracy_{tap}": (v.argmax(1) == label_N).float().mean() for tap, v in logits.items()}
        return torch.stack(losses).sum(), right


def new_heads(
    backbone: Backbone, taps: Sequence[str], pool: Pool, size: int, classes: int, batch_norm: bool, seed: int
) -> dict[str, nn.Module]:
    """A linear classifier for each tap. Its first weights depend on the seed and on its tap, not on the other taps."""
    heads: dict[str, nn.Module] = {}
    for tap, shape in feature_shapes(backbone, taps, size).items():
        d = pool_map(torch.zeros(1, *shape), pool).flatten(1).shape[1]
        generator = Generator().manual_seed(_mixed(seed, tap))
        linear = nn.Linear(d, classes)
        with torch.no_grad():
            linear.weight.copy_(torch.randn(classes, d, generator=generator) * 0.01)
            linear.bias.zero_()
        heads[tap] = nn.Sequential(nn.BatchNorm1d(d, affine=False), linear) if batch_norm else linear
    return heads


def feature_shapes(backbone: Backbone, taps: Sequence[str], size: int) -> dict[str, torch.Size]:
    """What each tap gives of one image with sides of `size` pixels: channels, and height and width of a map."""
    device = backbone.input_mean.device
    with torch.no_grad():
        maps = backbone.eval()(torch.zeros(1, 3, size, size, device=device), tuple(taps))
    return {tap: maps[tap].shape[1:] for tap in taps}


def optimiser_of(config: Linear) -> Optimiser:
    """The schedule of the protocol, as the training loop knows it."""
    return Optimiser(
        epochs=config.epochs,
        iterations_per_epoch=None,
        batch=config.batch,
        lr=config.lr,
        schedule="step",
        drops=tuple(range(config.drop_every, config.epochs, config.drop_every)),
        drop_factor=config.drop_factor,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )


def fingerprint_of(net: nn.Module) -> str:
    """sha256 over the names, shapes and bits of all weights and statistics of a network."""
    digest = hashlib.sha256()
    for name, value in sorted(net.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_unchanged(before: str, after: str) -> None:
    if before != after:
        raise RuntimeError(
            f"the frozen network has changed: sha256 {before[:16]}... before, {after[:16]}... after; no score is kept"
        )


def _mixed(seed: int, tap: str) -> int:
    return int(np.random.SeedSequence([seed, zlib.crc32(tap.encode())]).generate_state(1, np.uint64)[0] >> 1)
