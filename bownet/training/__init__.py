"""The one training loop: a task, its images and an optimiser's settings go in; trained weights come out."""

from bownet.training.batches import ALONE, InMemory, Input, Shard, batch_rows, batches, check_workers, steps_per_epoch
from bownet.training.checkpoint import Record, how_far
from bownet.training.divergence import Diverged
from bownet.training.learner import learning_rate
from bownet.training.loop import SILENT, Hooks, Renews, by_first, train

__all__ = [
    "ALONE",
    "SILENT",
    "Diverged",
    "Hooks",
    "InMemory",
    "Input",
    "Record",
    "Renews",
    "Shard",
    "batch_rows",
    "batches",
    "by_first",
    "check_workers",
    "how_far",
    "learning_rate",
    "steps_per_epoch",
    "train",
]
