"""Settings are frozen, complete and checked at construction."""

import pytest
from pydantic import ValidationError

from bownet.config import Experiment, Net, Optimiser, Round, Vocabulary


def test_settings_cannot_be_changed_or_extended() -> None:
    with pytest.raises(ValidationError):
        Vocabulary().size = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Vocabulary(sise=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("size", [1, 65537])
def test_words_fit_uint16(size: int) -> None:
    with pytest.raises(ValidationError):
        Vocabulary(size=size)
    assert Vocabulary(size=65536).size == 65536


def test_defaults_are_the_papers_cifar_settings() -> None:
    exp = Experiment()
    assert exp.student.net == exp.teacher.net == Net(arch="wrn-28-10")
    optimiser = exp.student.optimiser
    assert (optimiser.epochs, optimiser.iterations_per_epoch, optimiser.batch) == (30, 2000, 128)
    assert (optimiser.lr, optimiser.drops, optimiser.weight_decay) == (0.1, (12, 24), 5e-4)
    assert (exp.vocabulary.size, exp.vocabulary.tap, exp.student.bow) == (2048, "block3", "count")
    assert (exp.linear.epochs, exp.linear.drop_every, exp.linear.drop_factor) == (60, 10, 0.3)
    assert (exp.fewshot.shots, exp.fewshot.queries, exp.fewshot.episodes) == ((1, 5, 10, 50), 15, 2000)


def test_whitening_needs_components_in_some_round() -> None:
    white = Vocabulary(whiten=True)
    with pytest.raises(ValidationError, match="whiten=True: whitens principal components, of which"):
        Experiment(vocabulary=white)
    with pytest.raises(ValidationError, match=r"give vocabulary.pca, or a round its own in per_round, or use False"):
        Experiment(vocabulary=white, per_round=(Round(tap="block3"),))
    assert Experiment(vocabulary=Vocabulary(whiten=True, pca=8)).vocabulary.whiten
    assert Experiment(vocabulary=white, per_round=(Round(tap="block3", pca=8),)).vocabulary_of_round(1).pca == 8


def test_a_drop_after_the_end_is_refused() -> None:
    with pytest.raises(ValidationError, match="the last drop must come before the end, epochs=10"):
        Optimiser(epochs=10)


@pytest.mark.parametrize("arch", ["wrn-28", "wrn-11-2", "wrn-28-0", "resnet34", "vgg"])
def test_unknown_architectures_are_refused(arch: str) -> None:
    with pytest.raises(ValidationError, match="known are wrn"):
        Net(arch=arch)
