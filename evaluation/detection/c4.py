"""Faster R-CNN R50-C4 of torchvision's parts: a backbone goes in, a detector with its weights comes out.

conv1..conv4 make one map of stride 16; regions are cut from it, and conv5 with one more batch norm is what looks at
them. Numbers are those of detectron2's C4 models; anchors, cutting and losses too are made as it makes them, where
torchvision's own differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.ops import FrozenBatchNorm2d, RoIAlign

from bownet.nets.resnet import ResNet
from bownet.nets.taps import Backbone
from evaluation.detection.detector import Detector, Found
from evaluation.detection.views import View
from evaluation.detection.weights import load_verified

STRIDE = 16
ANCHOR_SIZES = (32, 64, 128, 256, 512)
ANCHOR_RATIOS = (0.5, 1.0, 2.0)
REGION = 14  # places on a side of a region that is cut from conv4
RPN_BATCH = 256  # anchors of an image that the loss sees


@dataclass(frozen=True)
class Regions:
    """How many regions are looked at; the protocol's numbers."""

    train: int = 512  # of an image, in the loss
    test: int = 1000  # of an image, that are classified


class Trunk(nn.Module):
    """conv1..conv4 with torchvision's names."""

    def __init__(self, backbone: ResNet) -> None:
        super().__init__()
        self.conv1, self.bn1 = backbone.conv1, backbone.bn1
        self.relu, self.maxpool = backbone.relu, backbone.maxpool
        self.layer1, self.layer2, self.layer3 = backbone.layer1, backbone.layer2, backbone.layer3

    def forward(self, x_NCHW: Tensor) -> Tensor:
        h = self.maxpool(self.relu(self.bn1(self.conv1(x_NCHW))))
        h = self.layer3(self.layer2(self.layer1(h)))
        assert isinstance(h, Tensor)
        return h


class Res5(nn.Module):
    """conv5 on every region, one more norm, and the mean over the places."""

    def __init__(self, layer4: nn.Module, channels: int) -> None:
        super().__init__()
        self.layer4 = layer4
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x_RCHW: Tensor) -> Tensor:
        x_RCHW = x_RCHW.contiguous(memory_format=torch.channels_last)  # which cutting does not keep
        y_RC: Tensor = self.norm(self.layer4(x_RCHW)).mean((2, 3))
        return y_RC


class Anchors(nn.Module):
    """Boxes of every size and shape around every place of the map, the first of which lies on the image's corner.

    torchvision's own rounds its boxes to pixels and takes for the stride what the division of two sizes gives.
    """

    cell_A4: Tensor

    def __init__(self) -> None:
        super().__init__()
        cell = [(s / r**0.5, s * r**0.5) for s in ANCHOR_SIZES for r in ANCHOR_RATIOS]
        half = torch.tensor([[-w / 2, -h / 2, w / 2, h / 2] for w, h in cell])
        self.register_buffer("cell_A4", half, persistent=False)

    def forward(self, images: ImageList, maps: list[Tensor]) -> list[Tensor]:
        (height, width), device = maps[0].shape[-2:], maps[0].device
        y, x = torch.meshgrid(
            torch.arange(height, device=device) * STRIDE, torch.arange(width, device=device) * STRIDE, indexing="ij"
        )
        place_P4 = torch.stack([x, y, x, y], -1).reshape(-1, 1, 4)
        return [(place_P4 + self.cell_A4).reshape(-1, 4)] * len(images.image_sizes)


class Proposals(RegionProposalNetwork):  # type: ignore[misc]  # torchvision has no types
    """torchvision's network of proposals with detectron2's losses: L1, and divided by the number that is asked for."""

    def compute_loss(
        self, objectness: Tensor, pred_bbox_deltas: Tensor, labels: list[Tensor], regression_targets: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        positive, negative = (torch.cat(masks).bool() for masks in self.fg_bg_sampler(labels))
        seen, truth, target = positive | negative, torch.cat(labels), torch.cat(regression_targets)
        scale = 1 / (RPN_BATCH * len(labels))
        found = F.binary_cross_entropy_with_logits(objectness.flatten()[seen], truth[seen], reduction="sum")
        placed = F.l1_loss(pred_bbox_deltas[positive], target[positive], reduction="sum")
        return found * scale, placed * scale


class Heads(RoIHeads):  # type: ignore[misc]
    """torchvision's heads with L1 for the boxes."""

    def forward(
        self,
        features: dict[str, Tensor],
        proposals: list[Tensor],
        image_shapes: list[tuple[int, int]],
        targets: list[dict[str, Tensor]] | None = None,
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        if not self.training:
            logits, deltas = self.box_predictor(self.box_head(self.box_roi_pool(features["conv4"], proposals)))
            found = self.postprocess_detections(logits, deltas, proposals, image_shapes)
            return [dict(zip(("boxes", "scores", "labels"), one, strict=True)) for one in zip(*found, strict=True)], {}
        chosen, _, labels, wanted = self.select_training_samples(proposals, targets)
        logits, deltas = self.box_predictor(self.box_head(self.box_roi_pool(features["conv4"], chosen)))
        label_R, wanted_R4 = torch.cat(labels), torch.cat(wanted)
        object_R = label_R > 0
        deltas_RK4 = deltas.reshape(len(label_R), -1, 4)
        placed = F.l1_loss(deltas_RK4[object_R, label_R[object_R]], wanted_R4[object_R], reduction="sum")
        return [], {"class": F.cross_entropy(logits, label_R), "box": placed / max(1, len(label_R))}


class C4Detector(Detector):
    """Faster R-CNN with the weights of `backbone`, which it takes over."""

    input_mean: Tensor
    input_std: Tensor

    def __init__(self, backbone: ResNet, classes: int, freeze: int, regions: Regions, seed: int) -> None:
        super().__init__()
        channels, features = backbone.tap_channels["conv4"], backbone.tap_channels["conv5"]
        self.register_buffer("input_mean", torch.zeros(3))
        self.register_buffer("input_std", torch.ones(3))
        self.trunk = Trunk(backbone)
        with torch.random.fork_rng(devices=[]):  # new layers are drawn from the global state
            torch.manual_seed(seed)
            head = RPNHead(channels, len(ANCHOR_SIZES) * len(ANCHOR_RATIOS))
            predictor = FastRCNNPredictor(features, classes + 1)
            for layer, deviation in ((predictor.cls_score, 0.01), (predictor.bbox_pred, 0.001)):
                nn.init.normal_(layer.weight, std=deviation)
                nn.init.zeros_(layer.bias)
        self.rpn = Proposals(
            Anchors(),
            head,
            fg_iou_thresh=0.7,
            bg_iou_thresh=0.3,
            batch_size_per_image=RPN_BATCH,
            positive_fraction=0.5,
            pre_nms_top_n={"training": 12000, "testing": 6 * regions.test},
            post_nms_top_n={"training": 2000, "testing": regions.test},
            nms_thresh=0.7,
        )
        self.heads = Heads(
            RoIAlign(REGION, 1 / STRIDE, sampling_ratio=0, aligned=True),
            Res5(backbone.layer4, features),
            predictor,
            fg_iou_thresh=0.5,
            bg_iou_thresh=0.5,
            batch_size_per_image=regions.train,
            positive_fraction=0.25,
            bbox_reg_weights=(10.0, 10.0, 5.0, 5.0),
            score_thresh=0.05,
            nms_thresh=0.5,
            detections_per_img=100,
        )
        _freeze(self, freeze)

    def features(self, views: Sequence[View]) -> tuple[Tensor, list[tuple[int, int]]]:
        """conv4 of the images, each scaled and then padded with zeros to the largest, and their sizes."""
        device = self.input_mean.device
        sizes = [(view.pixels_CHW.shape[1], view.pixels_CHW.shape[2]) for view in views]
        height, width = (max(side) for side in zip(*sizes, strict=True))
        x_NCHW = torch.zeros(len(views), 3, height, width, device=device, dtype=self.input_mean.dtype)
        mean, std = (value.view(3, 1, 1) for value in (self.input_mean, self.input_std))
        for i, (view, (h, w)) in enumerate(zip(views, sizes, strict=True)):
            x_NCHW[i, :, :h, :w] = (view.pixels_CHW.to(device, non_blocking=True) / 255 - mean) / std
        return self.trunk(x_NCHW.contiguous(memory_format=torch.channels_last)), sizes

    def losses(self, views: Sequence[View]) -> dict[str, Tensor]:
        map_NCHW, sizes = self.features(views)
        targets = []
        for view in views:
            assert view.objects is not None
            boxes, labels = view.objects.boxes_M4.to(map_NCHW.device), view.objects.labels_M.to(map_NCHW.device)
            targets.append({"boxes": boxes, "labels": labels + 1})  # 0 is the background
        images, maps = ImageList(map_NCHW, sizes), {"conv4": map_NCHW}
        proposals, of_rpn = self.rpn(images, maps, targets)
        _, of_heads = self.heads(maps, proposals, sizes, targets)
        return {"objectness": of_rpn["loss_objectness"], "proposal": of_rpn["loss_rpn_box_reg"], **of_heads}

    @torch.no_grad()
    def detect(self, views: Sequence[View]) -> list[Found]:
        assert not self.training
        map_NCHW, sizes = self.features(views)
        maps = {"conv4": map_NCHW}
        proposals, _ = self.rpn(ImageList(map_NCHW, sizes), maps)
        results, _ = self.heads(maps, proposals, sizes)
        return [
            found_in(view, one["boxes"], one["labels"] - 1, one["scores"])
            for view, one in zip(views, results, strict=True)
        ]


def found_in(view: View, boxes_D4: Tensor, labels_D: Tensor, scores_D: Tensor) -> Found:
    """Boxes of a view in the pixels of its image, cut at its edges; those that are empty then are left out."""
    (height, width), (_, h, w) = view.size, view.pixels_CHW.shape
    edge = torch.tensor([width, height] * 2, dtype=torch.float32)
    boxes_D4 = boxes_D4.float().cpu() * torch.tensor([width / w, height / h] * 2)
    boxes_D4 = boxes_D4.clamp(min=0).minimum(edge)
    kept = (boxes_D4[:, 2:] > boxes_D4[:, :2]).all(1)
    return Found(boxes_D4[kept], labels_D.cpu()[kept], scores_D.float().cpu()[kept])


def torchvision_detector(
    backbone: Backbone, classes: int, freeze: int, seed: int, regions: Regions | None = None
) -> C4Detector:
    """A detector with every weight of `backbone`, which is left alone; new layers are drawn from the seed."""
    if not isinstance(backbone, ResNet):
        raise ValueError(f"net={type(backbone).__name__}: detection needs a resnet50 (or resnet18 for small runs)")
    depth = 50 if backbone.tap_channels["conv5"] == 2048 else 18
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        detector = C4Detector(ResNet(depth), classes, freeze, regions or Regions(), seed)
    detector.new = load_verified(detector, renamed(backbone), _is_backbone)
    return detector.to(memory_format=torch.channels_last)


def renamed(backbone: Backbone) -> dict[str, Tensor]:
    """A backbone's weights by their names in the detector."""
    places = {"input": "", "layer4": "heads.box_head."}  # all others are of the trunk
    return {
        places.get(name.partition(".")[0].partition("_")[0], "trunk.") + name: value
        for name, value in backbone.state_dict().items()
    }


def _is_backbone(name: str) -> bool:
    return name.startswith(("trunk.", "heads.box_head.layer4.", "input_"))


def _freeze(detector: C4Detector, stages: int) -> None:
    """The first stages are not trained: no gradients, and norms with the statistics that they came with."""
    trunk = detector.trunk
    parts = [[("conv1", trunk), ("bn1", trunk)], *([(f"layer{i}", trunk)] for i in (1, 2, 3))]
    parts.append([("layer4", detector.heads.box_head)])
    for name, owner in (part for stage in parts[:stages] for part in stage):
        setattr(owner, name, _frozen(getattr(owner, name)))


def _frozen(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.BatchNorm2d):
        return FrozenBatchNorm2d(module.num_features, module.eps)
    for name, child in module.named_children():
        setattr(module, name, _frozen(child))
    return module.requires_grad_(False)
