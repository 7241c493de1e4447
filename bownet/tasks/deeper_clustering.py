"""Deeper Clustering as section 4.1 compares with it: predict the cluster of an image, and by which angle it was turned.

Every few epochs k-means clusters the global features of all clean images; clusters are the targets until the next time.

The paper says "combining it with rotation prediction" and "one clustering level". So there are two heads whose losses
add up: Ω of equation 5 over the clusters, and RotNet's head over the angles. That is also what the original's
factored loss over (rotation, cluster) comes to with one level, but for clusters that all angles share. As there, each
image is shown at one angle at a time, all four equally often. The paper starts from a RotNet: give its backbone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from bownet.config import Perturbation
from bownet.images.cutmix import draw_mix
from bownet.images.perturb import perturb
from bownet.nets.heads import BowHead, RotationHead
from bownet.nets.taps import Backbone
from bownet.words.kmeans import cluster
from bownet.words.nearest import nearest_index
from bownet.words.vocabulary import feature_maps

_ITERATIONS = 20  # of k-means; the original makes 10


class DeeperClusteringTask(nn.Module):
    """Targets are the clusters that `renew` returns."""

    weight_K: Tensor

    def __init__(
        self,
        backbone: Backbone,
        clusters: int,
        renew_every: int,
        head_layers: int,
        perturbation: Perturbation,
        cutmix: bool,
        seed: int,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = BowHead(backbone.tap_channels[backbone.pooled], clusters)
        self.rotation = RotationHead(backbone, head_layers)
        self.clusters, self.renew_every, self.seed = clusters, renew_every, seed
        self.perturbation, self.cutmix = perturbation, cutmix
        self.register_buffer("weight_K", torch.ones(clusters))

    def forward(self, images_NHWC: Tensor, cluster_N: Tensor, generator: Generator) -> tuple[Tensor, dict[str, Tensor]]:
        x = perturb(images_NHWC, self.perturbation, generator)
        y_NK = F.one_hot(cluster_N.long(), self.clusters).float()
        if self.cutmix:
            mix = draw_mix(len(x), x.shape[2], x.shape[3], generator)
            x, y_NK = mix.images(x), mix.targets(y_NK)
        x, angle_N = turned(x)  # after mixing, so that an image has one angle
        map_tap, pooled = self.backbone.taps[-2:]
        features = self.backbone(x, (map_tap, pooled))
        logits_NK = self.head(features[pooled]).float()  # autocast would leave them as they are on CPUs
        cluster_loss = -(self.weight_K * y_NK * F.log_softmax(logits_NK, dim=1)).sum(1).mean()
        logits_N4 = self.rotation(features[map_tap])
        rotation_loss = F.cross_entropy(logits_N4, angle_N)
        return cluster_loss + rotation_loss, {
            "cluster_loss": cluster_loss.detach(),
            "rotation_loss": rotation_loss.detach(),
            "accuracy": (logits_N4.argmax(1) == angle_N).float().mean(),
            "gamma": self.head.gamma.detach(),
        }

    def renew(self, epoch: int, images: Iterable[Tensor]) -> NDArray[Any] | None:
        """Clusters of all images, made anew in epochs 0, renew_every, ...; Ω then begins anew as well.

        k-means gives the clusters in no order, so that weights of the old ones mean nothing for the new. What momentum
        an optimiser has of them fades within some twenty steps.
        """
        if epoch % self.renew_every:
            return None
        seed = int(np.random.SeedSequence([self.seed, epoch]).generate_state(1)[0])
        cluster_N = self._clustered(images, seed)
        # The original draws images evenly over the clusters. Weights of 1 / size do the same to the expected loss.
        size_K = torch.bincount(cluster_N.long(), minlength=self.clusters).clamp(min=1)
        self.weight_K.copy_(len(cluster_N) / (len(cluster_N.unique()) * size_K))
        self.head.redraw(Generator().manual_seed(seed))
        return cluster_N.numpy()

    def _clustered(self, images: Iterable[Tensor], seed: int) -> Tensor:
        """Of features of length one, as in the original; PCA and whitening are left out, as the paper names neither."""
        was_training = self.backbone.training
        self.backbone.eval()
        f_NC = torch.cat([feature_maps(self.backbone, x, self.backbone.pooled) for x in images])
        self.backbone.train(was_training)
        if len(f_NC) < self.clusters:
            raise ValueError(f"teacher.clusters={self.clusters}: there are {len(f_NC)} images, use fewer clusters")
        f_NC = F.normalize(f_NC, dim=1)
        found = cluster(f_NC, self.clusters, seed=seed, iterations=_ITERATIONS, name="teacher.clusters")
        return nearest_index(f_NC, found.centroids_KD).int()


def turned(x_NCHW: Tensor) -> tuple[Tensor, Tensor]:
    """Image i turned counter-clockwise by i mod 4 quarters, and that number: random, as batches are shuffled."""
    out = torch.empty_like(x_NCHW)
    for angle in range(4):
        out[angle::4] = torch.rot90(x_NCHW[angle::4], angle, (2, 3))
    return out, torch.arange(len(x_NCHW), device=x_NCHW.device) % 4
