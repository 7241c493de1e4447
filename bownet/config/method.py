"""Settings of the method, section 2 of the paper: teacher, vocabulary, perturbation, student."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bownet.config.base import Fraction, PositiveInt, Settings, check_crop_area
from bownet.config.training import Arch, Net, Optimiser


class Teacher(Settings):
    """The base convnet whose features become the first vocabulary."""

    kind: Literal[
        "rotation",
        "relative_location",
        "deeper_clustering",
        "supervised",
        "cosine_classifier",
        "random",
        "checkpoint",
    ] = "rotation"
    """What it learns: the task's name; `random` keeps the initial weights, `checkpoint` reads them from `weights`."""
    arch: Arch = "wrn-28-10"
    """`wrn-<depth>-<width>` for small images, or resnet18, resnet50."""
    weights: str | None = None
    """File of a state dict for kind=checkpoint: torchvision's, MoCo's, DINO's or one saved by this program."""
    clusters: Annotated[int, Field(ge=2, le=65536)] = 512
    """Image clusters of deeper_clustering."""
    renew_every: PositiveInt = 3
    """Epochs after which deeper_clustering clusters anew."""
    rotnet_first: Optimiser | None = None
    """How a RotNet is trained from which deeper_clustering goes on, as in the paper; None starts from scratch."""
    head_layers: Annotated[int, Field(ge=1, le=16)] = 4
    """Residual layers of the rotation head."""
    pad: Annotated[int, Field(ge=0, le=64)] = 4
    """Padding of the random crop that a RotNet sees."""
    optimiser: Optimiser = Optimiser()

    @model_validator(mode="after")
    def _weights_for_a_checkpoint(self) -> Teacher:
        if (self.kind == "checkpoint") != (self.weights is not None):
            raise ValueError(
                f"kind={self.kind}, weights={self.weights}: a file of weights and kind=checkpoint belong together"
            )
        if self.rotnet_first and self.kind != "deeper_clustering":
            raise ValueError(f"rotnet_first: only deeper_clustering goes on from a RotNet, not kind={self.kind}")
        return self

    @property
    def net(self) -> Net:
        return Net(arch=self.arch)


class Vocabulary(Settings):
    """k-means over the teacher's feature vectors, equations 1 and 2."""

    size: Annotated[int, Field(ge=2, le=65536)] = 2048
    """Number of visual words K. Words are stored as uint16."""
    tap: str = "block3"
    """The teacher's feature map that is quantised."""
    max_points_per_word: PositiveInt | None = 256
    """k-means sees at most this many vectors per word, sampled evenly over the images; None means all."""
    pca: PositiveInt | None = None
    """Principal components that are clustered instead of the features; the paper uses it for a random base."""
    whiten: bool = False
    """Give each principal component the same variance; there must be some."""
    init: Literal["kmeans++", "random"] = "kmeans++"
    """How the first centroids are chosen."""
    iterations: Annotated[int, Field(ge=1, le=10_000)] = 50
    """At most this many rounds of Lloyd's algorithm."""
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-4
    """Stop when the inertia falls by less than this fraction."""
    restarts: Annotated[int, Field(ge=1, le=100)] = 1
    """k-means runs so often, from other first centroids; the lowest inertia is kept."""
    flip: bool = False
    """Also take the words of the mirrored image, as the paper does on ImageNet."""
    min_perplexity: Annotated[float, Field(ge=0)] = 0.0
    """Stop before a student is trained when fewer words than this are really in use."""


class Perturbation(Settings):
    """g(x) of section 2.3. The paper names no crop range, so it is recorded with every result."""

    crop_area: tuple[Fraction, Fraction] = (0.2, 1.0)
    """Range of the cropped area as a fraction of the image."""
    crop_aspect: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (3 / 4, 4 / 3)
    """Range of the crop's aspect ratio."""
    jitter_probability: Fraction = 0.8
    """How often the colours are jittered."""
    brightness: Fraction = 0.4
    contrast: Fraction = 0.4
    saturation: Fraction = 0.4
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.1
    grey_probability: Fraction = 0.2
    """How often an image becomes grey."""
    blur_probability: Fraction = 0.0
    """How often an image is blurred; the paper does not."""
    blur_sigma: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] = (0.1, 2.0)
    """Range of the Gaussian's standard deviation in pixels."""

    @model_validator(mode="after")
    def _ranges(self) -> Perturbation:
        check_crop_area(self.crop_area)
        if self.crop_aspect[0] > self.crop_aspect[1]:
            raise ValueError(f"crop_aspect={self.crop_aspect}: needs low <= high")
        if self.blur_sigma[0] > self.blur_sigma[1]:
            raise ValueError(f"blur_sigma={self.blur_sigma}: needs low <= high")
        return self


class Student(Settings):
    """The network that learns to predict bags of words, equations 3 to 6."""

    arch: Arch = "wrn-28-10"
    """`wrn-<depth>-<width>` for small images, or resnet18, resnet50."""
    bow: Literal["count", "binary"] = "count"
    """Equation 3 (how often a word occurs) or 4 (whether it does)."""
    drop_border: bool = True
    """Leave out the words at the edge of the feature map."""
    cutmix: bool = True
    """Replace a patch of each image by one of another image, and mix their targets."""
    head: Literal["cosine", "linear"] = "cosine"
    """Equation 5 (unit-norm word weights, one scale) or a plain linear layer."""
    pyramid: bool = False
    """Also predict the bags of the four quarters of the image (Sp-BoWNet)."""
    target: Literal["clean", "perturbed"] = "clean"
    """Words of the clean image, or, as an ablation, those that the teacher gives the perturbed one."""
    perturbation: Perturbation = Perturbation()
    optimiser: Optimiser = Optimiser()

    @property
    def net(self) -> Net:
        return Net(arch=self.arch)


class Round(Settings):
    """What one round has of its own, in place of the vocabulary's settings."""

    tap: str
    pca: PositiveInt | None = None


class Proxy(Settings):
    """A look at the features while they are trained: k nearest neighbours on held-out training images with labels."""

    every: Annotated[int, Field(ge=0)] = 0
    """Epochs between two looks; 0 never looks."""
    images: Annotated[int, Field(ge=20, le=100_000)] = 1000
    """Labelled images that are looked at; half of them are the neighbours."""
    neighbours: Annotated[int, Field(ge=1, le=1000)] = 10
