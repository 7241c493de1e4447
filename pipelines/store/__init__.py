"""The artifact store: a stage goes in, its finished artifact comes out, built now or long ago.

    store = Store("store")
    words = store.get(Quantize(images, net, vocabulary))     # builds only what no one has built before
    words.read_npy("words.npy")

Under the root: artifacts/<stage>/<key>/, manifest.json written last; scratch/<stage>/<key>/ for what a build
keeps across crashes; locks/<key>.lock and begun/<key>.json while one builds; runs/<run>.json, which
protect artifacts from gc.
Command line: python -m pipelines.store ls | show KEY | gc | verify
"""

from pipelines.store.artifacts import HASH_UP_TO, Artifact, CorruptArtifact, Workspace
from pipelines.store.errors import StoreError
from pipelines.store.fingerprint import fingerprint
from pipelines.store.stages import NOT_IN_KEY, Estimate, Observer, Stage, StageEvent, Store
from pipelines.store.storage import Folder

__all__ = [
    "HASH_UP_TO",
    "NOT_IN_KEY",
    "Artifact",
    "CorruptArtifact",
    "Estimate",
    "Folder",
    "Observer",
    "Stage",
    "StageEvent",
    "Store",
    "StoreError",
    "Workspace",
    "fingerprint",
]
