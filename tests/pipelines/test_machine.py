"""How the wishes for workers are fitted to the nodes of a cluster: no worker stretches over two of them."""

import pytest

from pipelines.machine import Node, most_threads, room_for

TWO_SMALL = [Node(2, 0), Node(2, 0)]
HEAD_AND_GPUS = [Node(8, 0), Node(16, 4), Node(6, 2)]


@pytest.mark.parametrize(
    ("nodes", "threads", "gpu", "workers"),
    [
        (TWO_SMALL, 1, False, 4),
        (TWO_SMALL, 2, False, 2),
        (TWO_SMALL, 3, False, 0),  # four CPUs in all, and no node has three
        (HEAD_AND_GPUS, 3, True, 6),
        (HEAD_AND_GPUS, 4, True, 5),  # the last node has CPUs for one of its two GPUs
        (HEAD_AND_GPUS, 5, False, 5),
    ],
)
def test_room(nodes: list[Node], threads: int, gpu: bool, workers: int) -> None:
    assert room_for(nodes, threads, gpu) == workers


@pytest.mark.parametrize(
    ("nodes", "workers", "gpu", "threads"),
    [
        ([Node(2, 0)], 1, False, 2),
        (TWO_SMALL, 1, False, 2),
        (TWO_SMALL, 2, False, 2),
        (TWO_SMALL, 3, False, 1),
        (TWO_SMALL, 9, False, 1),  # no room at all, which is refused later
        (HEAD_AND_GPUS, 6, True, 3),
        (HEAD_AND_GPUS, 1, True, 16),
    ],
)
def test_most_threads(nodes: list[Node], workers: int, gpu: bool, threads: int) -> None:
    assert most_threads(nodes, workers, gpu) == threads
