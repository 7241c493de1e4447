"""Take a network out of the store, for other programs: a key and a format go in, a file and its description come out.

python pipelines/export.py --key 3f2a --format torchvision --out resnet50.pth
python pipelines/export.py --weights backbone.safetensors --format onnx --tap conv5 --out net.onnx

FILE.json beside it says how the input is scaled and how the file is loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bownet.nets.checkpoint import load_saved
from bownet.nets.exporting import FORMATS, check_export, export_backbone
from pipelines.ending import Arguments, answered, usual_store
from pipelines.store import Artifact, StoreError
from pipelines.store.housekeeping import artifacts, require_store
from pipelines.store.storage import absolute_root

BACKBONE = "backbone.safetensors"


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else [*arguments]
    return answered(lambda: _tell(parser().parse_args(given)), given, usual_store())


def _tell(options: argparse.Namespace) -> None:
    about = _export(options)
    scale = about["input"]
    print(f"{options.out}: {about['arch']} for {about['format']}, described in {options.out}.json")
    print(f"input: {scale['order']} in {scale['range']}, mean {scale['mean']}, std {scale['std']}")
    print(f"scaled by: {scale['scaled_by']}")
    for name, value in about.get("config", {}).items():
        print(f"  {name}: {value}")
    print(f"load: {about['load']}")
    print(f"gives: {about['gives']}")


def parser() -> argparse.ArgumentParser:
    made = Arguments(prog="python pipelines/export.py", description="Export a network.")
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--key", help="of its artifact: a key, the beginning of one, or stage/key")
    source.add_argument("--weights", metavar="FILE", help=f"a {BACKBONE} instead, outside of any store")
    made.add_argument("--store", default=usual_store(), help="path or URI (default: $BOWNET_STORE, else ./store)")
    made.add_argument("--format", required=True, help=", ".join(FORMATS))
    made.add_argument("--out", required=True, metavar="FILE", help="the file to write; FILE.json goes beside it")
    made.add_argument("--tap", help="onnx: the feature map beside the pooled feature (default: the last one)")
    made.add_argument("--debug", action="store_true", help="show a traceback with an error")
    return made


def _export(options: argparse.Namespace) -> dict[str, Any]:
    out = Path(options.out)
    if options.key is not None:
        artifact = find_network(absolute_root(options.store), options.key)
        source, provenance = artifact.local_path(BACKBONE), {"key": artifact.key, "stage": artifact.stage_name}
    else:
        source = Path(options.weights)
        provenance = {"file": source.name}
    backbone, net = load_saved(source)
    check_export(backbone, net, options.format, out, options.tap)
    try:
        with tempfile.TemporaryDirectory(
            dir=out.parent, prefix=".export-"
        ) as folder:  # a name holds a whole file or none
            made = Path(folder) / out.name
            about = export_backbone(backbone, net, options.format, made, provenance, options.tap)
            described = made.with_name(f"{out.name}.json")
            described.write_text(json.dumps(about, indent=1) + "\n")
            for file in (described, made):
                os.replace(file, out.with_name(file.name))
    except OSError as error:
        raise ValueError(f"out={options.out}: {error.strerror}; name a file in a folder that exists") from error
    return about


def find_network(root: str, name: str) -> Artifact:
    """The artifact with this key, the beginning of it, or stage/key, which must hold a network."""
    require_store(root)
    present = artifacts(root)
    networks = [found for found in present if found.exists() and found.folder.exists(BACKBONE)]
    matches = [found for found in networks if _is_called(found, name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise StoreError(f"key={name}: could be {', '.join(a.ref for a in matches)}; give more digits")
    listed = ", ".join(a.ref for a in networks) or "none yet"
    others = [found.ref for found in present if _is_called(found, name)]
    wrong = f"{others[0]} is no finished network" if others else f"no such artifact in {root}"
    raise StoreError(f"key={name}: {wrong}; networks are {listed}")


def _is_called(artifact: Artifact, name: str) -> bool:
    return artifact.key.startswith(name) or ("/" in name and artifact.ref.startswith(name))


if __name__ == "__main__":
    sys.exit(main())
