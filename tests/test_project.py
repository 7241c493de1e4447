"""The files around the code: pins, Makefile, ignore files, cluster file."""

import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from ray._private.runtime_env.packaging import create_package
from ray.autoscaler._private.util import prepare_config, validate_config

from pipelines.command_line import parse

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.]*)( ; .+)?")
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    matches = {line: PIN.fullmatch(line) for line in lines}
    assert all(matches.values()), f"not `name==version`: {[line for line, match in matches.items() if not match]}"
    return {normal(match[1]): match[2] for match in matches.values() if match}


def make(*arguments: str) -> str:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def test_constraints_are_pins_without_addresses() -> None:
    text = (ROOT / "constraints.txt").read_text("utf-8")
    assert "://" not in text
    assert "@" not in text
    assert not {"pip", "setuptools", "wheel"} & pins().keys()


def test_every_dependency_of_a_set_up_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chosen = re.search(r'-e "\.\[([a-z,]+)\]"', (ROOT / "Makefile").read_text("utf-8"))
    assert chosen
    extras = [d for extra in chosen[1].split(",") for d in project["optional-dependencies"][extra]]
    wanted = {normal(re.split(r"[\[<>=~! ;]", d)[0]) for d in project["dependencies"] + extras}
    assert not wanted - pins().keys(), "renew constraints.txt as its head says"


@needs_make
def test_make_alone_lists_every_target() -> None:
    listed = set(re.findall(r"^  make ([a-z-]+) +\S", make(), re.MULTILINE))
    assert listed == {
        "help",
        "setup",
        "demo",
        "test",
        "test-faults",
        "test-slow",
        "bench",
        "bench-full",
        "docs",
        "lint",
        "audit",
        "format",
        "clean",
        "mlflow",
    }
    assert make() == make("help")


@needs_make
@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["demo"], "pipelines/full.py demo --store store"),
        (["demo", "STORE=/data/s", "ARGS=--seed 1"], "pipelines/full.py demo --store /data/s --seed 1"),
        (["test"], '-m pytest -m "not slow and not faults"'),
        (["test-slow"], "-m pytest -m slow"),
        (["mlflow"], "--backend-store-uri sqlite:///store/mlflow.db --host 127.0.0.1 --port 5000"),
        (["lint"], "ruff format --check"),
    ],
)
def test_make_would_run(arguments: list[str], command: str) -> None:
    assert command in make("-n", *arguments)


@needs_make
def test_make_clean_keeps_the_store() -> None:
    removed = make("-n", "clean").split()
    assert ".venv" in removed
    assert not any("store" in word for word in removed)


def test_cluster_file_is_valid_guarded_and_installs_the_extras() -> None:
    config = prepare_config(yaml.safe_load((ROOT / "ray_cluster.yaml").read_text("utf-8")))
    validate_config(config)
    ray = pins()["ray"]
    assert all(config["docker"][image].startswith(f"rayproject/ray:{ray}-") for image in ("head_image", "worker_image"))
    assert "--env RAY_AUTH_MODE=token" in config["docker"]["run_options"]
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]
    assert any("[gpu]" in command for command in config["worker_setup_commands"])
    kinds = config["available_node_types"]
    assert kinds["spot"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    # where a kind of node names none, Ray makes a group that lets in SSH from everywhere
    assert [kind["node_config"]["SecurityGroupIds"] for kind in kinds.values()] == [["sg-CHOOSE"]] * 3
    assert all(kinds[kind]["node_config"]["IamInstanceProfile"]["Arn"] for kind in ("gpu", "spot"))
    assert kinds["spot"]["node_config"]["InstanceType"] == kinds["gpu"]["node_config"]["InstanceType"]


def bytes_of(quantity: str) -> int:
    assert quantity.endswith("Gi")
    return int(quantity[:-2]) << 30


def test_the_kubernetes_job_is_guarded_and_of_the_same_ray() -> None:
    job = yaml.safe_load((ROOT / "ray_job.yaml").read_text("utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == pins()["ray"]
    assert cluster["authOptions"] == {"mode": "token"}
    (workers,) = cluster["workerGroupSpecs"]
    for pod in (cluster["headGroupSpec"]["template"]["spec"], workers["template"]["spec"]):
        (container,) = pod["containers"]
        assert pod["serviceAccountName"]  # where credentials come from
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert container["resources"]["requests"] == container["resources"]["limits"]
        (shared,) = (volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "shared-memory")
        # Ray takes so much of it for objects; were it smaller, they would lie on a disk
        assert bytes_of(shared["sizeLimit"]) >= min(0.3 * bytes_of(container["resources"]["limits"]["memory"]), 1e10)
    program, *arguments = shlex.split(job["spec"]["entrypoint"])[1:]
    assert (ROOT / program).is_file()
    options = parse(None, arguments)
    assert options.store == "/store/results"
    # there are no GPUs when the job begins: it must insist on them, and wait as long as a node takes
    assert (options.resources.gpu, options.resources.workers) == (True, workers["maxReplicas"])
    assert options.resources.wait_minutes >= 10
    environment = yaml.safe_load(job["spec"]["runtimeEnvYAML"])
    assert environment.keys() == {"working_dir", "env_vars"}


def test_the_container_has_the_same_ray_and_all_packages() -> None:
    lines = (ROOT / "Containerfile").read_text("utf-8").splitlines()
    assert f"FROM rayproject/ray:{pins()['ray']}-py311-gpu" in lines
    copied = {word for line in lines if line.startswith("COPY") for word in line.split()[2:-1]}
    assert copied >= {"bownet", "evaluation", "pipelines", "pyproject.toml", "constraints.txt"}
    assert all((ROOT / name).exists() for name in copied)


def test_a_job_uploads_the_code_and_nothing_else(tmp_path: Path) -> None:
    project = tmp_path / "project"
    code = {"bownet/words/bow.py", "evaluation/linear.py", "pipelines/full.py", "pipelines/store/locks.py"}
    rest = {".venv/bin/python", "store/words/a.npy", "tests/test_a.py", ".git/objects/aa", "mlruns/0/meta.yaml"}
    rest |= {"a.egg-info/PKG-INFO", "mlflow.db", "bownet/__pycache__/a.pyc", "build/lib/a.py", "benchmarks/r.json"}
    for name in code | rest:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("")
    for name in (".gitignore", ".rayignore"):
        shutil.copy(ROOT / name, project)
    create_package(str(project), tmp_path / "upload.zip", include_gitignore=True)
    with ZipFile(tmp_path / "upload.zip") as archive:
        files = {name for name in archive.namelist() if not name.endswith("/")}
    assert files - {".gitignore", ".rayignore"} == code


def test_files_that_documentation_names_exist() -> None:
    """On every page; these name many, and a pattern that finds none of them any more is noticed."""
    fewest = {"paper_map.md": 40, "extend.md": 10, "evaluation.md": 10, "tasks.md": 5}
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text("utf-8")
        named = re.findall(r"`((?:bownet|evaluation|pipelines|tests)/[\w/]+(?:\.py|/))`", text)
        assert len(named) >= fewest.pop(page.name, 0), page
        assert [name for name in named if not (ROOT / name).exists()] == [], page
    assert not fewest, "pages that are not there any more"


def test_the_backbone_of_the_documentation() -> None:
    """The code of docs/extend.md, as it stands: its taps have the channels and strides that it tells."""
    import itertools
    from collections.abc import Callable, Iterator

    import torch

    from bownet.nets.taps import Backbone, global_pool

    text = (ROOT / "docs/extend.md").read_text("utf-8")
    code = textwrap.dedent(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])
    names = {"Backbone": Backbone, "global_pool": global_pool, "nn": torch.nn, "itertools": itertools}
    names |= {"Tensor": torch.Tensor, "Callable": Callable, "Iterator": Iterator}
    exec(code, names)
    net = names["Plain"](4)  # type: ignore[operator]
    found = net(torch.rand(2, 3, 32, 32), net.taps)
    for tap, values in found.items():
        assert values.shape[1] == net.tap_channels[tap]
        assert net.tap_strides[tap] == (32 // values.shape[2] if values.ndim == 4 else 0)


def test_every_setting_is_in_the_reference() -> None:
    """The page is filled when the documentation is built."""
    made = subprocess.run(
        [sys.executable, "docs/reference_from_code.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    for name in (
        "vocabulary.size",
        "student.perturbation.crop_area",
        "teacher.optimiser.precision",
        "resources.wait_minutes",
    ):
        assert f"| `{name}` |" in made
    assert "Of activations. bfloat16 is faster" in made


def test_stages_and_programs_are_in_the_reference() -> None:
    code = (
        "import sys; sys.path.insert(0, 'docs'); import reference_from_code as r; print(r.stages(), r.command_lines())"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    ).stdout
    for text in ("| `vocabulary` | 2 |", "`pipelines/stages/student.py`", "## sweep.py", "| `--max-concurrent` |"):
        assert text in made
    assert "| `--resources.workers` |" in made
