"""A look at features while they are trained: k nearest neighbours on labelled training images, held out of each other.

Half of the images are the neighbours, the other half ask them. Labels are read here only, never by the training.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bownet.config import Proxy
from bownet.nets.taps import Backbone
from bownet.words.vocabulary import feature_maps

Look = Callable[[nn.Module, int], dict[str, float]]


def proxy_rows(labels_N: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """At most `count` rows, the first ones of every class in turn; even places are neighbours, odd ones ask."""
    order = np.argsort(labels_N, kind="stable")
    first_of_class = np.searchsorted(labels_N[order], labels_N[order])
    place_in_class = np.arange(len(order)) - first_of_class
    return order[np.lexsort((labels_N[order], place_in_class // 2))][:count]


def nearest_neighbour_accuracy(
    feature_NC: Tensor, label_N: Tensor, asking_MC: Tensor, truth_M: Tensor, neighbours: int
) -> float:
    """Percent. Each of the nearest neighbours by cosine votes for its class, with its similarity as the weight."""
    similarity_MN = F.normalize(asking_MC, dim=1) @ F.normalize(feature_NC, dim=1).T
    weight_MK, nearest_MK = similarity_MN.topk(min(neighbours, len(feature_NC)), dim=1)
    votes_MC = torch.zeros(len(asking_MC), int(label_N.max()) + 1).scatter_add_(1, label_N[nearest_MK], weight_MK)
    return 100 * (votes_MC.argmax(1) == truth_M).float().mean().item()


def look_at(config: Proxy, images_NHWC: NDArray[np.uint8], labels_N: NDArray[np.int64]) -> Look:
    """A hook for the training loop: `knn`, in percent, every `proxy.every` epochs. The task is left as it was."""
    images, labels = torch.from_numpy(images_NHWC), torch.from_numpy(labels_N)

    def look(task: nn.Module, epoch: int) -> dict[str, float]:
        if not config.every or epoch % config.every:
            return {}
        backbone = task.backbone
        assert isinstance(backbone, Backbone)
        modes = {module: module.training for module in backbone.modules()}
        backbone.eval()  # so that batch norm's statistics do not move
        feature_NC = feature_maps(backbone, images, backbone.pooled)
        for module, training in modes.items():
            module.training = training
        known, asking = slice(0, None, 2), slice(1, None, 2)
        accuracy = nearest_neighbour_accuracy(
            feature_NC[known], labels[known], feature_NC[asking], labels[asking], config.neighbours
        )
        return {"knn": accuracy}

    return look
