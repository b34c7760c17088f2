"""The index of operators against what the modules enter."""

from __future__ import annotations

import ast
from pathlib import Path

from onnxplug_kernels import catalogue, find, ops
from onnxplug_kernels.catalogue import entries
from onnxplug_kernels.index import FAMILIES


def test_the_index_finds_every_entry() -> None:
    for entry in catalogue():
        assert entry in entries(entry.op_type)
        assert find(entry.domain, entry.op_type, entry.since) is entry
    assert {e.op_type for e in catalogue()} == {name for operators in FAMILIES.values() for name in operators}
    assert entries("NoSuchOperator") == ()


def test_each_module_that_enters_operators_is_in_the_index() -> None:
    files = {path.stem: ast.parse(path.read_text()) for path in Path(ops.__path__[0]).glob("*.py")}
    entering = {name for name, tree in files.items() if any(_enters(node) for node in ast.walk(tree))}
    assert entering == set(FAMILIES)


def _enters(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "op"
