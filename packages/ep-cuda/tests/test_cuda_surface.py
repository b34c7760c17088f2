"""Every name of CuPy's that the sources of the provider use, looked up in the installed CuPy: no driver is needed for that."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

import onnxplug_ep_cuda

pytest.importorskip("cupy", reason="capability: CuPy's names (cupy is not installed)")
SOURCES = sorted(Path(onnxplug_ep_cuda.__file__).parent.rglob("*.py"))
NEEDS_LIBRARIES = {"cupy_backends.cuda.libs.cublas"}  # loaded on first use, which needs cuBLAS itself


def dotted(node: ast.AST) -> list[str] | None:
    """The names of ``a.b.c``."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (front := dotted(node.value)):
        return [*front, node.attr]
    return None


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.name)
def test_names_of_cupy_exist(path: Path) -> None:
    tree = ast.parse(path.read_text())
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known.update({a.asname or a.name: importlib.import_module(a.name) for a in node.names if a.name == "cupy"})
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cupy"):
            for alias in node.names:
                if f"{node.module}.{alias.name}" not in NEEDS_LIBRARIES:
                    known[alias.asname or alias.name] = getattr(importlib.import_module(str(node.module)), alias.name)
    missing = []
    for node in ast.walk(tree):
        names = dotted(node) if isinstance(node, ast.Attribute) else None
        if names and names[0] in known:
            value = known[names[0]]
            for name in names[1:]:
                if not hasattr(value, name):
                    missing.append(f"{'.'.join(names)} (line {node.lineno})")
                    break
                value = getattr(value, name)
    assert missing == []
