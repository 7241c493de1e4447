"""Every setting of an experiment, as frozen models that are valid as soon as they exist.

The dotted name of a field (`vocabulary.size`) is its name on the command line, in sweeps and in MLflow.
Defaults are the paper's for CIFAR-100 where it states them; `pipelines/presets.py` holds complete experiments.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Settings(BaseModel):
    """Base of all settings: immutable, no unknown fields, no infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Data(Settings):
    """Which images, and how many."""

    kind: Literal[
        "scenes",
        "folder",
        "parquet",
        "webdataset",
        "cifar10",
        "cifar100",
        "miniimagenet",
        "imagenet",
        "places205",
        "voc",
    ] = "scenes"
    """Where images come from. `scenes` is drawn on the spot from a seed; all others are read from `path`."""
    path: str | None = None
    """Folder, file or URI of the data set. CIFAR is downloaded into it when absent."""
    labels: Literal["auto", "folders", "none"] = "auto"
    """Image folders only: `folders` takes each image's class from its folder, `none` ignores folders, `auto` looks."""
    image_size: Annotated[int, Field(ge=16, le=1024)] = 32
    """Side in pixels of the square images that networks see."""
    storage: Literal["auto", "raw", "encoded"] = "auto"
    """`raw` keeps image_size squares as pixels, `encoded` the files as they are; `auto` is raw up to 96 pixels."""
    train: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """At most this many training images, evenly over the classes; None means all (4000 scenes)."""
    test: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """At most this many test images; None means all (1200 scenes)."""
    fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the training images that is used, of every class alike: 0.2 is the paper's ImageNet-20%."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of each class that is held out as test images when the set has no test images of its own."""
    novel_per_class: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Images of each novel category, for few-shot episodes; None means all (100 scenes)."""
    voc_train: Literal["trainval07", "trainval12", "trainval07+12"] = "trainval07+12"
    """VOC only: the images to train on. The test images are those of VOC2007."""
    image_column: str = "image"
    """Parquet only: the column of encoded images, binary or {bytes, path}."""
    label_column: str = "label"
    """Parquet only: the column of class numbers or names; without it the images have no labels."""
    max_bad_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Share of images of a split that may be unreadable before the run stops."""
    shard_size: PositiveInt = 1000
    """Images per stored file, the unit of parallel work and of resuming."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of drawn pictures and of every choice of images; training has its own seed."""

    @model_validator(mode="after")
    def _path_where_needed(self) -> Data:
        if self.kind == "scenes" and self.path is not None:
            raise ValueError(
                f"path={self.path}: scenes are drawn, not read; name the kind of data there, such as folder"
            )
        if self.kind != "scenes" and not self.path:
            raise ValueError(f"path=None: kind={self.kind} is read from files, name their folder with --data.path")
        return self

    @property
    def is_raw(self) -> bool:
        """Whether images are stored as pixels of their final size."""
        return self.storage == "raw" or (self.storage == "auto" and self.image_size <= 96)


class Optimiser(Settings):
    """SGD and its schedule."""

    epochs: PositiveInt = 30
    """Epochs of training."""
    iterations_per_epoch: Annotated[int, Field(ge=1)] | None = 2000
    """Batches that count as one epoch; None means one pass over the images."""
    batch: Annotated[int, Field(ge=2, le=65536)] = 128
    """Images per step, over all workers together."""
    lr: Annotated[float, Field(gt=0, le=100)] = 0.1
    """Initial learning rate."""
    schedule: Literal["step", "cosine"] = "step"
    """`step` multiplies the rate by `drop_factor` at `drops`; `cosine` lowers it to zero."""
    drops: tuple[Annotated[int, Field(ge=1)], ...] = (12, 24)
    """Epochs after which the rate is multiplied by `drop_factor`."""
    drop_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """What a drop multiplies the learning rate by."""
    warmup_epochs: Annotated[float, Field(ge=0)] = 0.0
    """Epochs over which the rate rises linearly from near zero."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    nesterov: bool = True
    """Nesterov's form of momentum."""
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 5e-4
    """L2 penalty."""
    decay: Literal["all", "weights"] = "all"
    """What is penalised: all parameters, or weight matrices only (no biases, no batch norm, no scales)."""
    lr_batch: Annotated[int, Field(ge=1)] | None = None
    """The batch that `lr` is meant for: with another one it is scaled in proportion. None takes it as it is."""
    clip: Annotated[float, Field(gt=0)] | None = None
    """Gradients longer than this are shortened to it."""
    accumulate: Annotated[int, Field(ge=1, le=1024)] = 1
    """Parts in which a batch is computed one after the other, to save memory; batch norm sees a part at a time."""
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Decay per step of a moving average of the weights, which is what is kept in the end; 0 keeps the weights."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of activations on a GPU; on a CPU it is always float32."""
    compile: bool = False
    """torch.compile: a slow start, then faster steps."""
    sync_batch_norm: bool = False
    """Batch norm over the batch of all workers (GPUs only), for small parts per worker."""

    @model_validator(mode="after")
    def _drops_within_epochs(self) -> Optimiser:
        if self.schedule == "step" and list(self.drops) != sorted(set(self.drops)):
            raise ValueError(f"drops={self.drops}: list epochs in rising order, each once")
        if self.schedule == "step" and self.drops and self.drops[-1] >= self.epochs:
            raise ValueError(f"drops={self.drops}: the last drop must come before the end, epochs={self.epochs}")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs={self.warmup_epochs}: must be below epochs={self.epochs}")
        if 2 * self.accumulate > self.batch:
            raise ValueError(f"accumulate={self.accumulate}: leaves less than 2 images of batch={self.batch} in a part")
        return self

    @property
    def base_lr(self) -> float:
        """`lr` for this batch."""
        return self.lr * (self.batch / self.lr_batch if self.lr_batch else 1.0)


class Net(Settings):
    """Architecture of a feature extractor."""

    arch: str = "wrn-28-10"
    """`wrn-<depth>-<width>` for small images, or resnet18, resnet50."""

    @field_validator("arch")
    @classmethod
    def _known(cls, arch: str) -> str:
        match = re.fullmatch(r"wrn-(\d+)-(\d+)", arch)
        if match and int(match[1]) >= 10 and (int(match[1]) - 4) % 6 == 0 and 1 <= int(match[2]) <= 64:
            return arch
        if arch in ("resnet18", "resnet50"):
            return arch
        raise ValueError("known are wrn-<6n+4>-<width> (wrn-10-2, wrn-28-10), resnet18, resnet50")


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
    net: Net = Net()
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
    """Give each principal component the same variance."""
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
        if not 0 < self.crop_area[0] <= self.crop_area[1]:
            raise ValueError(f"crop_area={self.crop_area}: needs 0 < low <= high <= 1")
        if self.crop_aspect[0] > self.crop_aspect[1]:
            raise ValueError(f"crop_aspect={self.crop_aspect}: needs low <= high")
        if self.blur_sigma[0] > self.blur_sigma[1]:
            raise ValueError(f"blur_sigma={self.blur_sigma}: needs low <= high")
        return self


class Student(Settings):
    """The network that learns to predict bags of words, equations 3 to 6."""

    net: Net = Net()
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


class Linear(Settings):
    """Linear classifier on frozen features, CIFAR protocol."""

    epochs: PositiveInt = 60
    batch: Annotated[int, Field(ge=2)] = 128
    lr: Annotated[float, Field(gt=0, le=100)] = 0.1
    drop_every: PositiveInt = 10
    """The rate is multiplied by `drop_factor` every so many epochs."""
    drop_factor: Annotated[float, Field(gt=0, le=1)] = 0.3
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 1e-3
    batch_norm: bool = False
    """Standardise each feature over the batch, without learned scale, before the classifier."""


class Fewshot(Settings):
    """Episodes with a cosine prototype classifier on frozen features."""

    shots: tuple[PositiveInt, ...] = (1, 5, 10, 50)
    ways: Annotated[int, Field(ge=2)] = 5
    queries: PositiveInt = 15
    episodes: PositiveInt = 2000
    seed: Annotated[int, Field(ge=0)] = 0
    """Two models with the same seed see the same episodes."""


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


class Experiment(Settings):
    """A complete experiment: images, teacher, rounds of vocabulary and student, evaluation."""

    name: str = "experiment"
    """Name of the experiment in MLflow."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Seed of all training and clustering."""
    rounds: Annotated[int, Field(ge=0, le=16)] = 1
    """How often a student is trained; each one teaches the next. 0 evaluates the base teacher only."""
    data: Data = Data()
    teacher: Teacher = Teacher()
    vocabulary: Vocabulary = Vocabulary()
    student: Student = Student()
    per_round: tuple[Round, ...] = ()
    """Tap and PCA of each round, as for a random base; empty for the vocabulary's own in every round."""
    proxy: Proxy = Proxy()
    linear: Linear = Linear()
    fewshot: Fewshot = Fewshot()

    @model_validator(mode="after")
    def _one_per_round(self) -> Experiment:
        if self.per_round and len(self.per_round) != self.rounds:
            raise ValueError(f"per_round has {len(self.per_round)} entries for rounds={self.rounds}: give one for each")
        return self

    def vocabulary_of_round(self, round: int) -> Vocabulary:
        """Settings of round 1, 2, ..."""
        own = self.per_round[round - 1].model_dump() if self.per_round else {}
        return self.vocabulary.model_copy(update=own)
