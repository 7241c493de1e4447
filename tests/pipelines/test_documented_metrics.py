"""Every metric that a run logs is in the documentation."""

import re
from typing import Any

import mlflow
from conftest import ROOT


def documented() -> re.Pattern[str]:
    """Of the names in docs/metrics.md, and those of epochs in docs/training.md; `...` after names is their family."""
    names = set(re.findall(r"`([a-z0-9_]+/[^`]+)`", (ROOT / "docs/metrics.md").read_text()))
    for row in re.findall(r"^\| `.*, \.\.\. \|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE):
        names |= {f"{family}/..." for family in re.findall(r"`(\w+)/", row)}
    epochs = (ROOT / "docs/training.md").read_text().partition("## Recorded for each epoch")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| (`.*?) \|", epochs, re.MULTILINE):
        names |= {f"train/{name}" for name in re.findall(r"`(\w+)`", row)}
    return re.compile("|".join(re.sub(r"<\w+>", r"[^/]+", re.escape(name)).replace(r"\.\.\.", ".+") for name in names))


def test_a_run_logs_what_is_documented(smoke: dict[str, Any]) -> None:
    where = smoke["report"]["mlflow"]
    client = mlflow.MlflowClient(where["tracking_uri"])
    runs = client.search_runs([client.get_run(where["run_id"]).info.experiment_id])
    models = {run.info.run_name.lower() for run in runs if "model" in run.data.tags}
    logged = {name for run in runs for name in run.data.metrics}
    plain = {name.partition("/")[2] if name.partition("/")[0] in models else name for name in logged}
    assert {"linear/top1", "train/loss", "words/used", "vocabulary/inertia", "fewshot/5shot_ci95"} <= plain
    known = documented()
    assert [name for name in sorted(plain) if not known.fullmatch(name)] == []
