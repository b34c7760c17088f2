"""Write the generated pages of docs/ from the installed packages' docstrings; with --check, fail where one is stale.

A word of the contract or a provider option without documentation is an error.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_type_hints

from contract_page import contract_page, prose
from onnxplug.contract import ProviderSpec, dump_options
from onnxplug.plugins import switches

DOCS = Path(__file__).parents[1] / "docs"
HEADER = "<!-- Written by tools/docs_pages.py; do not edit. -->\n\n"


def main(check: bool) -> int:
    """Write or compare every page."""
    stale = []
    for name, page in (
        ("contract.md", contract_page()),
        ("reference/options.md", options_page()),
        ("reference/environment.md", environment_page()),
    ):
        path, text = DOCS / name, HEADER + page
        if check and (not path.exists() or path.read_text() != text):
            stale.append(f"docs/{name}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale:
        print(f"stale: {', '.join(stale)}; run python tools/docs_pages.py")
    return bool(stale)


def options_page() -> str:
    """Every option of this repository's providers."""
    parts = [
        "# Provider options\n",
        "Values are given as strings, as in onnxruntime; unknown keys are an error unless the text says otherwise.\n",
    ]
    own = (e for e in entry_points(group="onnxplug.providers") if e.dist and e.dist.name.startswith("onnxplug-ep-"))
    for entry in sorted(own, key=lambda e: e.name):
        announced = entry.load().onnxplug_provider()
        specs = [announced] if isinstance(announced, ProviderSpec) else announced
        spec = next(each for each in specs if each.name == entry.name)
        space = "\n" if parts[-1].startswith("|") else ""  # behind a table
        parts += [f"{space}## {spec.name}\n", prose(inspect.getdoc(spec.options), spec.name)]
        fields = dataclasses.fields(spec.options)
        if fields:
            parts.append("| option | type | default | meaning |\n|---|---|---|---|")
            defaults = dump_options(spec.options())
            parts += [
                _option_row(field, get_type_hints(spec.options)[field.name], defaults[field.name]) for field in fields
            ]
    return "\n".join(parts) + "\n"


def environment_page() -> str:
    """The environment switches."""
    return f"# Environment switches\n\n{prose(inspect.getdoc(switches), 'switches')}"


def _option_row(field: dataclasses.Field[Any], kind: Any, default: str) -> str:
    doc = field.metadata.get("doc")
    if not doc:
        raise SystemExit(f"option {field.name} has no documentation")
    choices = field.metadata.get("choices")
    shown = (
        " \\| ".join(f"`{c}`" for c in choices)
        if choices
        else f"`{getattr(kind, '__name__', str(kind))}`".replace("|", "\\|")
    )
    return f"| `{field.name}` | {shown} | {f'`{default}`' if default else ''} | {doc} |"


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
