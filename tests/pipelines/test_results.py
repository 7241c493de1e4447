"""The table at the end: as wide as the terminal, and no wider."""

from typing import Any

from rich.console import Console

from pipelines.results import marked, show_results

ROWS: list[dict[str, Any]] = [
    {
        "name": name,
        "metrics": {f"fewshot/{n}shot": 20.0 + n for n in (1, 5, 10, 50)} | {"linear/top1": top1},
        "protocol": {},
    }
    for name, top1 in (("RotNet [a]", 38.64), ("BoWNet", 50.0))
]


def shown(width: int) -> list[str]:
    console = Console(width=width, force_terminal=False)
    with console.capture() as printed:
        show_results(ROWS, console)
    return [" ".join(line.replace("│", " ").split()) for line in printed.get().splitlines()]


def test_a_line_for_each_model_where_there_is_room() -> None:
    assert "RotNet [a] 38.6 21.0 25.0 30.0 70.0" in shown(120)
    assert "BoWNet 50.0 21.0 25.0 30.0 70.0" in shown(120)


def test_a_line_for_each_score_where_there_is_none() -> None:
    lines = shown(50)
    assert "linear top1 38.6 50.0" in lines
    assert "50-shot 70.0 70.0" in lines
    assert not any("…" in line for line in lines)


def test_every_footnote_has_a_mark_of_its_own() -> None:
    rows = [{"name": f"net {i}", "protocol": {"linear": {"solver": {"epochs": i}}}} for i in range(12)]
    marks, notes = marked(rows)
    assert [marks[f"net {i}", "linear"] for i in range(1, 12)] == (
        [" *", " †", " ‡", " §", " ¶", " **", " ††", " ‡‡", " §§", " ¶¶", " ***"]
    )
    assert notes[5] == "** linear made otherwise than for net 0: solver.epochs 6 instead of 0"
