"""Kills at random while a tiny pipeline runs on a cluster of three nodes, again and again, and compares the results.

python -m tests.chaos --minutes 20 --seed 0      prints every fault, what it cost, and whether the results match
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.chaos.driver import Driver, contents
from tests.chaos.faults import DiskFull, DriverKilled, Fault, NodeLost, NodeSlow, ServerAway, WorkerKilled
from tests.chaos.small_disk import small_disk
from tests.chaos.three_nodes import ThreeNodes

PAUSE = (8.0, 35.0)  # seconds between faults
LONGEST_RUN = 900.0  # seconds; a run that takes longer hangs
RESTARTS = 30  # of a driver that ended by itself


def main() -> int:
    options = arguments()
    random = Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="chaos-") as path, ThreeNodes() as nodes, small_disk(Path(path)) as disk:
        port = free_port()
        away = ServerAway(lambda: mlflow_server(Path(path) / "mlflow", port))
        faults: list[Fault] = [WorkerKilled(nodes), NodeLost(nodes), NodeSlow(nodes), DriverKilled(), away]
        faults += [DiskFull(disk)] if disk.is_mount() else []
        try:
            return rounds(options.minutes, random, nodes, disk, faults, f"http://127.0.0.1:{port}")
        finally:
            away.stop()


def rounds(minutes: float, random: Random, nodes: ThreeNodes, disk: Path, faults: list[Fault], uri: str) -> int:
    """Runs with faults until the time is over, then the table."""
    variables = {"MLFLOW_TRACKING_URI": uri}
    started = time.monotonic()
    calm = Driver(nodes.address, disk / "calm", disk.parent / "calm.log", **variables)
    calm.start()
    if calm.wait(LONGEST_RUN):
        sys.exit(f"the undisturbed run failed: {calm.last_line()}")
    undisturbed, expected, metrics = time.monotonic() - started, contents(calm.store), calm.metrics()
    print(f"undisturbed: {undisturbed:.0f} s, {len(expected)} files of artifacts", flush=True)
    begun, run, injected, recovered, again, lost, wrong = time.monotonic(), 0, 0, 0, 0, 0.0, 0
    while time.monotonic() - begun < minutes * 60:
        run += 1
        driver = Driver(nodes.address, disk / f"run{run}", disk.parent / f"run{run}.log", **variables)
        since, count, restarts = time.monotonic(), 0, 0
        open_faults: list[str] = []  # keys of the stages that were hit and are not finished yet
        overcome = 0
        driver.start()
        strike = time.monotonic() + random.uniform(*PAUSE)
        while (code := driver.exit_code()) is None or code:
            time.sleep(0.1)
            overcome += sum(map(driver.has_finished, filter(None, open_faults)))
            open_faults = [key for key in open_faults if not (key and driver.has_finished(key))]
            if time.monotonic() - since > LONGEST_RUN:
                sys.exit(f"run {run} hangs; its log: {driver.log.read_text()[-3000:]}")
            if code:  # it ended by itself, and said why
                restarts += 1
                open_faults = []  # it recovered from none of them: it was started again by hand
                print(f"  run {run}: the driver ended with {code}: {driver.last_line()}", flush=True)
                if restarts > RESTARTS:
                    sys.exit(f"run {run} does not end; its log: {driver.log.read_text()[-3000:]}")
                driver.start()
            elif time.monotonic() > strike and time.monotonic() - begun < minutes * 60:
                fault = random.choice(faults)
                stage, key = driver.building()
                if (hit := fault.strike(driver, random)) is not None:
                    whom, seconds = hit
                    count += 1
                    open_faults.append(key)
                    print(f"  run {run}, {stage or 'between stages'}: {fault.name} {whom}", flush=True)
                    time.sleep(seconds)
                    fault.mend()
                strike = time.monotonic() + random.uniform(*PAUSE)
        took = time.monotonic() - since
        same = contents(driver.store) == expected and driver.metrics() == metrics
        injected, again, lost, wrong = injected + count, again + restarts, lost + took - undisturbed, wrong + (not same)
        recovered += overcome + len(open_faults) if same else 0  # those between stages, and in what ended just now
        what = "equal" if same else "DIFFERENT"
        print(f"run {run}: {count} faults, {took:.0f} s, {restarts} started again by hand, results {what}", flush=True)
        if not same:
            for name in sorted(set(contents(driver.store).items()) ^ set(expected.items())):
                print(f"  differs: {name}", flush=True)
        shutil.rmtree(driver.store)
    print(f"{(time.monotonic() - begun) / 60:.0f} minutes, {run} runs, {injected} faults")
    print(f"{recovered} recoveries: the stage that was hit was finished by the run that it hit, with equal results")
    print(f"{again} times a driver ended with a message, and was started again")
    print(f"{run - wrong} runs ended with equal results, {wrong} with others")
    print(f"{lost / max(1, injected):.0f} s lost by a fault on average")
    return int(wrong > 0)


def mlflow_server(folder: Path, port: int) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    where = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "files")]
    command = [str(Path(sys.executable).parent / "mlflow"), "server", *where, "--workers", "1"]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port)], stdout=log, stderr=log)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20, help="for how long faults are injected (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of faults and moments (0)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
