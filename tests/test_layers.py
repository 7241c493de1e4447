"""The layer rule: bownet knows nothing of its users, evaluation nothing of pipelines, mlflow has one door."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "bownet": {"ray", "mlflow", "evaluation", "pipelines"},
    "evaluation": {"mlflow", "pipelines"},
    "pipelines": {"mlflow"},
}
MLFLOW_DOOR = "pipelines/tracking.py"


def imported(source: str) -> set[tuple[str, int]]:
    """Top-level name and line of every absolute import, wherever it stands, `import_module("...")` included."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                modules = [module]
            case _:
                continue
        found |= {(module.partition(".")[0], node.lineno) for module in modules}
    return found


def breaches(path: str, source: str) -> list[str]:
    """What a file, named from the root, imports against the rule."""
    forbidden = FORBIDDEN[path.partition("/")[0]] - ({"mlflow"} if path == MLFLOW_DOOR else set())
    return [f"{path}:{line} imports {name}" for name, line in sorted(imported(source)) if name in forbidden]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_layers_hold(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"{package} has no Python files"
    found = [breach for f in files for breach in breaches(f.relative_to(ROOT).as_posix(), f.read_text("utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("bownet/a.py", "import ray.data as data", ["bownet/a.py:1 imports ray"]),
        ("bownet/a.py", "def f():\n    from pipelines.store import Store", ["bownet/a.py:2 imports pipelines"]),
        ("bownet/a.py", "import os, mlflow", ["bownet/a.py:1 imports mlflow"]),
        ("bownet/a.py", "importlib.import_module('evaluation.linear')", ["bownet/a.py:1 imports evaluation"]),
        ("bownet/a.py", "import rayon\nfrom . import ray\nfrom bownet.words import bow", []),
        ("evaluation/a.py", "if TYPE_CHECKING:\n    import pipelines", ["evaluation/a.py:2 imports pipelines"]),
        ("evaluation/a.py", "from mlflow import log_metric", ["evaluation/a.py:1 imports mlflow"]),
        ("evaluation/a.py", "import bownet, ray", []),
        ("pipelines/full.py", "import mlflow", ["pipelines/full.py:1 imports mlflow"]),
        ("pipelines/tracking.py", "import mlflow", []),
    ],
)
def test_the_check_sees_a_breach(path: str, source: str, expected: list[str]) -> None:
    assert breaches(path, source) == expected


def test_programs_start_without_what_they_may_not_need() -> None:
    """Each of these takes seconds, which a mistake in the first argument must not cost."""
    late = ("ray", "mlflow", "torchvision", "sklearn", "matplotlib", "timm")
    programs = ", ".join(f"pipelines.{name}" for name in ("full", "sweep", "evaluate", "export", "report"))
    code = f"import sys, {programs}; print(*(name for name in {late} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
