"""A k-means worker holds its share of the vectors once: peak memory of each of its calls, as the kernel counts it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bownet.words.grid import grid_for
from bownet.words.nearest import Sums
from bownet.words.pca import PCA, fit_pca
from pipelines.machine import WORKER_VARIABLES
from pipelines.stages.clustering import Vectors, Worker
from pipelines.store import Folder

FILES, ROWS, CHANNELS, K = 24, 5000, 256, 512
SHARE = FILES * ROWS * CHANNELS * 4  # bytes: 123 MB


def write_share(folder: Folder, files: int, rows: int) -> Vectors:
    """Vectors in groups, as features are, in files that are small parts of the share, as those of shards are."""
    rng = np.random.default_rng(0)
    centres = 4 * rng.standard_normal((64, 32), np.float32) @ rng.standard_normal((32, CHANNELS), np.float32)
    names = tuple(f"{files}-{i}.npy" for i in range(files))
    for name in names:
        noise = rng.standard_normal((rows, CHANNELS), np.float32)
        folder.write_npy(name, centres[rng.integers(len(centres), size=rows)] + noise)
    return Vectors(folder, names, (rows,) * files, CHANNELS)


@pytest.mark.parametrize("components", [None, 64], ids=["raw", "pca"])
def test_a_worker_holds_its_share_once(tmp_path: Path, components: int | None) -> None:
    """At most 1.3 times the raw share and four tables of centroids above a process with all libraries loaded.

    Counted is VmHWM, the peak of all resident pages. That includes those of the files that are mapped, though they are
    the kernel's and can be dropped; a file is a 24th of the share, and one or two are mapped at a time. The process
    has the memory settings that `connect` gives to Ray's workers.
    """
    write_share(Folder(str(tmp_path)), FILES, ROWS)
    command = [sys.executable, __file__, str(tmp_path), json.dumps(components)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | WORKER_VARIABLES)
    assert done.returncode == 0, done.stderr
    peaks: dict[str, int] = json.loads(done.stdout)
    assert peaks["start"] > (SHARE if components is None else SHARE // 4)  # it was really measured
    table = K * CHANNELS * 4
    most = 1.3 * SHARE + 4 * table
    too_high = {call: f"{peak / 1e6:.0f} MB" for call, peak in peaks.items() if peak > most}
    assert not too_high, f"more than {most / 1e6:.0f} MB for a share of {SHARE / 1e6:.0f} MB; all calls: {peaks}"


def status(field: str) -> int:
    """Bytes, of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def measure(folder: Folder, components: int | None) -> dict[str, int]:
    """Peak of the resident memory during each call, above what a worker with a tiny share leaves."""
    tiny = write_share(folder, 1, 600)
    pca = None if components is None else fit_pca(tiny.read(), components)
    run(tiny, pca, 16, lambda name, call: call())
    baseline, peaks = status("VmRSS"), dict[str, int]()

    def watched(name: str, call: Callable[[], Any]) -> Any:
        with suppress(OSError):  # where it is not allowed, a peak is that of this call and all before it
            Path("/proc/self/clear_refs").write_text("5")
        made = call()
        peaks[name] = status("VmHWM") - baseline
        return made

    share = Vectors(folder, tuple(f"{FILES}-{i}.npy" for i in range(FILES)), (ROWS,) * FILES, CHANNELS)
    run(share, pca, K, watched)
    return peaks


def run(share: Vectors, pca: PCA | None, k: int, call: Callable[[str, Callable[[], Any]], Any]) -> None:
    """What k-means asks of a worker: a survey, the first centroids, three iterations."""
    worker = call("start", lambda: Worker(share, 0, pca, 1, False))
    grid = grid_for(call("survey", lambda: worker.survey(k)), k)
    rows = np.sort(np.random.default_rng(1).choice(len(share), k, replace=False))
    centroids = call("sample", lambda: worker.sample(torch.from_numpy(rows), grid)).numpy()
    for i in range(3):
        flat = call(f"assign {i}", lambda centroids=centroids: worker.assign(centroids, grid))
        sums = Sums.of_flat(torch.from_numpy(flat), k)
        centroids = sums.means().float().numpy()


if __name__ == "__main__":
    print(json.dumps(measure(Folder(sys.argv[1]), json.loads(sys.argv[2]))))
