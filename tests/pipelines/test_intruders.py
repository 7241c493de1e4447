"""Who has not the cluster's token can do nothing with it: submit no job, join as no node, connect as no driver."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_start import PORT, RAY, head_node, stranger

pytestmark = pytest.mark.faults

CONNECT = "import json, ray; ray.init(log_to_driver=False); print(json.dumps([n['Resources'] for n in ray.nodes()]))"
SHELLS: dict[str, dict[str, str]] = {
    "no token": {},
    "another token": {"RAY_AUTH_TOKEN": "another-token-of-this-test-012345678"},
    "authentication off": {"RAY_AUTH_MODE": "disabled"},
}
REFUSED = r"requires authentication|AuthenticationError|[Aa]uthentication token|401 Unauthorized"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with head_node(tmp_path_factory.mktemp("cluster")) as variables:
        yield variables | {"RAY_ADDRESS": f"127.0.0.1:{PORT}"}


def test_jobs_nodes_and_drivers_are_refused(cluster: dict[str, str], tmp_path: Path) -> None:
    """All at once, as nodes and drivers try for twenty seconds to get in."""
    ran = tmp_path / "ran"
    tries = {
        "job": [RAY, "job", "submit", "--", "touch", str(ran)],
        "node": [RAY, "start", f"--address={cluster['RAY_ADDRESS']}", "--num-cpus=7", "--block"],
        "driver": [sys.executable, "-c", CONNECT],
    }
    running = {
        (what, shell): subprocess.Popen(
            command,
            env=stranger(cluster, tmp_path) | variables,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for shell, variables in SHELLS.items()
        for what, command in tries.items()
    }
    for tried, process in running.items():
        said, _ = process.communicate(timeout=120)
        assert process.returncode != 0, (tried, said)
        assert re.search(REFUSED, said), f"{tried}: {said}"
    assert not ran.exists()


def test_who_has_it_gets_in(cluster: dict[str, str], tmp_path: Path) -> None:
    """Else the refusals above would say nothing. None of the nodes that were refused is there."""
    ran = tmp_path / "ran"
    job = [RAY, "job", "submit", "--", "touch", str(ran)]
    subprocess.run(job, env=cluster, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    assert ran.exists()
    driver = [sys.executable, "-c", CONNECT]
    seen = subprocess.run(driver, env=cluster, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    (head,) = json.loads(seen.stdout.splitlines()[-1])
    assert head["CPU"] == 2
