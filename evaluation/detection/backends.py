"""Who builds the detector: settings and a backbone go in, a detector of the back end that was asked for comes out."""

from __future__ import annotations

from importlib.util import find_spec

from bownet.config import Detection
from bownet.nets.taps import Backbone
from evaluation.detection.detector import Detector

SOURCE = "git+https://github.com/facebookresearch/detectron2.git"
ARCHS = {"torchvision": ("resnet50", "resnet18"), "detectron2": ("resnet50",)}


def check_backend(backend: str, arch: str | None = None) -> None:
    """Raise a ValueError of one line for a back end that is not there, or that has no such network."""
    if backend not in ARCHS:
        raise ValueError(f"detection.backend={backend}: unknown; there are {', '.join(ARCHS)}")
    if backend == "detectron2" and find_spec("detectron2") is None:
        raise ValueError(
            "detection.backend=detectron2: it is not installed; use the default, torchvision, or install it with "
            f'pip install "setuptools<81" and pip install --no-build-isolation {SOURCE}'
        )
    if arch is not None and arch not in ARCHS[backend]:
        raise ValueError(f"arch={arch}: detection by {backend} has {' and '.join(ARCHS[backend])}; use one of them")


def build_detector(settings: Detection, backbone: Backbone, classes: int, seed: int) -> Detector:
    """With every weight of the backbone; new layers are drawn from the seed."""
    check_backend(settings.backend)
    # Here, because torchvision's detectors take two seconds to import, which every program would spend at its start.
    from evaluation.detection.c4 import Regions, torchvision_detector
    from evaluation.detection.detectron2_backend import detectron2_detector

    build = {"torchvision": torchvision_detector, "detectron2": detectron2_detector}[settings.backend]
    return build(backbone, classes, settings.freeze, seed, Regions(settings.regions, settings.proposals))
