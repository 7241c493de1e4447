"""On a real Ray: a stream that begins within an epoch, all images in order, and the images of the proxy."""

from dataclasses import replace

import numpy as np
import torch

from bownet.config import Net, Optimiser, Proxy, Teacher
from bownet.training import InMemory, Shard
from pipelines.stages.inputs import Share, Streamed
from pipelines.stages.pictures import labels_of, load_split
from pipelines.stages.teacher import TrainTeacher, new_task
from pipelines.stages.training import TrainingJob, proxy_of, require_labels
from pipelines.store import Artifact

NET = Net(arch="wrn-10-1")
SHARE = Share(1, 1, 2)
PASS = Optimiser(epochs=3, iterations_per_epoch=None, batch=32, drops=())


def test_a_stream_begins_where_it_is_told_to(raw: Artifact) -> None:
    memory, stream = InMemory(load_split(raw, "train")), Streamed(raw, None, SHARE)
    for first in (0, 3):
        pairs = zip(
            memory.epoch(PASS, 7, 1, Shard(1, 2), first), stream.epoch(PASS, 7, 1, Shard(1, 2), first), strict=True
        )
        assert [torch.equal(a, b) for a, b in pairs] == [True] * (4 - first)


def test_a_stream_shows_all_images_in_order(raw: Artifact) -> None:
    pixels = load_split(raw, "train")
    for images in (Streamed(raw, None, SHARE), InMemory(pixels)):
        assert np.array_equal(torch.cat(list(images)).numpy(), pixels)


def test_the_proxy_looks_at_labelled_images(raw: Artifact) -> None:
    task = new_task(TrainTeacher(Teacher(arch=NET.arch, head_layers=1), 0, raw, model="RotNet"))
    job = TrainingJob(lambda: task, raw, NET, PASS, 0, "label", "key")
    assert proxy_of(job) is None
    look = proxy_of(replace(job, proxy=Proxy(every=1, images=60)))
    assert look is not None
    seen = [look(task, epoch)["knn"] for epoch in (1, 2)]
    assert seen[0] == seen[1]
    assert 100 / len(np.unique(labels_of(raw, "train"))) < seen[0] <= 100  # colours alone tell more than chance
    require_labels(raw, Proxy(every=1))
