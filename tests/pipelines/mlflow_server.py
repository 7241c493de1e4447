"""A real MLflow server for tests."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen


@contextmanager
def server(folder: Path, port: int, database: str = "server.db") -> Iterator[str]:
    """On loopback, killed at the end."""
    mlflow_program = Path(sys.executable).parent / "mlflow"
    where = ["--backend-store-uri", f"sqlite:///{folder}/{database}", "--artifacts-destination", f"{folder}/files"]
    command = [mlflow_program, "server", *where, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                urlopen(f"{address}/health", timeout=2).close()
                break
            except (URLError, OSError):
                assert process.poll() is None, "the server has ended"
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield address
    finally:
        subprocess.run(["pkill", "-KILL", "-s", str(process.pid)], check=False)
        process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
