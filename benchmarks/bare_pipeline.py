"""The whole experiment as a plain program: no Ray, no store, no MLflow, nothing kept; the other side of pipeline.py.

Networks, tasks, k-means and evaluators are those of the platform, so that what is compared is the platform itself.

python benchmarks/bare_pipeline.py FOLDER IMAGES TEACHER_EPOCHS STUDENT_EPOCHS WORDS     prints JSON
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn

from bownet.config import Fewshot, Linear, Net, Perturbation, Student
from bownet.images.augment import to_float
from bownet.nets.build import build_backbone
from bownet.nets.taps import Backbone, freeze
from bownet.tasks.bow import BowTask
from bownet.tasks.rotation import RotationTask
from bownet.words.kmeans import cluster
from bownet.words.nearest import nearest_index
from evaluation.fewshot import fewshot_accuracies
from evaluation.linear import fit_linear, tally

ARCH, PER_WORD = "wrn-10-2", 256


def read(folder: Path, split: str, count: int | None) -> tuple[Tensor, Tensor]:
    """Pixels [N, 32, 32, 3] and labels of the first images of every class."""
    (file,) = folder.glob(f"{split}-*.parquet")
    table = pq.read_table(file, columns=["image", "label"])
    labels = table["label"].to_numpy()
    each = len(labels) if count is None else count // 10
    rows = np.sort(np.concatenate([np.flatnonzero(labels == c)[:each] for c in range(10)]))
    contents = table["image"].combine_chunks().field("bytes")
    pixels = [np.asarray(Image.open(io.BytesIO(contents[int(row)].as_py())).convert("RGB")) for row in rows]
    return torch.from_numpy(np.stack(pixels)), torch.from_numpy(labels[rows])


def fit(task: nn.Module, images: Tensor, targets: Tensor | None, epochs: int, batch: int, lr: float) -> None:
    optimiser = torch.optim.SGD(task.parameters(), lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    generator = torch.Generator().manual_seed(0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-len(images) // batch))
    task.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images), generator=generator).split(batch):
            loss, _ = task(images[rows], None if targets is None else targets[rows], generator)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()


@torch.inference_mode()
def features(net: Backbone, images: Tensor, tap: str) -> Tensor:
    return torch.cat([net(to_float(x), (tap,))[tap] for x in images.split(250)])


def main(folder: Path, count: int, teacher_epochs: int, student_epochs: int, k: int) -> dict[str, Any]:
    torch.set_num_threads(os.cpu_count() or 1)
    began = time.time()
    images, labels = read(folder, "train", count)
    test, test_labels = read(folder, "test", None)
    scaled = to_float(images)
    mean, std = scaled.mean((0, 2, 3)).tolist(), scaled.std((0, 2, 3)).tolist()
    del scaled

    def fresh(seed: int) -> Backbone:
        net = build_backbone(Net(arch=ARCH), seed)
        net.set_input_statistics(mean, std)
        return net

    scores = {}

    def judge(name: str, net: Backbone) -> None:
        freeze(net)
        x, test_x = (features(net, pixels, "pool") for pixels in (images, test))
        classifier = fit_linear(x, labels, 10, Linear(batch_norm=True), seed=0)
        shots = fewshot_accuracies(test_x, test_labels, Fewshot())
        top1 = tally(classifier, test_x, test_labels).metrics()["top1"]
        scores[name] = {"linear": top1, "5-shot": 100 * shots[5].mean().item()}

    judge("random", fresh(0))
    teacher = fresh(0)
    fit(RotationTask(teacher, 1, 4), images, None, teacher_epochs, batch=128, lr=0.1)
    judge("RotNet", teacher)

    maps = features(teacher, images, "block3")  # N C 8 8
    inner = maps[:, :, 1:-1, 1:-1].flatten(2)
    each = min(36, -(-k * PER_WORD // len(images)))
    picked = torch.stack([torch.randperm(36)[:each] for _ in range(len(images))])
    vectors = inner.gather(2, picked[:, None].expand(-1, inner.shape[1], -1)).transpose(1, 2).flatten(0, 1).contiguous()
    found = cluster(vectors, k, seed=0)
    flat = maps.permute(0, 2, 3, 1).flatten(0, 2)
    words = torch.cat([nearest_index(x, found.centroids_KD) for x in flat.split(16384)]).view(-1, 1, 8, 8)

    student = fresh(1)
    settings = Student(arch=ARCH, perturbation=Perturbation(crop_area=(0.5, 1.0)))
    fit(BowTask(student, k, settings), images, words.int(), student_epochs, batch=64, lr=0.3)
    judge("BoWNet", student)
    return {"began": began, "scores": scores}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
