"""What all renderings of a report show: the facts of the run, and the operator x version x type matrix."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

Report = Mapping[str, Any]
MARKS = {"proven": "✓", "failed": "✗", "waived": "w", "unproven": "?"}
"""Status of a cell -> its sign; no rendering tells statuses apart by colour alone."""


def rows(data: Report) -> dict[tuple[str, int, str], dict[str, dict[str, Any]]]:
    """(operator, version, parameter) -> element or type -> cell."""
    found: dict[tuple[str, int, str], dict[str, dict[str, Any]]] = defaultdict(dict)
    for cell in data["cells"]:
        name = f"{cell['domain']}.{cell['op_type']}" if cell["domain"] else cell["op_type"]
        found[name, cell["version"], cell["parameter"]][short_type(cell["type"])] = cell
    return dict(sorted(found.items()))


def short_type(text: str) -> str:
    """``float`` for ``tensor(float)``, other types as they are."""
    return text[7:-1] if text.startswith("tensor(") else text


def facts(data: Report) -> list[tuple[str, str]]:
    """(name, text) of what a reader wants to know before the matrix."""
    counts, made, devices = data["counts"], data["distribution"], data["devices"]
    tests = ", ".join(f"{n} {status}" for status, n in counts["tests"].items())
    cells = ", ".join(f"{n} {status}" for status, n in counts["cells"].items() if n) or "0 cells"
    found = [
        ("verdict", data["verdict"]),
        ("level", data["level"] + (f", profile {data['profile']}" if data["profile"] else "")),
        ("distribution", f"{made['name']} {made['version']}".strip() or "registered in process"),
        ("device", "; ".join(dict.fromkeys(filter(None, (devices["check"], *(d["name"] for d in devices["list"])))))),
        ("contract", f"{data['contract']}, kit {data['kit']}, onnx {data['machine']['onnx']}"),
        ("machine", f"{data['machine']['system']}, Python {data['machine']['python']}"),
        ("tests", tests or "none"),
        ("cells", cells),
        ("seed", str(data["seed"])),
        ("command", " ".join(data["command"])),
        ("time", data["time"]),
    ]
    found += [("not run", data["not_run"])] if data["not_run"] else []
    found += [("partial", f"{counts['not_selected']} tests were not run")] if counts["not_selected"] else []
    return found + [("waivers", text) for text in data["waiver_problems"]]
