"""Sweeps: spaces and points by hand; a real sweep on a real Ray, killed and continued, and a trial that fails."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
from conftest import ROOT, environment
from ray import tune
from rich.console import Console

from evaluation.fewshot import fewshot_score
from evaluation.knn import knn_score
from evaluation.retrieval import retrieval_score
from pipelines.command_line import start_of
from pipelines.full import experiment
from pipelines.machine import Node
from pipelines.plan import Plan
from pipelines.presets import PRESETS
from pipelines.records import Record, read_records
from pipelines.scale import reduced
from pipelines.store import Store
from pipelines.sweep import planned, points_of, sweep
from pipelines.sweeps.metric import check_judged, metric_of
from pipelines.sweeps.named import NAMED
from pipelines.sweeps.options import SweepOptions
from pipelines.sweeps.space import Axis, changed, checked, drawn, grid, parse_space
from pipelines.sweeps.summary import Summary, axis_of, show, summaries
from pipelines.sweeps.trial import Job, last_training, progress
from pipelines.sweeps.tuning import asha, domain, optuna, room_of

PROGRAM = [sys.executable, str(ROOT / "pipelines" / "sweep.py")]
DEMO = PRESETS["demo"]()


def run_sweep(*arguments: str | Path, timeout: float = 400) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment())


def test_a_space_is_read_from_the_command_line() -> None:
    texts = ["vocabulary.size=512,1024", "student.cutmix=True,False", "data.image-size=16", "student.bow=binary,count"]
    axes = parse_space([*texts, "student.perturbation.crop_area=[0.2,1],[0.5,1]", "student.optimiser.lr=0.01..0.3"])
    assert axes[0] == Axis("vocabulary.size", (512, 1024))
    assert axes[1].values == (True, False)
    assert axes[2] == Axis("data.image_size", (16,))
    assert axes[3].values == ("binary", "count")
    assert axes[4].values == ([0.2, 1], [0.5, 1])
    assert (axes[5].low, axes[5].high, axes[5].is_range) == (0.01, 0.3, True)
    (rate,) = parse_space(["student.optimiser.lr=0.01..0.3:log"])
    assert (rate.low, rate.high, rate.log, rate.whole) == (0.01, 0.3, True, False)
    points = grid(axes[:2])
    assert [point.label for point in points][:2] == [
        "vocabulary.size=512 student.cutmix=true",
        "vocabulary.size=512 student.cutmix=false",
    ]
    assert len(points) == 4


def test_random_points_come_from_the_seed_and_differ() -> None:
    axes = parse_space(["vocabulary.size=2,4,8", "student.optimiser.lr=0.01..0.3"])
    assert drawn(axes, 5, 0) == drawn(axes, 5, 0) != drawn(axes, 5, 1)
    assert len(drawn(parse_space(["vocabulary.size=2,4,8"]), 10, 0)) == 3


def test_whole_numbers_lie_between_whole_numbers_unless_the_setting_takes_fractions() -> None:
    texts = ["vocabulary.size=64..66", "student.optimiser.lr=1..3", "vocabulary.pca=2..512:log"]
    axes = checked(parse_space(texts), DEMO)
    assert [axis.whole for axis in axes] == [True, False, True]
    points = drawn(axes, 200, 0)
    columns = [*zip(*(point.settings.values() for point in points), strict=True)]
    assert set(columns[0]) == {64, 65, 66}
    assert all(isinstance(value, float) and 1 <= value <= 3 for value in columns[1])
    assert all(isinstance(value, int) and 2 <= value <= 512 for value in columns[2])
    assert 70 < sum(value < 32 for value in columns[2]) < 130  # 32 is the middle of 2 to 512 in logarithms
    assert all(changed(DEMO, point.settings) for point in points)


def test_ray_tune_draws_as_we_do() -> None:
    random, ends = np.random.default_rng(0), {}
    for text in ("vocabulary.size=2..4", "vocabulary.size=2..4:log", "vocabulary.size=2,4"):
        (axis,) = checked(parse_space([text]), DEMO)
        ends[text] = {domain(axis).sample(random_state=random) for _ in range(100)}
    assert [*ends.values()] == [{2, 3, 4}, {2, 3, 4}, {2, 4}]
    (rate,) = checked(parse_space(["student.optimiser.lr=0.001..0.1:log"]), DEMO)
    rates = [domain(rate).sample(random_state=random) for _ in range(100)]
    assert 30 < sum(value < 0.01 for value in rates) < 70
    assert 0.001 <= min(rates) <= max(rates) <= 0.1


def test_what_trials_are_compared_by_follows_from_their_evaluators() -> None:
    assert metric_of(None, [DEMO]) == "linear/top1"
    assert metric_of(None, [PRESETS["imagenet-small/bownet-conv4"]()]) == "linear/conv5/top1"
    assert metric_of(None, [PRESETS["imagenet/bownet-conv4"]()]) == "linear/pool5/top1"
    assert metric_of(None, [changed(DEMO, {"evaluators": ["retrieval"]})]) == "retrieval/map"
    assert metric_of("fewshot/5shot", [DEMO]) == "fewshot/5shot"
    for metric in ("fewshot/7shot", "fewshot/5", "knn/top1_10"):  # demo has 1, 5, 10 and 50 shots, and no k-NN
        with pytest.raises(ValueError, match=f"^metric={metric}: the evaluators of these trials do not give it"):
            metric_of(metric, [DEMO])
    near = changed(DEMO, {"evaluators": ["knn"], "knn.neighbours": [7]})
    assert metric_of("knn/top1_7", [near]) == "knn/top1_7"
    with pytest.raises(ValueError, match=r"^metric=knn/top1_10: .*; name one such as knn/top1_7$"):
        metric_of("knn/top1_10", [near])
    for metric in ("linear/acc", "linear/topp1", "linear/conv5/top1", "linear/pool"):
        with pytest.raises(ValueError, match=f"^metric={metric}: .*; name one such as linear/top1$"):
            metric_of(metric, [DEMO])
    for metric in ("linear/pool/top1", "linear/top5", "linear/train_top1"):
        assert metric_of(metric, [DEMO]) == metric
    imagenet = PRESETS["imagenet/bownet-conv4"]()
    for metric in (
        "detection/ap50_std",
        "voc07_svm/conv4/map",
        "linear/conv2/top5",
        "linear/top1",
        "places205/pool5/top1",
    ):
        assert metric_of(metric, [imagenet]) == metric
    for metric in ("detection/ap60", "voc07_svm/map", "voc07_svm/conv9/map", "places205/conv1/top1", "retrieval/map"):
        with pytest.raises(ValueError, match=f"^metric={metric}: "):
            metric_of(metric, [imagenet])
    with pytest.raises(ValueError, match=r"^metric=linear/top1: .*; name one such as linear/conv5/top1$"):
        metric_of("linear/top1", [PRESETS["imagenet-small/bownet-conv4"]()])


def test_metrics_are_called_as_evaluators_write_them() -> None:
    features, labels = torch.eye(300), torch.arange(300) % 2
    written = {
        "fewshot": fewshot_score({n: torch.rand(4) for n in DEMO.fewshot.shots}),
        "knn": knn_score(features, labels, features, labels, DEMO.knn),
        "retrieval": retrieval_score(features, labels, features, labels, DEMO.retrieval),
    }
    for evaluator, score in written.items():
        exp = changed(DEMO, {"evaluators": [evaluator]})
        names = {f"{evaluator}/{name}" for name in score.metrics}
        assert metric_of(None, [exp]) in names
        assert {metric_of(name, [exp]) for name in names} == names
    shares = changed(DEMO, {"evaluators": ["finetune"], "finetune.fractions": [0.01, 0.1]})
    assert metric_of(None, [shares]) == "finetune/10pct/top1"
    assert metric_of("finetune/1pct/top5", [shares]) == "finetune/1pct/top5"
    with pytest.raises(ValueError, match=r"^metric=finetune/0.1/top1: "):
        metric_of("finetune/0.1/top1", [shares])


def test_what_cannot_be_judged_is_known_before_anything_is_trained(tmp_path: Path) -> None:
    few = changed(DEMO, {"data.novel_per_class": 3})  # an episode wants more images of a class
    store = Store(tmp_path / "store")
    check_judged("linear/top1", [few], store)
    check_judged("fewshot/5shot", [few, DEMO], store)
    with pytest.raises(ValueError, match=r"^metric=fewshot/5shot: few-shot is left out: ") as caught:
        check_judged("fewshot/5shot", [few], store)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("settings", "last"),
    [
        ({}, ("BoWNet x2: training", 14)),
        ({"rounds": 1}, ("BoWNet: training", 14)),
        ({"rounds": 0}, ("RotNet: training", 3)),
        ({"rounds": 0, "teacher.kind": "relative_location", "judged": "last"}, ("RelLoc: training", 3)),
        ({"rounds": 0, "teacher.kind": "random"}, ("", 0)),
    ],
)
def test_the_proxy_is_of_the_network_that_is_trained_last(
    settings: dict[str, Any], last: tuple[str, int], tmp_path: Path
) -> None:
    plan = Plan(Store(tmp_path / "store"))
    experiment(changed(DEMO, settings), plan)
    assert last_training(plan) == last


def test_room_for_trials_is_on_single_nodes() -> None:
    nodes = [Node(3, 0), Node(3, 0), Node(8, 2)]
    assert [room_of(nodes, cpus, 0.0) for cpus in (1, 2, 4, 9)] == [14, 6, 2, 0]
    assert [room_of(nodes, 1, gpus) for gpus in (1.0, 0.5, 0.25)] == [2, 4, 8]
    assert [room_of(nodes, 1, gpus) for gpus in (0.4, 0.6, 0.1)] == [4, 2, 8]  # a share does not lie on two GPUs
    assert room_of(nodes, 3, 0.5) == 2  # four halves of a GPU, CPUs for two


def test_optuna_waits_for_the_score() -> None:
    """The proxy of a trial is none, and a trial that ASHA ends has none: it is no good one."""
    job = Job("s", "r", {"seed": 0}, "", "", 1, 0.0, "linear/top1", proxy=True)
    search = optuna(job)
    assert search.set_search_properties(None, None, {"vocabulary.size": tune.choice([4, 8])})
    told = progress({"knn": 5.0, "epoch": 1, "epochs": 2})
    for trial in ("ended", "done"):
        assert search.suggest(trial)["vocabulary.size"] in (4, 8)
        search.on_trial_result(trial, {**told, "training_iteration": 1})
    search.on_trial_complete("ended", {**told, "training_iteration": 1})
    search.on_trial_result("done", {"score": 40.0, "training_iteration": 2})
    search.on_trial_complete("done", {"score": 40.0, "training_iteration": 2})
    assert [trial.state.name for trial in search._ot_study.trials] == ["PRUNED", "COMPLETE"]
    assert search._ot_study.best_value == 40.0


def test_scores_that_were_made_otherwise_are_marked() -> None:
    def record(label: str, seed: int, epochs: int) -> Record:
        card = {"evaluator": "linear", "solver": {"epochs": epochs}, "seeds": {"classifier": seed}}
        row = {"name": "BoWNet", "metrics": {"linear/top1": 50.0 + seed}, "protocol": {"linear": card}}
        sweep = {"label": label, "settings": {"linear.epochs": epochs}}
        return Record(f"{label}-{seed}", {"seed": seed}, [row], 1.0, sweep=sweep)

    records = [record(label, seed, n) for label, n in (("a", 60), ("b", 5), ("c", 60)) for seed in (0, 1)]
    console = Console(record=True, width=120, file=io.StringIO())
    show(summaries(records), records, "title", console)
    text = console.export_text()
    assert [line.split("│")[2].strip() for line in text.splitlines() if "±" in line] == [
        "50.5 ± 6.4",
        "50.5 ± 6.4 *",
        "50.5 ± 6.4",
    ]  # 12.706 * sqrt(1/2) / sqrt(2)
    assert "* linear made otherwise than for a, seed 0: solver.epochs 5 instead of 60" in text


def test_asha_looks_at_the_part_of_a_trials_own_training() -> None:
    """Of 9 epochs after the first and the third, of 30 after the 4th and the 10th; the last one is never posted."""
    rungs = sorted(milestone for milestone, _ in asha()._brackets[0]._rungs)
    assert rungs == [10, 30, 90]
    for epochs, looks in ((9, [1, 3]), (30, [4, 10]), (1, []), (27, [3, 9])):
        told = [progress({"knn": 5.0, "epoch": e, "epochs": epochs})["progress"] for e in range(1, epochs)]
        assert [
            next(i + 1 for i, t in enumerate(told) if t >= rung) for rung in rungs if told and told[-1] >= rung
        ] == looks


def test_points_change_an_experiment_and_are_checked() -> None:
    assert changed(DEMO, {"vocabulary.size": 64, "student.optimiser.lr": 0.2}).student.optimiser.lr == 0.2
    with pytest.raises(ValueError, match=r"^space=vocabulary.sze: unknown setting, did you mean vocabulary.size\?$"):
        changed(DEMO, {"vocabulary.sze": 64})
    with pytest.raises(ValueError, match=r"^vocabulary.size=70000: use 2\.\.65536"):
        changed(DEMO, {"vocabulary.size": 70000})


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("preset", ["cifar100/bownet", "cifar10/small", "miniimagenet/bownet"])
def test_named_sweeps_fit_any_preset_of_one_round(name: str, preset: str) -> None:
    exp = PRESETS[preset]()
    points = NAMED[name](exp)
    made = [changed(exp, point.settings) for point in points]
    assert len({one.model_dump_json() for one in made}) == len(points) >= 3
    assert len({point.label for point in points}) == len(points)


@pytest.mark.parametrize("preset", ["cifar100/bownet", "miniimagenet/bownet"])
def test_the_findings_share_one_rotnet(preset: str, tmp_path: Path) -> None:
    """Also at a scale that makes Deeper Clustering smaller: it goes on from the RotNet of all others."""
    exp = start_of(preset, ["--scale", "tiny", "--data.kind", "scenes"])
    points = NAMED["findings"](exp)
    plan = planned(exp, [(point, seed) for point in points for seed in (0, 1)], Store(tmp_path / "store"))
    labels = Counter(step.stage.label for step in plan.steps)
    assert labels["RotNet: training"] == labels["Deeper Clustering: training"] == labels["RelLoc: training"] == 2
    (clustering,) = (changed(exp, p.settings).teacher for p in points if p.label == "Deeper Clustering")
    assert clustering.renew_every == min(3, max(1, clustering.optimiser.epochs // 3))


def test_the_papers_vocabulary_sizes() -> None:
    points = NAMED["vocabulary-size"](PRESETS["cifar100/bownet"]())
    assert [point.settings["vocabulary.size"] for point in points] == [512, 1024, 2048, 4096]
    layer4 = PRESETS["imagenet-small/bownet-conv4"]()
    for exp, sizes in ((layer4, [2048, 8192, 20_000]), (reduced(layer4, "tiny"), [8, 32, 78])):
        assert [point.settings["vocabulary.size"] for point in NAMED["vocabulary-size"](exp)] == sizes
    options = SweepOptions(preset="imagenet-small/bownet-conv4")
    points, _ = points_of(
        "vocabulary-size", options, changed(layer4, {"data.train": 600}).model_copy(update={"name": "mine"})
    )
    assert [point.settings["vocabulary.size"] for point in points] == [2048, 8192, 20_000]


def test_points_that_are_one_experiment_are_refused_or_told(tmp_path: Path) -> None:
    """A table of equal rows would say that a setting makes no difference."""
    store = Store(tmp_path / "store")

    def plan_of(name: str, preset: str, scale: str = "tiny") -> Plan:
        exp = start_of(preset, ["--scale", scale, "--data.kind", "scenes"])
        return planned(exp, [(point, 0) for point in NAMED[name](exp)], store, name)

    for name, preset, labels in (
        (
            "layer",
            "miniimagenet/random-bownet",
            "'vocabulary.tap=block2' is the same experiment as 'vocabulary.tap=block1'",
        ),
        ("ablations", "cifar100/rotnet", "'predict y\\(x~\\)' is the same experiment as 'base'"),
        ("vocabulary-size", "cifar100/rotnet", "'vocabulary.size=4' is the same experiment as 'vocabulary.size=2'"),
    ):
        with pytest.raises(
            ValueError, match=f"^preset={preset}: {name}: {labels}, since it uses none of what differs; use"
        ) as one:
            plan_of(name, preset)
        assert "\n" not in str(one.value)
    for preset, said in (
        ("miniimagenet/random-bownet", "entries of per_round=4"),
        ("cifar100/deeper-clustering", "rounds=0"),
    ):
        with pytest.raises(
            ValueError, match=f"^{said}: base-convnet compares students of different teachers; use a preset"
        ):
            plan_of("base-convnet", preset)
    plan_of("ablations", "imagenet-small/bownet-conv4")  # of binary bags the other kind is tried
    free = [(point, 0) for point in grid(parse_space(["student.cutmix=true,false"]))]
    told = planned(start_of("cifar100/rotnet", ["--scale", "tiny", "--data.kind", "scenes"]), free, store).notes
    said = "'student.cutmix=false' is the same experiment as 'student.cutmix=true', since it uses none of what differs"
    assert said in told


@pytest.mark.parametrize(("preset", "label"), [("demo", "CutMix"), ("cifar100/bownet", "no CutMix")])
def test_ablations_differ_from_their_base(preset: str, label: str) -> None:
    exp = PRESETS[preset]()
    points = NAMED["cutmix-and-pyramid"](exp)
    assert [point.label for point in points] == ["base", label, "pyramid"]
    assert changed(exp, points[1].settings).student.cutmix is not exp.student.cutmix
    of_binary = NAMED["ablations"](PRESETS["imagenet/bownet-conv4"]())
    assert [point.label for point in of_binary][-1] == "histogram"


def test_the_figure_has_an_axis_where_one_number_differs() -> None:
    def points(*settings: dict[str, Any]) -> list[Summary]:
        return [Summary("", one, "BoWNet", (0,), {}, ()) for one in settings]

    k, lr, cutmix = "vocabulary.size", "student.optimiser.lr", "student.cutmix"
    assert axis_of(points({k: 4, lr: 0.1}, {k: 8, lr: 0.1})) == (k, [4.0, 8.0])
    assert axis_of(points({k: 4, lr: 0.1}, {k: 8, lr: 0.2})) is None
    assert axis_of(points({cutmix: True}, {cutmix: False})) is None
    assert axis_of(points({}, {k: 8})) is None


MISTAKES = {
    "vocabulary-sise --preset demo": "unknown, did you mean vocabulary-size?",
    "--preset demo": "name a sweep (vocabulary-size, ",
    "layer --preset demo --space seed=1,2": "one of the two",
    "--preset dmo --space seed=1,2": "did you mean demo?",
    "--preset demo --space seed": "write name=v1,v2",
    "--preset demo --space rounds=3..1": "the range is empty",
    "--preset demo --space student.optimiser.lr=0.1..0.2": "a grid needs values",
    "--preset demo --space vocabulary.size=4,70000 --dry-run": "vocabulary.size=70000: use 2..65536",
    "--preset demo --search optuna --space vocabulary.size=64,70000": "vocabulary.size=70000: use 2..65536",
    "--preset demo --search random --space student.optimiser.lr=0.1..700": "student.optimiser.lr=700.0: use more",
    "--preset demo --search random --space student.optimiser.lr=0..1:log": "log needs numbers above 0",
    "--preset demo --space vocabulary.size=4,8 seed=1,2": "space=seed=...: is no setting to sweep, use --seeds",
    "--preset demo --space scale=small,tiny": "space=scale=...: is no setting to sweep, use --scale",
    "--preset demo --space name=a,b": "space=name=...: is no setting to sweep, use --name",
    "--preset miniimagenet/random-bownet --space rounds=2": "per_round has 4 entries for rounds=2: give one for each",
    "layer --preset demo --metric lineer/top1": "metric=lineer/top1: the evaluators of these trials do not give it",
    "layer --preset demo --metric fewshot/7shot": "metric=fewshot/7shot: the evaluators of these trials do not give it",
    "layer --preset demo --data.novel-per-class 3 --metric fewshot/5shot": "metric=fewshot/5shot: few-shot is left out",
    "findings --preset demo": "rounds=2: the findings compare one BoWNet and its RotNet, both judged; use 1",
    "findings --preset imagenet-small/bownet-conv4": "judged=last: the findings compare",
    "layer --preset demo --resources.workers 2": "a trial has one worker; use --cpus-per-trial",
    "layer --preset demo --search random": "layer has points of its own",
    "--preset demo --space vocabulary.size=4,8 vocabulary.size=2": "is there twice",
    "--preset demo --space vocabulary.size=4,8 --search optuna --seeds 2": "optuna judges each point by one trial",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(MISTAKES[line])) as caught:
        sweep(line.split(), Console())
    assert "\n" not in str(caught.value)


def test_a_mistake_ends_the_program_with_code_2() -> None:
    done = run_sweep("layer", "--preset", "dmo")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: preset='dmo': unknown, did you mean demo?; --list shows them all\n"


def test_a_dry_run_lists_trials_and_shared_stages_once(tmp_path: Path) -> None:
    done = run_sweep("vocabulary-size", "--preset", "smoke", "--seeds", "2", "--dry-run", "--store", tmp_path / "none")
    assert done.returncode == 0, done.stderr
    assert "8 trials" in done.stdout
    assert done.stdout.count("RotNet: training") == 2  # one for each seed
    assert done.stdout.count("BoWNet: training") == 8
    assert not (tmp_path / "none").exists()


TINY = ["--preset", "cifar100/bownet", "--scale", "tiny", "--data.kind", "scenes"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two sizes. Two words are fewer than are asked for, which that trial finds out when it has made them."""
    folder = tmp_path_factory.mktemp("sweep")
    space = ["--space", "vocabulary.size=2,16", "vocabulary.min_perplexity=2.5"]
    done = run_sweep(*TINY, *space, "--store", folder / "store", "--json", folder / "report.json")
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((folder / "report.json").read_text())
    return {"store": folder / "store", "report": report, "printed": done.stdout, "errors": done.stderr}


@pytest.mark.slow
def test_a_failed_trial_is_told_in_a_line_and_ends_no_other(swept: dict[str, Any]) -> None:
    assert swept["errors"] == ""
    for told in (swept["printed"], swept["report"]["told"][0]):
        assert (
            "vocabulary.size=2 vocabulary.min_perplexity=2.5, seed 0: failed: vocabulary.min_perplexity=2.5: " in told
        )
    (point,) = swept["report"]["points"]
    assert point["settings"] == {"vocabulary.size": 16, "vocabulary.min_perplexity": 2.5}
    assert "linear/top1" in point["scores"]


@pytest.mark.slow
def test_trials_share_what_they_can(swept: dict[str, Any]) -> None:
    made = Counter(path.parent.name for path in swept["store"].glob("artifacts/*/*"))
    assert (made["images"], made["teacher"], made["vocabulary"], made["words"]) == (1, 1, 2, 2)
    assert made["student"] == 1
    assert len(built(swept["report"], "teacher")) <= 1  # or the trial that failed has trained it


def built(report: dict[str, Any], stage: str) -> list[dict[str, Any]]:
    """What was really made, and not found: two trials that make the same one leave one folder."""
    return [one for one in report["stages"] if one["name"] == stage and not one["cached"]]


@pytest.mark.slow
def test_a_sweep_ends_with_a_table_a_figure_and_runs(swept: dict[str, Any]) -> None:
    report, store = swept["report"], swept["store"]
    assert report["scale"] == "tiny"
    assert "Reduced scale (tiny)" in swept["printed"]
    assert (store / "sweeps" / f"{report['run']}.png").read_bytes().startswith(b"\x89PNG")
    (record,) = read_records(str(store))
    assert (record.sweep["run"], record.seed, record.scale) == (report["run"], 0, "tiny")
    client = mlflow.MlflowClient(f"sqlite:///{store / 'mlflow.db'}")
    parent = client.get_run(report["run"])
    assert parent.info.status == "FINISHED"
    assert "vocabulary.size=2,16" in parent.data.params["sweep.space"]
    children = client.search_runs([parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{report['run']}'")
    states = {run.data.params["vocabulary.size"]: run.info.status for run in children}
    assert states == {"2": "FAILED", "16": "FINISHED"}
    (done,) = [run for run in children if run.info.run_id == record.run]
    assert done.data.metrics["linear/top1"] == record.rows[-1]["metrics"]["linear/top1"]
    assert done.data.tags["scale"] == "tiny"


@pytest.mark.faults
def test_a_killed_sweep_does_only_what_is_missing(tmp_path: Path) -> None:
    """`kill -9` of the driver when the first student is done; the same command ends with one teacher for all."""
    store = tmp_path / "store"
    command = [*PROGRAM, "vocabulary-size", *TINY, "--store", str(store)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 200
    while not list(store.glob("artifacts/student/*/manifest.json")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = {path.parent.name: path.stat().st_mtime_ns for path in store.glob("artifacts/*/*/manifest.json")}
    done = run_sweep("vocabulary-size", *TINY, "--store", store, "--json", tmp_path / "report.json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert [point["settings"] for point in report["points"]] == [{"vocabulary.size": k} for k in (2, 4, 8, 16)]
    assert before.keys() & {stage["key"] for stage in report["stages"] if not stage["cached"]} == set()
    for key, at in before.items():
        (manifest,) = store.glob(f"artifacts/*/{key}/manifest.json")
        assert manifest.stat().st_mtime_ns == at
    made = Counter(path.parent.name for path in store.glob("artifacts/*/*"))
    assert (made["images"], made["teacher"], made["vocabulary"], made["student"]) == (1, 1, 4, 4)
    assert built(report, "teacher") == []  # the sweep that was killed had trained it
    new = [stage["key"] for stage in report["stages"] if not stage["cached"]]
    assert len(new) == len(set(new))


@pytest.mark.slow
def test_trials_that_fall_behind_are_ended_early(tmp_path: Path) -> None:
    """ASHA on the proxy of the student; the trials that are left have their scores.

    One after the other, the good ones first: to be ended one must be worse than others that came that far.
    """
    space = ["--space", "student.optimiser.lr=0.1,0.05,0.000001,0.0000001", "--student.optimiser.epochs", "18"]
    where = ["--store", tmp_path / "store", "--json", tmp_path / "r.json", "--max-concurrent", "1"]
    done = run_sweep(*TINY, *space, "--data.train", "600", "--scheduler", "asha", "--proxy.images", "400", *where)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["points"]
    assert report["told"]
    assert len(report["points"]) + len(report["told"]) == 4
    assert all("ended early, at epoch" in line for line in report["told"])
    assert len(list(tmp_path.glob("store/artifacts/student/*/manifest.json"))) == len(report["points"])


@pytest.mark.slow
def test_asha_ends_what_optuna_proposes(tmp_path: Path) -> None:
    """Both at once: Optuna hears of the proxy, too, and learns from scores alone."""
    space = ["--space", "student.optimiser.lr=0.05..0.2", "--search", "optuna", "--samples", "3"]
    where = ["--store", tmp_path / "store", "--json", tmp_path / "r.json"]
    more = ["--scheduler", "asha", "--student.optimiser.epochs", "9", "--proxy.images", "60"]
    done = run_sweep(*TINY, *space, *more, *where)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert len(report["points"]) + len(report["told"]) == 3
    assert report["points"]
    assert all("linear/top1" in point["scores"] for point in report["points"])


@pytest.mark.slow
def test_optuna_proposes_points_of_the_space(tmp_path: Path) -> None:
    """A list and a range, on one teacher; the seed decides what is proposed."""
    space = ["--space", "vocabulary.size=4,8", "student.optimiser.lr=0.05..0.2", "--search", "optuna", "--samples", "3"]
    where = ["--store", tmp_path / "store", "--json", tmp_path / "r.json", "--max-concurrent", "999"]
    done = run_sweep(*TINY, *space, *where)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "max_concurrent=999: the cluster has room for" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    points = report["points"]
    assert len(points) == 3
    for point in points:
        assert point["settings"]["vocabulary.size"] in (4, 8)
        assert 0.05 <= point["settings"]["student.optimiser.lr"] <= 0.2
        assert "linear/top1" in point["scores"]
    assert len(built(report, "teacher")) == 1
