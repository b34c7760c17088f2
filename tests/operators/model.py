"""From a case to a model, and a run of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto, helper, numpy_helper

import onnxplug
from onnxplug.contract.types import ELEMENT_CODES
from operators.case import Case
from operators.cells import schemas

CPU = "CPUExecutionProvider"
REFERENCE = "ReferenceExecutionProvider"
REFERENCE_OPTIONS = {"float64": "1", "memory": "host"}


def type_proto(text: str, shape: Sequence[int | None] | None = None) -> TypeProto:
    """The type a type string names; ``shape`` is a tensor's."""
    kind, inner = text[: text.index("(")], text[text.index("(") + 1 : -1]
    if kind == "seq":
        return helper.make_sequence_type_proto(type_proto(inner, shape))
    if kind == "optional":
        return helper.make_optional_type_proto(type_proto(inner, shape))
    if kind == "map":
        key, _, value = inner.partition(",")
        proto = TypeProto()
        proto.map_type.key_type = ELEMENT_CODES[key.strip()]
        value = value.strip()
        proto.map_type.value_type.CopyFrom(type_proto(value if "(" in value else f"tensor({value})", ()))
        return proto
    return helper.make_tensor_type_proto(ELEMENT_CODES[inner], shape)


def input_types(case: Case) -> list[str]:
    """The type string of every input."""
    return [_type(case, "in", index, schemas()[case.cell[:3]].inputs) for index in range(len(case.inputs))]


def output_types(case: Case) -> list[str]:
    """The type string of every output."""
    return [_type(case, "out", index, schemas()[case.cell[:3]].outputs) for index in range(len(case.present))]


def _type(case: Case, side: str, index: int, formals: Sequence[Any]) -> str:
    own = case.types.get(f"{side}{index}")
    if own is not None:
        return own
    if not (case.inputs[index] is not None if side == "in" else case.present[index]):
        return ""
    text = formals[min(index, len(formals) - 1)].type_str
    return text if "(" in text else case.types[text]


def model_of(*cases: Case) -> bytes:
    """The serialized model of a node for each case, whose inputs are graph inputs or initializers.

    The nodes know nothing of each other; they share a model because making a session takes longer than running it.
    """
    parts = [_parts(case, prefix) for case, prefix in zip(cases, PREFIXES, strict=False)]
    nodes, inputs, outputs, initializers = ([item for part in parts for item in part[kind]] for kind in range(4))
    graph = helper.make_graph(nodes, "case", inputs, outputs, initializers)
    cell = cases[0].cell
    imports = [helper.make_opsetid(cell.domain, cell.version)]
    if cell.domain:
        imports.append(helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    return helper.make_model(graph, opset_imports=imports, ir_version=onnx.IR_VERSION).SerializeToString()


PREFIXES = ("", "b_", "c_", "d_")
"""What the names of each case's values begin with."""


def _parts(case: Case, prefix: str) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    """Nodes, inputs, outputs and initializers of one case."""
    names = [f"{prefix}x{i}" if value is not None else "" for i, value in enumerate(case.inputs)]
    while names and not names[-1]:
        names.pop()
    wanted = [f"{prefix}y{i}" if asked else "" for i, asked in enumerate(case.present)]
    schema = schemas()[case.cell[:3]]
    node = helper.make_node(case.cell.op_type, names, wanted, domain=case.cell.domain)
    for name, value in case.attributes.items():
        kind = schema.attributes[name].type.value if name in schema.attributes else None
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    inputs, initializers = [], []
    for index, (name, value, text) in enumerate(zip(names, case.inputs, input_types(case), strict=False)):
        if index in case.initializers:
            initializers.append(numpy_helper.from_array(value, name))
        elif name:
            inputs.append(helper.make_value_info(name, type_proto(text, _declared(case, value))))
    inputs += [helper.make_value_info(name, type_proto(text)) for name, (text, _) in case.captures.items()]
    outputs = [
        helper.make_value_info(name, type_proto(text))
        for name, text in zip(wanted, output_types(case), strict=True)
        if name
    ]
    return [*case.before, node], inputs, outputs, initializers


def _declared(case: Case, value: Any) -> Sequence[int | None] | None:
    if not isinstance(value, np.ndarray) or case.declared == "type":
        return None
    return value.shape if case.declared == "shape" else [None] * value.ndim


def feeds_of(*cases: Case) -> dict[str, Any]:
    """What to run the model with."""
    feeds: dict[str, Any] = {}
    for case, prefix in zip(cases, PREFIXES, strict=False):
        for index, value in enumerate(case.inputs):
            if value is not None and index not in case.initializers:
                feeds[f"{prefix}x{index}"] = value
        feeds |= {name: value for name, (_, value) in case.captures.items()}
    return feeds


def by_case(cases: Sequence[Case], outputs: Sequence[Any]) -> list[list[Any]]:
    """The outputs of a model, for each of its cases those asked for."""
    left = iter(outputs)
    return [[next(left) for asked in case.present if asked] for case in cases]


def on_cpu(*cases: Case) -> list[list[Any]]:
    """The outputs of ``CPUExecutionProvider``."""
    session = onnxplug.InferenceSession(model_of(*cases), providers=[CPU])
    return by_case(cases, session.run(None, feeds_of(*cases)))


def reference_session(*cases: Case) -> onnxplug.InferenceSession | None:
    """A session all of whose nodes ``ReferenceExecutionProvider`` takes, or None."""
    options = onnxplug.SessionOptions()
    options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxplug.InferenceSession(
        model_of(*cases), options, providers=[(REFERENCE, REFERENCE_OPTIONS)], enable_fallback=0
    )
    placed = set(session.placement().values())
    return session if placed == {REFERENCE} else None
