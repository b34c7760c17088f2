"""Write docs/operators.md: which provider runs which operator, in which version, on which types.

A cell is filled only by a test that ran it and passed: ``nox -s operators`` (or pytest on tests/operators with
``ONNXPLUG_OPERATORS=all ONNXPLUG_OPERATORS_RECORD=build/operators.json``) leaves a record of those, which this reads.
With --check nothing is written: it fails where a cell of the page is empty, and where the schemas or the providers'
registries are not those it was made from. Another onnx has other schemas: the page is not compared with them.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from operators.cells import UNDEFINED, Cell, all_cells  # noqa: E402

PAGE, RECORD = ROOT / "docs" / "operators.md", ROOT / "build" / "operators.json"
DOMAINS = {
    "": "ai.onnx, the default domain",
    "ai.onnx.ml": "ai.onnx.ml",
    "ai.onnx.preview": "ai.onnx.preview",
    "ai.onnx.preview.training": "ai.onnx.preview.training",
}
SHORT = {
    "float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128", "string": "str",
    **{f"{sign}int{bits}": f"{short}{bits}" for sign, short in (("", "i"), ("u", "u")) for bits in (2, 4, 8, 16, 32, 64)},
}  # fmt: skip
ORDER = ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool", "str")
ABSENT = "-"
MADE_WITH = f"<!-- with the schemas of onnx {'.'.join(onnx.__version__.split('.')[:2])} -->"

Sources = dict[Cell, set[str]]
"""The passing cells and who judged them: with "reference", ReferenceExecutionProvider ran the node too."""


def main(check: bool) -> int:
    """Write or check the page."""
    if not check:
        if not RECORD.exists():
            print(f"no record at {RECORD.relative_to(ROOT)}: run nox -s operators")
            return 1
        PAGE.write_text(page(read_record()))
    text = PAGE.read_text() if PAGE.exists() else ""
    if text and MADE_WITH not in text:
        print(f"operators: not compared, the installed onnx is {onnx.__version__}")
        return 0
    shown = filled(text)
    problems = [f"docs/operators.md: {cell} is empty" for cell in all_cells() if short_cell(cell) not in shown]
    if f"<!-- made from {digest()} -->" not in text:
        problems.append("docs/operators.md was made from other schemas or kernels; run nox -s operators")
    print("\n".join(problems[:50]) or "operators: ok")
    return bool(problems)


def filled(text: str) -> set[tuple[str, ...]]:
    """The cells that a page shows to run on the CPU."""
    found, domain = set(), ""
    for line in text.splitlines():
        domain = next((key for key, title in DOMAINS.items() if line == f"## {title}"), domain)
        columns = [column.strip() for column in line.strip("|").split("|")]
        if line.startswith("|") and len(columns) == 5:
            op_type, versions, parameter, types, _ = columns
            found |= {(domain, op_type, v, parameter, t) for v in versions.split(", ") for t in types.split()}
    return found


def short_cell(cell: Cell) -> tuple[str, ...]:
    """A cell as ``filled`` gives it."""
    return cell.domain, cell.op_type, str(cell.version), cell.parameter, short(cell.type)


def read_record() -> Sources:
    """The record of the last test run."""
    rows = json.loads(RECORD.read_text())
    return {Cell(*row[:5]): set(row[5]) for row in rows}


def digest() -> str:
    """A fingerprint of the schemas' cells and of the kernels in both providers' registries."""
    from onnxplug_ep_cpu.registry import registry
    from onnxplug_ep_reference.kernels import registry as reference

    kernels = [
        [k.domain, k.op_type, k.since, k.last, {name: sorted(types) for name, types in sorted(k.types.items())}]
        for kernels in (registry(), reference(None, double=False))
        for k in kernels
        if k.domain in DOMAINS
    ]
    text = json.dumps([sorted(all_cells()), sorted(kernels, key=json.dumps)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def page(record: Sources) -> str:
    """The whole page."""
    lines = [
        "<!-- Written by tools/operators_table.py; do not edit. -->",
        f"<!-- made from {digest()} -->",
        MADE_WITH,
        "# Operators",
        "",
        "What `CPUExecutionProvider` and `ReferenceExecutionProvider` run: operator, schema versions, type parameter, types. A type stands here",
        "because a test in `tests/operators` ran random legal nodes of that operator, version and type and got what an evaluation in float64",
        "gives, within the tolerances of `tests/operators/tolerances.py`. Random operators are tested for their distributions. `If`, `Loop`,",
        "`Scan` and `SequenceMap` are run by the core, their bodies by the providers; so are `GreedySearch`, `Sampling`, `BeamSearch` and",
        "`WhisperBeamSearch` of `com.microsoft`.",
        "",
        "f32 is `tensor(float)`, i8 `tensor(int8)`, u8 `tensor(uint8)`, str `tensor(string)`, and so on; seq, optional and map types are written out.",
        "A dash under Reference: onnx.reference has no such operator, or computes it otherwise than the specification says.",
        "",
    ]
    for domain, title in DOMAINS.items():
        lines += [f"## {title}", "", "| operator | versions | parameter | CPU | Reference |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in rows(domain, record)]
        lines.append("")
    lines += ["## Types without a meaning", "", "Listed by a schema, left undefined by its text:", ""]
    lines += [f"* {key[1]}-{key[2]}, {key[3]} = `{key[4]}`: {reason}." for key, reason in UNDEFINED.items()]
    return "\n".join(lines) + "\n"


def rows(domain: str, record: Sources) -> Iterator[tuple[str, ...]]:
    """Operator, versions, parameter, types on CPU, types on Reference; consecutive versions with the same types are one
    row."""
    table: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
    by_version: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in all_cells():
        if cell.domain == domain:
            by_version.setdefault((cell.op_type, cell.parameter, cell.version), []).append(cell)
    for (op_type, parameter, version), cells in by_version.items():
        cpu = listed(cell.type for cell in cells if cell in record)
        reference = listed(cell.type for cell in cells if "reference" in record.get(cell, ()))
        table.setdefault((op_type, parameter), []).append((version, cpu, "the same" if reference == cpu else reference))
    for (op_type, parameter), found in sorted(table.items()):
        start = 0
        for end in range(1, len(found) + 1):
            if end == len(found) or found[end][1:] != found[start][1:]:
                versions = ", ".join(str(version) for version, *_ in found[start:end])
                yield op_type, versions, parameter, *found[start][1:]
                start = end


def listed(types: Iterable[str]) -> str:
    """Types in short, in a fixed order."""
    found = [short(text) for text in types]
    ranks = {name: rank for rank, name in enumerate(ORDER)}
    return " ".join(sorted(found, key=lambda t: (t.count("("), ranks.get(t, 99), t))) or ABSENT


def short(text: str) -> str:
    """``f32`` for ``tensor(float)``, ``seq(f32)`` for ``seq(tensor(float))``; ``yes`` for an operator without type
    parameters."""
    if not text:
        return "yes"
    return re.sub(r"tensor\((\w+)\)", lambda match: SHORT.get(match[1], match[1]), text).replace(" ", "")


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
