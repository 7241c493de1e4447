"""The page of a real run: opened in a real browser where there is one, and never able to carry out what names say."""

import base64
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from PIL import Image

from pipelines.command_line import parse
from pipelines.records import Record, read_records, write_record
from pipelines.reporting.page import _source, page_of
from pipelines.reporting.stage_graph import Node, depths, draw_graph, needed_arrows, nodes_of
from pipelines.reporting.vocabulary_browser import browser as vocabulary_browser
from pipelines.reporting.vocabulary_browser import data_that_fit, in_script, in_turns
from pipelines.store import Artifact, Folder

WORDS = 200  # of the vocabulary that is made by hand


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
    assert 'alt="BoWNet: Training images with their words' in text
    assert text.index('alt="All networks: Few-shot accuracy') < text.index('alt="random: ')


def test_every_figure_tells_its_run_and_scale(file: Path, record: Record) -> None:
    captions = re.findall("<figcaption>.*?</figcaption>", file.read_text())
    assert len(captions) > 10
    assert all(f"smoke, tiny scale, seed 0, run {record.run[:8]}</small>" in caption for caption in captions)


def test_a_large_figure_takes_less_room_and_looks_the_same() -> None:
    draw = np.random.default_rng(0)
    patches = np.kron(draw.integers(0, 247, (20, 20, 3)), np.ones((60, 60, 1), int))
    figure = Image.fromarray((patches + draw.integers(0, 9, patches.shape)).astype(np.uint8))
    file = io.BytesIO()
    figure.save(file, "PNG")
    head, _, coded = _source(file.getvalue()).partition(",")
    assert head == "data:image/webp;base64"
    shown = Image.open(io.BytesIO(base64.b64decode(coded)))
    assert shown.size == figure.size
    assert len(base64.b64decode(coded)) < len(file.getvalue()) / 2
    assert np.abs(np.asarray(shown, float) - np.asarray(figure, float)).mean() < 5
    assert _source(b"small").startswith("data:image/png;base64,")


def test_every_stage_signs_what_it_draws() -> None:
    """Each `save_png` of a stage is given a figure with the line that tells its images."""
    drawn = re.compile(r"partial\(save_png, (\w+)")
    found = [name for file in (ROOT / "pipelines/stages").glob("*.py") for name in drawn.findall(file.read_text())]
    assert found == ["signed"] * 5  # gallery, patches, predictions, words, detection


def test_pages_of_detections_have_a_caption(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "artifacts/detection/k")
    folder.write_json("manifest.json", {"info": {"figures": ["pictures-01.png"]}, "inputs": {}})
    folder.write_bytes("pictures-01.png", b"")
    row = {"name": "R50", "metrics": {}, "protocol": {}, "artifacts": {"detection": "detection/k"}}
    page = page_of(Record("r", {"seed": 0}, [row], 1.0), str(tmp_path))
    assert 'alt="R50: Objects found in test images."' in page


def test_curves_of_a_network_without_a_row_have_its_name(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "artifacts/gallery/k")
    folder.write_json("manifest.json", {"info": {"figures": ["training.png"]}, "inputs": {}})
    folder.write_bytes("training.png", b"")
    row = {"name": "BoWNet", "metrics": {}, "protocol": {}, "artifacts": {"gallery of RotNet": "gallery/k"}}
    page = page_of(Record("r", {"seed": 0}, [row], 1.0), str(tmp_path))
    assert 'alt="RotNet: Training, epoch by epoch."' in page


def test_numbers_beside_the_paper_link_to_runs_on_the_page(tmp_path: Path) -> None:
    exp = parse(None, ["cifar100/rotnet", "--scale", "tiny", "--data.kind", "scenes"]).experiment
    rows = [
        {"name": name, "metrics": {"linear/top1": 50.0}, "protocol": {}, "artifacts": {"backbone": "student/none"}}
        for name in ("RotNet", "BoWNet")
    ]
    page = page_of(Record("the-run", exp.model_dump(mode="json"), rows, 1.0), str(tmp_path))
    wanted = set(re.findall(r'href="#([^"]+)"', page))
    assert "run-1" in wanted
    assert wanted <= set(re.findall(r'id="([^"]+)"', page))
    assert '<li id="run-1" value="1">run the-run</li>' in page


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


def test_a_cached_stage_tells_what_it_took_when_it_was_built(tmp_path: Path) -> None:
    Folder(str(tmp_path), "artifacts/words/k").write_json("manifest.json", {"inputs": {}, "seconds": 41.2})
    stage = {"name": "words", "key": "k", "label": "BoWNet: words", "cached": True, "seconds": 0.01}
    gone = {**stage, "name": "student", "key": "gone"}
    found, lost = nodes_of([stage, gone], str(tmp_path))
    assert (found.how, lost.how) == ("cached, took 41 s", "cached")
    built = {**stage, "cached": False, "seconds": 7.26}
    (node,) = nodes_of([stage, built], str(tmp_path))
    assert node.how == "7.3 s"
    assert "cached, took 41 s · k</text>" in draw_graph([found])


def test_claims_stand_on_the_page_of_the_experiment_that_was_studied(tmp_path: Path) -> None:
    """The recorded study, whose three seeds have BoWNet 6.1 points above RotNet; with another setting, none is."""
    for file in (ROOT / "docs" / "findings").glob("*.json"):
        record = Record(**json.loads(file.read_text()))
        write_record(str(tmp_path), record)
        if file.name == "base-0.json":
            base = record
    page = page_of(replace(base, run="my-own", sweep={}, rows=[], stages=[]), str(tmp_path))
    claims = re.findall(r"<tr>(?:<td class=wide>[^<]*</td>)+</tr>", page)
    assert len(claims) == 12
    first = re.findall(">([^<]+)<", claims[0])
    assert first[:2] == ["1", "BoWNet is far better than its RotNet teacher"]
    assert first[3:5] == ["+6.13 ± 1.31", "3"]  # difference, seeds
    assert first[-1] == "reproduced"
    other = replace(base, settings={**base.settings, "rounds": 3}, rows=[], stages=[])
    assert 'id="findings"' in page
    assert 'id="findings"' not in page_of(other, str(tmp_path))


def words_by_hand() -> list[dict[str, Any]]:
    """Word i is used more than i - 1, is of class i mod 3 and the purer the nearer i is to 100; two share an image."""
    return [
        {
            "word": i,
            "share": (i + 1) / 20100,
            "class": ("cat", "dog", "7 birds")[i % 3],
            "purity": 1 - abs(i - 100) / 400,
            "images": [f"image {i // 2}"],
            "sources": [i // 2],
            "squares": [[0.25, 0.5, 0.5]],
        }
        for i in range(WORDS)
    ]


def test_words_are_taken_from_every_order_in_turns() -> None:
    told = words_by_hand()
    order = in_turns(told)
    assert sorted(order) == [*range(WORDS)]
    assert order[:3] == [199, 0, 100]
    some = set(order[:40])
    assert some > {*range(191, 200), *range(9), *range(96, 104)}
    assert in_turns([{**word, "purity": None} for word in told])[:2] == [199, 0]


def test_a_page_has_as_many_words_as_there_is_room_for() -> None:
    told, pictures = words_by_hand(), np.zeros((WORDS, 16, 4, 4, 3), np.uint8)
    sources = np.zeros((WORDS // 2, 8, 8, 3), np.uint8)
    whole = data_that_fit(told, pictures, sources, 10_000_000)
    assert [word["word"] for word in whole["words"]] == [*range(WORDS)]
    assert len(whole["sources"]) == WORDS // 2  # each once
    part = data_that_fit(told, pictures, sources, 100_000)
    assert 10 < len(part["words"]) < WORDS
    assert 80_000 < len(in_script(part)) < 101_000
    assert {0, 100, 199} <= {word["word"] for word in part["words"]}
    assert all(source < len(part["sources"]) for word in part["words"] for source in word["sources"])
    assert len(data_that_fit(told, pictures, sources, 0)["words"]) == 1


def heard(page: Any) -> tuple[list[str], list[str]]:
    """What a page says on the console, and what it asks for."""
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    return said, asked


def page_with_words(record: Record, tmp_path: Path) -> str:
    """Where a page is that has the words that are made by hand, with the sections of a real one below them."""
    folder = Folder(str(tmp_path), "artifacts/patches/k")
    folder.write_json("words.json", words_by_hand())
    folder.write_npy("patches.npy", np.zeros((WORDS, 16, 4, 4, 3), np.uint8))
    folder.write_npy("sources.npy", np.zeros((WORDS // 2, 8, 8, 3), np.uint8))
    folder.write_json("manifest.json", {})
    made = vocabulary_browser(Artifact("patches", "k", str(tmp_path)), 0)
    around = page_of(replace(record, rows=[], stages=[]), str(tmp_path))
    (tmp_path / "page.html").write_text(around.replace("<main>", f"<main>{made}"))
    return (tmp_path / "page.html").as_uri()


def test_words_are_sorted_filtered_and_continued(browser: Any, record: Record, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    said, _ = heard(page)
    page.goto(page_with_words(record, tmp_path))
    words, count, more = page.locator(".word"), page.locator("output"), page.get_by_role("button", name="more")

    def first(n: int) -> list[int]:
        return [int(text.split()[1].strip(",")) for text in words.all_inner_texts()[:n]]

    assert (words.count(), count.inner_text()) == (96, "96 of 200 words")
    more.click()
    assert (words.count(), count.inner_text()) == (192, "192 of 200 words")
    more.click()
    assert (words.count(), more.is_visible()) == (200, False)
    sort = page.get_by_label("Sort")
    for order, expected in {"share": [199, 198, 197], "rare": [0, 1, 2], "purity": [100, 99, 101]}.items():
        sort.select_option(order)
        assert first(3) == expected
    page.get_by_label("Find").fill("DOG")
    sort.select_option("number")
    assert first(4) == [1, 4, 7, 10]
    assert count.inner_text() == "67 of 67 words"
    words.nth(1).click()
    assert "image 2" in page.locator(".detail").inner_text()
    assert page.locator(".block").bounding_box()["width"] > 300
    image, spot = page.locator(".source img").bounding_box(), page.locator(".spot").bounding_box()
    assert spot["y"] - image["y"] == pytest.approx(image["height"] / 4, abs=1)
    assert spot["x"] - image["x"] == pytest.approx(image["width"] / 2, abs=1)
    assert spot["width"] == pytest.approx(image["width"] / 2, abs=1)
    page.get_by_label("Find").fill("7")
    assert first(2) == [7]  # nothing of the class that has a 7 in its name
    page.get_by_label("Find").fill("7 b")
    assert first(2) == [2, 5]
    assert said == []


@pytest.mark.parametrize(("width", "height"), [(390, 800), (1280, 900)])
def test_an_opened_word_is_in_sight_and_has_the_focus(
    browser: Any, record: Record, tmp_path: Path, width: int, height: int
) -> None:
    """Of a word far below, on a phone and on a desk: the panel begins below the bar, and Escape leads back."""
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(page_with_words(record, tmp_path))
    word, detail = page.locator(".word").nth(60), page.locator(".detail")
    word.scroll_into_view_if_needed()
    page.get_by_role("button", name="more").scroll_into_view_if_needed()
    word.focus()
    page.keyboard.press("Enter")
    bar, panel = page.locator("nav").bounding_box(), detail.bounding_box()
    assert bar["y"] == 0
    assert bar["height"] <= panel["y"] <= bar["height"] + 40
    assert panel["y"] + 200 < height
    assert detail.evaluate("one => one === document.activeElement")
    page.keyboard.press("Escape")
    assert detail.is_hidden()
    assert word.evaluate("one => one === document.activeElement")
    box = word.bounding_box()
    assert bar["height"] <= box["y"] < height


def test_on_a_desk_and_on_paper(browser: Any, file: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    said, _ = heard(page)
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    tops = [page.locator("figure").nth(i).bounding_box()["y"] for i in (1, 2)]
    assert tops[0] == tops[1]  # beside each other
    assert page.locator("details[open]").count() == 0
    page.evaluate("addEventListener('beforeprint', () => { window.folded = count(); })")
    page.evaluate("window.count = () => document.querySelectorAll('details:not([open])').length")
    assert page.pdf(format="A4").startswith(b"%PDF")
    assert page.evaluate("window.folded") == 0
    assert page.locator("details[open]").count() == 0
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 1000})
    graph = page.locator("#stages ~ .scroll svg").bounding_box()
    assert graph["x"] + graph["width"] <= 700
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    assert page.locator("nav").is_hidden()
    assert said == []


def test_in_a_browser(browser: Any, file: Path) -> None:
    """Words are found, sorted and opened, by mouse and by keyboard; nothing is said on the console."""
    page = browser.new_page(viewport={"width": 390, "height": 800})  # a phone
    said, asked = heard(page)
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
    assert detail.locator(".block").is_visible()
    assert detail.locator(".source img").count() == detail.locator(".spot").count() > 0
    detail.get_by_text("close").click()
    assert detail.is_hidden()
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
