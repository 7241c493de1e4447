"""A Ray cluster as `ray start` makes it, with token authentication on, and the shell of a user who knows the token."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from conftest import environment

BINARIES = Path(sys.executable).parent
RAY = str(BINARIES / "ray")
TOKEN = "a-token-of-this-test-only-0123456789"
PORT = 26379
PORTS = [f"--port={PORT}", "--dashboard-port=28265", "--ray-client-server-port=26001"]
PORTS += ["--dashboard-agent-listen-port=28366"]  # its default may be another Ray's on this machine


@contextmanager
def head_node(folder: Path) -> Iterator[dict[str, str]]:
    """Yields the variables that a user would set to submit to it."""
    variables = environment(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=TOKEN,
        PATH=f"{BINARIES}:{os.environ['PATH']}",  # as after `. .venv/bin/activate`
    )
    start = [RAY, "start", "--head", "--num-cpus=2", "--dashboard-host=127.0.0.1", *PORTS]
    # `ray stop` would end every Ray on this machine; a blocking start knows what it has started
    process = subprocess.Popen([*start, "--block"], env=variables, cwd=folder)
    submit = variables | {"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:28265"}
    try:
        for _ in range(60):
            first = [RAY, "job", "submit", "--no-wait", "--", "true"]  # taken when there is an agent for it
            tried = subprocess.run(first, env=submit, cwd=folder, capture_output=True, text=True)
            if tried.returncode == 0:
                break
            time.sleep(1)
        else:
            raise AssertionError(f"the cluster did not come up: {tried.stderr}")
        yield submit
    finally:
        started = [process, *psutil.Process(process.pid).children(recursive=True)]
        for one in started:  # asked to end, it would give each of them half a minute
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(timeout=60)


def stranger(variables: dict[str, str], home: Path) -> dict[str, str]:
    """The same shell, without the token: neither in a variable, nor in a file at home."""
    return {name: value for name, value in variables.items() if name != "RAY_AUTH_TOKEN"} | {"HOME": str(home)}
