"""Fine-tuning: which labels are known, and the two rates."""

import numpy as np
import pytest
import torch

from bownet.config import Finetune, Net, Optimiser
from bownet.nets.build import build_backbone
from bownet.training.learner import Learner, parameter_groups
from evaluation.crops import random_crops
from evaluation.finetune import FinetuneTask, labelled_rows, optimiser_of

LABELS = np.repeat([0, 1, 4], [200, 100, 7])


def test_every_class_has_its_share_and_one_image_at_least() -> None:
    one, ten = labelled_rows(LABELS, 0.01, 0), labelled_rows(LABELS, 0.1, 0)
    assert np.unique(LABELS[one], return_counts=True)[1].tolist() == [2, 1, 1]
    assert np.unique(LABELS[ten], return_counts=True)[1].tolist() == [20, 10, 1]
    assert set(one) < set(ten)
    assert len(np.unique(ten)) == len(ten)
    assert labelled_rows(LABELS, 1.0, 0).tolist() == list(range(307))


def test_the_choice_is_of_the_seed_alone() -> None:
    assert labelled_rows(LABELS, 0.1, 1).tolist() == labelled_rows(LABELS, 0.1, 1).tolist()
    assert labelled_rows(LABELS, 0.1, 1).tolist() != labelled_rows(LABELS, 0.1, 2).tolist()


def test_head_and_network_have_rates_of_their_own() -> None:
    config = Finetune(lr=0.01, head_lr=0.5, epochs=4, drops=(2,), drop_factor=0.2)
    optimiser = optimiser_of(config).model_copy(update={"momentum": 0.0})
    task = FinetuneTask(build_backbone(Net(arch="wrn-10-1"), 0), 3, random_crops((1.0, 1.0), True), 0.5 / 0.01, 0)
    images = torch.randint(256, (6, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    labels, start = torch.tensor([0, 1, 2, 0, 1, 2]), {n: p.detach().clone() for n, p in task.named_parameters()}
    learner = Learner(task, optimiser)
    learner.connect(task, lambda module: module)
    learner.step(images, labels, torch.Generator().manual_seed(1), 0.01, 1.0)
    for name, parameter in task.named_parameters():
        assert parameter.grad is not None
        rate = 0.5 if name.startswith("head.") else 0.01
        torch.testing.assert_close(start[name] - parameter.detach(), rate * parameter.grad, rtol=1e-3, atol=1e-6)


def test_parts_that_are_not_there_have_no_rate() -> None:
    task = FinetuneTask(build_backbone(Net(arch="wrn-10-1"), 0), 3, None, 50.0, 0)
    groups = parameter_groups(task, Optimiser(decay="weights"))
    assert [(group["lr_scale"], group.get("weight_decay")) for group in groups] == [
        (1.0, None),
        (50.0, None),
        (1.0, 0.0),
        (50.0, 0.0),
    ]
    task.lr_scale = {"haed": 2.0}
    with pytest.raises(ValueError, match="lr_scale='haed': FinetuneTask has no part of this name"):
        parameter_groups(task, Optimiser())
