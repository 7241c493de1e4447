"""The same detector by detectron2, where that is installed: a backbone goes in, its own R50-C4 model comes out.

The config is made here in code. Images, the order of steps, the optimiser and the format of detections are those of the
other back end, so that the two differ in what detectron2 itself does: anchors, sampling, cutting of regions, losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from bownet.nets.exporting import detectron2_state
from bownet.nets.resnet import ResNet
from bownet.nets.taps import Backbone
from evaluation.detection.c4 import ANCHOR_RATIOS, ANCHOR_SIZES, REGION, RPN_BATCH, Regions, found_in
from evaluation.detection.detector import Detector, Found
from evaluation.detection.views import View
from evaluation.detection.weights import load_verified

HEADS = "Res5ROIHeadsExtraNorm"


def detectron2_config(backbone: ResNet, classes: int, freeze: int, regions: Regions) -> Any:
    """detectron2's Base-RCNN-C4 and PascalVOC-Detection, with the norms of the protocol."""
    from detectron2.config import get_cfg

    cfg = get_cfg()
    model = cfg.MODEL
    model.DEVICE, model.WEIGHTS, model.MASK_ON = "cpu", "", False  # it is moved and loaded later
    model.META_ARCHITECTURE = "GeneralizedRCNN"
    model.BACKBONE.NAME, model.BACKBONE.FREEZE_AT = "build_resnet_backbone", freeze
    model.RESNETS.DEPTH, model.RESNETS.STRIDE_IN_1X1 = 50, False
    model.RESNETS.NORM = "BN"  # several GPU workers turn it into torch.nn.SyncBatchNorm, which is what SyncBN names
    model.RESNETS.OUT_FEATURES = ["res4"]
    model.ANCHOR_GENERATOR.SIZES, model.ANCHOR_GENERATOR.ASPECT_RATIOS = [[*ANCHOR_SIZES]], [[*ANCHOR_RATIOS]]
    model.RPN.IN_FEATURES, model.ROI_HEADS.IN_FEATURES = ["res4"], ["res4"]
    model.RPN.PRE_NMS_TOPK_TRAIN, model.RPN.POST_NMS_TOPK_TRAIN = 12000, 2000
    model.RPN.PRE_NMS_TOPK_TEST, model.RPN.POST_NMS_TOPK_TEST = 6 * regions.test, regions.test
    model.RPN.BATCH_SIZE_PER_IMAGE = RPN_BATCH
    model.ROI_HEADS.NAME, model.ROI_HEADS.NUM_CLASSES = _extra_norm_heads(), classes
    model.ROI_HEADS.BATCH_SIZE_PER_IMAGE = regions.train
    model.ROI_BOX_HEAD.POOLER_RESOLUTION = REGION
    model.PIXEL_MEAN = [255 * value for value in backbone.input_mean.tolist()]
    model.PIXEL_STD = [255 * value for value in backbone.input_std.tolist()]
    cfg.INPUT.FORMAT = "RGB"
    return cfg


@lru_cache(maxsize=1)
def _extra_norm_heads() -> str:
    """Register heads whose res5 ends with one more norm; the name under which detectron2 knows them."""
    from detectron2.layers import get_norm
    from detectron2.modeling.roi_heads import ROI_HEADS_REGISTRY, Res5ROIHeads

    class Res5ROIHeadsExtraNorm(Res5ROIHeads):  # type: ignore[misc]  # detectron2 has no types
        @classmethod
        def _build_res5_block(cls, cfg: Any) -> tuple[Any, int]:
            blocks, channels = super()._build_res5_block(cfg)
            blocks.add_module("norm", get_norm(cfg.MODEL.RESNETS.NORM, channels))
            return blocks, channels

    if HEADS not in ROI_HEADS_REGISTRY:
        ROI_HEADS_REGISTRY.register(Res5ROIHeadsExtraNorm)
    return HEADS


class Detectron2Detector(Detector):
    """A model of detectron2 behind the interface of ours."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def features(self, views: Sequence[View]) -> Tensor:
        """conv4 of the images, which is detectron2's res4."""
        images = self.model.preprocess_image([{"image": view.pixels_CHW} for view in views])
        map_NCHW: Tensor = self.model.backbone(images.tensor)["res4"]
        return map_NCHW

    def losses(self, views: Sequence[View]) -> dict[str, Tensor]:
        from detectron2.structures import Boxes, Instances
        from detectron2.utils.events import EventStorage

        inputs = []
        for view in views:
            assert view.objects is not None
            truth = Instances(tuple(view.pixels_CHW.shape[1:]))
            truth.gt_boxes, truth.gt_classes = Boxes(view.objects.boxes_M4), view.objects.labels_M
            inputs.append({"image": view.pixels_CHW, "instances": truth})
        with EventStorage(0):  # it notes counts there, which no one reads
            losses = self.model(inputs)
        ours = {"loss_rpn_cls": "objectness", "loss_rpn_loc": "proposal", "loss_cls": "class", "loss_box_reg": "box"}
        return {ours[name]: value for name, value in losses.items()}

    @torch.no_grad()
    def detect(self, views: Sequence[View]) -> list[Found]:
        assert not self.training
        results = self.model.inference([{"image": view.pixels_CHW} for view in views], do_postprocess=False)
        return [
            found_in(view, one.pred_boxes.tensor, one.pred_classes, one.scores)
            for view, one in zip(views, results, strict=True)
        ]


def detectron2_detector(
    backbone: Backbone, classes: int, freeze: int, seed: int, regions: Regions | None = None
) -> Detectron2Detector:
    """A detector with every weight of `backbone`, which is left alone; new layers are drawn from the seed."""
    if not isinstance(backbone, ResNet) or backbone.tap_channels["conv5"] != 2048:
        raise ValueError("detection.backend=detectron2: it is for a resnet50; use torchvision for a resnet18")
    from detectron2.modeling import build_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        detector = Detectron2Detector(build_model(detectron2_config(backbone, classes, freeze, regions or Regions())))
    if freeze > 4:  # detectron2 does not count res5 among the stages that it freezes
        for block in detector.model.roi_heads.res5:
            if hasattr(block, "freeze"):
                block.freeze()
    detector.new = load_verified(detector, renamed(backbone), _is_backbone)
    return detector


def renamed(backbone: Backbone) -> dict[str, Tensor]:
    """A backbone's weights by their names in the detector. Its input statistics are in the config."""
    return {
        f"model.{'roi_heads' if name.startswith('res5.') else 'backbone'}.{name}": value
        for name, value in detectron2_state(backbone).items()
    }


def _is_backbone(name: str) -> bool:
    return name.startswith("model.backbone.") or (
        name.startswith("model.roi_heads.res5.") and not name.startswith("model.roi_heads.res5.norm.")
    )
