"""Sweeps with Ray Tune: many experiments that differ in some settings, on one store, so that nothing is built twice.

python pipelines/sweep.py vocabulary-size --preset cifar100/bownet --seeds 3
python pipelines/sweep.py --preset demo --space vocabulary.size=64,128,256 student.cutmix=true,false
python pipelines/sweep.py findings --preset cifar10/small --seeds 3

Settings of the preset, --scale, --store, --dry-run and --json are those of full.py. The same command continues a sweep
that was interrupted.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bownet.config import Experiment
from bownet.masking import masked, without_password
from pipelines.command_line import Options, nearest_name, parse, parse_known
from pipelines.full import experiment
from pipelines.machine import Resources, connect
from pipelines.plan import Plan
from pipelines.program import guarded, preflight
from pipelines.progress import print_whole
from pipelines.reach import Reach
from pipelines.records import Record, read_records
from pipelines.store import Folder, Store
from pipelines.sweeps.metric import check_judged, metric_of
from pipelines.sweeps.named import NAMED
from pipelines.sweeps.options import SweepOptions
from pipelines.sweeps.space import Axis, Point, changed, checked, drawn, grid, parse_space
from pipelines.sweeps.summary import Summary, draw, show, summaries
from pipelines.sweeps.trial import Job, tags_of
from pipelines.sweeps.tuning import check_optuna, share, tune_trials


def points_of(name: str | None, options: SweepOptions, exp: Experiment) -> tuple[list[Point], tuple[Axis, ...]]:
    """The points that are known before the first trial, or the axes that a search algorithm draws from."""
    axes = parse_space(options.space)
    if (name is None) == (not axes):
        raise ValueError(f"space: name a sweep ({', '.join(NAMED)}) or settings with --space, one of the two")
    axes = checked(axes, exp)
    if name is not None:
        if options.search != "grid":
            raise ValueError(f"search={options.search}: {name} has points of its own; use --space, or grid")
        return NAMED[name](exp.model_copy(update={"name": options.preset})), ()  # whatever --name calls it
    if options.search == "optuna":
        check_optuna()
        return [], axes
    return (grid(axes) if options.search == "grid" else drawn(axes, options.samples, exp.seed)), ()


def sweep(arguments: Sequence[str], console: Console) -> int:
    name, options, full = parsed(arguments)
    exp = full.experiment
    if full.resources != Resources(stall_minutes=full.resources.stall_minutes):
        raise ValueError("resources: a trial has one worker; use --cpus-per-trial and --gpus-per-trial")
    if options.scheduler == "asha" and not exp.proxy.every:
        exp = changed(exp, {"proxy.every": 1})
    points, axes = points_of(name, options, exp)
    made_of = [changed(exp, point.settings) for point in points] or [exp]
    metric = metric_of(options.metric, made_of)
    seeds = range(exp.seed, exp.seed + options.seeds)
    store = Store(full.store)
    tried = [(point, seed) for point in points for seed in seeds]  # all seeds of a point follow each other
    plan = planned(exp, tried or [(Point("one", {}), exp.seed)], store, name)
    if options.metric or options.search == "optuna":  # all others can do without
        check_judged(metric, made_of, store)
    if full.dry_run:
        show_plan(plan, tried, console)
        return 0
    preflight(full, store, plan)
    connect()
    reach = Reach(store.root)
    reach.ask()
    reach.require()

    from pipelines.tracking import Tracking, how_to_look, tracking_uri

    title = name or without_password(" ".join(options.space))
    uri = tracking_uri(store.root)
    said = masked({"sweep": options.model_dump(mode="json") | {"name": title}, **exp.model_dump(mode="json")})
    named = f"sweep {title}, seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    cpus, gpus, room = share(options)
    plan.check_workers(1, gpus > 0)
    most = min(options.max_concurrent or room, room)  # the work of more would wait, and be taken for stalled
    settings = exp.model_dump(mode="json")
    proxy, stall = options.scheduler == "asha", full.resources.stall_minutes * 60
    job = Job(title, "", settings, store.root, uri, cpus, gpus, metric, proxy, stall, " ".join(map(str, seeds)))
    parent = Tracking(uri, exp.name, said, {}, named, None, tags_of(job))
    parent.end_left_over()
    run = parent.run_id or f"local-{time.time_ns()}"
    job = replace(job, run=run)
    count = len(tried) or options.samples
    if options.max_concurrent and options.max_concurrent > room:
        console.print(f"max_concurrent={options.max_concurrent}: the cluster has room for {room}", soft_wrap=True)
    if not full.quiet:
        said = f"{title}: {count} trials, {most} at a time, {cpus} CPU{'s' * (cpus > 1)} each"
        console.print(escape(said), soft_wrap=True)
    try:
        failed, early = tune_trials(job, tried, axes, options, most, console if not full.quiet else None)
        parent.end_trials()
        records = [record for record in read_records(store.root) if record.sweep.get("run") == run]
        made = summaries(records, [point.label for point in points])
        report(made, records, [*failed, *early], job, exp, full, console, parent)
    except BaseException:
        parent.fail()
        raise
    parent.finish([])
    console.print(f"\nCompare trials {escape(how_to_look(uri))}", soft_wrap=True)
    return 1 if failed else 0


def parsed(arguments: Sequence[str]) -> tuple[str | None, SweepOptions, Options]:
    """Name of the sweep, its options, and the experiment's as full.py has them."""
    name = arguments[0] if arguments and not arguments[0].startswith("-") else None
    if name is not None and name not in NAMED:
        raise ValueError(f"sweep={name!r}: unknown{nearest_name(name, NAMED)}; there are {', '.join(NAMED)}")
    options, rest = parse_known(SweepOptions, __doc__, arguments[1:] if name else arguments)
    return name, options, parse(__doc__, [options.preset, *rest])


def planned(exp: Experiment, tried: Sequence[tuple[Point, int]], store: Store, name: str | None = None) -> Plan:
    """All trials' stages, each once; raises what would fail hours later.

    Two points of one outcome would say that a setting makes no difference: the points of a named sweep must differ,
    those of --space are told.
    """
    whole = Plan(store)
    seen: set[str] = set()
    made: dict[tuple[int, frozenset[str]], str] = {}
    for point, seed in tried:
        plan = Plan(store)
        experiment(changed(exp, {**point.settings, "seed": seed}), plan)
        same = made.setdefault((seed, frozenset(step.artifact.key for step in plan.steps)), point.label)
        if same != point.label:
            said = f"{point.label!r} is the same experiment as {same!r}, since it uses none of what differs"
            if name is not None:
                raise ValueError(f"preset={exp.name}: {name}: {said}; use another preset, such as cifar100/bownet")
            whole.note(said)
        for step in plan.steps:
            if step.artifact.key not in seen:
                seen.add(step.artifact.key)
                whole.steps.append(step)
        for note in plan.notes:
            whole.note(note)
    return whole


def show_plan(plan: Plan, tried: Sequence[tuple[Point, int]], console: Console) -> None:
    table = Table(title=f"{len(tried)} trials", title_justify="left")
    table.add_column("point")
    table.add_column("seed", justify="right")
    for point, seed in tried:
        table.add_row(escape(point.label), str(seed))
    print_whole(table, console)
    plan.show(console)
    plan.check_room()


def report(
    made: Sequence[Summary],
    records: Sequence[Record],
    told: Sequence[str],
    job: Job,
    exp: Experiment,
    full: Options,
    console: Console,
    parent: Any,
) -> None:
    """Table, figure and JSON."""
    reduced = "" if exp.scale == "full" else f"Reduced scale ({exp.scale}). "
    title = f"{reduced}{job.sweep} on {exp.name}: scores of the last network in percent, ± 95% over seeds"
    if made:
        show(made, records, title, console)
    for line in told:
        console.print(escape(line), soft_wrap=True)
    if any(job.metric in point.scores for point in made):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sweep.png"
            draw(made, job.metric, f"{reduced}{job.sweep} on {exp.name}", path)
            parent.log_file(path)
            Folder(job.root).write_bytes(f"sweeps/{job.run}.png", path.read_bytes())
        console.print(f"figure: {escape(without_password(job.root))}/sweeps/{job.run}.png", soft_wrap=True)
    elif made:
        known = ", ".join(dict.fromkeys(name for point in made for name in point.scores if not name.endswith("_ci95")))
        line = f"no figure: no trial has {job.metric}; name another --metric: {known}"
        console.print(line, soft_wrap=True, markup=False)
    if full.json_file:
        said = {
            "sweep": job.sweep,
            "run": job.run,
            "scale": exp.scale,
            "points": masked([asdict(point) for point in made]),
            "told": list(told),
            "stages": [{"run": record.run, **stage} for record in records for stage in record.stages],
        }
        Path(full.json_file).write_text(json.dumps(said, indent=1) + "\n")


def main() -> int:
    return guarded(lambda console: sweep(sys.argv[1:], console))


if __name__ == "__main__":
    sys.exit(main())
