"""The words of a patches artifact as a part of a page: pictures and facts as JSON, which page.js shows and filters."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipelines.drawing.words import block, named
from pipelines.store import Artifact

ALL = 8_000_000  # characters of all vocabularies of a page, which must stay small enough to be sent around


def browser(patches: Artifact, number: int, room: int = ALL) -> str:
    """HTML of one vocabulary, in about so many characters; `number` tells several on a page apart."""
    told = patches.read_json("words.json")
    data = data_that_fit(told, patches.read_npy("patches.npy"), patches.read_npy("sources.npy"), room)
    name, kept = f"words-{number}", len(data["words"])
    pure = told and told[0]["purity"] is not None
    kinds = "the most frequent, the rarest, the purest and any" if pure else "the most frequent, the rarest and any"
    left_out = "" if kept == len(told) else f" {kept} of {len(told)} are here: {kinds} in equal parts."
    purest = '<option value="purity">purest first</option>' if pure else ""
    about = f"Blocks of the patches nearest to each centroid, each from another image.{left_out}"
    return f"""<p class="soft">{escape(about)}</p>
<div data-words="{name}">
<div class="tools">
<label>Find <input type="search" placeholder="a number or a class"></label>
<label>Sort <select><option value="share">often used first</option><option value="rare">rarest first</option>{purest}\
<option value="number">by number</option></select></label>
<output></output></div>
<div class="detail" role="region" aria-label="an opened word" tabindex="-1" hidden></div>
<div class="words"></div>
<div class="tools"><button type="button" class="more">more</button></div>
</div>
<script type="application/json" id="{name}">{in_script(data)}</script>"""


def data_that_fit(
    told: Sequence[dict[str, Any]], pictures: NDArray[np.uint8], sources: NDArray[np.uint8], room: int
) -> dict[str, list[Any]]:
    """Words by their numbers, with what page.js shows of them, and the images that they are from, each once."""
    words: dict[int, dict[str, Any]] = {}
    used: dict[int, int] = {}  # a source: where it stands on the page
    addresses: list[str] = []
    for i in in_turns(told):
        word = told[i]
        more = [source for source in dict.fromkeys(word["sources"]) if source not in used]
        made = [as_address(np.asarray(sources[source])) for source in more]
        shown = {
            "word": word["word"],
            "share": word["share"],
            "class": None if word["class"] is None else named(word["class"]),
            "purity": word["purity"],
            "images": word["images"],
            "squares": word["squares"],
            "block": as_address(block(np.asarray(pictures[i]))),
        }
        room -= len(json.dumps(shown)) + sum(map(len, made))
        if room < 0 and words:
            break
        used |= {source: len(used) + k for k, source in enumerate(more)}
        addresses += made
        words[i] = shown | {"sources": [used[source] for source in word["sources"]]}
    return {"words": [words[i] for i in sorted(words)], "sources": addresses}


def in_turns(told: Sequence[dict[str, Any]]) -> list[int]:
    """All words: the most frequent, the rarest, the purest, any, the next most frequent and so on.

    However many of them a page has room for, each of its orders begins with the words that it should begin with.
    """
    every = range(len(told))
    orders = [sorted(every, key=lambda i: -told[i]["share"]), sorted(every, key=lambda i: told[i]["share"])]
    if told and told[0]["purity"] is not None:
        orders.append(sorted(every, key=lambda i: -told[i]["purity"]))
    orders.append(np.random.default_rng(0).permutation(len(told)).tolist())
    return [*dict.fromkeys(i for some in zip(*orders, strict=True) for i in some)]


def in_script(data: object) -> str:
    """JSON that cannot end its script element, whatever names files and classes have."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def as_address(pixels_HWC: NDArray[np.uint8]) -> str:
    """A picture within the page. Tables of its own make one of 32 pixels a third smaller."""
    file = io.BytesIO()
    Image.fromarray(pixels_HWC).save(file, "JPEG", quality=80, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
