"""Fills the reference pages from the code, when the documentation is built: settings, command lines, stages."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union, get_args, get_origin

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
    from pipelines import evaluate, figures, full, report, sweep
    from pipelines.command_line import Running
    from pipelines.figures import FigureOptions
    from pipelines.report import ReportOptions
    from pipelines.sweeps.options import SweepOptions

    programs: list[tuple[Any, type[BaseModel]]] = [
        (full, Running),
        (evaluate, Running),
        (sweep, SweepOptions),
        (report, ReportOptions),
        (figures, FigureOptions),
    ]
    lines = []
    for program, options in programs:
        title, _, more = inspect.cleandoc(program.__doc__ or "").partition("\n")
        name = program.__name__.rpartition(".")[2]
        lines += [f"## {name}.py", "", title, "", "```", more.strip(), "```", ""]
        lines += _of_model(options, "--", {}, heading=False)
    return "\n".join(lines)


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
            about = _plain(inspect.cleandoc(module.__doc__ or "").partition("\n")[0].partition(": ")[2])
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
}


def _of_model(model: type[BaseModel], prefix: str, seen: dict[type[BaseModel], str], heading: bool = True) -> list[str]:
    """A table of a model's own settings, then one for each model within it."""
    title = f"`{prefix.rstrip('.')}`" if prefix else f"`{model.__name__}`"
    if model in seen:
        return [f"## {title}", "", f"The same settings as {seen[model]}.", ""]
    seen[model] = title
    about = _plain(inspect.getdoc(model) or "").partition("\n")[0]
    told, lines, inner = _docstrings(model), [], []
    for name, field in sorted(model.model_fields.items(), key=lambda item: _place(model, *item)):
        models = [part for part in _parts(field.annotation) if inspect.isclass(part) and issubclass(part, BaseModel)]
        if models and name != "experiment":
            inner += [(one, f"{prefix}{name}.") for one in models]
            continue
        if name == "experiment":
            continue
        default = "" if field.is_required() else f"`{_short(field.get_default(call_default_factory=True))}`"
        shown = name.replace("_", "-") if prefix.startswith("--") else name  # as --help has it
        lines.append(f"| `{prefix}{shown}` | {_type(field.annotation)} | {default} | {_plain(told.get(name, ''))} |")
    table = ["| setting | | default | |", "| --- | --- | --- | --- |", *lines, ""] if lines else []
    made = [f"## {title}", "", about, "", *table] if heading else table
    for one, where in inner:
        made += _of_model(one, where, seen, heading)
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
        source = textwrap.dedent(inspect.getsource(one))
        for name, text in re.findall(
            r'^    (\w+): [^\n]*?\n(?:        [^\n]*\n|    \)[^\n]*\n)*    """(.*?)"""', source, re.M | re.S
        ):
            found[name] = " ".join(text.split())
    return found


def _parts(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [part for one in get_args(annotation) for part in _parts(one)]
    return [annotation]


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    parts = [part for part in _parts(annotation) if part is not type(None)]
    if len(parts) == 1 and parts[0] is not annotation:
        return f"{_type(parts[0])} or None"
    return f"`{getattr(annotation, '__name__', str(annotation)).replace('typing.', '')}`".replace("|", "or")


def _short(value: Any) -> str:
    return str(value).replace("|", "\\|")


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(settings(), end="")
