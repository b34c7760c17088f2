"""A report as a page: operator x version x type in Markdown and in one self-contained HTML file, and a badge."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

Report = Mapping[str, Any]
MARKS = {"proven": "✓", "failed": "✗", "waived": "w", "unproven": "?"}
_WORST = ("failed", "unproven", "waived", "proven")


def _rows(data: Report) -> dict[tuple[str, int, str], dict[str, dict[str, Any]]]:
    """(operator, version, parameter) -> element or type -> cell."""
    rows: dict[tuple[str, int, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for cell in data["cells"]:
        name = f"{cell['domain']}.{cell['op_type']}" if cell["domain"] else cell["op_type"]
        rows[name, cell["version"], cell["parameter"]][short_type(cell["type"])] = cell
    return dict(sorted(rows.items()))


def short_type(text: str) -> str:
    """``float`` for ``tensor(float)``, other types as they are."""
    return text[7:-1] if text.startswith("tensor(") else text


def _facts(data: Report) -> list[tuple[str, str]]:
    counts = data["counts"]
    tests = ", ".join(f"{n} {status}" for status, n in counts["tests"].items())
    cells = ", ".join(f"{n} {status}" for status, n in counts["cells"].items() if n) or "0 cells"
    made = data["distribution"]
    return [
        ("verdict", data["verdict"]),
        ("level", data["level"] + (f", profile {data['profile']}" if data["profile"] else "")),
        ("distribution", f"{made['name']} {made['version']}".strip() or "registered in process"),
        ("device", data["devices"]["check"]),
        ("contract", f"{data['contract']}, kit {data['kit']}, onnx {data['machine']['onnx']}"),
        ("tests", tests),
        ("cells", cells),
        ("seed", str(data["seed"])),
        ("time", data["time"]),
    ]


def markdown(data: Report) -> str:
    """The report in Markdown: facts, what failed or is waived, and the matrix with one row for each operator, version and parameter."""
    lines = [f"# Conformance of {data['provider']['name']}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_escaped(text)} |" for name, text in _facts(data)]
    wrong = [t for t in data["tests"] if t["status"] in ("failed", "waived", "expected")]
    if wrong:
        lines += ["", "## Failed and waived tests", "", "| test | status | why |", "|---|---|---|"]
        lines += [f"| `{_escaped(t['id'])}` | {t['status']} | {_escaped(t['detail'])[:300]} |" for t in wrong]
    if data["cells"]:
        lines += ["", "## Cells", "", f"{', '.join(f'{mark} {name}' for name, mark in MARKS.items())}", ""]
        lines += ["| operator | version | parameter | types |", "|---|---|---|---|"]
        for (name, version, parameter), cells in _rows(data).items():
            types = " ".join(f"{text or '·'}&nbsp;{MARKS[cell['status']]}" for text, cell in sorted(cells.items()))
            lines.append(f"| {name} | {version} | {parameter or '·'} | {types} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return " ".join(str(text).replace("|", "\\|").split())


def page(data: Report) -> str:
    """The report as one HTML file without references, readable in both colour schemes, filterable by operator, type and status."""
    body = []
    for (name, version, parameter), cells in _rows(data).items():
        shown = "".join(_cell(text, cell) for text, cell in sorted(cells.items()))
        worst = next(s for s in _WORST if any(c["status"] == s for c in cells.values()))
        body.append(
            f'<tr data-status="{worst}"><th scope="row">{html.escape(name)}</th><td>{version}</td>'
            f"<td>{html.escape(parameter)}</td><td>{shown}</td></tr>"
        )
    facts = "".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in _facts(data))
    tests = "".join(
        f"<tr><td><code>{html.escape(t['id'])}</code></td><td>{t['status']}</td><td>{html.escape(t['detail'])}</td></tr>"
        for t in data["tests"]
        if t["status"] != "passed"
    )
    template = resources.files(__package__ or "onnxplug_testkit").joinpath("page.html").read_text(encoding="utf-8")
    fields = {"TITLE": html.escape(data["provider"]["name"]), "FACTS": facts, "TESTS": tests, "CELLS": "\n".join(body)}
    for name, text in fields.items():
        template = template.replace(f"<!--{name}-->", text)
    return template


def _cell(text: str, cell: Mapping[str, Any]) -> str:
    hint = f"{cell['status']}: {cell['tests']} tests, worst {cell['worst_ulp']:.3g} ULP, {', '.join(cell['oracles']) or 'no oracle'}"
    hint += "".join(f"; {r}" for r in (*cell["waivers"], *cell["reasons"]))
    shown = f"{html.escape(text) or '·'} {MARKS[cell['status']]}"
    return f'<span class="{cell["status"]}" title="{html.escape(hint, quote=True)}">{shown}</span> '


def badge(data: Report) -> str:
    """A badge (SVG) with the level and the verdict."""
    label, text = f"onnxplug {data['level']}", str(data["verdict"])
    colour = "#2a7d3f" if text.startswith("conformant") else "#8a6d00" if text in ("partial", "not_run") else "#b3261e"
    left, right = 7 * len(label) + 12, 7 * len(text) + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{label}: {text}">'
        f'<rect width="{left}" height="20" fill="#444"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        f'<g fill="#fff" font-family="Verdana,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14">{label}</text><text x="{left + right / 2:g}" y="14">{text}</text></g></svg>\n'
    )


FORMS: Mapping[str, Callable[[Report], str]] = {".md": markdown, ".html": page, ".svg": badge}
"""Renderings by the ending of the file."""
