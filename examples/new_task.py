"""A new pretext task in 30 lines: tell whether an image stands on its head. Trained here, in this process.

python examples/new_task.py      docs/tasks.md says how it becomes a teacher.kind
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bownet.config import Net, Optimiser
from bownet.images.augment import pad_crop_flip, to_float
from bownet.images.scenes import draw_labelled, labels
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone
from bownet.training import Hooks, InMemory, train


class UpsideDown(nn.Module):
    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.tap_channels[backbone.pooled], 1)

    def forward(self, images_NHWC: Tensor, targets: None, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        x = pad_crop_flip(to_float(images_NHWC), 2, generator)
        feature = self.backbone(torch.cat([x, x.flip(2)]), (self.backbone.pooled,))[self.backbone.pooled]
        logit, answer = self.head(feature)[:, 0], torch.arange(2).repeat_interleave(len(x))
        loss = F.binary_cross_entropy_with_logits(logit, answer.float())
        return loss, {"accuracy": ((logit > 0) == answer).float().mean()}


torch.manual_seed(0)
images = InMemory(draw_labelled(labels(600, tuple(range(20))), 32, seed=0))
steps = Optimiser(epochs=4, iterations_per_epoch=None, batch=50, schedule="cosine")
tell = Hooks(on_epoch=lambda r: print(f"epoch {r['epoch']}: loss {r['loss']:.3f}, accuracy {r['accuracy']:.2f}"))
train(UpsideDown(build_backbone(Net(arch="wrn-10-1"), 0)), images, None, steps, seed=0, hooks=tell)
