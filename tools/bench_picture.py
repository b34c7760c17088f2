"""Draw docs/benchmarks.svg and write docs/benchmarks.md from the newest file of benchmarks/results; with --check, fail where they are
stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PICTURE, PAGE = ROOT / "docs" / "benchmarks.svg", ROOT / "docs" / "benchmarks.md"
COLOURS = {"onnxruntime": "#4878a8", "openvino": "#d08a3c"}
LEFT, WIDTH, BAR, GAP, TOP = 150, 760, 14, 14, 64
MOST = 3.0
"""Where the axis ends: longer bars are cut off, their numbers stand beside them."""


def main(check: bool) -> int:
    """Write or compare the picture and the page."""
    found = json.loads(newest().read_text())
    stale = []
    for path, text in ((PICTURE, picture(found)), (PAGE, page(found))):
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        print(f"stale: {', '.join(stale)}; run python tools/bench_picture.py")
    return bool(stale)


def newest() -> Path:
    """The last file of results by name, which begins with the date."""
    return sorted(RESULTS.glob("*.json"))[-1]


def picture(found: dict[str, Any]) -> str:
    """Bars of how many times faster onnxplug runs each model than the others do, a line at 1."""
    rows = [row for row in found["rows"] if row["what"] == "run"]
    others = [name for name in COLOURS if any(name in row["ratio"] for row in rows)]
    height = TOP + len(rows) * (BAR * len(others) + GAP) + 20
    unit = (WIDTH - LEFT - 60) / MOST
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(10, 20, f"How many times faster onnxplug runs a model, {_where(found)}", size=14),
    ]
    for number, name in enumerate(others):
        x = LEFT + number * 150
        parts += [_box(x, 32, 12, BAR - 2, COLOURS[name]), _text(x + 18, 42, f"than {name}")]
    y = TOP
    for row in rows:
        parts.append(_text(10, y + BAR * len(others) / 2 + 4, row["model"]))
        for name in (name for name in others if name in row["ratio"]):
            faster = 1 / max(row["ratio"][name], 1e-3)
            width = min(faster, MOST) * unit
            parts += [_box(LEFT, y, width, BAR - 2, COLOURS[name]), _text(LEFT + width + 4, y + 10, f"{faster:.2f}")]
            y += BAR
        y += GAP
    line = LEFT + unit
    parts.append(f'<line x1="{line:.1f}" x2="{line:.1f}" y1="{TOP - 8}" y2="{y - GAP + 4}" stroke="black"/>')
    return "\n".join([*parts, "</svg>", ""])


def page(found: dict[str, Any]) -> str:
    """The picture with the numbers it is made of."""
    contenders = ["onnxplug", *COLOURS]
    peaks = found["peaks"]
    rows = {(row["what"], row["model"]): row for row in found["rows"]}
    models = list(dict.fromkeys(row["model"] for row in found["rows"] if row["model"]))
    lines = [
        "<!-- Written by tools/bench_picture.py; do not edit. -->\n",
        "# Benchmarks\n",
        f"Measured on {found['date']} by `{found['command']}` on {_where(found)}, with the load of the minute before at "
        f"{found['machine']['load']}. Numbers of other machines differ: run it on yours.\n",
        "![how many times faster](benchmarks.svg)\n",
        "Milliseconds a run: in one process, in turns, thread spinning off; and at each runtime's defaults in processes of their own. "
        f"The last column is the share of what the machine allows, which is measured in the same process: {peaks['gflops']} GFLOP/s of "
        f"fused multiply-adds, {peaks['gbytes_per_second']} GB/s from memory.\n",
        *_table(rows, models, contenders, "run", "run, own process", roofline=True),
        "\nMilliseconds to create a session, in a new process that has imported NumPy: with nothing compiled before, and with onnxplug's "
        "cache filled, without and with the import of the runtime, most of which onnxplug does when it creates; the last of a model that "
        "the process has opened before.\n",
        *_table(rows, models, contenders, "create, cold", "create, warm", "import and create, warm", "create"),
        "\nMegabytes resident at most after creation and three runs.\n",
        *_table(rows, models, contenders, "peak memory"),
    ]
    return "\n".join(lines) + "\n"


def _table(
    rows: dict[tuple[str, str], Any], models: list[str], contenders: list[str], *whats: str, roofline: bool = False
) -> list[str]:
    heads = [f"{what}: {c}" for what in whats for c in contenders] + ["of the roofline"] * roofline
    lines = [f"| model | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for model in models:
        cells = []
        for what in whats:
            row = rows[what, model]
            values = row.get("ms") or row["mb"]
            cells += [f"{values[c]:.4g}" if c in values else "" for c in contenders]
        if roofline:
            share = rows["run", model]["roofline"]["of_roofline"]
            cells.append(f"{share:.0%}")
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return lines


def _where(found: dict[str, Any]) -> str:
    machine = found["machine"]
    return f"{machine['cpu']}, {found['threads']} threads, onnxruntime {machine['onnxruntime']}"


def _text(x: float, y: float, text: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}">{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
