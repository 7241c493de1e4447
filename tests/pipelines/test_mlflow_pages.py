"""MLflow's own pages on the store of a real run, in a real browser: what people look for is where they look."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import pytest
from conftest import ROOT, environment
from mlflow_server import free_port, server

PATIENCE = 60_000  # milliseconds: these pages are large, and machines for tests are slow


def show(page: Any, address: str, text: str) -> None:
    """Open a page that says so; like a person, try again where MLflow could not load all of its parts."""
    for _ in range(3):
        page.goto("about:blank")
        page.goto(address)
        page.get_by_text(text).or_(page.get_by_text("Something went wrong")).first.wait_for()
        if page.get_by_text("Something went wrong").count() == 0:
            return
    raise AssertionError(f"{address}: MLflow's page fails")


def test_a_run_and_its_networks(browser: Any, smoke: dict[str, Any]) -> None:
    where = smoke["report"]["mlflow"]
    client = mlflow.MlflowClient(where["tracking_uri"])
    run = where["run_id"]
    experiment = client.get_run(run).info.experiment_id
    assert next(iter(client.get_run(run).data.metrics)) == "linear/top1"  # what the page that compares runs begins with
    below = f"tags.`mlflow.parentRunId` = '{run}' and tags.model = 'BoWNet'"  # other tests may have made more
    (bownet,) = client.search_runs([experiment], below)
    assert {"fewshot.png", f"{run}.html"} <= {file.path for file in client.list_artifacts(run)}
    with server(smoke["store"], free_port(), "mlflow.db") as address:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(PATIENCE)
        base = f"{address}/#/experiments/{experiment}/runs"
        show(page, base, "matching runs")
        page.get_by_role("link", name="smoke", exact=True).first.wait_for()
        # With random, RotNet and BoWNet below it. The page counts while it loads.
        page.wait_for_function("Number((document.body.innerText.match(/(\\d+) matching runs/) || [0, 0])[1]) >= 4")

        show(page, f"{base}/{run}", "Reduced scale (tiny)")
        for text in ("linear/top1", "bownet/fewshot/5shot", "vocabulary.size"):
            page.get_by_text(text, exact=True).first.wait_for(state="attached")

        show(page, f"{base}/{bownet.info.run_id}/model-metrics", "fewshot")
        for section in ("fewshot", "linear", "train", "vocabulary", "words"):
            page.get_by_text(section, exact=True).first.wait_for()

        show(page, f"{base}/{bownet.info.run_id}/artifacts", "predictions")
        page.get_by_text("patches", exact=True).first.wait_for()
        page.get_by_text("predictions", exact=True).click()
        page.get_by_text("predictions.png", exact=True).click()
        picture = page.locator("img[src*='predictions.png'], img[src^='blob:']").first
        picture.wait_for()
        page.wait_for_function("image => image.naturalWidth > 300", arg=picture.element_handle())


@pytest.mark.slow
def test_a_sweep_over_vocabularies_can_be_compared(browser: Any, tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "pipelines" / "sweep.py")]
    settings = ["--preset", "smoke", "--space", "vocabulary.size=8,16", "--store", str(tmp_path)]
    done = subprocess.run(
        [*program, *settings, "--json", str(tmp_path / "report.json")],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    parent = client.get_run(json.loads((tmp_path / "report.json").read_text())["run"])
    experiment = parent.info.experiment_id
    trials = client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    runs = json.dumps([trial.info.run_id for trial in trials])
    with server(tmp_path, free_port(), "mlflow.db") as address:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(PATIENCE)
        compared = f"{address}/#/compare-runs?runs={runs}&experiments={json.dumps([experiment])}"
        show(page, compared, "Comparing 2 Runs")
        for chart in ("Parallel Coordinates Plot", "Scatter Plot"):
            page.get_by_text(chart).first.wait_for()
        page.locator(".js-plotly-plot").first.wait_for()
        page.get_by_text("linear/top1").first.wait_for()
        assert page.get_by_text("vocabulary.size", exact=True).first.is_visible()
