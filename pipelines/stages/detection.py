"""detection: a network's weights as the start of a detector; trials are trained, tested and scored (section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bownet.config import Data, Detection, Net
from evaluation.cards import on_gpus, workers_of
from evaluation.detection.backends import check_backend
from evaluation.detection.card import detection_card
from evaluation.detection.detector import Found
from evaluation.detection.objects import objects_of
from evaluation.detection.training import check_workers
from evaluation.detection.views import plain_view
from evaluation.score import Score
from evaluation.voc_detection import Detections, GroundTruth, ground_truth, voc_detection
from pipelines.stages.annotated import (
    categories_of,
    check_annotations,
    names_and_annotations,
    pixels_of_row,
    voc_path,
)
from pipelines.stages.detection_training import DetectionJob, train_detector, trained_detector
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of
from pipelines.stages.scoring import write_score
from pipelines.stages.shards import Row, for_each_shard
from pipelines.stages.signed import signed
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace

CHUNK = 16  # test images of a task, which is what is done again after a crash
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
    net: Artifact
    arch: Net = field(metadata=NOT_IN_KEY)  # of the network, for checks; its weights are an input

    name = "detection"
    title = "detection"
    version = 2

    def config(self) -> dict[str, Any]:
        """Without where the images lie and which they are: that is the key of the images."""
        return {**super().config(), "detection": self.detection.model_dump(exclude={"path", "train"})}

    @staticmethod
    def obstacle(images: Artifact, detection: Detection) -> str | None:
        """Why no detector can be trained on these images and scored by them; None if one can."""
        for split in ("train", "test"):
            if not count_of(images, split):
                return f"detection is left out: data.path={data_of(images).path}: no {split} images, which it needs"
        try:
            check_annotations(images)
        except ValueError as error:
            return f"detection is left out: {error}"
        return None

    def check(self) -> None:
        check_backend(self.detection.backend, self.arch.arch)
        if reason := self.obstacle(self.images, self.detection):
            raise ValueError(reason.removeprefix("detection is left out: "))

    def check_workers(self, workers: int, gpu: bool) -> None:
        check_workers(self.detection, workers)

    def estimate(self) -> Estimate:
        d = self.detection
        counts = f"{d.trials} trials, {d.steps} steps of {d.batch}, {count_of(self.images, 'test')} test images"
        per_image = d.regions * 14**2 * 1024 * 4 * 10 + max(d.train_sizes) * d.max_size * 64 * 4 * 10
        return Estimate(counts, per_image * d.batch, 200_000_000)

    def build(self, work: Workspace) -> dict[str, Any]:
        check_annotations(self.images)
        names, annotations = names_and_annotations(self.images, "test")
        truth = ground_truth(names, annotations, categories_of(self.images))
        work.write_json("images.json", names)
        scores, histories = [], []
        for trial in range(self.detection.trials):
            file = f"detections-{trial + 1}.npy"
            job = DetectionJob(self.detection, self.images, self.net, trial, self.label, work.key)
            histories.append(train_detector(job, work))
            if not work.exists(file):
                work.write_npy(file, _tested(job, work, len(names)))
            scores.append(voc_detection(detections_in(work.read_npy(file)), truth))
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


def _tested(job: DetectionJob, work: Workspace, images: int) -> NDArray[np.float32]:
    """What a trained detector finds in the test images, by tasks all over the cluster."""
    rows = [{"start": start, "stop": min(start + CHUNK, images)} for start in range(0, images, CHUNK)]
    done = for_each_shard(rows, partial(_test_some, job=job, work=work), work.machine, job.label, gpu=True)
    return np.concatenate([work.scratch.read_npy(row["name"]) for row in done])


def _test_some(row: Row, job: DetectionJob, work: Workspace) -> Row:
    name = job.file(f"found-{row['start']:06d}.npy")
    if not work.scratch.exists(name):
        detector, settings = trained_detector(job, work.scratch), job.settings
        tables = []
        for i in range(row["start"], row["stop"]):
            view = plain_view(pixels_of_row(job.images, "test", i), settings.test_size, settings.max_size)
            (found,) = detector.detect([view])
            image_N = torch.full((len(found.labels_D),), float(i))
            columns = (image_N[:, None], found.labels_D[:, None].float(), found.scores_D[:, None], found.boxes_D4)
            tables.append(torch.cat(columns, 1).numpy())
        work.scratch.write_npy(name, np.concatenate(tables))
    return {"name": name}
