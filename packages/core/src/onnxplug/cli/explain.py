"""``onnxplug explain MODEL``: a summary first, then who runs each node and why no other provider does."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug.cli.opening import open_session
from onnxplug.cli.output import COLOURS, Cell, Output, count
from onnxplug.cli.outputs import write_page
from onnxplug.cli.picture import picture
from onnxplug.contract.options import dump_options, parse_options
from onnxplug.plugins import registry

Explained = Mapping[str, Any]

_CONTENT = 8
"""Operators of a region that are named."""


def execute(args: argparse.Namespace, out: Output) -> int:
    """Place the model and print the explanation."""
    with open_session(args) as session:
        explained = session.explain().to_dict()
    if args.html:
        write_page(args.html, picture(explained, _facts(summary(explained)), _groups(explained)))
    if out.as_json:
        out.json({"summary": summary(explained), **explained})
        return 0
    named = None if args.providers is None else {registry.full_name(text) for text in args.providers}
    _show_summary(explained, named, out)
    _show_regions(explained, args.all, out)
    _show_copies(explained, args.all, out)
    _show_removed(explained, args.all, out)
    _show_nodes(explained, args.all, out)
    if args.html:
        out.line()
        out.line(f"written to {args.html}")
    return 0


def summary(explained: Explained) -> dict[str, Any]:
    """The numbers of an explanation: nodes, those that only compute shapes, each provider's share of all and of the others, copies, what
    was removed and inlined, regions."""
    total, shapes = len(explained["nodes"]), sum(p["shapes"] for p in explained["providers"])
    rest = total - shapes
    return {
        "nodes": total,
        "shapes": shapes,
        "share": {p["name"]: p["nodes"] / total if total else 0.0 for p in explained["providers"]},
        "share_but_shapes": {
            p["name"]: (p["nodes"] - p["shapes"]) / rest if rest else 0.0 for p in explained["providers"]
        },
        **{part: len(explained[part]) for part in ("copies", "edges", "removed", "inlined", "regions")},
    }


def _facts(numbers: Mapping[str, Any]) -> str:
    """The counts of a summary in one line."""
    facts = (
        (numbers["shapes"], f"{numbers['shapes']} of which only compute shapes"),
        (numbers["copies"], f"{count(numbers['copies'], 'copy')} inside"),
        (numbers["edges"], f"{count(numbers['edges'], 'copy')} at inputs and outputs"),
        (numbers["removed"], f"{numbers['removed']} removed by the optimizer"),
        (numbers["inlined"], count(numbers["inlined"], "inlined function")),
        (numbers["regions"], count(numbers["regions"], "fused region")),
    )
    return ", ".join([count(numbers["nodes"], "node"), *(text for amount, text in facts if amount)])


def _show_summary(explained: Explained, named: set[str] | None, out: Output) -> None:
    numbers = summary(explained)
    out.line((explained["model"], "bold"))
    out.line(_facts(numbers))
    out.bar(list(numbers["share"].values()))
    rows: list[list[Cell]] = []
    for number, provider in enumerate(explained["providers"]):
        implicit = named is not None and provider["name"] not in named
        note = "not named: takes what the others leave" if implicit else _changed_options(provider)
        shares = [f"{numbers['share'][provider['name']]:.1%}"]
        if numbers["shapes"]:
            shares.append(f"{numbers['share_but_shapes'][provider['name']]:.1%}")
        name: Cell = (provider["name"], COLOURS[number % len(COLOURS)])
        rows.append([out.mark(number), name, str(provider["nodes"]), *shares, note])
    columns = ["share", "but shapes"] if numbers["shapes"] else ["share"]
    out.table(["", "provider", "nodes", *columns, ""], rows, right=[2, 3, *([4] if numbers["shapes"] else [])])
    for name, reason in explained["skipped"].items():
        out.line((f"{name} is not used: ", "yellow"), reason)


def _changed_options(provider: Mapping[str, Any]) -> str:
    """Options whose values are not the defaults."""
    spec = registry.announced_spec(provider["name"])
    defaults = dump_options(parse_options(spec.options, {})) if spec else {}
    return " ".join(f"{key}={value}" for key, value in provider["options"].items() if defaults.get(key) != value)


def _show_regions(explained: Explained, everything: bool, out: Output) -> None:
    if not explained["regions"]:
        return
    out.heading("Fused regions" if everything else "Fused regions by operators (--all names each)")
    if everything:
        rows = [[r["name"], r["provider"], str(len(r["nodes"]))] for r in explained["regions"]]
        out.table(["region", "provider", "nodes"], rows, right=[2])
        return
    operators = {node["name"]: _operator(node) for node in explained["nodes"]}
    groups = Counter((r["provider"], _content([operators[name] for name in r["nodes"]])) for r in explained["regions"])
    out.table(
        ["regions", "provider", "operators"],
        [[str(n), provider, content] for (provider, content), n in groups.most_common()],
        right=[0],
    )


def _content(operators: Sequence[str]) -> str:
    """``Conv-11, 2 Add-14``; of regions with many operators the most frequent ones."""
    ranked = Counter(operators).most_common()
    shown = [f"{n} {operator}" if n > 1 else operator for operator, n in ranked[:_CONTENT]]
    return ", ".join(shown + ([f"{len(ranked) - _CONTENT} more"] if len(ranked) > _CONTENT else []))


def _show_copies(explained: Explained, everything: bool, out: Output) -> None:
    for title, part in (("Copies inside the model", "copies"), ("Copies at inputs and outputs", "edges")):
        copies = explained[part]
        if not copies:
            continue
        out.heading(title)
        if everything:
            out.table(["from", "to", "value"], [[c["from"], c["to"], c["value"]] for c in copies])
        else:
            ways = Counter((c["from"], c["to"]) for c in copies)
            out.table(["from", "to", "values"], [[*way, str(n)] for way, n in ways.most_common()], right=[2])


def _show_removed(explained: Explained, everything: bool, out: Output) -> None:
    if explained["removed"]:
        out.heading("Removed by the optimizer")
        if everything:
            out.table(["node", "pass"], [[node, name] for node, name in explained["removed"].items()])
        else:
            passes = Counter(explained["removed"].values())
            out.table(["pass", "nodes"], [[name, str(n)] for name, n in passes.most_common()], right=[1])
    if explained["inlined"] and everything:
        out.heading("Inlined functions")
        out.table(["node", "function"], [[i["node"], i["function"]] for i in explained["inlined"]])


def _show_nodes(explained: Explained, everything: bool, out: Output) -> None:
    nodes = explained["nodes"]
    if not nodes:
        return
    order = [p["name"] for p in explained["providers"]]
    colour = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(order)}
    out.heading("Nodes" if everything else "Nodes by operator (--all lists each)")
    if everything:
        rows: list[list[Cell]] = []
        for node in nodes:
            owner = (node["provider"], colour[node["provider"]])
            rows.append([node["name"], _operator(node), owner, node["region"] or "", _reasons(node, order)])
        out.table(["node", "operator", "provider", "region", "why no other"], rows)
        return
    out.table(
        ["nodes", "operator", "provider", "why none before it"],
        [
            [str(n), operator, (order[owner], colour[order[owner]]), reasons]
            for n, operator, owner, reasons in _groups(explained)
        ],
        right=[0],
    )


def _groups(explained: Explained) -> list[tuple[int, str, int, str]]:
    """Of nodes that are alike: how many, their operator, their provider's place and why none before it took them; by provider."""
    order = [provider["name"] for provider in explained["providers"]]
    groups: Counter[tuple[int, str, str]] = Counter()
    for node in explained["nodes"]:
        owner = order.index(node["provider"])
        groups[owner, _operator(node), _reasons(node, order[:owner])] += 1
    ranked = sorted(groups.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
    return [(n, operator, owner, reasons) for (owner, operator, reasons), n in ranked]


def _operator(node: Mapping[str, Any]) -> str:
    """``Conv-11``, ``com.example.Fancy-1``."""
    return f"{node['domain']}.{node['op_type']}-{node['since_version']}".lstrip(".")


def _reasons(node: Mapping[str, Any], providers: Sequence[str]) -> str:
    return "\n".join(f"{name}: {node['reasons'][name]}" for name in providers if name in node["reasons"])
