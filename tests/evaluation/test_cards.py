"""Protocol cards: one form, differences to the paper in plain words, and who may share a column."""

import json
from pathlib import Path
from typing import Any

import pytest

from bownet.config import Detection, Fewshot, Finetune, Knn, Linear, Retrieval, Voc07Svm
from evaluation.cards import (
    Card,
    card,
    completed,
    fewshot_card,
    finetune_card,
    knn_card,
    linear_card,
    online_linear_card,
    retrieval_card,
    transfer_card,
    versions,
    voc07_svm_card,
    workers_of,
)
from evaluation.detection.card import detection_card
from evaluation.paper import REFERENCES, differences, reference_for, report, share_a_column, unlike

POOLING = {"pool": "one value a channel, 640 values"}
CIFAR: dict[str, Any] = {
    "set": "cifar100",
    "key": "0" * 20,
    "image_size": 32,
    "storage": "raw",
    "train": {"split": "train", "images": 50_000, "classes": 100},
    "test": {"split": "test", "images": 10_000, "classes": 100},
}
SCENES = {
    **CIFAR,
    "set": "scenes",
    "train": {"split": "train", "images": 240, "classes": 12},
    "test": {"split": "test", "images": 10_000, "classes": 12},
}


def test_the_papers_protocol_differs_in_nothing() -> None:
    assert report(linear_card(Linear(), 0, CIFAR, POOLING)) is None
    novel = {**CIFAR, "test": {"split": "novel", "images": 2000, "classes": 20}}
    assert report(fewshot_card(Fewshot(), novel, POOLING)) is None
    imagenet = {**CIFAR, "set": "imagenet", "image_size": 224, "storage": "encoded", "train": {"images": 1_281_167}}
    imagenet["test"] = {"images": 50_000}
    benchmark = {"features": "online", "pool": "9k", "batch": 256, "lr": 0.01, "drop_factor": 0.1, "epochs": 28}
    config = Linear(**benchmark, drop_every=10, weight_decay=1e-4, nesterov=True, batch_norm=True)
    assert report(online_linear_card(config, 0, imagenet, POOLING)) is None  # where the paper is silent, all is well
    small = Linear(features="online", pool="4x4", epochs=60, lr=0.1, drop_every=20, drop_factor=0.1)
    assert reference_for(online_linear_card(small, 0, imagenet, POOLING)).name == "ImageNet with ResNet-18"
    assert report(online_linear_card(small, 0, imagenet, POOLING)) is None


IMAGENET = {**CIFAR, "set": "imagenet", "image_size": 224, "storage": "encoded"}
IMAGENET |= {"train": {"images": 1_281_167}, "test": {"images": 50_000}}
PLACES = {**IMAGENET, "set": "places205", "train": {"images": 2_448_873}, "test": {"images": 20_500}}
BENCHMARK: dict[str, Any] = {"features": "online", "pool": "9k", "batch": 256, "lr": 0.01, "drop_factor": 0.1}
BENCHMARK |= {"epochs": 28, "drop_every": 10, "weight_decay": 1e-4, "nesterov": True}
SHORT_SIDE_224 = (
    "the test sees short side 224, centre crop 224x224: images of that size as they are instead of "
    "short side 256, centre crop 224x224"
)


def test_other_views_than_the_papers_are_told() -> None:
    """Of stored squares, whose short side was scaled to 224, and of larger crops in training."""
    squares = {"storage": "raw"}
    config = Linear(**BENCHMARK)
    assert report(online_linear_card(config, 0, {**IMAGENET, **squares}, POOLING)) == f"linear: {SHORT_SIDE_224}"
    places = Linear(**BENCHMARK | {"epochs": 14, "drop_every": 5})
    assert report(transfer_card(places, 0, PLACES, POOLING)) is None
    assert report(transfer_card(places, 0, {**PLACES, **squares}, POOLING)) == f"transfer: {SHORT_SIDE_224}"
    large = Linear(**BENCHMARK, crop_area=(0.9, 1.0))
    assert report(online_linear_card(large, 0, IMAGENET, POOLING)) == (
        "linear: random crops of 0.9 to 1 of an image's area instead of 0.08 to 1"
    )
    cropped = voc07_svm_card(Voc07Svm(), VOC, POOLING, 0)
    cropped["view"]["test"] = "short side 256, centre crop 224x224"
    assert report(cropped) == (
        "voc07_svm: the test sees short side 256, centre crop 224x224 instead of "
        "short side 256, then squashed to 224x224, no crop"
    )


def test_of_smaller_files_the_side_alone_is_told() -> None:
    smaller = {**IMAGENET, "image_size": 112}  # short side 128, centre crop 112x112
    assert (
        report(online_linear_card(Linear(**BENCHMARK), 0, smaller, POOLING))
        == "linear: 112 pixels a side instead of 224"
    )
    cached = linear_card(Linear(**BENCHMARK | {"features": "cached"}), 0, IMAGENET, POOLING)
    assert report(cached) == "linear: features of the plain images instead of features of random crops"


def test_the_paper_does_not_say_how_many_images_its_small_classifier_saw() -> None:
    fifth = {**IMAGENET, "train": {"images": 256_229}}
    small = Linear(features="online", pool="4x4", epochs=60, lr=0.1, drop_every=20, drop_factor=0.1)
    assert report(online_linear_card(small, 0, fifth, POOLING)) is None
    fewer = {**fifth, "test": {"images": 500}}
    assert report(online_linear_card(small, 0, fewer, POOLING)) == "linear: 500 test images instead of 50,000"


def test_differences_are_said_in_plain_words() -> None:
    made = linear_card(Linear(batch_norm=True, epochs=5), 0, SCENES, POOLING)
    assert report(made) == (
        "linear: 240 training images of scenes instead of CIFAR-100's 50,000; 5 epochs instead of 60; "
        "batch norm before the classifier, the paper has none"
    )
    online = online_linear_card(Linear(features="online", lr=0.05), 0, SCENES, POOLING)
    assert differences(online, REFERENCES[0]) == [
        "240 training images of scenes instead of CIFAR-100's 50,000",
        "features of random crops instead of features of the plain images",
        "lr 0.05 instead of 0.1",
    ]
    few = fewshot_card(Fewshot(episodes=50), {**CIFAR, "test": {"images": 2000, "classes": 8}}, POOLING)
    assert report(few) == "fewshot: 8 test classes instead of 20; 50 episodes instead of 2,000"


def test_the_images_that_miniimagenet_is_trained_on_are_counted() -> None:
    held_out = {**CIFAR, "set": "miniimagenet", "image_size": 84}
    held_out |= {role: {"split": role, "images": n, "classes": 64} for role, n in (("train", 30_720), ("test", 7_680))}
    assert report(linear_card(Linear(), 0, held_out, POOLING)) == "linear: 30,720 training images instead of 38,400"


def test_another_set_is_named_even_where_its_counts_are_the_same() -> None:
    made = linear_card(Linear(), 0, {**CIFAR, "set": "cifar10"}, POOLING)
    assert report(made) == "linear: CIFAR-10 instead of CIFAR-100"


VOC: dict[str, Any] = {
    "set": "voc",
    "key": "0" * 20,
    "image_size": 224,
    "storage": "encoded",
    "train": {"split": "trainval07", "images": 5011, "classes": 20},
    "test": {"split": "test07", "images": 4952, "classes": 20},
}
VOC0712 = {**VOC, "train": {"split": "train", "images": 16_551, "classes": 20, "list": "trainval07+12"}}
OF_DETECTRON2 = {"backend": "detectron2"}


def by_detector(
    arch: str = "resnet50", data: Card = VOC0712, workers: tuple[int, ...] = (1,), gpu: bool = True, **settings: Any
) -> list[str]:
    """What the report says of a detector, without the notes that all of its back end have."""
    made = detection_card(Detection(**settings), arch, data, workers, gpu)
    said = report(made)
    assert said is not None
    assert said.endswith("; ".join(made["notes"]))
    return differences(made, reference_for(made))


def test_detection_at_its_defaults_differs_in_its_back_end_only() -> None:
    assert by_detector(**OF_DETECTRON2) == []
    assert by_detector(**OF_DETECTRON2, workers=(8,)) == []
    assert by_detector() == ["trained by torchvision instead of detectron2"]
    card = detection_card(Detection(**OF_DETECTRON2), "resnet50", VOC0712, (1,), True)
    assert report(card) == (
        "detection: batches are not grouped by the images' aspect ratio, so that there is more padding, which batch "
        "norm sees too; batch norm keeps its moving statistics for the test, without PreciseBN"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arch": "resnet18"}, "resnet18 instead of resnet50"),
        ({"regions": 8}, "8 regions instead of 512"),
        ({"proposals": 10}, "10 proposals instead of 1,000"),
        ({"max_size": 300}, "max size 300 instead of 1333"),
        ({"test_size": 192}, "test size 192 instead of 800"),
        ({"train_sizes": (480,)}, "train sizes 480 instead of 480 512 544 576 608 640 672 704 736 768 800"),
        ({"workers": (2,), "gpu": False}, "batch norm over each worker's own images instead of the whole batch"),
        ({"freeze": 0}, "freeze 0 instead of 2"),
        ({"batch": 2}, "batch 2 instead of 16"),
        ({"steps": 24_000}, "24,000 steps instead of 25,000"),
        ({"trials": 1}, "1 trial instead of 3"),
        ({"weight_decay": 0.0}, "weight decay 0 instead of 0.0001"),
        ({"data": {**VOC0712, "train": {"images": 5011}}}, "5,011 training images instead of 16,551"),
    ],
)
def test_each_deviation_of_a_detector_is_said(change: dict[str, Any], said: str) -> None:
    assert by_detector(**OF_DETECTRON2, **change) == [said]


def test_voc07_svm_at_its_defaults_differs_in_nothing() -> None:
    assert report(voc07_svm_card(Voc07Svm(), VOC, POOLING, 0)) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"costs": "obow"}, "costs obow instead of goyal"),
        ({"folds": 5}, "5 folds instead of 3"),
        ({"max_iter": 20}, "max iter 20 instead of 2000"),
        ({"pool": "global"}, "maps pooled to one value a channel instead of about 9000 values"),
    ],
)
def test_each_deviation_of_the_svms_is_said(change: dict[str, Any], said: str) -> None:
    assert report(voc07_svm_card(Voc07Svm(**change), VOC, POOLING, 0)) == f"voc07_svm: {said}"


def test_what_a_card_does_not_say_is_a_difference() -> None:
    made = linear_card(Linear(), 0, CIFAR, POOLING)
    older = {**made, "solver": {k: v for k, v in made["solver"].items() if k != "weight_decay"}}
    assert report(older) == "linear: weight decay not said, in the paper 0.001"


def test_views_are_those_of_the_stored_images() -> None:
    raw, files = CIFAR, {**CIFAR, "image_size": 224, "storage": "encoded"}
    square = "short side 32, centre crop 32x32: images of that size as they are"
    crops = "random resized crop, aspect 3/4 to 4/3, and flip"
    bilinear = "8-bit RGB, Pillow's bilinear"
    of_raw = f"{bilinear}, of the whole decoded image when it was stored; random crops in floating point, antialiased"
    of_files = f"{bilinear}; a JPEG is decoded at 1/2, 1/4 or 1/8 of its size where the view needs no more"
    cached = [
        lambda data: linear_card(Linear(), 0, data, POOLING),
        lambda data: knn_card(Knn(), data, POOLING),
        lambda data: retrieval_card(Retrieval(), data, POOLING),
    ]
    for make in cached:
        assert make(raw)["view"] == {"train": square, "test": square, "resize": of_raw}
        assert make(files)["view"]["train"] == "short side 256, centre crop 224x224"
    assert fewshot_card(Fewshot(), files, POOLING)["view"] == {
        "test": "short side 256, centre crop 224x224",
        "resize": of_files,
    }
    trained = [
        lambda data: online_linear_card(Linear(), 0, data, POOLING),
        lambda data: transfer_card(Linear(), 0, data, POOLING),
        lambda data: finetune_card(Finetune(), 0, data, POOLING, {}, {}),
    ]
    for make in trained:
        assert make(raw)["view"] == {"train": f"{crops}, of the test's {square}", "test": square, "resize": of_raw}
        assert make(files)["view"]["train"] == f"{crops}, of the whole image"
        assert make(files)["view"]["resize"] == of_files
    squashed = "short side 256, then squashed to 224x224, no crop"
    seen = voc07_svm_card(Voc07Svm(), VOC, POOLING, 0)["view"]
    assert seen == {"train": squashed, "test": squashed, "resize": of_files}


def test_whose_images_a_batch_norm_saw() -> None:
    config = Linear(features="online", batch_norm=True)
    alone = online_linear_card(config, 0, CIFAR, POOLING)
    together = online_linear_card(config, 0, CIFAR, POOLING, (2,), True)
    apart = online_linear_card(config, 0, CIFAR, POOLING, (2,), False)
    assert unlike(together, alone) == ["solver.workers 2 instead of 1"]
    assert unlike(apart, together) == [
        "normalisation batch norm without scale and shift, over each worker's own images, moving statistics in test "
        "instead of batch norm without scale and shift, over the whole batch, moving statistics in test"
    ]


def test_how_many_workers_trained_is_told_where_it_changed() -> None:
    two, one = [{"workers": 2}] * 3, [{"workers": 1}]
    assert [workers_of(records) for records in (two, two + one, one + two + one)] == [(2,), (2, 1), (1, 2)]
    config = Linear(features="online", batch_norm=True)
    cards = [online_linear_card(config, 0, CIFAR, POOLING, workers, False) for workers in ((2,), (2, 1), (3, 2))]
    assert [made["solver"]["workers"] for made in cards] == [2, [2, 1], [3, 2]]
    own, partly = (
        "each worker's own images",
        "each worker's own images in one part of the training, the whole batch in ",
    )
    norms = "batch norm without scale and shift, over {}, moving statistics in test"
    assert [made["normalisation"] for made in cards] == [norms.format(s) for s in (own, f"{partly}another", own)]
    assert by_detector(**OF_DETECTRON2, workers=(8, 4)) == []  # on GPUs
    assert by_detector(**OF_DETECTRON2, workers=(2, 1), gpu=False) == [
        f"batch norm over {partly}another instead of the whole batch"
    ]
    made = detection_card(Detection(), "resnet50", VOC0712, (2, 1), False)
    assert made["solver"]["workers"] == [2, 1]
    assert "each of 2, then 1 CPU workers has the statistics of its own images" in made["normalisation"]


def test_what_is_not_in_the_paper_says_so() -> None:
    assert report(finetune_card(Finetune(), 0, CIFAR, POOLING, {}, {})) == "finetune: not in the paper"


def test_cards_with_the_same_protocol_share_a_column_whatever_the_network() -> None:
    one = completed(linear_card(Linear(), 0, CIFAR, {"pool": "one value a channel, 640 values"}))
    other = completed(linear_card(Linear(), 0, CIFAR, {"pool5": "one value a channel, 2048 values"}))
    assert share_a_column(one, other)
    assert share_a_column(json.loads(json.dumps(one)), other)  # tuples come back as lists
    assert share_a_column(linear_card(Linear(taps=("block3",)), 0, CIFAR, POOLING), linear_card(Linear(), 0, CIFAR, {}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epochs": 5}, "solver.epochs 5 instead of 60"),
        ({"lr": 0.2}, "solver.lr 0.2 instead of 0.1"),
        ({"pool": "4x4"}, "solver.pool 4x4 instead of global"),
    ],
)
def test_other_settings_do_not(change: dict[str, Any], said: str) -> None:
    one, other = linear_card(Linear(), 0, CIFAR, POOLING), linear_card(Linear(**change), 0, CIFAR, POOLING)
    assert unlike(other, one) == [said]
    assert not share_a_column(other, one)


def test_other_seeds_images_and_versions_do_not() -> None:
    one = completed(linear_card(Linear(), 0, CIFAR, POOLING))
    assert unlike(completed(linear_card(Linear(), 1, CIFAR, POOLING)), one) == ["seeds.classifier 1 instead of 0"]
    assert unlike(completed(linear_card(Linear(), 0, {**CIFAR, "key": "1" * 20}, POOLING)), one)
    older = {**one, "versions": {**one["versions"], "torch": "2.13.0"}}
    assert unlike(older, one) == [f"versions.torch 2.13.0 instead of {one['versions']['torch']}"]


def test_every_card_answers_the_same_questions() -> None:
    cards = [linear_card(Linear(), 0, CIFAR, POOLING), fewshot_card(Fewshot(), CIFAR, POOLING)]
    assert cards[0].keys() == cards[1].keys()
    assert {
        "data",
        "view",
        "pooling",
        "normalisation",
        "solver",
        "metric",
        "difficult",
        "seeds",
        "trials",
        "frozen",
    } <= (cards[0].keys())
    assert completed(cards[0])["versions"].keys() == {
        *("python", "torch", "torchvision", "numpy", "Pillow", "scikit-learn", "bownet-on-ray")
    }
    with pytest.raises(TypeError, match="missing"):
        card("mine", "a protocol", data=CIFAR)  # type: ignore[call-arg]


def test_a_package_that_is_a_checkout_on_the_path_tells_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a detectron2 that runs from its source."""
    (tmp_path / "a_checkout.py").write_text('__version__ = "0.6"\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert versions("a_checkout")["a_checkout"] == "0.6"


def test_detectron2_is_no_part_of_what_torchvision_made() -> None:
    made = completed(detection_card(Detection(), "resnet50", VOC0712, (1,), True))
    assert "detectron2" not in made["versions"]
