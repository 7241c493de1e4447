"""Judge any weights by any evaluators on any images, in one table.

python pipelines/evaluate.py --weights 3f2a moco.pth.tar torchvision:resnet50 random:resnet50 --arch resnet50 \\
  --data.kind folder --data.path DIR --data.image-size 224 --evaluators linear fewshot
"""

from __future__ import annotations

import sys
from dataclasses import replace

from bownet.config import Evaluation
from pipelines.command_line import parse_evaluation
from pipelines.evaluators import EVALUATORS, Getter, Ground, Row, judge
from pipelines.program import run_program
from pipelines.stages.comparison import FewshotComparison
from pipelines.weights import candidates


def evaluation(settings: Evaluation, store: Getter) -> list[Row]:
    """Weights -> networks, each judged by every evaluator; what cannot be done is refused before anything is."""
    if not settings.evaluators:
        raise ValueError(f"evaluators=(): name one or more of {', '.join(EVALUATORS)}")
    ground = Ground(settings, settings.data, settings.seed, store)
    for name, reason in ground.obstacles.items():
        why = reason.partition(" is left out: ")[2] or reason
        raise ValueError(f"evaluators={name}: {why}; use other images, or leave it out")
    rows = [judge(ground, candidate) for candidate in candidates(settings, ground)]
    return [rows[0], *(compared(row, rows[0], store) for row in rows[1:])]


def compared(row: Row, first: Row, store: Getter) -> Row:
    """With the paired comparison of its few-shot episodes to those of the first row, where both have them."""
    if "fewshot" not in row.artifacts:
        return row
    stage = FewshotComparison(first.artifacts["fewshot"], row.artifacts["fewshot"], model=row.name)
    return replace(row, artifacts={**row.artifacts, "comparison": store.get(stage)}, against=first.name)


def main() -> int:
    return run_program(lambda: parse_evaluation(__doc__, sys.argv[1:]), evaluation)


if __name__ == "__main__":
    sys.exit(main())
