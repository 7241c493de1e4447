"""BoWNet (section 2.3): predict the bag of words of the clean image from a perturbed one."""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bownet.config import Student
from bownet.images.cutmix import draw_mix
from bownet.images.perturb import perturb
from bownet.nets.heads import BowHead, omega
from bownet.nets.taps import Backbone, freeze
from bownet.words.bow import BAGS, bow_targets, entropy
from bownet.words.vocabulary import online_words
from bownet.words.vocabulary_file import Vocabulary


class OnlineWords:
    """A frozen copy of the teacher with its vocabulary: images as the student sees them in, their words out.

    It is no module: a task that holds it has it neither in its parameters nor in its state nor in its mode.
    """

    def __init__(self, teacher: Backbone, vocabulary: Vocabulary) -> None:
        teacher.check_taps((vocabulary.tap,))
        self.teacher = deepcopy(teacher)
        freeze(self.teacher)
        self.vocabulary = vocabulary

    def __call__(self, x_NCHW: Tensor) -> Tensor:
        """Words [N, 1, h, w], of the images alone: a mirrored view is no part of the ablation."""
        self.teacher.to(x_NCHW.device)
        with torch.autocast(x_NCHW.device.type, enabled=False):  # words are those that the cache would hold
            return online_words(self.teacher, self.vocabulary, x_NCHW)


class BowTask(nn.Module):
    """Loss of equation 6. Targets are the cached words of the clean images, [N, views, h, w].

    With student.pyramid one Ω predicts five bags from the global feature: 5K unit vectors and one γ, a softmax over
    the K words of each bag, and the mean of the five losses. With student.target=perturbed `online` gives the words.
    """

    def __init__(self, backbone: Backbone, num_words: int, config: Student, online: OnlineWords | None = None) -> None:
        super().__init__()
        if config.target == "perturbed" and online is None:
            raise ValueError("student.target=perturbed: needs the teacher and its vocabulary, pass OnlineWords")
        if online is not None and online.vocabulary.size != num_words:
            raise ValueError(f"num_words={num_words}: the vocabulary has {online.vocabulary.size} words")
        self.backbone = backbone
        self.bags = BAGS if config.pyramid else 1
        self.head = omega(config.head, backbone.tap_channels[backbone.pooled], self.bags * num_words)
        self.num_words = num_words
        self.config = config
        self.online = online if config.target == "perturbed" else None

    def forward(
        self, images_NHWC: Tensor, words: Tensor | None, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        config = self.config
        x = perturb(images_NHWC, config.perturbation, generator)
        if self.online is not None:
            words = self.online(x)
        assert words is not None, "words of the clean images are the targets"
        y = bow_targets(words, self.num_words, config.bow, config.drop_border, config.pyramid)
        if config.cutmix:
            mix = draw_mix(len(x), x.shape[2], x.shape[3], generator)
            x, y = mix.images(x), mix.targets(y)
        logits = self.head(self.backbone(x, (self.backbone.pooled,))[self.backbone.pooled])
        loss = soft_cross_entropy(logits.unflatten(1, (self.bags, -1)) if config.pyramid else logits, y)
        metrics = {"floor": entropy(y).mean()}
        if isinstance(self.head, BowHead):
            metrics["gamma"] = self.head.gamma.detach()
        return loss, metrics


def soft_cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """-Σ_k y^k log softmax^k over the last dimension, mean over the batch and over the bags of an image.

    In single precision, which autocast would not choose on CPUs: eight bits of mantissa are too few for a sum.
    """
    return -(y * F.log_softmax(logits.float(), dim=-1)).sum(-1).mean()
