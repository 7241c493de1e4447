"""Parquet files as the Hugging Face hub publishes them go in; encoded images and labels come out.

A file, or a folder whose files or subfolders are named train, test or validation; local or remote. A worker reads
only the image column of the row groups that hold its rows, some rows at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bownet.config import Data
from bownet.filesystems import is_local, open_filesystem
from bownet.images.decode import BadImage
from bownet.images.sources.files import list_files
from bownet.images.sources.listing import Listing, Part, Picture, Rows, Source
from bownet.images.sources.names import Labels, assign_splits, digest, number_classes, split_of
from bownet.images.sources.selecting import chosen

_AT_ONCE = 128  # rows in memory at a time


@dataclass(frozen=True)
class ParquetPart(Part):
    """Some rows of some files: (path below the root, name to show, rows in rising order)."""

    uri: str
    column: str
    pieces: tuple[tuple[str, str, Rows], ...]

    def read(self) -> Iterator[Picture]:
        for path, name, rows in self.pieces:
            done, numbers = 0, rows.tolist()
            try:
                for content in _read_rows(self.uri, path, self.column, rows):
                    yield Picture(f"{name}#{numbers[done]}", content)
                    done += 1
            except (OSError, pa.ArrowInvalid) as error:
                for row in numbers[done:]:
                    yield Picture(f"{name}#{row}", BadImage(f"cannot be read: {str(error).splitlines()[0][:150]}"))


@dataclass(frozen=True, eq=False)
class ParquetListing(Listing):
    """All rows of the files of a split, one file after the other."""

    uri: str
    column: str
    paths: list[str]
    names: list[str]
    first_row: NDArray[np.int64]  # of each file in this listing
    count: int
    labels: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return self.count

    def part(self, rows: Rows) -> ParquetPart:
        rows = np.asarray(rows, np.int64)
        file_of = np.searchsorted(self.first_row, rows, side="right") - 1
        breaks = np.flatnonzero((np.diff(file_of) != 0) | (np.diff(rows) < 0)) + 1
        pieces = []
        for run in np.split(np.arange(len(rows)), breaks) if len(rows) else []:
            file = int(file_of[run[0]])
            pieces.append((self.paths[file], self.names[file], rows[run] - self.first_row[file]))
        return ParquetPart(self.uri, self.column, tuple(pieces))


@dataclass(frozen=True)
class _File:
    path: str  # inside its file system
    name: str  # below the data set's root
    rows: int
    image_bytes: int
    labels: Sequence[Any] | None
    categories: tuple[str, ...] | None  # as the file's Hugging Face metadata names them


def open_parquet(data: Data) -> Source:
    """Images in the order of the files' names and of their rows."""
    assert data.path is not None
    notes: list[str] = []
    by_split: dict[str | None, list[_File]] = {}
    for path, name in _find(data.path):
        by_split.setdefault(split_of(name), []).append(_inspect(path, name, data, notes))
    by_split = {s: files for s, files in by_split.items() if sum(f.rows for f in files)}
    if not by_split:
        raise ValueError(f"data.path={data.path}: its Parquet files have no rows; name others")
    if any(_known(file).any() for files in by_split.values() for file in files):
        for split in [s for s, files in by_split.items() if not any(_known(f).any() for f in files)]:
            notes.append(f"the {split} images have no labels and were left out")
            del by_split[split]
    found = assign_splits(by_split, data.path, notes)

    splits: dict[str, Listing] = {}
    parts: list[Any] = []
    labels, categories, kept = _labels(found, data, notes)
    for split, files in sorted(found.items()):
        first = np.cumsum([0, *(file.rows for file in files)])
        listing = ParquetListing(
            data.path, data.image_column, [f.path for f in files], [f.name for f in files], first[:-1], int(first[-1])
        )
        splits[split] = listing
        if split in labels:
            full = np.full(len(listing), -1)
            full[kept[split]] = labels[split]
            splits[split] = chosen(replace(listing, labels=full), np.flatnonzero(kept[split]))
        parts += [split, listing.names, [f.rows for f in files], [f.image_bytes for f in files], labels.get(split)]
    everything = [file for files in found.values() for file in files]
    mean = sum(f.image_bytes for f in everything) // max(1, sum(f.rows for f in everything))
    # The column only where it is another than the usual one: keys of all others stay as they were before it counted.
    column = [data.image_column] if data.image_column != Data.model_fields["image_column"].default else []
    fingerprint = digest("parquet", [*categories], *parts, *column)
    return Source(splits, categories, fingerprint, mean, tuple(dict.fromkeys(notes)))


def _find(uri: str) -> list[tuple[str, str]]:
    """Path and name of every Parquet file."""
    _, root = open_filesystem(uri)
    infos = list_files(uri)
    if len(infos) == 1 and infos[0].path == root:
        return [(root, root.rpartition("/")[2])]
    found = sorted((info.path, info.path.removeprefix(root).lstrip("/")) for info in infos)
    found = [
        (path, name)
        for path, name in found
        if name.endswith((".parquet", ".parq")) and not any(p.startswith((".", "_")) for p in name.split("/"))
    ]
    if not found:
        raise ValueError(f"data.path={uri}: no .parquet files below it; name the folder or file that has them")
    return found


def _opened(uri: str, path: str) -> pq.ParquetFile:
    system, _ = open_filesystem(uri)
    return pq.ParquetFile(system.open_input_file(path), memory_map=is_local(uri))


def _inspect(path: str, name: str, data: Data, notes: list[str]) -> _File:
    assert data.path is not None
    try:
        with _opened(data.path, path) as file:
            schema, meta = file.schema_arrow, file.metadata
            columns = ", ".join(schema.names)
            if data.image_column not in schema.names:
                raise ValueError(
                    f"data.image_column={data.image_column}: {name} has {columns}; name the column of images"
                )
            if not _holds_images(schema.field(data.image_column).type):
                kind = str(schema.field(data.image_column).type)
                raise ValueError(
                    f"data.image_column={data.image_column}: is {kind} in {name}, not encoded images (binary or "
                    f"{{bytes, path}}); its columns are {columns}"
                )
            labels = None
            if data.label_column in schema.names:
                labels = _label_values(file.read(columns=[data.label_column]).column(0), data, name, columns)
            else:
                notes.append(f"data.label_column={data.label_column}: the columns are {columns}; there are no labels")
            chunks = (meta.row_group(g).column(c) for g in range(meta.num_row_groups) for c in range(meta.num_columns))
            size = sum(c.total_compressed_size for c in chunks if c.path_in_schema.split(".")[0] == data.image_column)
            return _File(path, name, meta.num_rows, size, labels, _class_names(schema, data.label_column))
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"data.path={data.path}: {name} is not a whole Parquet file ({reason}); fetch it again"
        ) from error


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and _holds_images(kind.field(index).type)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _label_values(column: pa.ChunkedArray, data: Data, name: str, columns: str) -> list[Any]:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise ValueError(
            f"data.label_column={data.label_column}: is {kind} in {name}, not a class number or name; "
            f"its columns are {columns}"
        )
    return column.to_pylist()


def _class_names(schema: pa.Schema, column: str) -> tuple[str, ...] | None:
    """The names of a ClassLabel in the metadata that the `datasets` library writes."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return tuple(features[column]["names"])
    except (KeyError, TypeError, ValueError):
        return None


def _known(file: _File) -> NDArray[np.bool_]:
    """Which rows have a label: the hub writes -1 where it is withheld."""
    return np.array([v is not None and v != -1 for v in file.labels or [None] * file.rows], bool)


def _labels(
    found: dict[str, list[_File]], data: Data, notes: list[str]
) -> tuple[dict[str, Labels], tuple[str, ...], dict[str, NDArray[np.bool_]]]:
    """Class numbers of the labelled rows of each split, the classes' names, and which rows are labelled."""
    files = [file for of_split in found.values() for file in of_split]
    kept = {split: np.concatenate([_known(f) for f in of_split]) for split, of_split in found.items()}
    if not any(kept[split].any() for split in kept):
        return {}, (), {}
    for split, known in kept.items():
        if not known.all():
            notes.append(f"{np.count_nonzero(~known)} {split} images without a label were left out")
    values = {
        split: [v for f in of_split for v in f.labels or () if v is not None and v != -1]
        for split, of_split in found.items()
    }
    named = next((file.categories for file in files if file.categories), None)
    if named is None or any(isinstance(v, str) for of_split in values.values() for v in of_split):
        labels, categories = number_classes(values)
        return labels, categories, kept
    highest = max(max(of_split) for of_split in values.values() if of_split)
    if highest >= len(named):
        raise ValueError(
            f"data.label_column={data.label_column}: class {highest} occurs, but the file names {len(named)} classes; "
            "correct its metadata"
        )
    return {split: np.array(v, np.int64) for split, v in values.items()}, named, kept


def _read_rows(uri: str, path: str, column: str, rows: Rows) -> Iterator[bytes | BadImage]:
    """The images of these rows of a file, which are in rising order."""
    with _opened(uri, path) as file:
        sizes = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
        first = np.cumsum([0, *sizes])
        for group in np.unique(np.searchsorted(first, rows, side="right") - 1):
            start, last = int(first[group]), int(min(first[group + 1] - 1, rows[-1]))
            for batch in file.iter_batches(_AT_ONCE, row_groups=[int(group)], columns=[column], use_threads=False):
                if start > last:
                    break
                low, high = np.searchsorted(rows, [start, start + len(batch)])
                yield from _contents(batch.column(0), rows[low:high] - start)
                start += len(batch)


def _contents(images: pa.Array, rows: Rows) -> Iterator[bytes | BadImage]:
    encoded = images.flatten()[images.type.get_field_index("bytes")] if pa.types.is_struct(images.type) else images
    for content in encoded.take(pa.array(rows)).to_pylist():
        yield BadImage("no image in this row") if content is None else content
