"""The tables of what is imported for which operator, against what the modules enter."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

from onnxplug.contract import KernelDef
from onnxplug_ep_cpu.codegen import fuse
from onnxplug_ep_cpu.codegen.lower import FAMILIES, entries, rank
from onnxplug_ep_cpu.kernels import forms
from onnxplug_ep_cpu.registry import Catalogued
from onnxplug_kernels import catalogue

PACKAGE = "onnxplug_ep_cpu.codegen.lower"
SCRIPT = """
import sys
import onnx.parser, onnxplug
text = 'agraph (float[2, 3] x) => (float[2, 3] y) { a = Relu(x) y = Add(a, a) }'
model = onnx.helper.make_model(onnx.parser.parse_graph(text), opset_imports=[onnx.helper.make_opsetid('', 18)], ir_version=8)
session = onnxplug.InferenceSession(model.SerializeToString(), providers=['CPUExecutionProvider'])
assert len(session.explain().regions) == 1
print(*sorted(m.rpartition('.')[2] for m in sys.modules if m.startswith('onnxplug_ep_cpu.codegen.lower.')))
"""


def test_the_table_names_the_operators_that_each_family_lowers() -> None:
    for family in FAMILIES:
        importlib.import_module(f"{PACKAGE}.{family}")
    entered = defaultdict(set)
    for (_, operator), (function, _) in entries._lowerings.items():
        entered[function.__module__.rpartition(".")[2]].add(operator)
    matches = {match.__module__.rpartition(".")[2] for found in fuse._patterns.values() for match in found}
    for family, operators in FAMILIES.items():
        assert entered[family] == set(operators) or (family in matches and not entered[family]), family
    assert set(entered) | matches <= set(FAMILIES), "a family that the table lacks"


def test_patterns_are_tried_in_the_order_of_the_table_whatever_was_imported_first() -> None:
    order = [rank(match.__module__) for match in fuse._patterns["", "MatMul"]]
    assert len(order) > 1
    assert order == sorted(order)


def test_a_process_imports_only_the_families_of_its_models_operators() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"arithmetic", "activation"} <= loaded
    assert not loaded & {"conv", "matmul", "recurrent", "trees", "qconv", "attention", "reduce"}


def test_the_table_of_writing_forms_names_the_operators_of_each_module() -> None:
    for family in forms.FAMILIES:
        importlib.import_module(f"onnxplug_ep_cpu.kernels.{family}")
    for (_, operator), found in forms._forms.items():
        for form in found:
            # a binder made by another function has that one's module, which is then the same
            assert operator in forms.FAMILIES[form.bind.__module__.rpartition(".")[2]], operator
    named = {operator for operators in forms.FAMILIES.values() for operator in operators}
    assert named == {operator for _, operator in forms._forms}
    assert all(
        path.stem in forms.FAMILIES for path in Path(forms.__file__).parent.glob("*.py") if "@into(" in path.read_text()
    )


def test_the_registry_is_the_catalogue_whatever_was_asked_first() -> None:
    registry = Catalogued(None, generates=True)
    node = SimpleNamespace(domain="", op_type="Add", since_version=14, constraint_types={})
    assert isinstance(registry.kernel_for(node), KernelDef)
    assert len(registry._entered) == 1
    assert len(registry) == len(list(registry)) == len(catalogue())
