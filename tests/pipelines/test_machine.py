"""How the wishes for workers are fitted to the nodes of a cluster, and who can reach the Ray that a program starts."""

import ipaddress
import os
import subprocess
import sys

import psutil
import pytest

from pipelines.machine import Machine, Node, most_threads, room_for

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


def test_a_local_ray_listens_on_loopback_alone(machine: Machine) -> None:
    me = psutil.Process()
    listening = [
        ipaddress.ip_address(connection.laddr.ip)
        for process in (me, *me.children(recursive=True))
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 4  # this process, the GCS, a raylet, its agent
    assert [
        address for address in listening if not (getattr(address, "ipv4_mapped", None) or address).is_loopback
    ] == []


@pytest.mark.parametrize(
    "stranger", [{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x" * 32}, {"RAY_AUTH_MODE": "disabled"}]
)
def test_a_local_ray_asks_for_its_token(machine: Machine, stranger: dict[str, str]) -> None:
    """Nobody has switched that on: `connect` leaves it as Ray has it."""
    import ray
    from ray._raylet import AuthenticationMode, get_authentication_mode

    assert get_authentication_mode() == AuthenticationMode.TOKEN
    address = ray.get_runtime_context().gcs_address
    script = f"from ray._raylet import GcsClient; print(GcsClient(address={address!r}).get_all_node_info(timeout=20))"
    command = [sys.executable, "-c", script]
    other = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    refused = subprocess.run(command, env=other | stranger, capture_output=True, text=True, timeout=120)
    assert "InvalidAuthToken" in refused.stderr
    assert refused.returncode == 1
    own = subprocess.run(command, env=other | {"RAY_AUTH_MODE": "token"}, capture_output=True, text=True, timeout=120)
    assert own.returncode == 0, own.stderr
