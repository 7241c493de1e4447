"""Memory of the streaming path: three epochs over a set four times as large as the object store it is given."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks.harness import Result
from bownet.config import Data, Optimiser
from bownet.training import Shard
from pipelines.machine import Machine
from pipelines.stages.images import Images
from pipelines.stages.inputs import Share, Streamed
from pipelines.store import Store

OBJECT_STORE = 80 << 20  # the least that Ray accepts is 75 MB


class Sampler:
    """Bytes that this process and all of its descendants have for themselves, and those in shared memory."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            self.samples.append(resident())

    def stop(self) -> list[float]:
        self._stop.set()
        self._thread.join()
        return self.samples


def resident() -> float:
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            total += process.memory_full_info().uss
        except psutil.Error:  # it has just ended
            continue
    return total


def measure(small: bool, machine: Machine) -> list[Result]:
    """Ray must have been started with `OBJECT_STORE` bytes."""
    size, repeat = 32, 1 if small else 4
    count = OBJECT_STORE * repeat // (size * size * 3)
    with tempfile.TemporaryDirectory() as folder:
        data = Data(train=count, test=1, novel_per_class=1, image_size=size)
        images = Store(Path(folder), machine=machine).get(Images(data))
        stream = Streamed(images, None, Share(1, 1, 0.5))
        config = Optimiser(epochs=3, iterations_per_epoch=None, batch=512, drops=())
        medians, seconds = [], []
        for epoch in range(3):
            sampler, started, seen = Sampler(), time.perf_counter(), 0
            for batch in stream.epoch(config, 0, epoch, Shard()):
                seen += len(batch)
            assert seen == count, (seen, count)
            seconds.append(time.perf_counter() - started)
            medians.append(statistics.median(sampler.stop() or [resident()]))
    ratio = medians[0] / medians[-1]
    spread = (float(np.min(medians) / np.max(medians)), 1.0)
    name = f"streaming {repeat}x the object store, memory of epoch 1 / epoch 3"
    return [Result(name, ratio, 0.9, ratio >= 0.9, seconds[-1], seconds[0], spread)]
