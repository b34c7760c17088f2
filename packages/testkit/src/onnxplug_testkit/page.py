"""A report as one self-contained HTML page: facts, what did not simply pass, and the matrix with filters."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from onnxplug.contract.types import ELEMENT_NAMES
from onnxplug_testkit.matrix import MARKS, Report, facts, rows

OTHER = "other"
"""The column of types that are no dense tensors: sequences, optionals, maps."""


def page(data: Report) -> str:
    """The page, without references to anything outside, readable in both colour schemes; filters by words, status and type."""
    template = resources.files("onnxplug_testkit").joinpath("page.html").read_text(encoding="utf-8")
    matrix = rows(data)
    present = {text for cells in matrix.values() for text in cells}
    columns = [name for name in ELEMENT_NAMES.values() if name in present]
    columns += [OTHER] if present - set(columns) else []
    fields = {
        "TITLE": html.escape(data["provider"]["name"]),
        "VERDICT": f'<strong class="{_tone(data["verdict"])}">{html.escape(data["verdict"])}</strong>',
        "FACTS": "".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in facts(data)[1:]),
        "TESTS": "\n".join(_tests(data)),
        "STATUSES": "".join(
            f'<option value="{status}">{mark} {status} ({data["counts"]["cells"].get(status, 0)})</option>'
            for status, mark in MARKS.items()
        ),
        "TYPES": "".join(f"<option>{name}</option>" for name in columns),
        "HEADS": "".join(f'<th scope="col"><span>{name}</span></th>' for name in columns),
        "CELLS": "\n".join(_row(key, cells, columns) for key, cells in matrix.items()),
    }
    for name, text in fields.items():
        template = template.replace(f"<!--{name}-->", text)
    return template


def _tone(verdict: str) -> str:
    if verdict.startswith("conformant"):
        return "proven"
    return "waived" if verdict in ("partial", "not_run") else "failed"


def _tests(data: Report) -> Iterator[str]:
    """Failed ones first, then waived ones, then what is not supported."""
    tones = {"failed": "failed", "expected": "waived", "waived": "waived", "unsupported": "weak"}
    order = list(tones)
    for test in sorted((t for t in data["tests"] if t["status"] in tones), key=lambda t: order.index(t["status"])):
        tone = tones[test["status"]]
        yield (
            f'<tr><th scope="row"><code>{html.escape(test["id"])}</code></th><td class="{tone}">{test["status"]}</td>'
            f"<td>{html.escape(test['detail'])}</td></tr>"
        )


def _row(key: tuple[str, int, str], cells: Mapping[str, Mapping[str, Any]], columns: list[str]) -> str:
    name, version, parameter = key
    dense = {text: cell for text, cell in cells.items() if text in columns}
    others = "".join(_mark(text, cells[text], text or "·") for text in sorted(set(cells) - set(dense)))
    shown = "".join(
        f'<td class="others">{others}</td>' if c == OTHER else f"<td>{_mark(c, dense[c]) if c in dense else ''}</td>"
        for c in columns
    )
    head = f'<th scope="row">{html.escape(name)}</th><td>{version}</td><td>{html.escape(parameter)}</td>'
    return f"<tr>{head}{shown}</tr>"


def _mark(type_: str, cell: Mapping[str, Any], label: str = "") -> str:
    """A cell's sign; what is known of it is its title."""
    hint = (
        f"{type_ or 'no type parameter'}: {cell['status']}, {cell['tests']} test{'s' * (cell['tests'] != 1)}, "
        f"worst {cell['worst_ulp']:.3g} ULP, against {', '.join(cell['oracles']) or 'nothing'}"
    )
    hint += "".join(f"; {text}" for text in (*cell["waivers"], *cell["reasons"]))
    shown = f"{html.escape(label)} {MARKS[cell['status']]}" if label else MARKS[cell["status"]]
    return f'<i class="{cell["status"]}" title="{html.escape(hint, quote=True)}">{shown}</i>'
