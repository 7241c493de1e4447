"""The page of a real run: opened in a real browser where there is one, and never able to carry out what names say."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pipelines.records import Record, read_records
from pipelines.reporting.page import page_of
from pipelines.reporting.stage_graph import Node, depths, needed_arrows
from pipelines.reporting.vocabulary_browser import in_script


@pytest.fixture(scope="module")
def record(smoke: dict[str, Any]) -> Record:
    return read_records(str(smoke["store"]))[0]


@pytest.fixture(scope="module")
def file(smoke: dict[str, Any]) -> Path:
    (path,) = (smoke["store"] / "pages").iterdir()
    return Path(path)


class Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [str(value) for name, value in attrs if name in ("src", "href")]


def test_it_is_printed_small_and_needs_nothing_from_outside(file: Path, smoke: dict[str, Any]) -> None:
    assert f"All of it on one page: {file}" in smoke["printed"]
    assert file.stat().st_size < 15e6
    parser = Addresses()
    parser.feed(file.read_text())
    assert len(parser.found) > 10
    assert all(address.startswith(("data:", "#")) for address in parser.found)


def test_it_has_every_figure_of_every_network(file: Path) -> None:
    text = file.read_text()
    for model in ("random", "RotNet", "BoWNet"):
        for kind in ("A map of the features", "Test images and those with", "What the linear classifier"):
            assert f'alt="{model}: {kind}' in text
    assert 'alt="BoWNet: Visual words' in text
    assert 'alt="BoWNet: How words are used' in text
    assert 'alt="BoWNet: The words that the student' in text


def test_names_are_text_and_nothing_else(record: Record, smoke: dict[str, Any]) -> None:
    bad = "<script>alert(1)</script>"
    rows = [{**record.rows[0], "name": bad}]
    page = page_of(replace(record, rows=rows, settings={**record.settings, "name": bad}), str(smoke["store"]))
    assert bad not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "</script" not in in_script({"images": ["</script><script>alert(1)</script>"]})


def test_a_graph_has_only_the_arrows_that_it_needs() -> None:
    nodes = [Node("a", "", False, 1, ()), Node("b", "", False, 1, ("a",)), Node("c", "", True, 1, ("a", "b"))]
    assert depths(nodes) == {"a": 0, "b": 1, "c": 2}
    assert needed_arrows(nodes) == {"a": [], "b": ["a"], "c": ["b"]}


def test_in_a_browser(browser: Any, file: Path) -> None:
    """Words are found, sorted and opened, by mouse and by keyboard; nothing is said on the console."""
    page = browser.new_page(viewport={"width": 390, "height": 800})  # a phone
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    words = page.locator(".word")
    every = words.count()
    assert every > 5
    page.get_by_label("Sort").select_option("number")
    first = words.first.inner_text()
    number = first.split()[1].strip(",")
    page.get_by_label("Find").fill(number)
    assert words.count() == 1
    assert page.locator("output").inner_text() == "1 of 1 words"
    page.get_by_label("Find").fill("")
    assert words.count() == every
    words.first.focus()
    page.keyboard.press("Enter")
    detail = page.locator(".detail")
    assert detail.is_visible()
    assert f"word {number}" in detail.inner_text()
    assert detail.locator("img").count() > 0
    detail.get_by_text("close").click()
    assert detail.is_hidden()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
