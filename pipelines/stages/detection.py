"""detection: what the detectors of all trials found in the test images goes in; AP of VOC comes out (section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bownet.config import Data, Detection, Net
from evaluation.cards import on_gpus, workers_of
from evaluation.detection.card import detection_card
from evaluation.detection.detector import Found
from evaluation.detection.objects import objects_of
from evaluation.score import Score
from evaluation.voc_detection import Detections, GroundTruth, ground_truth, voc_detection
from pipelines.stages.annotated import (
    categories_of,
    check_annotations,
    names_and_annotations,
    pixels_of_row,
    voc_path,
)
from pipelines.stages.detection_training import HISTORY
from pipelines.stages.detection_trial import DETECTIONS
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of
from pipelines.stages.scoring import write_score
from pipelines.stages.signed import signed
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace

PER_PAGE = 16  # pictures
COLUMNS = ("image", "class", "score", "x0", "y0", "x1", "y1")  # of a file of detections


def detection_data(settings: Detection, data: Data) -> Data:
    """The images that a detector sees: the lists of `detection.train` and the test images of VOC2007, as files."""
    path, bad = voc_path("detection", settings.path, data), data.max_bad_fraction
    return Data(
        kind="voc", path=path, voc_train=settings.train, storage="encoded", image_size=224, max_bad_fraction=bad
    )


@dataclass(frozen=True)
class DetectionScore(ModelStage):
    """Files: detections-<trial>.npy (float32, a row for each, columns as COLUMNS), images.json (their names), pages of
    pictures of the first trial, metrics.json, protocol.json and details.json."""

    detection: Detection
    images: Artifact
    trained: tuple[Artifact, ...]  # one for each trial
    arch: Net = field(metadata=NOT_IN_KEY)  # of the network; its weights are an input of the trials

    name = "detection"
    title = "detection"
    version = 3

    def config(self) -> dict[str, Any]:
        """Without where the images lie and which they are: that is the key of the images."""
        return {"detection": self.detection.model_dump(exclude={"path", "train"})}

    def inputs(self) -> dict[str, Artifact]:
        return {"images": self.images, **{f"trial-{i}": artifact for i, artifact in enumerate(self.trained, 1)}}

    def estimate(self) -> Estimate:
        return Estimate(f"{len(self.trained)} trials", disk_bytes=50_000_000)

    def build(self, work: Workspace) -> dict[str, Any]:
        check_annotations(self.images)
        names, annotations = names_and_annotations(self.images, "test")
        truth = ground_truth(names, annotations, categories_of(self.images))
        work.write_json("images.json", names)
        scores, histories = [], []
        for trial, artifact in enumerate(self.trained, 1):
            found = artifact.read_npy(DETECTIONS)
            work.write_npy(f"detections-{trial}.npy", found)
            scores.append(voc_detection(detections_in(found), truth))
            histories.append(artifact.read_json(HISTORY))
        score = over_trials(scores, histories)
        figures = self._draw(work, truth)
        # Not those of this machine: trials may have been done, or begun, with other workers.
        records = [record for history in histories for record in history]
        workers, gpu = workers_of(records), on_gpus(records)
        absent = tuple(scores[0].details["classes_without_objects"])
        card = detection_card(self.detection, self.arch.arch, self._data(), workers, gpu, absent)
        return {**write_score(work, "detection", score, card), "figures": figures}

    def _data(self) -> dict[str, Any]:
        data, classes = data_of(self.images), len(categories_of(self.images))
        about = {s: {"split": s, "images": count_of(self.images, s), "classes": classes} for s in ("train", "test")}
        about["train"]["list"], about["test"]["list"] = data.voc_train, "test07"
        return {"set": data.kind, "key": self.images.key, **about}

    def _draw(self, work: Workspace, truth: GroundTruth) -> list[str]:
        """Pages of the first test images, as the first trial sees them."""
        from pipelines.drawing.save import save_png  # here, so that workers need not import matplotlib

        found, files = detections_in(work.read_npy("detections-1.npy")), []
        shown = min(self.detection.pictures, len(truth.images))
        for page, start in enumerate(range(0, shown, PER_PAGE), 1):
            file = f"pictures-{page:02d}.png"
            figure = self.page(found, truth, range(start, min(start + PER_PAGE, shown)))
            work.write_via(file, partial(save_png, signed(figure, self.images, whole=True)))
            files.append(file)
        return files

    def page(self, found: Detections, truth: GroundTruth, images: range) -> Any:
        """A figure of some test images, with what was found and what is there."""
        from pipelines.drawing.detections import Example, draw_detections

        _, annotations = names_and_annotations(self.images, "test")
        examples = []
        for i in images:
            pixels = pixels_of_row(self.images, "test", i)
            size = pixels.shape[0], pixels.shape[1]
            objects = objects_of(annotations[i], size, truth.classes, truth.images[i])
            examples.append(Example(truth.images[i], pixels, objects, found_in_image(found, i)))
        return draw_detections(examples, truth.classes, self.model)


def detections_figure(score: Artifact) -> Any:
    """The first page of a finished score."""
    stage = score.stage
    assert isinstance(stage, DetectionScore)
    names, annotations = names_and_annotations(stage.images, "test")
    truth = ground_truth(names, annotations, categories_of(stage.images))
    found = detections_in(score.read_npy("detections-1.npy"))
    return stage.page(found, truth, range(min(PER_PAGE, len(names))))


def over_trials(scores: list[Score], histories: list[Any]) -> Score:
    """Means over trials, their standard deviation (of a sample) where there are several, and each trial's own."""
    metrics: dict[str, float] = {}
    for name in scores[0].metrics:
        values = np.array([score.metrics[name] for score in scores])
        metrics[name] = float(values.mean())
        if len(values) > 1:
            metrics[f"{name}_std"] = float(values.std(ddof=1))
    trials = [
        {"metrics": score.metrics, **score.details, "history": history}
        for score, history in zip(scores, histories, strict=True)
    ]
    return Score(metrics, {"trials": trials})


def detections_in(table_N7: NDArray[np.float32]) -> Detections:
    """Of a file of detections."""
    image_N, class_N = (table_N7[:, i].astype(np.int64) for i in (0, 1))
    return Detections(image_N, class_N, np.array(table_N7[:, 3:]), np.array(table_N7[:, 2]))


def found_in_image(found: Detections, image: int) -> Found:
    here = found.image_N == image
    return Found(*(torch.from_numpy(values[here]) for values in (found.box_N4, found.class_N, found.score_N)))
