"""A report as LaTeX: tables for a document with booktabs, in the layout of the paper's."""

from __future__ import annotations

from itertools import groupby

from pipelines.reporting.model import LEGEND, MORE, Cell, Report, ReportTable, RunLink, more, numbered, text

_MARKS = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$"}
_MARKS |= {mark: f"\\{mark}" for mark in "&%$#_{}"}
_MARKS |= {"<": r"\textless{}", ">": r"\textgreater{}", "√": r"$\surd$"}
_MARKS |= {"†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}", "¶": r"\P{}"}  # of footnotes


def as_latex(report: Report) -> str:
    numbers = numbered(report)
    parts = ["% needs \\usepackage{booktabs}", f"\\section*{{{plain(report.title)}}}", plain(LEGEND)]
    parts += [_table(table, numbers) for table in report.tables]
    parts += _items([plain(note) for note in report.notes])
    runs = [f"[{n}] \\texttt{{{plain(', '.join(one.run for one in some))}}}" for some, n in numbers.items()]
    parts += ["\\subsection*{Runs}", *_items(runs)] if runs else []
    return "\n\n".join(parts) + "\n"


def plain(words: str) -> str:
    return "".join(_MARKS.get(letter, letter) for letter in words)


def _items(lines: list[str]) -> list[str]:
    # braces around: an item that begins with a bracket would be a label
    return ["\n".join(["\\begin{itemize}", *(f"\\item {{{x}}}" for x in lines), "\\end{itemize}"])] if lines else []


def _table(table: ReportTable, numbers: dict[tuple[RunLink, ...], int]) -> str:
    n = len(table.columns)
    above = [(group, len([*columns])) for group, columns in groupby(table.columns, lambda column: column.group)]
    lines = [
        "\\begin{table}[t]",
        "\\centering\\small",
        f"\\begin{{tabular}}{{ll|{'c' * n}|{'l' * len(MORE)}}}",
        "\\toprule",
    ]
    if any(group for group, _ in above):
        spans = " & ".join(f"\\multicolumn{{{count}}}{{c}}{{{plain(group)}}}" for group, count in above)
        lines.append(f" & & {spans}{' &' * len(MORE)} \\\\")
    lines += [
        f"Method & & {' & '.join([*(plain(c.title) for c in table.columns), *map(str.capitalize, MORE)])} \\\\",
        "\\midrule",
    ]
    for row in table.rows:
        for i, line in enumerate(row.lines):
            cells = " & ".join(_cell(cell, numbers) for cell in line.cells)
            said = " & ".join(plain(word) for word in more(line))
            lines.append(f"{plain(row.name) if i == 0 else ''} & {line.who} & {cells} & {said} \\\\")
    lines += ["\\bottomrule", "\\end{tabular}", f"\\caption{{{plain(table.title)}}}", "\\end{table}"]
    return "\n".join([*lines, *_items([plain(note) for note in table.notes])])


def _cell(cell: Cell | None, numbers: dict[tuple[RunLink, ...], int]) -> str:
    number = f"\\,$^{{[{numbers[cell.runs]}]}}$" if cell is not None and cell.runs else ""
    return plain(text(cell)) + number
