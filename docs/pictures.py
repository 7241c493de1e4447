"""The pictures of README and documentation, made anew from stores: of a `make demo`, and of a sweep over K.

python docs/pictures.py --demo store --sweep other-store      needs Chromium, as tests of pages do

Sweeps of four sizes: python pipelines/sweep.py --preset smoke --space vocabulary.size=8,16,32,64 --store other-store
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a program, like pipelines/full.py
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests" / "pipelines"))  # whose MLflow server this takes

from conftest import CHROMIUM
from mlflow_server import free_port, server
from PIL import Image

from pipelines.records import Record, read_records

DOCS = Path(__file__).resolve().parent
WIDTH = 1000  # of the visual words; readers with more find the artifact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo", type=Path, help="a store with a finished make demo")
    parser.add_argument("--sweep", type=Path, help="a store with a finished sweep over vocabulary.size")
    arguments = parser.parse_args()
    if CHROMIUM is None:
        parser.error("chromium is not installed; apt-get install chromium")
    for store, draw in ((arguments.demo, of_demo), (arguments.sweep, of_sweep)):
        if store and not (store / "results").is_dir():
            parser.error(f"{store}: holds no finished run")
        if store:
            draw(store)


def of_demo(store: Path) -> None:
    """Visual words and their health, a word opened on the page of the run, the run in MLflow."""
    record = read_records(str(store))[-1]
    figures_of_words(record, store)
    with browser() as opened:
        page = opened.new_page(viewport={"width": 900, "height": 675})
        page.goto((store / "pages" / f"{record.run}.html").resolve().as_uri())
        page.locator(".word").nth(3).click()
        detail = page.locator(".detail:not([hidden])")
        detail.wait_for()
        detail.evaluate("e => scrollTo(0, e.getBoundingClientRect().top + scrollY - 110)")
        page.wait_for_timeout(500)
        page.screenshot(path=DOCS / "page.png")
        with server(store, free_port(), "mlflow.db") as address:
            page = opened.new_page(viewport={"width": 1280, "height": 860})
            page.goto(f"{address}/#/experiments/{record.mlflow['experiment_id']}/runs/{record.run}")
            page.get_by_text("linear/top1", exact=True).first.wait_for(timeout=60_000)
            page.wait_for_timeout(2000)
            assistant = page.get_by_role("button", name="Close")  # MLflow opens it beside the first run
            if assistant.count():
                assistant.click()
            page.wait_for_timeout(1000)
            page.screenshot(path=DOCS / "mlflow_run.png")


def figures_of_words(record: Record, store: Path) -> None:
    """Of the last network of a run."""
    words, patches = (
        [store / "artifacts" / name / stage["key"] for stage in record.stages if stage["name"] == name][-1]
        for name in ("words", "patches")
    )
    (DOCS / "health.png").write_bytes((words / "health.png").read_bytes())
    picture = Image.open(patches / "words.png").convert("RGB")
    smaller = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
    smaller.save(DOCS / "words.jpg", quality=88, optimize=True)


def of_sweep(store: Path) -> None:
    """The trials of a sweep over vocabulary.size, compared in MLflow."""
    trials = [record for record in read_records(str(store)) if record.sweep]
    runs, experiment = json.dumps([trial.run for trial in trials]), trials[0].mlflow["experiment_id"]
    with browser() as opened, server(store, free_port(), "mlflow.db") as address:
        page = opened.new_page(viewport={"width": 1280, "height": 1200})
        page.goto(f'{address}/#/compare-runs?runs={runs}&experiments=["{experiment}"]')
        chart = page.locator(".js-plotly-plot").first
        chart.wait_for(timeout=60_000)
        page.wait_for_timeout(2000)
        chart.screenshot(path=DOCS / "mlflow_sweep.png")


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield opened
        opened.close()


if __name__ == "__main__":
    main()
