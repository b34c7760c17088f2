"""Write the generated pages of docs/reference/ from the installed packages' docstrings; with --check, fail where one is stale.

A hook or a provider option without documentation is an error.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_type_hints

from onnxplug.contract import dump_options, hooks
from onnxplug.plugins import switches

PAGES = Path(__file__).parents[1] / "docs" / "reference"
HEADER = "<!-- Written by tools/docs_pages.py; do not edit. -->\n\n"


def main(check: bool) -> int:
    """Write or compare every page."""
    stale = []
    for name, page in (
        ("hooks.md", hooks_page()),
        ("options.md", options_page()),
        ("environment.md", environment_page()),
    ):
        path, text = PAGES / name, HEADER + page
        if check and (not path.exists() or path.read_text() != text):
            stale.append(f"docs/reference/{name}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale:
        print(f"stale: {', '.join(stale)}; run python tools/docs_pages.py")
    return bool(stale)


def hooks_page() -> str:
    """Every hook with its signature and docstring."""
    parts = ["# Hooks\n", _prose(hooks)]
    for title, specification in (
        ("Hooks of a plugin module", hooks.PluginHooks),
        ("Hooks of a provider", hooks.ProviderHooks),
    ):
        parts += [f"## {title}\n", _prose(specification)]
        for name, function in _methods(specification):
            parts += [f"### `{name}`\n", f"```text\n{name}{_signature(function)}\n```\n", _prose(function)]
    return "\n".join(parts)


def options_page() -> str:
    """Every option of this repository's providers."""
    parts = [
        "# Provider options\n",
        "Values are given as strings, as in onnxruntime; unknown keys are an error unless the text says otherwise.\n",
    ]
    own = (e for e in entry_points(group="onnxplug.providers") if e.dist and e.dist.name.startswith("onnxplug-ep-"))
    for entry in sorted(own, key=lambda e: e.name):
        spec = entry.load().onnxplug_provider()
        parts += [f"## {spec.name}\n", _prose(spec.options)]
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
    return f"# Environment switches\n\n{_prose(switches)}"


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


def _methods(cls: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    return ((name, member) for name, member in vars(cls).items() if inspect.isfunction(member))


def _signature(function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    shown = signature.replace(parameters=[p for p in signature.parameters.values() if p.name != "self"])
    return re.sub(r"'([^']*)'", r"\1", str(shown))


def _prose(thing: Any) -> str:
    text = inspect.getdoc(thing)
    if not text:
        raise SystemExit(f"{thing.__qualname__} has no documentation")
    return text.replace("``", "`") + "\n"


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
