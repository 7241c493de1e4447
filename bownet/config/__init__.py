"""Every setting of an experiment, as frozen models that are valid as soon as they exist.

The dotted name of a field (`vocabulary.size`) is its name on the command line, in sweeps and in MLflow.
Defaults are the paper's for CIFAR-100 where it states them; `pipelines/presets/` holds complete experiments.
"""

from bownet.config.base import Fraction, PositiveInt, Settings
from bownet.config.data import KINDS, Data
from bownet.config.evaluation import Evaluation
from bownet.config.experiment import Experiment
from bownet.config.method import Perturbation, Proxy, Round, Student, Teacher, Vocabulary
from bownet.config.protocols import (
    Detection,
    Fewshot,
    Finetune,
    Knn,
    Linear,
    Protocols,
    Retrieval,
    Transfer,
    Voc07Svm,
)
from bownet.config.training import Net, Optimiser

__all__ = [
    "KINDS",
    "Data",
    "Detection",
    "Evaluation",
    "Experiment",
    "Fewshot",
    "Finetune",
    "Fraction",
    "Knn",
    "Linear",
    "Net",
    "Optimiser",
    "Perturbation",
    "PositiveInt",
    "Protocols",
    "Proxy",
    "Retrieval",
    "Round",
    "Settings",
    "Student",
    "Teacher",
    "Transfer",
    "Voc07Svm",
    "Vocabulary",
]
