"""What a student is shown to predict, against its own training task and against bags counted by hand."""

from typing import Any

import numpy as np
import torch

from bownet.config import Experiment
from bownet.images.augment import to_float
from pipelines.drawing.predictions import draw_predictions, most_likely
from pipelines.full import experiment
from pipelines.gallery import with_figures
from pipelines.plan import Plan
from pipelines.records import read_records
from pipelines.stages.pictures import load_split
from pipelines.stages.predictions import Predictions, load_omega, predicted
from pipelines.stages.shards import teacher_of
from pipelines.stages.words import load_words
from pipelines.store import Store


def stage_of(smoke: dict[str, Any]) -> Predictions:
    plan = Plan(Store(smoke["store"]))
    settings = Experiment.model_validate(read_records(str(smoke["store"]))[0].settings)
    rows = with_figures(experiment(settings, plan), plan)
    stage = rows[-1].artifacts["predictions"].stage
    assert isinstance(stage, Predictions)
    return stage


def test_it_is_the_omega_that_was_trained(smoke: dict[str, Any]) -> None:
    """A student knows its training images better than their mean bag does; with another Ω it would not."""
    stage = stage_of(smoke)
    net, words = teacher_of(stage.net), load_words(stage.net.stage.words)[:, 0]  # type: ignore[union-attr]
    size = stage.vocabulary.info["size"]
    head = load_omega(stage.net, stage.net.stage.student, net, size)  # type: ignore[union-attr]
    images = to_float(torch.from_numpy(load_split(stage.images, "train")))
    said = predicted(net, head, images, size)
    torch.testing.assert_close(said.sum(1), torch.ones(len(said)))
    inner = words[:, 1:-1, 1:-1].reshape(len(words), -1).astype(np.int64)
    truth = torch.stack([torch.bincount(torch.from_numpy(row), minlength=size) for row in inner]) / inner.shape[1]
    loss = -(truth * said.log()).sum(1).mean()
    uniform = np.log(size)
    turned = -(truth * said.roll(1, 1).log()).sum(1).mean()
    assert loss < uniform
    assert loss < turned


def test_the_largest_first() -> None:
    assert most_likely(np.array([0.1, 0.4, 0.1, 0.4], np.float32), 3) == [1, 3, 0]


def test_words_without_patches_have_a_place() -> None:
    pixels = np.zeros((1, 8, 8, 3), np.uint8)
    said, truth = np.array([[0.6, 0.3, 0.1]], np.float32), np.array([[0.5, 0.0, 0.5]], np.float32)
    told = [{"word": 0}]
    patches = np.zeros((1, 16, 4, 4, 3), np.uint8)
    figure = draw_predictions((pixels, pixels), (said, said), truth, patches, told, 5, "made")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:4] == ["clean", "word 0\n60.0% / 50.0%", "word 1\n30.0% / 0.0%", "word 2\n10.0% / 50.0%"]
    frames = [axes.spines["top"].get_linestyle() for axes in figure.axes[1:4]]
    assert frames == ["-", ":", "-"]
    assert [len(axes.texts) for axes in figure.axes[1:4]] == [0, 1, 1]
