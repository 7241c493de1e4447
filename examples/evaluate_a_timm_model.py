"""A model of the timm library, judged by the paper's protocols: the same as `python pipelines/evaluate.py`, in Python.

python examples/evaluate_a_timm_model.py                      timm's published ResNet-18, which is downloaded once
python examples/evaluate_a_timm_model.py --weights FILE       a ResNet-18 of your own, its state_dict() by torch.save
"""

from __future__ import annotations

import argparse
import sys

from bownet.config import Data, Evaluation, Linear
from pipelines.cluster import Cluster
from pipelines.evaluate import evaluation
from pipelines.machine import Resources, connect
from pipelines.store import Store

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--weights", default="timm:resnet18.a1_in1k", help="a name of timm's, or a file (%(default)s)")
parser.add_argument("--store", default="store", help="where results are kept (store)")
options = parser.parse_args()

settings = Evaluation(
    weights=(options.weights,),
    arch="resnet18",
    data=Data(kind="scenes", train=240, test=120, novel_per_class=20, image_size=64),
    evaluators=("linear", "knn"),
    linear=Linear(epochs=5, batch_norm=True),
)
connect()
for row in evaluation(settings, Store(options.store, machine=Cluster(Resources()))):
    for name, value in row.result()["metrics"].items():
        print(f"{row.name}  {name}  {value:.1f}", file=sys.stdout)
