"""A folder of image files goes in, local or remote; splits come out, with classes if the folders are classes.

Layouts: DIR/class/*.jpg, DIR/train|test|val/class/*.jpg, and any folders of images without classes.
"""

from __future__ import annotations

from collections import Counter

from bownet.config import Data
from bownet.filesystems import is_local, local_path
from bownet.images.sources.files import FileListing, mean_size, walk
from bownet.images.sources.listing import Source
from bownet.images.sources.names import SPLITS, SUFFIXES, assign_splits, digest, number_classes, printable, suffix_of

_Found = dict[str | None, list[int]]  # split -> places in the list of all files


def open_folder(data: Data) -> Source:
    """Classes in the order of their folders' names, images in the order of theirs."""
    assert data.path is not None
    notes: list[str] = []
    names, sizes = walk(data.path)
    images = [i for i, name in enumerate(names) if _is_image(name)]
    _note_others(names, notes)
    if not images:
        raise ValueError(
            f"data.path={data.path}: no images below it; files must end in .{', .'.join(sorted(SUFFIXES))}"
        )

    has_splits = _has_splits([names[i] for i in images])
    found: _Found = {}
    for i in images:
        found.setdefault(_top_split(names[i]) if has_splits else None, []).append(i)
    folder_of = [_class_folder(name, depth=1 if has_splits else 0) for name in names]
    is_labelled = _keep_labelled(found, folder_of, "train" if has_splits else None, data, notes)

    rows = assign_splits(found, data.path, notes)
    labels, categories = number_classes({s: [folder_of[i] for i in some] for s, some in rows.items() if is_labelled})
    root = local_path(data.path) if is_local(data.path) else data.path  # workers have another current folder
    splits = {s: FileListing(root, [names[i] for i in some], sizes[some], labels.get(s)) for s, some in rows.items()}
    if "test" in labels and not set(labels["test"]) & set(labels["train"]):
        splits["novel"] = splits.pop("test")
        notes.append("the test images are of other classes than the training images: they are used as novel classes")
    parts = [part for s, x in sorted(splits.items()) for part in (s, x.names, x.sizes, x.labels)]
    fingerprint = digest("folder", [*categories], *parts)
    return Source(splits, categories, fingerprint, mean_size([*splits.values()]), tuple(notes))


def _is_image(name: str) -> bool:
    return suffix_of(name) in SUFFIXES and not name.rpartition("/")[2].startswith(".")


def _note_others(names: list[str], notes: list[str]) -> None:
    others = [name for name in names if not _is_image(name)]
    if others:
        kinds = Counter("hidden" if n.rpartition("/")[2].startswith(".") else f".{suffix_of(n)}" for n in others)
        which = ", ".join(f"{count} {printable(kind)}" for kind, count in kinds.most_common(5))
        notes.append(f"{len(others)} files that are not images were ignored ({which})")


def _top_split(name: str) -> str | None:
    return SPLITS.get(name.partition("/")[0].lower()) if "/" in name else None


def _has_splits(names: list[str]) -> bool:
    """Whether the top folders are splits. `train` beside `bus` and `car` is a class."""
    tops = {_top_split(name) for name in names if "/" in name}
    return "train" in tops and None not in tops


def _class_folder(name: str, depth: int) -> str:
    parts = name.split("/")[depth:]
    return parts[0] if len(parts) > 1 else ""


def _keep_labelled(found: _Found, folder_of: list[str], train: str | None, data: Data, notes: list[str]) -> bool:
    """Whether folders are classes; if so, images that lie in no class folder are dropped."""
    if data.labels == "none":
        return False
    classes = [folder_of[i] for i in found[train]]
    number = len(set(classes) - {""})
    if data.labels == "auto":
        # An image per folder, or one folder for all, is a way to store images, not to label them.
        if "" in classes or number < 2 or len(classes) < 2 * number:
            notes.append("data.labels=auto: the folders do not look like classes, the images are used without labels")
            return False
        notes.append(f"data.labels=auto: {number} folders are taken as classes")
    if number < 2:
        raise ValueError(
            f"data.labels={data.labels}: {'one class folder' if number else 'no class folders'} in "
            f"data.path={data.path}; sort the images into a folder per class, or use --data.labels none"
        )
    for split, rows in [*found.items()]:
        inside = [i for i in rows if folder_of[i]]
        if len(inside) < len(rows):
            notes.append(
                f"{len(rows) - len(inside)} {f'{split} ' if split else ''}images in no class folder were left out"
            )
        found[split] = inside
        if not inside:
            del found[split]
    return True
