"""The visual words of your own images, with a teacher and a vocabulary that a run has made.

python examples/words_of_my_images.py --store store DIR_OF_IMAGES
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bownet import Vocabulary, load_backbone, visual_words
from bownet.config import Data
from pipelines.records import read_records
from pipelines.store import Artifact

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("images", type=Path, help="a folder of JPEG or PNG files")
parser.add_argument("--store", default="store", help="where the run was kept (store)")
options = parser.parse_args()

if not options.images.is_dir():
    parser.error(f"{options.images}: is no folder")
files = sorted(path for path in options.images.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
if not files:
    parser.error(f"{options.images}: holds no JPEG or PNG files; those of its folders are not looked for")

# The last student of the last run that has one, the words that it predicts, and the files behind them.
students = [
    (record, Artifact(*row["artifacts"]["backbone"].split("/"), options.store))
    for record in read_records(options.store)
    for row in record.rows
    if row.get("artifacts", {}).get("backbone", "").startswith("student/")
]
if not students:
    parser.error(f"--store {options.store}: holds no finished run that trained a student; pipelines/full.py makes one")
record, student = students[-1]
words = Artifact(*student.manifest()["inputs"]["words"].split("/"), options.store)
made_from = {role: Artifact(*ref.split("/"), options.store) for role, ref in words.manifest()["inputs"].items()}
teacher = load_backbone(made_from["teacher"].local_path("backbone.safetensors"))
vocabulary = Vocabulary.load(made_from["vocabulary"].local_path("vocabulary.safetensors"))

# As the run saw its own images: small ones whole, of large ones the middle.
data = Data.model_validate(record.settings["data"])
storage = "raw" if data.is_raw else "encoded"
maps = visual_words(files, teacher, vocabulary, size=data.image_size, storage=storage)
for file, words_HW in zip(files, maps, strict=True):
    word, count = np.unique(words_HW, return_counts=True)
    top = np.argsort(-count)[:5]
    said = ", ".join(f"{word[i]} ({count[i]})" for i in top)
    print(f"{file.name}: {len(word)} of {vocabulary.size} words; most often {said}")
