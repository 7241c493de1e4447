"""The experiment, top to bottom: section 2 of the paper as a program.

python pipelines/full.py --list                        every row of the paper's tables, as a preset
python pipelines/full.py demo                          in this process, on a local Ray
ray job submit --working-dir . -- python pipelines/full.py demo --store /shared/store      on a cluster
"""

from __future__ import annotations

import sys
from dataclasses import replace

from bownet.config import Experiment
from pipelines.command_line import parse
from pipelines.evaluators import Candidate, Getter, Ground, Row, judge
from pipelines.program import run_program
from pipelines.stages.checkpoint import CheckpointNet
from pipelines.stages.student import TrainStudent
from pipelines.stages.teacher import RandomNet, TrainTeacher, rotnet_first, seen_as_by
from pipelines.stages.vocabulary import BuildVocabulary
from pipelines.stages.words import Quantize
from pipelines.store import Artifact

TEACHERS = {  # as the paper's tables call them
    "rotation": "RotNet",
    "relative_location": "RelLoc",
    "deeper_clustering": "Deeper Clustering",
    "supervised": "supervised",
    "cosine_classifier": "supervised CC",
    "checkpoint": "checkpoint",
}


def experiment(exp: Experiment, store: Getter) -> list[Row]:
    """Images -> base teacher -> [vocabulary -> words -> student] x rounds, each network evaluated when it is there."""
    ground = Ground(exp, exp.data, exp.seed, store)
    images = ground.images
    for obstacle in ground.obstacles.values():
        store.note(obstacle)

    arch, rows = exp.teacher.net, []  # of the network that teaches next
    if exp.judged == "all" or exp.teacher.kind == "random":
        teacher = store.get(RandomNet(arch, exp.seed, images, model="random"))
        is_base = exp.teacher.kind == "random"
        rows += judged(exp, ground, Candidate("random", teacher, arch), is_base and exp.rounds == 0)
    if exp.teacher.kind != "random":
        name = TEACHERS[exp.teacher.kind]
        teacher = base_teacher(exp, images, store, name)
        rows += judged(exp, ground, Candidate(name, teacher, arch), exp.rounds == 0)

    words: Artifact | None = None
    for round in range(1, exp.rounds + 1):  # BoWNet, x2, x3: each student teaches the next
        name = "BoWNet" if round == 1 else f"BoWNet x{round}"
        settings, seed = exp.vocabulary_of_round(round), exp.seed_of_round(round)
        vocabulary = store.get(BuildVocabulary(settings, exp.seed, images, teacher, arch, model=name))
        words = store.get(Quantize(images, teacher, vocabulary, settings.flip, words, model=name))
        student = TrainStudent(exp.student, seed, images, words, settings.min_perplexity, proxy=exp.proxy, model=name)
        if exp.student.target == "perturbed":
            student = replace(student, teacher=teacher, vocabulary=vocabulary)
        teacher, arch = store.get(student), exp.student.net
        rows += judged(exp, ground, Candidate(name, teacher, arch), round == exp.rounds)
    return rows


def judged(exp: Experiment, ground: Ground, candidate: Candidate, last: bool) -> list[Row]:
    """The row of a network, if `judged` asks for one."""
    return [judge(ground, candidate)] if last or exp.judged == "all" else []


def base_teacher(exp: Experiment, images: Artifact, store: Getter, name: str) -> Artifact:
    """The first teacher: read from a file, or trained on the task that teacher.kind names."""
    if exp.teacher.kind == "checkpoint":
        assert exp.teacher.weights is not None
        return store.get(CheckpointNet(exp.teacher.net, exp.teacher.weights, model=name))
    teacher = TrainTeacher(exp.teacher, exp.seed, images, proxy=exp.proxy, model=name)
    if exp.teacher.kind == "deeper_clustering":
        teacher = replace(teacher, like=seen_as_by(exp.student))
        if exp.teacher.rotnet_first:
            teacher = replace(teacher, start=store.get(rotnet_first(exp.teacher, exp.seed, images)))
    return store.get(teacher)


def main() -> int:
    return run_program(lambda: parse(__doc__, sys.argv[1:]), experiment)


if __name__ == "__main__":
    sys.exit(main())
