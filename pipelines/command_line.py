"""From arguments to settings: tyro makes the command line from the models; mistakes are answered in one line.

A mistake raises ValueError with the field, the value and the remedy.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from textwrap import indent
from typing import Annotated, Any, TypeVar

import tyro
from pydantic import BaseModel, ValidationError

from bownet.config import KINDS, Evaluation, Experiment, Settings
from pipelines.machine import Resources
from pipelines.paper.listing import show_list, show_overview
from pipelines.presets import PRESETS
from pipelines.progress import new_console
from pipelines.scale import of_kind, reduced


class Running(Settings):
    """How to run it. Nothing here decides a result."""

    store: str = "store"
    """Folder or URI (s3://, gs://) where results and everything on the way to them are kept."""
    json_file: Annotated[str | None, tyro.conf.arg(name="json", metavar="FILE")] = None
    """Also write the results to this file."""
    dry_run: bool = False
    """Show the plan, with what is cached and what is to do, and start nothing."""
    quiet: bool = False
    """Print the results only."""
    figures: bool = True
    """Draw figures of words and features, and a page with all that a run has found."""
    debug: bool = False
    """Show a traceback with an error."""
    resources: Resources = Resources()


class Options(Running):
    """An experiment, and how to run it. Only the experiment decides the results."""

    experiment: Annotated[tyro.conf.FlagConversionOff[Experiment], tyro.conf.arg(name="")]


class EvaluationOptions(Running):
    """An evaluation, and how to run it. Only the evaluation decides the results."""

    experiment: Annotated[tyro.conf.FlagConversionOff[Evaluation], tyro.conf.arg(name="")] = Evaluation()


AnyOptions = TypeVar("AnyOptions", Options, EvaluationOptions)
AnySettings = TypeVar("AnySettings", bound=Settings)


def parse(description: str | None, arguments: Sequence[str]) -> Options:
    """The options that the arguments ask for. `--help` and `--list` print and exit 0; a mistake raises ValueError."""
    arguments = _plain_values(arguments)
    if arguments and arguments[0] in ("-h", "--help", "--list"):
        show = show_overview if arguments[0] != "--list" else show_list
        show(description or "", new_console())
        raise SystemExit(0)
    if not arguments or arguments[0].startswith("-"):
        raise ValueError("no preset named: it is the first argument, such as demo; --list shows them all")
    preset, rest = arguments[0], arguments[1:]
    if preset not in PRESETS:
        raise ValueError(f"preset={preset!r}: unknown{nearest_name(preset, PRESETS)}; --list shows them all")
    start = Options.model_construct(experiment=start_of(preset, rest))
    program = f"{os.path.basename(sys.argv[0])} {preset}"
    with _complaints() as complaint:
        return tyro.cli(
            Options,
            prog=program,
            description=_with_its_lines(description),
            default=start,
            args=rest,
            config=(tyro.conf.AvoidSubcommands,),
        )
    _explain(start, rest)
    raise ValueError(_plain(complaint.getvalue()))  # a mistake that we have no better words for


def start_of(preset: str, arguments: Sequence[str] = ()) -> Experiment:
    """The preset at the scale, and for the kind of data, that the arguments name: all else is set on top of it."""
    exp = PRESETS[preset]()
    match _last_value(arguments, "--scale"):
        case "small" if exp.scale == "tiny":
            raise ValueError(f"scale=small: {preset} is tiny by itself, use another preset")
        case "small" | "tiny" as scale if scale != exp.scale:  # what is small already stays as it is
            exp = reduced(exp, scale)
        case "full" if exp.scale != "full":
            raise ValueError(f"scale=full: {preset} is {exp.scale} by itself, use a preset of the paper")
    kind = _last_value(arguments, "--data.kind")
    return of_kind(exp, kind) if kind is not None and kind in KINDS else exp


def _last_value(arguments: Sequence[str], name: str) -> str | None:
    """What a setting is given, as `--name value` or `--name=value`; None if it is not."""
    found = None
    for i, argument in enumerate(arguments):
        if argument.partition("=")[0] == name:
            found = argument.partition("=")[2] or "".join(arguments[i + 1 : i + 2])
    return found


def parse_evaluation(description: str | None, arguments: Sequence[str]) -> EvaluationOptions:
    """The same without presets: every argument is a setting."""
    arguments = _plain_values(arguments)
    with _complaints() as complaint:
        return tyro.cli(EvaluationOptions, description=_with_its_lines(description), args=arguments)
    _explain(EvaluationOptions(), arguments)
    raise ValueError(_plain(complaint.getvalue()))


def parse_settings(model: type[AnySettings], description: str | None, arguments: Sequence[str]) -> AnySettings:
    """The settings of a program that has no experiment."""
    with _complaints() as complaint:
        return tyro.cli(model, description=_with_its_lines(description), args=_plain_values(arguments))
    raise ValueError(_plain(complaint.getvalue()))


def parse_known(
    model: type[AnySettings], description: str | None, arguments: Sequence[str]
) -> tuple[AnySettings, list[str]]:
    """The settings of a program, and the arguments that are for something else."""
    arguments = _plain_values(arguments)
    with _complaints() as complaint:
        return tyro.cli(model, description=_with_its_lines(description), args=arguments, return_unknown_args=True)
    raise ValueError(_plain(complaint.getvalue()))


def _with_its_lines(description: str | None) -> str:
    """Commands at the top of a program stay in lines of their own: tyro joins lines that are not indented."""
    paragraphs = (description or "").split("\n\n")
    return "\n\n".join(indent(text, "  ") if text.startswith("python ") else text for text in paragraphs)


def _plain_values(arguments: Sequence[str]) -> list[str]:
    return [{"true": "True", "false": "False"}.get(a, a) for a in arguments]


@contextlib.contextmanager
def _complaints() -> Iterator[io.StringIO]:
    """Keeps what tyro has to say about a mistake, for us to say it in one line; `--help` ends the program."""
    complaint = io.StringIO()
    tyro._experimental_options["ansi_codes"] = not os.environ.get("NO_COLOR")
    try:
        with contextlib.redirect_stderr(complaint):
            yield complaint
    except SystemExit as exit:
        if exit.code == 0:
            raise
    except ValidationError:  # of the outermost model, which tyro leaves to us
        pass


def _explain(start: AnyOptions, arguments: Sequence[str]) -> None:
    """Find the mistake by our own means and raise it in one line; return if there is none to be found."""
    options: dict[str, Any] = start.model_dump()
    settings = {**options.pop("experiment"), **options}
    settings["json"] = settings.pop("json_file")
    known = _names(settings)
    flags = {"--dry-run", "--quiet", "--figures", "--debug"}
    known |= {flag[2:].replace("-", "_") for flag in flags} | {"no_" + flag[2:].replace("-", "_") for flag in flags}
    given: dict[str, list[str]] = {}
    for argument in arguments:
        if re.match(r"--?[A-Za-z]", argument):
            name, _, value = argument.lstrip("-").partition("=")
            name = name.replace("-", "_")
            if name not in known:
                hint = nearest_name(name.replace("_", "-"), {n.replace("_", "-") for n in known}, "--")
                raise ValueError(f"{argument.partition('=')[0]}: unknown setting{hint}")
            given[name] = [value] if value else []
        elif not given:
            raise ValueError(f"{argument!r}: expected a setting such as --data.image-size 32")
        else:
            given[next(reversed(given))].append(argument)
    for name, values in given.items():
        *path, leaf = name.split(".")
        here = settings
        for part in path:
            here = here[part]
        old = here.get(leaf)
        here[leaf] = (
            values if isinstance(old, tuple) else [None if v == "None" else v for v in values][-1] if values else old
        )
    experiment = {name: settings[name] for name in type(start.experiment).model_fields}
    try:
        type(start).model_validate({"experiment": experiment, "resources": settings["resources"]})
    except ValidationError as error:
        raise ValueError(in_one_line(error, type(start))) from None


def in_one_line(error: ValidationError, model: type[BaseModel]) -> str:
    """`vocabulary.size=70000: use 2..65536 (Number of visual words K)` from a validation error."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"] if isinstance(part, str)]
    field = field_of(model, path)
    path = path[1:] if path[:1] == ["experiment"] else path  # as on the command line; empty for a rule of the whole
    where = ".".join(path)
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error" and "=" in reason.partition(":")[0]:
        return f"{where}.{reason}" if where else reason  # our own text, which starts with field=value
    if field is not None and first["type"] not in ("value_error", "literal_error", "extra_forbidden"):
        bounds = bounds_of(field)
        kind = {"int_parsing": "a whole number", "float_parsing": "a number", "bool_parsing": "True or False"}
        wanted = [kind[first["type"]]] if first["type"] in kind else []
        wanted += [bounds] if bounds else []
        about = (field.description or "").split(". ")[0].rstrip(".")
        if wanted:
            return f"{where}={first['input']}: use {', '.join(wanted)}{f' ({about})' if about else ''}"
    return f"{where}={first['input']}: {reason}" if where else reason


def nearest_name(name: str, known: Any, prefix: str = "") -> str:
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f", did you mean {prefix}{found[0]}?" if found else ""


def bounds_of(field: Any) -> str:
    """The range of a numeric field in words, from its constraints, also where it may be None."""
    limits: dict[str, Any] = {}
    annotations = [*getattr(field.annotation, "__args__", ())]
    extra = [m for a in annotations for m in getattr(a, "__metadata__", ())]
    for item in [*field.metadata, *extra]:
        for constraint in [item, *getattr(item, "metadata", ())]:
            limits |= {
                k: getattr(constraint, k) for k in ("ge", "gt", "le", "lt") if getattr(constraint, k, None) is not None
            }
    low = f"{limits['ge']}" if "ge" in limits else f"more than {limits['gt']}" if "gt" in limits else ""
    high = f"{limits['le']}" if "le" in limits else f"less than {limits['lt']}" if "lt" in limits else ""
    if "ge" in limits and "le" in limits:
        return f"{low}..{high}"
    if "ge" in limits and not high:
        return f"{low} or more"
    return " and ".join(part for part in (low, f"at most {high}" if "le" in limits else high) if part)


def field_of(model: type[BaseModel], path: Sequence[str]) -> Any:
    """The field that a dotted name leads to; None if there is none."""
    field = None
    for part in path:
        if part not in model.model_fields:
            return None
        field = model.model_fields[part]
        if isinstance(inner := field.annotation, type) and issubclass(inner, BaseModel):
            model = inner
    return field


def _names(settings: dict[str, Any], prefix: str = "") -> set[str]:
    names: set[str] = set()
    for name, value in settings.items():
        names |= _names(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name}
    return names


def _plain(box: str) -> str:
    """tyro's message without its frame, in one line, and without its title, which says what the first sentence does."""
    inside = [line for line in box.splitlines() if not line.startswith("╭")]
    parts = "\n".join(re.sub(r"[╰╯│]", "", line).strip() for line in inside)
    said = [" ".join(part.split()).rstrip(".") for part in re.split(r"─+", parts)]
    return "; ".join(part for part in said if part).replace("; For full helptext", "; for full helptext")
