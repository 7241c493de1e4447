"""detection-trial: a network and a seed go in; what a detector that learned finds in the test images comes out.

A stage of its own for each trial: more trials, or other pictures, train none again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bownet.config import Detection, Net
from evaluation.detection.backends import check_backend
from evaluation.detection.training import check_workers
from evaluation.detection.views import plain_view
from pipelines.stages.annotated import check_annotations, pixels_of_row
from pipelines.stages.detection_training import HISTORY, DetectionJob, train_detector, trained_detector
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of
from pipelines.stages.shards import Row, for_each_shard
from pipelines.store import NOT_IN_KEY, Artifact, Estimate, Workspace

DETECTIONS = "detections.npy"
CHUNK = 16  # test images of a task, which is what is done again after a crash
OF_OTHERS = {"path", "train", "trials", "pictures", "seed"}  # are in other keys, or matter to the score alone


@dataclass(frozen=True)
class DetectionTrial(ModelStage):
    """Files: detections.npy (float32, columns as detection.COLUMNS) and history.json, a record for each part."""

    detection: Detection
    trial: int  # from 0
    images: Artifact
    net: Artifact
    arch: Net = field(metadata=NOT_IN_KEY)  # of the network, for checks; its weights are an input

    name = "detection-trial"
    version = 1

    @property
    def label(self) -> str:
        return f"{self.model}: detector {self.trial + 1} of {self.detection.trials}"

    def config(self) -> dict[str, Any]:
        seed = self.detection.seed + self.trial
        return {"detection": self.detection.model_dump(exclude=OF_OTHERS), "seed": seed}

    @staticmethod
    def obstacle(images: Artifact) -> str | None:
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
        if reason := self.obstacle(self.images):
            raise ValueError(reason.removeprefix("detection is left out: "))

    def check_workers(self, workers: int, gpu: bool) -> None:
        check_workers(self.detection, workers)

    def estimate(self) -> Estimate:
        d = self.detection
        counts = f"{d.steps} steps of {d.batch}, {count_of(self.images, 'test')} test images"
        per_image = d.regions * 14**2 * 1024 * 4 * 10 + max(d.train_sizes) * d.max_size * 64 * 4 * 10
        return Estimate(counts, per_image * d.batch, 50_000_000)

    def build(self, work: Workspace) -> dict[str, Any]:
        job = DetectionJob(self.detection, self.images, self.net, self.trial, self.label, work.key)
        history = train_detector(job, work)
        work.write_npy(DETECTIONS, _tested(job, work, count_of(self.images, "test")))
        work.write_json(HISTORY, history)
        return {"workers": int(history[-1]["workers"])}


def _tested(job: DetectionJob, work: Workspace, images: int) -> NDArray[np.float32]:
    """What a trained detector finds in the test images, by tasks all over the cluster."""
    rows = [{"start": start, "stop": min(start + CHUNK, images)} for start in range(0, images, CHUNK)]
    done = for_each_shard(rows, partial(_test_some, job=job, work=work), work.machine, job.label, gpu=True)
    return np.concatenate([work.scratch.read_npy(row["name"]) for row in done])


def _test_some(row: Row, job: DetectionJob, work: Workspace) -> Row:
    name = f"found-{row['start']:06d}.npy"
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
