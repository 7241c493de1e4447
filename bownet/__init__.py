"""The method: images, networks with named taps, visual words, training tasks. Knows nothing of Ray or MLflow.

from bownet import Vocabulary, load_backbone, visual_words
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bownet.nets.checkpoint import load_backbone
    from bownet.words.visual_words import visual_words
    from bownet.words.vocabulary_file import Vocabulary

__all__ = ["Vocabulary", "load_backbone", "visual_words"]

# Imported when they are asked for: settings alone need no torch.
_HOMES = {
    "Vocabulary": "bownet.words.vocabulary_file",
    "load_backbone": "bownet.nets.checkpoint",
    "visual_words": "bownet.words.visual_words",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bownet' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
