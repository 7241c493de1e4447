"""Fills the reference pages from the code, when the documentation is built: settings, command lines, stages, tables."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import pkgutil
import textwrap
import types
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    for mark, made in MARKS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, made())
    return markdown


def settings() -> str:
    from bownet.config import Experiment
    from pipelines.command_line import Running

    seen: dict[type[BaseModel], str] = {}
    return "\n".join([*_of_model(Experiment, "", seen), *_of_model(Running, "", seen)])


def command_lines() -> str:
    """Each program with what stands at its top, and its own options; those of an experiment are on another page."""
    from bownet.config import Evaluation
    from pipelines import evaluate, export, figures, full, report, sweep
    from pipelines.command_line import Running
    from pipelines.figure_kinds import KINDS
    from pipelines.figures import FigureOptions
    from pipelines.report import ReportOptions
    from pipelines.store import command_line as store
    from pipelines.sweeps.options import SweepOptions

    programs: list[tuple[Any, type[BaseModel]]] = [
        (full, Running),
        (evaluate, Evaluation),
        (sweep, SweepOptions),
        (report, ReportOptions),
        (figures, FigureOptions),
    ]
    lines = []
    for program, options in programs:
        lines += _of_program(program)
        lines += [f"KIND is one of {', '.join(f'`{kind}`' for kind in KINDS)}.", ""] * (program is figures)
        lines += _of_model(options, "--", {}, heading=False, deep=options is not Evaluation)
        lines += [OF_FULL, ""] * (program is evaluate)
    lines += [*_of_program(export), *_of_parser(export.parser())]
    lines += [*_of_program(store), *_of_parser(store.parser())]
    return "\n".join(lines)


OF_FULL = """Those of `full.py`, too; and the settings of images and of evaluators, such as `--data.path` and
`--fewshot.episodes`, which are those of an experiment ([Settings](settings.md))."""


def _of_program(program: Any) -> list[str]:
    """Its name, and what stands at its top: commands, and paragraphs."""
    title, _, more = inspect.cleandoc(program.__doc__ or "").partition("\n")
    name = program.__name__
    called = "python -m pipelines.store" if "store" in name else f"{name.rpartition('.')[2]}.py"
    lines = [f"## {called}", "", _text(title), ""]
    for paragraph in more.strip().split("\n\n"):
        lines += ["```", paragraph, "```", ""] if paragraph.startswith("python ") else [_text(paragraph), ""]
    return lines


def _of_parser(parser: argparse.ArgumentParser) -> list[str]:
    """A table of the options of a program that has argparse, and of those of its commands."""
    lines, commands = [], {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands |= {
                name: (one, action._choices_actions[i]) for i, (name, one) in enumerate(action.choices.items())
            }
        elif action.dest != "help":
            name = action.option_strings[-1] if action.option_strings else action.dest.upper()
            lines.append(f"| `{name}` | {_cell(action.help or '')} |")
    table = ["| option | |", "| --- | --- |", *lines, ""] if lines else []
    for name, (one, action) in commands.items():
        table += [f"`{name}`: {action.help}.", "", *_of_parser(one)]
    return table


def tables() -> str:
    """Every row of the paper's tables, and what makes it."""
    from pipelines.paper.tables import paper_tables

    lines = []
    for table in paper_tables():
        lines += [f"### {NUMBERS[table.key]}: {table.caption}", "", "| row | network of a preset |", "| --- | --- |"]
        for row in table.rows:
            presets: dict[str, list[str]] = {}
            for source in row.sources:
                presets.setdefault(source.model, []).append(f"`{source.preset}`")
            made = "; ".join(f"{model} of {', '.join(names)}" for model, names in presets.items())
            lines.append(f"| {_cell(row.name)} | {made or 'quoted by the paper'} |")
        lines.append("")
    return "\n".join(lines)


NUMBERS = {  # as the paper counts its tables
    "cifar100": "Table 1",
    "miniimagenet": "Table 2",
    "miniimagenet_base_convnet": "Table 3",
    "voc07_svm": "Table 4",
    "imagenet_places_linear": "Tables 5 and 10",
    "voc_detection": "Table 6",
    "cifar100_vocabulary_size": "Table 7",
    "cifar100_ablations": "Table 8",
    "imagenet_small_scale": "Table 9",
}


def stages() -> str:
    """Every stage: its name in the store, its version, and what its file says of it."""
    from pipelines import stages as package
    from pipelines.store import Stage

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    rows = []
    for stage in _below(Stage):
        if isinstance(getattr(stage, "name", None), str) and stage.__module__.startswith(package.__name__):
            module = importlib.import_module(stage.__module__)
            about = _cell(inspect.cleandoc(module.__doc__ or "").partition("\n")[0].partition(": ")[2])
            file = stage.__module__.replace(".", "/") + ".py"
            rows.append(f"| `{stage.name}` | {stage.version} | {about} | `{file}` |")
    return "\n".join(["| stage | version | | file |", "| --- | --- | --- | --- |", *sorted(rows)])


def _below(one: type[Any]) -> Iterator[type[Any]]:
    for inner in one.__subclasses__():
        yield inner
        yield from _below(inner)


MARKS: dict[str, Callable[[], str]] = {
    "<!-- settings from the code -->": settings,
    "<!-- command lines from the code -->": command_lines,
    "<!-- stages from the code -->": stages,
    "<!-- the paper's tables from the code -->": tables,
}


def _bounds(field: Any) -> str:
    from pipelines.command_line import bounds_of

    found = bounds_of(field)
    return f"({found})" if found else ""


def _of_model(
    model: type[BaseModel], prefix: str, seen: dict[type[BaseModel], str], heading: bool = True, deep: bool = True
) -> list[str]:
    """A table of a model's own settings, then one for each model within it."""
    title = f"`{prefix.rstrip('.')}`" if prefix else f"`{model.__name__}`"
    if model in seen:
        return [f"## {title}", "", f"The same settings as {seen[model]}.", ""]
    seen[model] = title
    about = _text(inspect.getdoc(model) or "").partition("\n")[0]
    told, lines, inner = _docstrings(model), [], []
    for name, field in sorted(model.model_fields.items(), key=lambda item: _place(model, *item)):
        models = [part for part in _parts(field.annotation) if inspect.isclass(part) and issubclass(part, BaseModel)]
        if models:
            inner += [(one, f"{prefix}{name}.") for one in models if deep]
            continue
        named = next((one.name for one in field.metadata if getattr(one, "name", None)), name)  # by tyro.conf.arg
        value = None if field.is_required() else field.get_default(call_default_factory=True)
        default = "" if field.is_required() else _default(value)
        if prefix.startswith("--"):  # as --help has it
            named = named.replace("_", "-")
            named += f"`, `{prefix}no-{named}" if value is True else ""
        kind = " ".join(filter(None, (_type(field.annotation), _bounds(field))))
        lines.append(f"| `{prefix}{named}` | {kind} | {default} | {_cell(told.get(name, ''))} |")
    table = ["| setting | | default | |", "| --- | --- | --- | --- |", *lines, ""] if lines else []
    made = [f"## {title}", "", about, "", *table] if heading else table
    for one, where in inner:
        made += _of_model(one, where, seen, heading, deep)
    return made


def _place(model: type[BaseModel], name: str, field: Any) -> tuple[bool, bool]:
    """A model's own settings before those that it has from others; what is usually not there comes last."""
    return name not in inspect.get_annotations(model), field.default is None


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """What stands below each field, of this model and of those that it extends."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not issubclass(one, BaseModel) or one is BaseModel:
            continue
        (defined,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        assert isinstance(defined, ast.ClassDef)
        for field, below in pairwise(defined.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = " ".join(text.split())
    return found


def _parts(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Annotated:
        return _parts(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for one in get_args(annotation) for part in _parts(one)]
    return [annotation]


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    parts = [part for part in _parts(annotation) if part is not type(None)]
    if type(None) in _parts(annotation):
        return " or ".join([*map(_type, parts), "None"])
    if len(parts) > 1:
        return " or ".join(map(_type, parts))
    annotation = parts[0]
    if get_origin(annotation) is Literal:
        return _type(annotation)
    if get_origin(annotation) is tuple:
        first, *others = get_args(annotation)
        many = "any number of " if others == [...] else f"{len(others) + 1} times "
        return many + _type(first)
    return f"`{getattr(annotation, '__name__', str(annotation)).replace('typing.', '')}`".replace("|", "or")


def _default(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def _text(text: str) -> str:
    """As Markdown; what stands between backticks is as it is."""
    return "`".join(part if i % 2 else part.replace("<", "&lt;") for i, part in enumerate(text.split("`")))


def _cell(text: str) -> str:
    """In a table."""
    return _text(text).replace("|", "\\|")


if __name__ == "__main__":
    print(settings(), end="")
