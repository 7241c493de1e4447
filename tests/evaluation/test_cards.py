"""Protocol cards: one form, differences to the paper in plain words, and who may share a column."""

import json
from typing import Any

import pytest

from bownet.config import Fewshot, Finetune, Linear
from evaluation.cards import card, completed, fewshot_card, finetune_card, linear_card, online_linear_card
from evaluation.paper import REFERENCES, differences, reference_for, report, share_a_column, unlike

POOLING = {"pool": "one value a channel, 640 values"}
CIFAR: dict[str, Any] = {
    "set": "cifar100",
    "key": "0" * 20,
    "image_size": 32,
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
    imagenet = {**CIFAR, "set": "imagenet", "image_size": 224, "train": {"images": 1_281_167}}
    imagenet["test"] = {"images": 50_000}
    benchmark = {"features": "online", "pool": "9k", "batch": 256, "lr": 0.01, "drop_factor": 0.1, "epochs": 28}
    config = Linear(**benchmark, drop_every=10, weight_decay=1e-4, nesterov=True, batch_norm=True)
    assert report(online_linear_card(config, 0, imagenet, POOLING)) is None  # where the paper is silent, all is well
    small = Linear(features="online", pool="4x4", epochs=60, lr=0.1, drop_every=20, drop_factor=0.1)
    assert reference_for(online_linear_card(small, 0, imagenet, POOLING)).name == "ImageNet with ResNet-18"
    assert report(online_linear_card(small, 0, imagenet, POOLING)) is None


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


def test_another_set_is_named_even_where_its_counts_are_the_same() -> None:
    made = linear_card(Linear(), 0, {**CIFAR, "set": "cifar10"}, POOLING)
    assert report(made) == "linear: CIFAR-10 instead of CIFAR-100"


def test_detection_with_one_trial_of_another_back_end() -> None:
    (reference,) = (r for r in REFERENCES if r.evaluator == "detection")
    solver = {**reference.card["solver"], "backend": "torchvision", "batch": 2, "drops": (17_000,)}
    made = {"evaluator": "detection", "data": reference.card["data"], "solver": solver, "trials": 1}
    assert report(made) == "detection: trained by torchvision instead of detectron2; batch 2 instead of 16; " + (
        "1 trial instead of 3"
    )


def test_what_is_not_in_the_paper_says_so() -> None:
    assert report(finetune_card(Finetune(), 0, CIFAR, POOLING)) == "finetune: not in the paper"


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
    assert {"torch", "torchvision", "scikit-learn"} <= completed(cards[0])["versions"].keys()
    with pytest.raises(TypeError, match="missing"):
        card("mine", "a protocol", data=CIFAR)  # type: ignore[call-arg]
