"""The words of a patches artifact as a part of a page: pictures and facts as JSON, which page.js shows and filters."""

from __future__ import annotations

import base64
import io
import json
from html import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipelines.drawing.words import block, named
from pipelines.store import Artifact

MOST = 384  # words; a page must stay small enough to be sent around


def browser(patches: Artifact, number: int) -> str:
    """HTML of one vocabulary; `number` tells several on a page apart."""
    told = patches.read_json("words.json")
    pictures, sources = patches.read_npy("patches.npy"), patches.read_npy("sources.npy")
    kept = sorted(sorted(range(len(told)), key=lambda i: -told[i]["share"])[:MOST])
    used = sorted({source for i in kept for source in told[i]["sources"]})
    at = {source: i for i, source in enumerate(used)}
    words = [
        {
            "word": told[i]["word"],
            "share": told[i]["share"],
            "class": None if told[i]["class"] is None else named(told[i]["class"]),
            "purity": told[i]["purity"],
            "images": told[i]["images"],
            "sources": [at[source] for source in told[i]["sources"]],
            "block": as_address(block(np.asarray(pictures[i]))),
        }
        for i in kept
    ]
    data = {"words": words, "sources": [as_address(np.asarray(sources[source])) for source in used]}
    name = f"words-{number}"
    left_out = "" if len(kept) == len(told) else f" The {MOST} most frequent of {len(told)} are here."
    pure = "" if told and told[0]["purity"] is None else '<option value="purity">of one class first</option>'
    about = f"Blocks of the patches nearest to each centroid, each from another image.{left_out}"
    return f"""<p class="soft">{escape(about)}</p>
<div data-words="{name}">
<div class="tools">
<label>Find <input type="search" placeholder="a number or a class"></label>
<label>Sort <select><option value="share">often used first</option><option value="rare">rare first</option>{pure}\
<option value="number">by number</option></select></label>
<output></output></div>
<div class="detail" hidden></div>
<div class="words"></div>
<div class="tools"><button type="button" class="more">more</button></div>
</div>
<script type="application/json" id="{name}">{in_script(data)}</script>"""


def in_script(data: object) -> str:
    """JSON that cannot end its script element, whatever names files and classes have."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def as_address(pixels_HWC: NDArray[np.uint8]) -> str:
    """A picture within the page."""
    file = io.BytesIO()
    Image.fromarray(pixels_HWC).save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
