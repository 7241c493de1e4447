"""What imagenet/bownet-conv5 would cost on 8, 64 and 512 GPUs: a model, no measurement of such a cluster.

FLOPs, bytes and messages are counted from the preset; how shards and vectors are shared out is decided by the functions
that a run calls, and simulated with shards of uneven cost and a slow GPU. Decoding and adding are timed here, on one
core; the rates of GPUs and networks are assumptions, which options change.

python benchmarks/scale.py --json FILE      some seconds
python benchmarks/scale.py --gpus-per-node 1 --cpus 8 --gbit 10      nodes as in ray_cluster.yaml
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py

import numpy as np

from benchmarks.rates import adding_gigabytes, decoding
from pipelines.presets.imagenet import bownet_conv5
from pipelines.stages.clustering import Vectors, workers_for
from pipelines.stages.shards import tasks_for
from pipelines.store import Folder

IMAGES, JPEG = 1_281_167, 110_000  # of ImageNet; mean bytes of a file
FORWARD = 4.1e9 * 2  # FLOPs of ResNet-50 on 224 x 224 pixels
PARAMETERS, CLASSIFIERS = 25.6e6, 5 * 9216 * 1000  # that are trained: ResNet-50; linear classifiers on five layers
CHANNELS, PER_IMAGE = 2048, 4  # of conv5; vectors of an image that k-means sees, as BuildVocabulary.geometry has it
NVLINK = 200e9  # bytes per second between the GPUs of a node
TASK = 0.05  # seconds until a task of Ray Data has begun and is known to be over
ONCE = ("images (copied and checked)", "RotNet", "linear classifiers")  # the others come with each round
LAUNCH = 0.004  # seconds of a step in which kernels are launched, however small a worker's part is
HASH, HASHING_THREADS = 1.6e9, 32  # bytes of SHA-256 per second of a thread, as measured here; as Python has them
SLOW, UNEVEN = 3.0, 0.15  # how much slower one GPU is, and its CPUs; deviation of the logarithm of a shard's cost


@dataclass(frozen=True)
class Hardware:
    """Of one node; all nodes are alike."""

    gpus: int
    cpus: int
    gbit: float  # network
    gpu_images: float  # per second that a GPU trains ResNet-50 on
    decode: float  # JPEG files per second that a CPU decodes and crops
    add: float  # gigabytes of sums per second that the driver adds
    matmul: float = 14e12  # FLOP per second in single precision

    @property
    def flops(self) -> float:
        return self.gpu_images * 3 * FORWARD

    @property
    def bytes(self) -> float:
        """Per second, in or out."""
        return self.gbit * 1e9 / 8

    def exchange(self, size: float, workers: int) -> float:
        """Seconds of a ring over all workers: within nodes over NVLink, between them over the network."""
        ring = 2 * (workers - 1) / workers * size
        return ring / (self.bytes if workers > self.gpus else NVLINK) + 50e-6 * math.log2(max(2, workers))


@dataclass(frozen=True)
class Optimising:
    epochs: int
    batch: int
    parameters: float = PARAMETERS


@dataclass(frozen=True)
class Cost:
    """Of one stage on so many GPUs; `limits` are seconds by what takes them, of which the largest is the bottleneck."""

    stage: str
    gpus: int
    seconds: float
    ideal: float
    limits: dict[str, float]
    peta_flops: float
    gigabytes: float  # over the network, store included
    memory: float  # GB of a GPU's node, for data
    messages: int

    @property
    def bottleneck(self) -> str:
        return max(self.limits, key=lambda name: self.limits[name])


def a_pass(stage: str, seconds_of_shard: float, gpus: int, slots: int, gigabytes: float, flops: float) -> Cost:
    """Shards over Ray Data, as `for_each_shard` deals them out, simulated: tasks go to whoever is free."""
    shards = math.ceil(IMAGES / bownet_conv5().data.shard_size)
    uneven = np.random.default_rng(0).lognormal(-(UNEVEN**2) / 2, UNEVEN, shards) * seconds_of_shard
    tasks = [part.sum() for part in np.array_split(uneven, tasks_for(shards, slots))]
    free = [(0.0, slot) for slot in range(slots)]
    end = 0.0
    for task in tasks:
        start, slot = heapq.heappop(free)
        done = start + TASK + float(task) * (SLOW if slot < max(1, slots // gpus) else 1)
        heapq.heappush(free, (done, slot))
        end = max(end, done)
    ideal = float(uneven.sum()) / slots
    limits = {"decoding": ideal, "the last tasks": end - ideal}
    return Cost(stage, gpus, end, ideal, limits, flops / 1e15, gigabytes, 1.0, len(tasks))


def with_manifest(cost: Cost, size: float, at: Hardware) -> Cost:
    """The driver reads every file that was made, and its sha256 goes into the manifest: the pass is over before."""
    rate = min(at.bytes, min(HASHING_THREADS, at.cpus + 4) * HASH)
    limits = {**cost.limits, "hashing in the driver": size / rate}
    return replace(cost, seconds=cost.seconds + size / rate, limits=limits, gigabytes=cost.gigabytes + size / 1e9)


def training(stage: str, by: Optimising, views: float, forwards: float, gpus: int, at: Hardware) -> Cost:
    """Data parallel: each step computes its part, exchanges gradients around a ring, and has its images decoded."""
    batch, workers = by.batch, min(gpus, by.batch)  # a worker needs an image of the batch
    nodes = math.ceil(workers / at.gpus)
    steps = by.epochs * math.ceil(IMAGES / batch)
    flops = FORWARD * views * forwards
    compute = batch * flops / (workers * at.flops) + LAUNCH
    exchange = at.exchange(by.parameters * 4, workers)
    decode = batch / (nodes * (at.cpus - at.gpus) * at.decode)
    read = batch * JPEG / (nodes * at.bytes)
    limits = {"compute": compute, "gradients": exchange, "decoding": decode, "reading": read}
    step = max(compute + max(0.0, exchange - 0.7 * compute), decode, read)  # the backward pass hides most of a ring
    total = by.epochs * IMAGES
    ideal = total * flops / (gpus * at.flops)
    moved = (total * JPEG + steps * 2 * by.parameters * 4 * nodes * (nodes > 1)) / 1e9
    limits = {name: value * steps for name, value in limits.items()}
    if workers < gpus:
        limits["batch"] = ideal * gpus / workers + sum(limits.values())  # more GPUs than images in a batch: idle
    memory = at.gpus * (by.parameters * 16 / 1e9 + batch / workers * views * 0.09)
    return Cost(stage, gpus, step * steps, ideal, limits, total * flops / 1e15, moved, memory, steps)


def clustering(gpus: int, at: Hardware) -> Cost:
    """One iteration after the other: centroids go out, sums come back to the driver, which adds them."""
    config, n = bownet_conv5().vocabulary, IMAGES * PER_IMAGE
    size = bownet_conv5().data.shard_size
    shards = [min(size, IMAGES - i) * PER_IMAGE for i in range(0, IMAGES, size)]
    vectors = Vectors(Folder("nowhere"), tuple(map(str, range(len(shards)))), tuple(shards), CHANNELS)
    workers = workers_for(vectors, gpus, gpu=True)
    largest = max(len(share) for _, share in vectors.shares(workers))
    sums = config.size * (CHANNELS + 2) * 8
    compute = 2 * largest * config.size * CHANNELS / at.matmul
    apart = max(1, workers - at.gpus)  # those that do not share the driver's node
    gather = apart * sums / at.bytes
    add = workers * sums / (at.add * 1e9)
    scatter = config.size * CHANNELS * 4 / at.bytes * math.ceil(math.log2(workers + 1))
    limits = {"products": compute, "sums to the driver": gather, "adding": add, "centroids": scatter}
    flops = 2.0 * n * config.size * CHANNELS * config.iterations
    return Cost(
        f"k-means ({workers} GPUs)",
        gpus,
        sum(limits.values()) * config.iterations,
        flops / (gpus * at.matmul),
        {name: value * config.iterations for name, value in limits.items()},
        flops / 1e15,
        config.iterations * workers * (sums + config.size * CHANNELS * 4) / 1e9,
        n * CHANNELS * 4 / workers * min(workers, at.gpus) / 1e9,
        config.iterations * workers * 2,
    )


def costs(gpus: int, at: Hardware, batch: int | None = None) -> list[Cost]:
    exp = bownet_conv5()
    teacher, student, linear = exp.teacher.optimiser, exp.student.optimiser, exp.linear
    shard = exp.data.shard_size
    cpus = math.ceil(gpus / at.gpus) * at.cpus
    forward = shard / min(at.gpu_images * 3, at.decode)  # a task decodes, on one CPU, what its GPU sees
    k, words = exp.vocabulary.size, 49
    quantise = shard * words * 2 * k * CHANNELS / at.matmul
    return [
        with_manifest(
            a_pass("images (copied and checked)", shard / at.decode, gpus, cpus, IMAGES * JPEG * 2 / 1e9, 0),
            IMAGES * JPEG,
            at,
        ),
        training("RotNet", Optimising(teacher.epochs, batch or teacher.batch), 4, 3, gpus, at),
        a_pass("vectors of the teacher", forward, gpus, gpus, IMAGES * JPEG / 1e9, IMAGES * FORWARD),
        clustering(gpus, at),
        a_pass("words", 2 * (forward + quantise), gpus, gpus, IMAGES * JPEG / 1e9, 2 * IMAGES * FORWARD),
        training("BoWNet", Optimising(student.epochs, batch or student.batch), 1, 3, gpus, at),
        training(
            "linear classifiers", Optimising(linear.epochs, batch or linear.batch, CLASSIFIERS), 1, 1.05, gpus, at
        ),
    ]


def table(rows: Sequence[Cost]) -> str:
    head = "| stage | GPUs | minutes | of which computing | PFLOP | GB moved | GB on a node | messages | first limit |"
    lines = [head, "|" + " --- |" * 9]
    for c in rows:
        share = f"{100 * c.ideal / c.seconds:.0f}%"
        lines.append(
            f"| {c.stage} | {c.gpus} | {c.seconds / 60:.1f} | {share} | {c.peta_flops:.0f} | {c.gigabytes:.0f} | "
            f"{c.memory:.1f} | {c.messages} | {c.bottleneck} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", default="8,64,512", help="sizes of the cluster, by commas (8,64,512)")
    parser.add_argument("--gpus-per-node", type=int, default=8, help="GPUs of a node (8)")
    parser.add_argument("--cpus", type=int, default=96, help="CPUs of a node (96)")
    parser.add_argument("--gbit", type=float, default=100, help="network of a node (100)")
    parser.add_argument("--gpu-images", type=float, default=2500, help="images/s that a GPU trains ResNet-50 on (2500)")
    parser.add_argument("--batch", type=int, help="images of a step (the preset's 256)")
    parser.add_argument("--decode", type=float, default=0, help="JPEG files/s of a CPU; 0 measures it here (0)")
    parser.add_argument("--add", type=float, default=0, help="GB/s of sums that a core adds; 0 measures it here (0)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    rate = options.decode or decoding()
    at = Hardware(
        options.gpus_per_node, options.cpus, options.gbit, options.gpu_images, rate, options.add or adding_gigabytes()
    )
    print(f"on one core: {at.decode:.0f} JPEG files/s decoded and cropped, {at.add:.1f} GB/s added")
    node = f"{at.gpus} GPUs, {at.cpus} CPUs, {at.gbit:g} Gbit/s"
    print(f"assumed: {at.gpu_images:.0f} images/s of training on a GPU; a node has {node}\n")
    rows = [cost for gpus in map(int, options.gpus.split(",")) for cost in costs(gpus, at, options.batch)]
    print(table(rows))
    for gpus in dict.fromkeys(cost.gpus for cost in rows):
        hours = sum(cost.seconds * (1 if cost.stage in ONCE else 2) for cost in rows if cost.gpus == gpus) / 3600
        print(f"{gpus} GPUs, the whole preset with its two rounds, without transfer and detection: {hours:.1f} hours")
    if options.json:
        said = [{**asdict(cost), "bottleneck": cost.bottleneck} for cost in rows]
        options.json.write_text(json.dumps({"hardware": asdict(at), "costs": said}, indent=1) + "\n")


if __name__ == "__main__":
    main()
