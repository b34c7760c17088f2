"""A placement as one self-contained HTML page: each node a square in its provider's colour, its reasons where one points."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from itertools import groupby
from typing import Any

COLOURS = 6
"""Classes ``p0`` ... of the page; providers share them from the seventh on."""


def picture(explained: Mapping[str, Any], facts: str, groups: Sequence[tuple[int, str, int, str]]) -> str:
    """The page, without references to anything outside, readable in both colour schemes.

    Args:
        explained: ``session.explain().to_dict()``.
        facts: What is said of the model in one line.
        groups: Of nodes that are alike how many there are, their operator, the provider's place and why no provider before it took them.
    """
    template = resources.files("onnxplug.cli").joinpath("placement.html").read_text(encoding="utf-8")
    names = [provider["name"] for provider in explained["providers"]]
    fields = {
        "TITLE": html.escape(explained["model"]),
        "FACTS": html.escape(facts),
        "PROVIDERS": "".join(
            f"<li>{_sign(place)}{html.escape(p['name'])}: {p['nodes']}</li>"
            for place, p in enumerate(explained["providers"])
        ),
        "GRAPHS": "\n".join(_graphs(explained["nodes"], names)),
        "GROUPS": "\n".join(
            f"<tr><td>{count}</td><td>{html.escape(operator)}</td><td>{_sign(owner)}{html.escape(names[owner])}</td>"
            f"<td>{html.escape(reasons)}</td></tr>"
            for count, operator, owner, reasons in groups
        ),
    }
    # one pass: a model's names may read like a place of the template
    parts = template.split("<!--")
    return parts[0] + "".join(fields[name] + rest for name, _, rest in (part.partition("-->") for part in parts[1:]))


def _graphs(nodes: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[str]:
    """A heading and the squares of each graph; nested ones follow the node that holds them."""
    for graph, members in groupby(nodes, key=lambda node: node["graph"]):
        squares = "".join(_run(region, list(run), names) for region, run in groupby(members, key=lambda n: n["region"]))
        yield f'<h2>{html.escape(graph)}</h2>\n<div class="graph">{squares}</div>'


def _run(region: str | None, nodes: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Nodes that stand side by side, all of one region or of none. Space between them lets a long line break."""
    squares = "".join(_square(node, names) for node in nodes)
    return f"<span{' class=region' if region else ''}>{squares}</span> "


def _square(node: Mapping[str, Any], names: Sequence[str]) -> str:
    tone = f"p{names.index(node['provider']) % COLOURS}" + (" shapes" if node["shapes"] else "")
    operator = f"{node['domain']}.{node['op_type']}-{node['since_version']}".lstrip(".")
    lines = [f"{node['name']} ({operator})", node["provider"] + (f", in {node['region']}" if node["region"] else "")]
    lines += [f"not {name}: {reason}" for name, reason in node["reasons"].items()]
    return f'<i class="{tone}" title="{html.escape(chr(10).join(lines), quote=True)}"></i>'


def _sign(place: int) -> str:
    return f'<b class="p{place % COLOURS}"></b>'
