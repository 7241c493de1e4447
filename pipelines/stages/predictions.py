"""predictions: what a student says of some test images and of perturbed ones, as words that people can look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Generator, Tensor

from bownet.config import Student
from bownet.images.augment import to_float
from bownet.images.perturb import perturb
from bownet.nets.heads import omega
from bownet.nets.taps import Backbone
from bownet.words.bow import bow_targets
from bownet.words.vocabulary import online_words
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import clean_view, count_of, data_of, row_reader
from pipelines.stages.scoring import on_worker
from pipelines.stages.shards import teacher_of
from pipelines.stages.signed import signed
from pipelines.stages.student import HEAD, TrainStudent
from pipelines.stages.vocabulary import vocabulary_of
from pipelines.store import Artifact, Estimate, Workspace

IMAGES, TOP = 4, 5


@dataclass(frozen=True)
class Predictions(ModelStage):
    """`patches` shows the words of `vocabulary`, which the student predicts; `teacher` says which ones are right."""

    images: Artifact
    net: Artifact
    teacher: Artifact
    vocabulary: Artifact
    patches: Artifact
    seed: int = 0

    name = "predictions"
    title = "predicted words"
    version = 2

    def estimate(self) -> Estimate:
        return Estimate(f"{min(IMAGES, count_of(self.images, 'test'))} test images", disk_bytes=1 << 20)

    def build(self, work: Workspace) -> dict[str, Any]:
        return {"figures": on_worker(work, _draw, self, work)}


def _draw(stage: Predictions, work: Workspace) -> list[str]:
    from pipelines.drawing.save import save_png

    if (figure := predictions_figure(stage)) is None:
        return []
    work.write_via("predictions.png", partial(save_png, signed(figure, stage.images)))
    return ["predictions.png"]


def predictions_figure(stage: Predictions) -> Any:
    """None for students that were trained before their Ω was kept, and without test images."""
    from pipelines.drawing.predictions import draw_predictions

    count = count_of(stage.images, "test")
    if not count or not stage.net.folder.exists(HEAD):
        return None
    student = _student(stage)
    rows = np.sort(np.random.default_rng(stage.seed).permutation(count)[:IMAGES])
    data = data_of(stage.images)
    pixels = row_reader(stage.images, "test")(rows, lambda content, _: clean_view(content, data))
    clean = to_float(torch.from_numpy(pixels))
    seen = perturb(torch.from_numpy(pixels), student.perturbation, Generator().manual_seed(stage.seed))
    net, vocabulary = teacher_of(stage.net), vocabulary_of(stage.vocabulary)
    device = next(net.parameters()).device
    head = load_omega(stage.net, student, net, vocabulary.size)
    said = [predicted(net, head, x.to(device), vocabulary.size) for x in (clean, seen)]
    words = online_words(teacher_of(stage.teacher), vocabulary, clean.to(device)).cpu()
    truth_NK = bow_targets(words, vocabulary.size, student.bow, student.drop_border)
    return draw_predictions(
        pixels=(pixels, (seen.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()),
        predicted_NK=(said[0].numpy(), said[1].numpy()),
        truth_NK=truth_NK.numpy(),
        patches=stage.patches.read_npy("patches.npy"),
        told=stage.patches.read_json("words.json"),
        top=TOP,
        title=f"{stage.model}: the words that it predicts, for test images and perturbed ones",
    )


def load_omega(net: Artifact, student: Student, backbone: Backbone, num_words: int) -> torch.nn.Module:
    """Ω as the student was trained with it; that of a pyramid predicts its five bags."""
    state = load_file(net.local_path(HEAD))
    outputs = max(len(values) for values in state.values() if values.dim())
    assert outputs % num_words == 0, (outputs, num_words)
    head = omega(student.head, backbone.tap_channels[backbone.pooled], outputs)
    head.load_state_dict(state)
    return head


@torch.inference_mode()
def predicted(net: Backbone, head: torch.nn.Module, x_NCHW: Tensor, num_words: int) -> Tensor:
    """The bag of the whole image, [N, K] on the CPU; a pyramid has it before its quarters."""
    f_NC = net(x_NCHW, (net.pooled,))[net.pooled].float().cpu()
    return head(f_NC)[:, :num_words].softmax(1)


def _student(stage: Predictions) -> Student:
    assert isinstance(stage.net.stage, TrainStudent), stage.net.ref
    return stage.net.stage.student
