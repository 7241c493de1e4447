"""All that a run has found on one page of HTML, which needs nothing from outside: a record goes in, the page comes out.

Names of files and classes are escaped wherever they stand.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib import resources
from typing import Any

from PIL import Image

from pipelines.findings import findings_of
from pipelines.gallery import OF
from pipelines.over_runs import alike
from pipelines.paper.matching import flat, preset_as
from pipelines.presets import PRESETS
from pipelines.records import Record, origin, read_records
from pipelines.reporting.claims import HEADINGS, LINEAR, cells_of, legend
from pipelines.reporting.collect import paper_report
from pipelines.reporting.cost import cost_of
from pipelines.reporting.html import table_html
from pipelines.reporting.model import Report, numbered
from pipelines.reporting.stage_graph import draw_graph, nodes_of
from pipelines.reporting.vocabulary_browser import ALL, browser
from pipelines.results import MARKS, cell, columns_of, comparisons, differences, heading, marked
from pipelines.run_figures import OVER_NETWORKS, folder_of
from pipelines.store import Artifact, Folder, StoreError

LARGE = 600_000  # bytes of a PNG
CAPTIONS = {
    "fewshot": "Few-shot accuracy over the number of images of a class.",
    "rounds": "Accuracy over rounds, 0 is the base teacher; means over the seeds that the store has.",
    "vocabulary-size": "Accuracy over the number of words; means over the seeds that the store has.",
    "words": "Visual words: the patches nearest to each centroid, each from another image.",
    "word-maps": "Training images with their words laid over them; the same word has the same colour everywhere.",
    "health": "How words are used, and how k-means converged.",
    "predictions": "The words that the student gives the most weight to, for test images and perturbed ones.",
    "tsne": "A map of the features of test images (t-SNE).",
    "neighbours": "Test images and those with the nearest features; a green solid frame: of the same class.",
    "confusion": "What the linear classifier takes for what.",
    "training": "Training, epoch by epoch.",
    "pictures": "Objects found in test images.",
}


ALL_NETWORKS = "All networks"


def write_page(record: Record, root: str) -> str:
    """Into the folder `pages` of the store; where it is."""
    folder, name = Folder(root, "pages"), f"{record.run}.html"
    folder.write_bytes(name, page_of(record, root).encode())
    return folder.path(name)


def page_of(record: Record, root: str) -> str:
    name = escape(str(record.settings.get("name", "evaluation")))
    sections = {
        "results": ("Results", _results(record)),
        "paper": ("Beside the paper", _beside_the_paper(record, root)),
        "findings": ("The paper's claims", _findings(record, root)),
        "figures": ("Figures", _figures(record, root)),
        "words": ("Vocabulary", _vocabularies(record, root)),
        "stages": ("Stages", _stages(record, root)),
        "settings": ("Settings", _settings(record)),
        "protocols": ("Protocols", _protocols(record)),
        "cost": ("Cost", _cost(record, root)),
    }
    there = {key: (title, body) for key, (title, body) in sections.items() if body}
    links = "".join(f'<a href="#{key}">{title}</a>' for key, (title, _) in there.items())
    body = "".join(f'<section><h2 id="{key}">{title}</h2>\n{part}</section>\n' for key, (title, part) in there.items())
    scale = "" if record.scale == "full" else f' <span class="reduced">reduced scale: {escape(record.scale)}</span>'
    about = f"run {escape(record.run)}, finished {escape(record.finished)}, seed {record.seed}.{scale}"
    style, script = _asset("page.css"), _asset("page.js")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name}</title><link rel="icon" href="data:,"><style>{style}</style></head>
<body><nav aria-label="sections">{links}</nav>
<header><h1>{name}</h1><p class="soft">{about}</p></header>
<main>{body}</main><script>{script}</script></body></html>
"""


def _asset(name: str) -> str:
    return (resources.files("pipelines.reporting") / "assets" / name).read_text("utf-8")


def _results(record: Record) -> str:
    rows, columns = record.rows, columns_of(record.rows)
    marks, notes = marked(rows)
    head = "".join(f"<th>{escape(heading(metric))}</th>" for _, metric in columns)
    lines = []
    for row in rows:
        cells = [cell(row["metrics"], metric) + marks.get((row["name"], name), "") for name, metric in columns]
        lines.append(f"<tr><td>{escape(row['name'])}</td>{''.join(f'<td>{escape(text)}</td>' for text in cells)}</tr>")
    said = [*notes, *comparisons(rows), *differences(rows)]
    table = f'<div class="scroll"><table><tr><th>model</th>{head}</tr>{"".join(lines)}</table></div>'
    return table + "".join(f'<p class="soft">{escape(line)}</p>' for line in said)


def _beside_the_paper(record: Record, root: str) -> str:
    """Those of the paper's tables that this run has a number for."""
    whole = paper_report([record], root)
    filled = [t for t in whole.tables if any(c and c.runs for r in t.rows for line in r.lines for c in line.cells)]
    numbers = numbered(Report(whole.title, tuple(filled)))
    tables = "".join(
        f'<h3>{escape(table.title)}</h3><div class="scroll">{table_html(table, numbers)}</div>'
        + "".join(f'<p class="soft">{escape(note)}</p>' for note in table.notes if note[0] in MARKS)
        for table in filled
    )
    runs = "".join(
        f'<li id="run-{n}" value="{n}">run {escape(", ".join(one.run for one in some))}</li>'
        for some, n in numbers.items()
    )
    return f"{tables}<ol>{runs}</ol>" if numbers else tables


def _findings(record: Record, root: str) -> str:
    """Where the store has a findings study of this experiment, what its trials say of each claim."""
    try:
        trials = [one for one in read_records(root) if one.sweep.get("name") == "findings"]
    except StoreError:  # a file that cannot be read is no matter of this run
        return ""
    mine = {one.sweep["base"] for one in alike(record, [one for one in trials if one.sweep["label"] == "base"])}
    study = [one for one in trials if one.sweep["base"] in mine]
    if not study:
        return ""
    rows = [cells_of(finding, LINEAR, "; ") for finding in findings_of(study)]
    lines = "".join(f"<tr>{''.join(f'<td class=wide>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th class=wide>{escape(name)}</th>" for name in HEADINGS)
    table = f'<div class="scroll"><table><tr>{head}</tr>{lines}</table></div>'
    return f'{table}<p class="soft">{escape(legend(study))}</p>'


def _artifact(root: str, ref: str) -> Artifact:
    stage, _, key = ref.partition("/")
    return Artifact(stage, key, root)


def pictures_of(record: Record, root: str) -> Iterator[tuple[str, str, bytes]]:
    """Model, kind and PNG of every figure of a run; those over all its networks come first."""
    folder = folder_of(record.run, root)
    for kind in OVER_NETWORKS:
        if folder.exists(f"{kind}.png"):
            yield ALL_NETWORKS, kind, folder.read_bytes(f"{kind}.png")
    for row in record.rows:
        for role, ref in row.get("artifacts", {}).items():
            model = role.partition(OF)[2] or row["name"]
            try:
                artifact = _artifact(root, ref)
                for file in artifact.info.get("figures", ()):
                    kind = re.sub(r"-\d+$", "", file.rpartition(".")[0])  # of pictures-01 and pictures-02
                    yield model, kind, artifact.read_bytes(file)
                if "words" in artifact.manifest()["inputs"] and artifact.stage_name == "patches":
                    words = _artifact(root, artifact.manifest()["inputs"]["words"])
                    yield row["name"], "health", words.read_bytes("health.png")
            except StoreError:  # deleted since
                continue


def _figures(record: Record, root: str) -> str:
    models: dict[str, list[str]] = {}
    for model, kind, picture in pictures_of(record, root):
        caption = escape(CAPTIONS.get(kind, kind))
        of = escape(f"{model}; {origin(record)}")
        models.setdefault(model, []).append(
            f'<figure><img src="{_source(picture)}" alt="{escape(model)}: {caption}" loading="lazy">'
            f"<figcaption>{caption} <small>{of}</small></figcaption></figure>"
        )
    return "".join(
        f'<h3>{escape(model)}</h3><div class="figures">{"".join(figures)}</div>' for model, figures in models.items()
    )


def _source(picture: bytes) -> str:
    """A PNG for the page; a large one, full of images, takes a third of the room as WebP and looks the same."""
    kind = "png"
    if len(picture) > LARGE:
        smaller = io.BytesIO()
        Image.open(io.BytesIO(picture)).convert("RGB").save(smaller, "WEBP", quality=90, method=0)
        picture, kind = smaller.getvalue(), "webp"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def _vocabularies(record: Record, root: str) -> str:
    parts: list[str] = []
    refs = {row["name"]: ref for row in record.rows if (ref := row.get("artifacts", {}).get("patches")) is not None}
    for name, ref in refs.items():
        try:
            words = browser(_artifact(root, ref), len(parts), ALL // len(refs))
        except StoreError:  # deleted since
            continue
        parts.append(f"<h3>What {escape(name)} predicts</h3>{words}")
    return "".join(parts)


def _stages(record: Record, root: str) -> str:
    nodes = nodes_of(record.stages, root)
    if not nodes:
        return ""
    built = [node for node in nodes if not node.cached]
    seconds = sum(node.seconds for node in built)
    said = f"{len(nodes)} stages: {len(built)} built in {seconds:.0f} s (blue), {len(nodes) - len(built)} found."
    lines = "".join(
        f"<tr><td>{escape(node.label)}</td><td>{node.how}</td><td><code>{escape(node.key)}</code></td></tr>"
        for node in nodes
    )
    table = f"<table><tr><th>stage</th><th>built in</th><th>key</th></tr>{lines}</table>"
    return f"""<p>{said}</p><div class="scroll">{draw_graph(nodes)}</div>
<details><summary>as a table</summary><div class="scroll">{table}</div></details>"""


def _settings(record: Record) -> str:
    mine, name = flat(record.settings), str(record.settings.get("name", ""))
    part = ""
    if name in PRESETS:
        theirs = flat(preset_as(name, record.settings).model_dump(mode="json"))
        changed = [(key, mine[key], theirs.get(key)) for key in mine if mine[key] != theirs.get(key)]
        there = name if record.scale == "full" else f"{name} at {record.scale} scale"
        part = _pairs(("setting", "here", f"in {there}"), changed) if changed else f"<p>As in {escape(there)}.</p>"
    everything = _pairs(("setting", "value"), [(key, value) for key, value in mine.items()])
    return f"{part}<details><summary>all settings</summary>{everything}</details>"


def _pairs(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{escape(str(value))}</td>' for value in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{"".join(f"<th>{escape(h)}</th>" for h in head)}</tr>{lines}</table></div>'


def _protocols(record: Record) -> str:
    """Each card once, with the rows that it is of."""
    cards: dict[str, list[str]] = {}
    for row in record.rows:
        for evaluator, card in row.get("protocol", {}).items():
            cards.setdefault(f"{evaluator}\n{json.dumps(card, indent=1)}", []).append(row["name"])
    return "".join(
        f"<details><summary>{escape(text.partition(chr(10))[0])}: {escape(', '.join(names))}</summary>"
        f"<pre>{escape(text.partition(chr(10))[2])}</pre></details>"
        for text, names in cards.items()
    )


def _cost(record: Record, root: str) -> str:
    rows: list[tuple[Any, ...]] = []
    for row in record.rows:
        ref: Mapping[str, str] = row.get("artifacts", {})
        found = cost_of(root, ref["backbone"]) if "backbone" in ref else None
        if found is not None:
            rows.append((row["name"], f"{found.images:,}", f"{found.seconds / 3600:.2f}"))
    if not rows:
        return ""
    table = _pairs(("network", "images seen in training", "hours of building"), rows)
    return (
        f'{table}<p class="soft">Up to each network, on whatever machine did. This run took {record.seconds:.0f} s.</p>'
    )
