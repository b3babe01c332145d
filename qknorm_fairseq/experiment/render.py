"""The tables as Markdown, LaTeX, CSV and for a terminal."""

import csv
import io
import re

from tabulate import tabulate

from qknorm_fairseq.experiment.comparisons import Results
from qknorm_fairseq.experiment.tables import Section, sections, title
from qknorm_fairseq.experiment.tidy import COLUMNS, tidy

ON_A_TERMINAL = ("factorial", "arms", "options", "missing")  # the others are in the files


def terminal(results: Results) -> str:
    """The tables that answer, and the answer in words last."""
    parts = [title(results)]
    for section in sections(results):
        if section.key in ON_A_TERMINAL:
            heading = [section.title] if section.key in ("options", "missing") else []
            parts += [*heading, _body(section, "simple"), "\n".join(section.notes)]
    return "\n\n".join(part for part in [*parts, results["verdict"]] if part)


def markdown(results: Results) -> str:
    """Every table with its notes."""
    parts = [f"# {title(results)}", results["verdict"]]
    for section in sections(results):
        parts += [f"## {section.title}", as_markdown(section)]
    return "\n\n".join(parts) + "\n"


def as_markdown(section: Section) -> str:
    """A table and its notes."""
    notes = "\n".join(f"- {note}" for note in section.notes)
    return f"{_body(section, 'github')}\n\n{notes}".strip()


def latex(results: Results) -> str:
    """Every table as a float with booktabs' rules, to be \\input."""
    parts = [
        f"% {title(results)}",
        "% needs \\usepackage{booktabs}",
        _escape(results["verdict"]),
    ]
    for section in sections(results):
        notes = "".join(f" {note}." for note in section.notes)
        caption = _escape(f"{title(results)}. {section.title}.{notes}")
        parts.append(
            "\\begin{table}[t]\n\\centering\\small\n"
            f"{_body(section, 'latex_booktabs')}\n"
            f"\\caption{{{caption}}}\n"
            f"\\label{{tab:{results['pair']}-{section.key}}}\n"
            "\\end{table}"
        )
    return "\n\n".join(_in_tex(part) for part in parts) + "\n"


def comma_separated(results: Results) -> str:
    """A row a figure, its columns those of :data:`COLUMNS`."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(tidy(results))
    return file.getvalue()


def _body(section: Section, style: str) -> str:
    figures = len(section.headers) - section.text_columns
    return tabulate(
        section.rows,
        section.headers,
        tablefmt=style,
        colalign=["left"] * section.text_columns + ["right"] * figures,
        disable_numparse=True,
    )


def _escape(text: str) -> str:
    """TeX's own characters, as tabulate escapes them in cells."""
    text = text.replace("\\", r"\textbackslash ")
    text = re.sub(r"([&%$#_{}])", r"\\\1", text).replace("|", r"\textbar{}")
    return text.replace("~", r"\textasciitilde ").replace("^", r"\textasciicircum ")


SIGNS = {"±": r"$\pm$", "−": "$-$", "×": r"$\times$", "·": r"$\cdot$", "–": "--", "<": "$<$"}


def _in_tex(text: str) -> str:
    """Mathematical signs in mathematics."""
    text = text.replace(r"\ensuremath{<}", "<")
    for sign, tex in SIGNS.items():
        text = text.replace(sign, tex)
    return re.sub(r"(?<=[ (])-(?=\d)", "$-$", text)
