"""A report in other forms: Markdown, HTML, JUnit XML, a badge."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from pathlib import Path

from onnxplug_testkit.junit import junit
from onnxplug_testkit.matrix import MARKS, Report, facts, rows
from onnxplug_testkit.page import page


def markdown(data: Report) -> str:
    """The report in Markdown: facts, what failed or is waived, and the matrix with one row for each operator, version and parameter."""
    lines = [f"# Conformance of {data['provider']['name']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_escaped(text)} |" for name, text in facts(data)]
    wrong = [t for t in data["tests"] if t["status"] in ("failed", "waived", "expected")]
    if wrong:
        lines += ["", "## Failed and waived tests", "", "| test | status | why |", "|---|---|---|"]
        lines += [f"| `{_escaped(t['id'])}` | {t['status']} | {_escaped(t['detail'])[:300]} |" for t in wrong]
    if data["cells"]:
        lines += ["", "## Cells", "", f"{', '.join(f'{mark} {name}' for name, mark in MARKS.items())}", ""]
        lines += ["| operator | version | parameter | types |", "|---|---|---|---|"]
        for (name, version, parameter), cells in rows(data).items():
            types = " ".join(f"{text or '·'}&nbsp;{MARKS[cell['status']]}" for text, cell in sorted(cells.items()))
            lines.append(f"| {name} | {version} | {parameter or '·'} | {types} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return " ".join(str(text).replace("|", "\\|").split())


def badge(data: Report) -> str:
    """A badge (SVG) with the level and the verdict."""
    label, text = html.escape(f"onnxplug {data['level']}"), html.escape(str(data["verdict"]))
    colour = "#2a7d3f" if text.startswith("conformant") else "#8a6d00" if text in ("partial", "not_run") else "#b3261e"
    left, right = 7 * len(label) + 12, 7 * len(text) + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{label}: {text}">'
        f'<rect width="{left}" height="20" fill="#444"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14">{label}</text><text x="{left + right / 2:g}" y="14">{text}</text></g></svg>\n'
    )


FORMS: Mapping[str, Callable[[Report], str]] = {".md": markdown, ".html": page, ".svg": badge, ".xml": junit}
"""Renderings by the ending of the file."""


def save(data: Report, path: Path) -> None:
    """Write a rendering; its form is the ending of ``path``. ValueError for an ending that is none of FORMS."""
    form = FORMS.get(path.suffix)
    if form is None:
        raise ValueError(f"{path}: its ending is none of {', '.join(FORMS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(form(data), encoding="utf-8")
