"""Settings of the evaluators: the protocols by which a frozen network is judged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bownet.config.base import Fraction, PositiveInt, Settings, check_crop_area
from bownet.config.data import Data

Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Evaluator = Literal["linear", "transfer", "fewshot", "knn", "retrieval", "finetune", "voc07_svm", "detection"]


def _refuse_none(name: str, values: tuple[float, ...]) -> None:
    """For lists without which there would be nothing to do."""
    if not values:
        raise ValueError(f"{name}=(): is empty; name one number or more")


def _check_each_once(name: str, values: tuple[float, ...]) -> None:
    """For numbers that each have a score of their own."""
    _refuse_none(name, values)
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{name}={values}: {value:g} is named twice; name each once")


class Linear(Settings):
    """Linear classifiers on frozen features, one for each tap; the defaults are the CIFAR protocol."""

    features: Literal["cached", "online"] = "cached"
    """`cached` computes the features of every plain image once; `online` anew, of random crops, in every epoch."""
    taps: tuple[str, ...] = ()
    """Features that get a classifier of their own; empty for the pooled one."""
    pool: Literal["global", "9k", "4x4"] = "global"
    """What maps are pooled to: one value a channel, about 9000 values in all (the benchmark's table), or 4x4 places."""
    epochs: PositiveInt = 60
    batch: Annotated[int, Field(ge=2)] = 128
    lr: Annotated[float, Field(gt=0, le=100)] = 0.1
    drop_every: PositiveInt = 10
    """The rate is multiplied by `drop_factor` every so many epochs."""
    drop_factor: Annotated[float, Field(gt=0, le=1)] = 0.3
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 1e-3
    batch_norm: bool = False
    """Standardise each feature over the batch, without learned scale, before the classifier."""
    crop_area: tuple[Fraction, Fraction] = (0.08, 1.0)
    """Online only: range of the random crop's area, as a fraction of the image."""

    @model_validator(mode="after")
    def _area(self) -> Linear:
        check_crop_area(self.crop_area)
        return self


class Transfer(Settings):
    """Linear classifiers on the frozen network, trained online on another set; the defaults are those of Places205."""

    data: Data = Data(kind="places205", path="data/places205", image_size=224)
    """The other set. Its kind is the first part of the metrics' names: `places205/conv4/top1`."""
    linear: Linear = Linear(
        features="online",
        pool="9k",
        epochs=14,
        batch=256,
        lr=0.01,
        drop_every=5,
        drop_factor=0.1,
        nesterov=True,
        weight_decay=1e-4,
        batch_norm=True,
    )

    @model_validator(mode="after")
    def _online(self) -> Transfer:
        if self.linear.features != "online":
            raise ValueError(f"linear.features={self.linear.features}: on another set only online is there")
        return self


class Fewshot(Settings):
    """Episodes with a cosine prototype classifier on frozen features."""

    shots: tuple[PositiveInt, ...] = (1, 5, 10, 50)
    """Numbers of images of each class to learn from, each a score of its own."""
    ways: Annotated[int, Field(ge=2)] = 5
    queries: PositiveInt = 15
    episodes: PositiveInt = 2000
    seed: Seed = 0
    """Two models with the same seed see the same episodes."""

    @model_validator(mode="after")
    def _each_once(self) -> Fewshot:
        _check_each_once("shots", self.shots)
        return self


class Knn(Settings):
    """Weighted vote of the nearest training images, by the cosine of the pooled feature: no training, a minute."""

    neighbours: tuple[PositiveInt, ...] = (1, 20, 200)
    """Numbers of neighbours, each a score of its own; never more than there are training images."""
    temperature: Annotated[float, Field(gt=0, le=100)] = 0.07
    """A neighbour's vote is exp(cosine / temperature)."""

    @model_validator(mode="after")
    def _each_once(self) -> Knn:
        _check_each_once("neighbours", self.neighbours)
        return self


class Retrieval(Settings):
    """Every test image asks for the images of its class among the training images, ranked by the cosine."""

    ranks: tuple[PositiveInt, ...] = (1, 10, 100)
    """Precision among so many first answers, beside the mean average precision."""

    @model_validator(mode="after")
    def _each_once(self) -> Retrieval:
        _check_each_once("ranks", self.ranks)
        return self


class Finetune(Settings):
    """The whole network is trained further with few labels (semi-supervised)."""

    fractions: tuple[Annotated[float, Field(gt=0, le=1)], ...] = (0.01, 0.1)
    """Shares of the labelled training images, of every class alike; each is a training of its own."""
    epochs: PositiveInt = 20
    batch: Annotated[int, Field(ge=2)] = 256
    lr: Annotated[float, Field(gt=0, le=100)] = 0.01
    """Of the backbone."""
    head_lr: Annotated[float, Field(gt=0, le=100)] = 1.0
    """Of the new classifier."""
    drops: tuple[PositiveInt, ...] = (12, 16)
    """Epochs after which both rates are multiplied by `drop_factor`."""
    drop_factor: Annotated[float, Field(gt=0, le=1)] = 0.2
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    crop_area: tuple[Fraction, Fraction] = (0.08, 1.0)
    """Range of the random crop's area, as a fraction of the image."""

    @model_validator(mode="after")
    def _each_once(self) -> Finetune:
        _check_each_once("fractions", self.fractions)
        return self

    @model_validator(mode="after")
    def _area(self) -> Finetune:
        check_crop_area(self.crop_area)
        return self

    @model_validator(mode="after")
    def _drops_within_epochs(self) -> Finetune:
        if list(self.drops) != sorted(set(self.drops)) or (self.drops and self.drops[-1] >= self.epochs):
            raise ValueError(f"drops={self.drops}: list epochs in rising order, all before epochs={self.epochs}")
        return self


class Voc07Svm(Settings):
    """Linear SVMs on frozen features of VOC2007, one per class: mean average precision on its test images."""

    path: str | None = None
    """Folder of VOCdevkit; None where data.kind=voc names it, `scenes` for one that is drawn on this machine."""
    taps: tuple[str, ...] = ()
    """Features that are scored; empty for all maps and the pooled one."""
    pool: Literal["global", "9k"] = "9k"
    """What maps are pooled to."""
    costs: Literal["goyal", "obow", "vissl"] = "goyal"
    """The list of costs C among which cross-validation chooses."""
    folds: Annotated[int, Field(ge=2, le=20)] = 3
    image_size: Annotated[int, Field(ge=16, le=1024)] = 224
    """Images are resized so that the short side is 8/7 of this, then squashed to a square of it."""
    max_iter: PositiveInt = 2000
    seed: Seed = 0


class Detection(Settings):
    """Faster R-CNN R50-C4, fine-tuned on VOC07+12 trainval and scored on VOC07 test."""

    path: str | None = None
    """Folder of VOCdevkit; None where data.kind=voc names it, `scenes` for one that is drawn on this machine."""
    train: Literal["trainval07", "trainval12", "trainval07+12"] = "trainval07+12"
    backend: Literal["torchvision", "detectron2"] = "torchvision"
    """Who builds and trains the detector; detectron2 must be installed by its own instructions."""
    steps: PositiveInt = 25_000
    drops: tuple[PositiveInt, ...] = (17_000,)
    """Steps after which the rate is multiplied by 0.1."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 16
    """Images per step, over all workers."""
    lr: Annotated[float, Field(gt=0, le=10)] = 0.02
    """For a batch of 16: with another one it is scaled in proportion."""
    warmup: Annotated[int, Field(ge=0)] = 1000
    """Steps over which the rate rises linearly."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 1e-4
    train_sizes: tuple[PositiveInt, ...] = tuple(range(480, 801, 32))
    """Short sides of the images in training, one of which is drawn for each."""
    test_size: PositiveInt = 800
    max_size: PositiveInt = 1333
    """Longest side of an image."""
    freeze: Annotated[int, Field(ge=0, le=5)] = 2
    """Stages of the backbone that are not trained: 2 is the stem and the first residual stage."""
    regions: Annotated[int, Field(ge=4, le=2000)] = 512
    """Regions of a training image that the head learns from; fewer are faster, and not the protocol."""
    proposals: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """Regions of a test image that are classified."""
    trials: Annotated[int, Field(ge=1, le=100)] = 3
    """Trainings with different seeds: mean and standard deviation are given."""
    pictures: Annotated[int, Field(ge=0, le=1000)] = 16
    """Test images that are shown with what was found in them."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _steps_in_order(self) -> Detection:
        if list(self.drops) != sorted(set(self.drops)) or (self.drops and self.drops[-1] >= self.steps):
            raise ValueError(f"drops={self.drops}: list steps in rising order, all before steps={self.steps}")
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup={self.warmup}: the rate would never be reached in steps={self.steps}; use fewer, 0 for none"
            )
        return self

    @model_validator(mode="after")
    def _sizes(self) -> Detection:
        _refuse_none("train_sizes", self.train_sizes)
        return self


class Protocols(Settings):
    """Which evaluators, and how each of them works."""

    evaluators: tuple[Evaluator, ...] = ("linear", "fewshot")
    """What a network is judged by."""
    linear: Linear = Linear()
    transfer: Transfer = Transfer()
    fewshot: Fewshot = Fewshot()
    knn: Knn = Knn()
    retrieval: Retrieval = Retrieval()
    finetune: Finetune = Finetune()
    voc07_svm: Voc07Svm = Voc07Svm()
    detection: Detection = Detection()
