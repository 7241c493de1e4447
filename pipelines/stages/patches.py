"""patches: what each visual word looks like, as the patches nearest to its centroid, each from another image.

`patches.npy` is uint8 [words, 16, side, side, 3], white where a word has fewer; `sources.npy` has the images that they
are from, made small; `words.json` tells of each word how often it occurs, which class it tells of, its sources, and
where in them the patches are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from bownet.nets.receptive_field import receptive_field
from bownet.words.patches import Places, cut_patch, places_of, square_around
from pipelines.stages.maps import maps_of, memory_of_maps
from pipelines.stages.model_stage import ModelStage
from pipelines.stages.pictures import count_of, data_of, names_of, pixels_of, shard_labels, shards_of
from pipelines.stages.shards import Row, for_each_shard, teacher_of
from pipelines.stages.signed import signed
from pipelines.stages.vocabulary import BuildVocabulary, vocabulary_of
from pipelines.stages.word_maps import word_maps_figure
from pipelines.store import Artifact, Estimate, Workspace

Names = dict[int, tuple[int, str]]  # of an image: its number in sources.npy, and its name
EACH = 16  # patches of a word
IMAGES = 4000  # that are looked at, about
WORDS = 1024  # that are shown, of a larger vocabulary
SIDE = 48  # pixels of a stored patch at most


@dataclass(frozen=True)
class WordPatches(ModelStage):
    images: Artifact
    teacher: Artifact
    vocabulary: Artifact
    words: Artifact

    name = "patches"
    title = "patches of words"
    version = 3

    def estimate(self) -> Estimate:
        looked_at, data = min(IMAGES, count_of(self.images, "train")), data_of(self.images)
        assert isinstance(self.vocabulary.stage, BuildVocabulary)
        memory = memory_of_maps(self.vocabulary.stage.net, data.image_size, data.shard_size)
        return Estimate(f"{looked_at} images", memory, WORDS * EACH * 3 * SIDE**2)

    def build(self, work: Workspace) -> dict[str, Any]:
        from pipelines.drawing.save import save_png  # here, so that workers need not import matplotlib
        from pipelines.drawing.words import words_figure

        looked_at = some_shards(shards_of(self.images, "train"))
        found = for_each_shard(looked_at, partial(_look, stage=self), work.machine, self.label, gpu=True)
        counts_KL: NDArray[np.int64] = reduce(add, [row["counts"] for row in found])
        places = reduce(add, [row["places"] for row in found]).nearest(EACH)
        shown = words_to_show(counts_KL)
        places = places.only(shown)
        cut = for_each_shard(
            [row for row in looked_at if self._here(places, row).any()],
            partial(_cut, stage=self, places=places),
            work.machine,
            self.label,
        )
        patches, sources, names, squares_P3 = _gather(cut, places, shown)
        told = [self._tell(word, counts_KL, places, names, squares_P3) for word in shown.tolist()]
        work.write_npy("patches.npy", patches)
        work.write_npy("sources.npy", sources)
        work.write_json("words.json", told)
        title = f"{self.model}: visual words of {self.vocabulary.info['tap']}"
        maps_title = f"{self.model}: visual words of training images"
        figures = {
            "words.png": words_figure(patches, told, title),
            "word-maps.png": word_maps_figure(self.images, self.words, maps_title),
        }
        for file, figure in figures.items():
            work.write_via(file, partial(save_png, signed(figure, self.images)))
        return {"images": int(sum(row["stop"] - row["start"] for row in looked_at)), "figures": [*figures]}

    @staticmethod
    def _here(places: Places, row: Row) -> NDArray[np.bool_]:
        return (places.image >= row["start"]) & (places.image < row["stop"])

    def _tell(
        self,
        word: int,
        counts_KL: NDArray[np.int64],
        places: Places,
        names: Names,
        squares_P3: NDArray[np.float64],
    ) -> dict[str, Any]:
        """For people, and for the page that browses words."""
        of_class, total = counts_KL[word], max(1, int(counts_KL[word].sum()))
        here, categories = places.of(word), self.images.info["categories"]
        known = len(of_class) > 1
        return {
            "word": word,
            "share": total / max(1, int(counts_KL.sum())),
            "class": str(categories[int(of_class.argmax())]) if known else None,
            "purity": float(of_class.max() / total) if known else None,
            "images": [names[i][1] for i in here.image.tolist()],
            "sources": [names[i][0] for i in here.image.tolist()],
            "places": np.stack([here.row, here.column], 1).tolist(),
            "squares": squares_P3[places.word == word].round(4).tolist(),  # top, left, side; of the image's side
        }


def some_shards(rows: list[Row]) -> list[Row]:
    """Evenly chosen, with about as many images as are looked at."""
    total = sum(row["stop"] - row["start"] for row in rows)
    wanted = max(1, round(len(rows) * min(1.0, IMAGES / max(1, total))))
    return [rows[i * len(rows) // wanted] for i in range(wanted)]


def words_to_show(counts_KL: NDArray[np.int64]) -> NDArray[np.int64]:
    """All words that occur; of more than can be shown a quarter each: frequent, rare, purest, any."""
    counts_K = counts_KL.sum(1)
    used = np.flatnonzero(counts_K)
    if len(used) <= WORDS:
        return used
    quarter = WORDS // 4
    by_count = used[np.argsort(-counts_K[used], kind="stable")]
    pure = used[np.argsort(-(counts_KL[used].max(1) / counts_K[used]), kind="stable")]
    chosen = [*by_count[:quarter], *by_count[-quarter:], *pure[:quarter]]
    rest = np.setdiff1d(used, chosen)
    any_of = np.random.default_rng(0).permutation(rest)[: WORDS - len(set(chosen))]
    return np.unique([*chosen, *any_of])


def _look(row: Row, stage: WordPatches) -> Row:
    """The nearest places of every word in a shard, and how often each word occurs in each class."""
    vocabulary = vocabulary_of(stage.vocabulary)
    words = torch.from_numpy(np.array(stage.words.read_npy(f"{row['name']}.words.npy"))[:, 0].astype(np.int64))
    pixels = torch.from_numpy(pixels_of(stage.images, row))
    places = [
        places_of(maps, words[first : first + len(maps)], vocabulary, row["start"] + first, EACH)
        for first, maps in maps_of(stage.teacher, stage.images, row, pixels, vocabulary.tap)
    ]
    labels, k = shard_labels(stage.images, row), vocabulary.size
    classes = len(stage.images.info["categories"]) if labels is not None else 1
    flat = words.flatten(1).numpy()
    of_image = np.zeros(len(flat), np.int64) if labels is None else labels
    counts = np.bincount((flat * classes + of_image[:, None]).ravel(), minlength=k * classes)
    return {
        "places": reduce(add, places).nearest(EACH),
        "counts": counts.reshape(k, classes),
    }


def _cut(row: Row, stage: WordPatches, places: Places) -> Row:
    """The patches of a shard: at the middle of what the position sees, at most half as wide as the image."""
    here = np.flatnonzero(WordPatches._here(places, row))
    pixels, names = pixels_of(stage.images, row), names_of(stage.images, row)
    teacher = teacher_of(stage.teacher)
    field = receptive_field(teacher, vocabulary_of(stage.vocabulary).tap)
    side = min(field.side, pixels.shape[1] // 2)
    made, squares = [], []
    for i in here.tolist():
        y, x = field.centre(int(places.row[i])), field.centre(int(places.column[i]))
        image = pixels[int(places.image[i]) - row["start"]]
        made.append(_small(cut_patch(image, y, x, side)))
        squares.append(np.array(square_around(len(image), image.shape[1], y, x, side)) / len(image))
    numbers = np.unique(places.image[here])
    small = np.stack([_small(pixels[i - row["start"]]) for i in numbers.tolist()])
    return {
        "here": here,
        "patches": np.stack(made),
        "squares": np.stack(squares),
        "numbers": numbers,
        "sources": small,
        "names": [names[i - row["start"]] for i in numbers.tolist()],
    }


def _small(pixels_HWC: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if len(pixels_HWC) <= SIDE:
        return pixels_HWC
    return np.asarray(Image.fromarray(pixels_HWC).resize((SIDE, SIDE), Image.Resampling.LANCZOS))


def _gather(
    cut: list[Row], places: Places, shown: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], Names, NDArray[np.float64]]:
    side = cut[0]["patches"].shape[1]
    out = np.full((len(shown), EACH, side, side, 3), 255, np.uint8)
    rank = np.arange(len(places)) - np.searchsorted(places.word, places.word)
    slot = np.searchsorted(shown, places.word)
    names: Names = {}
    squares_P3 = np.zeros((len(places), 3))
    for part in cut:
        squares_P3[part["here"]] = part["squares"]
        out[slot[part["here"]], rank[part["here"]]] = part["patches"]
        for number, name in zip(part["numbers"].tolist(), part["names"], strict=True):
            names[number] = (len(names), name)
    return out, np.concatenate([part["sources"] for part in cut]), names, squares_P3
