"""Type and shape inference, one node at a time, by onnx's own inference functions
(onnx.shape_inference.infer_node_outputs)."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.types import (
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
    element_of,
)
from onnxplug.graph.ir import Graph, Node, Value
from onnxplug.graph.protos import node_proto, type_from_proto, type_to_proto
from onnxplug.graph.schemas import check_types

_DATA_LIMIT = 4096  # elements; shape arguments are small, and larger constants never decide a shape

Types = list[ValueType | None]


def infer_graph(graph: Graph) -> None:
    """Fill in the types of every value, nested graphs included. Raises Fail when types contradict the operators'
    schemas."""
    for node in graph.nodes:
        infer_node(node)


def infer_node(node: Node) -> None:
    """Types of one node's outputs from its inputs' types, merged with what the model declares."""
    if node.schema is not None:
        check_types(node)
    constants = {v.name: v.constant for v in node.inputs if v is not None and v.is_constant and _small(v)}
    inferred = output_types(node, [v.type if v is not None else None for v in node.inputs], constants)
    for value, type_ in zip(node.outputs, inferred, strict=False):
        if value is not None:
            value.type = merge(value.type, type_)


def output_types(node: Node, inputs: Types, constants: dict[str, np.ndarray | None]) -> Types:
    """Output types for given input types and known small constant inputs (by value name); None where nothing is
    known."""
    if node.op_type in _CONTROL and node.domain == "":
        return _CONTROL[node.op_type](node, inputs)
    if node.schema is None:
        return _without_schema(node, inputs)
    return _by_schema(node, inputs, constants)


def _by_schema(node: Node, inputs: Types, constants: dict[str, np.ndarray | None]) -> Types:
    from onnx import helper, numpy_helper, shape_inference

    types = {
        v.name: type_to_proto(t) for v, t in zip(node.inputs, inputs, strict=True) if v is not None and t is not None
    }
    data = {
        name: numpy_helper.from_array(np.asarray(a), name)
        for name, a in constants.items()
        if a is not None and a.dtype != object
    }
    proto = node_proto(node)
    proto.name = ""
    for index, name in enumerate(proto.output):
        proto.output[index] = name or f"\0{index}"  # inference needs a name for omitted outputs too
    imports = [helper.make_opsetid(node.domain, node.since_version)] + (
        [helper.make_opsetid("", 13)] if node.domain else []
    )
    try:
        found = shape_inference.infer_node_outputs(node.schema, proto, types, data, opset_imports=imports)
    except shape_inference.InferenceError as error:
        raise Fail(
            f"Node ({node.name}) Op ({node.op_type}) [ShapeInferenceError] {str(error).removeprefix('[ShapeInferenceError] ')}"
        ) from None
    return [type_from_proto(found[name]) if name in found else None for name in proto.output]


def _without_schema(node: Node, inputs: Types) -> Types:
    """Contrib operators: the element type of the first tensor input, nothing about the shape."""
    first = next((t for t in inputs if isinstance(t, TensorType)), None)
    return [TensorType(first.element) if first is not None and i == 0 else None for i in range(len(node.outputs))]


def _small(value: Value) -> bool:
    shape = value.shape
    return shape is not None and all(isinstance(d, int) for d in shape) and int(np.prod(shape)) <= _DATA_LIMIT  # type: ignore[arg-type]


# ---- control flow: the bodies are inferred in place, the node's outputs follow from the bodies' outputs


def _if(node: Node, inputs: Types) -> Types:
    branches = [node.subgraphs["then_branch"], node.subgraphs["else_branch"]]
    for branch in branches:
        infer_graph(branch)
    pairs = zip(branches[0].outputs, branches[1].outputs, strict=False)
    return [common(a.type, b.type) for a, b in pairs]


def _loop(node: Node, inputs: Types) -> Types:
    body = node.subgraphs["body"]
    carried = inputs[2:]
    given = [TensorType("int64", ()), TensorType("bool", ()), *[_loosened(t) for t in carried]]
    _set_inputs(body, given)
    infer_graph(body)
    outputs: Types = [common(_loosened(v.type), t) for v, t in zip(body.outputs[1:], carried, strict=False)]
    return outputs + [_stacked(v.type) for v in body.outputs[1 + len(carried) :]]


def _scan(node: Node, inputs: Types) -> Types:
    body = node.subgraphs["body"]
    old = node.since_version == 8  # version 8 has a batch axis and a leading sequence_lens input
    given = inputs[1:] if old else inputs
    scanned = int(node.attributes["num_scan_inputs"])
    states = given[: len(given) - scanned]
    first_axis = not any(node.attributes.get("scan_input_axes", ()))
    slices = [_sliced(t) if first_axis and not old else _loosened(t) for t in given[len(states) :]]
    _set_inputs(body, [*([_loosened(t) for t in states] if old else states), *slices])
    infer_graph(body)
    state_types: Types = [_loosened(v.type) if old else v.type for v in body.outputs[: len(states)]]
    return state_types + [_loosened(v.type) for v in body.outputs[len(states) :]]


_CONTROL = {"If": _if, "Loop": _loop, "Scan": _scan}


def _set_inputs(body: Graph, types: Types) -> None:
    for value, type_ in zip(body.inputs, types, strict=False):
        value.type = type_ if type_ is not None else value.type


def _loosened(type_: ValueType | None) -> ValueType | None:
    return TensorType(type_.element) if isinstance(type_, TensorType) else type_


def _sliced(type_: ValueType | None) -> ValueType | None:
    if isinstance(type_, TensorType) and type_.shape:
        return TensorType(type_.element, type_.shape[1:])
    return _loosened(type_)


def _stacked(type_: ValueType | None) -> ValueType | None:
    if isinstance(type_, TensorType) and type_.shape is not None:
        return TensorType(type_.element, (None, *type_.shape))
    return _loosened(type_)


# ---- merging


def merge(declared: ValueType | None, inferred: ValueType | None) -> ValueType | None:
    """What is known from both; where they contradict inference wins, and a contradicting dimension becomes unknown (as
    onnxruntime does)."""
    if inferred is None or declared is None:
        return inferred if declared is None else declared
    if (
        not isinstance(inferred, TensorType)
        or not isinstance(declared, TensorType)
        or inferred.element != declared.element
    ):
        return inferred
    if inferred.shape is None or declared.shape is None:
        return declared if inferred.shape is None else inferred
    if len(inferred.shape) != len(declared.shape):
        return inferred
    return TensorType(inferred.element, tuple(map(_merge_dim, declared.shape, inferred.shape)))


def _merge_dim(declared: Any, inferred: Any) -> Any:
    if isinstance(inferred, int):
        return inferred
    return declared if declared is not None else inferred


def common(a: ValueType | None, b: ValueType | None) -> ValueType | None:
    """The most specific type both fit."""
    if a is None or b is None or a == b:
        return a or b
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.element == b.element:
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return TensorType(a.element)
        return TensorType(a.element, tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)))
    return a


def type_of_python(value: Any) -> ValueType | None:
    """The type of a run-time value; None for an empty optional or an empty list."""
    if isinstance(value, np.ndarray):
        return TensorType(element_of(value.dtype), value.shape)
    if isinstance(value, list) and value:
        element = type_of_python(value[0])
        return SequenceType(element) if element is not None else None
    if isinstance(value, dict) and value:
        key = next(iter(value))
        return MapType("string" if isinstance(key, str) else "int64", TensorType("float"))
    return None


__all__ = [
    "OptionalType",
    "SparseTensorType",
    "common",
    "infer_graph",
    "infer_node",
    "merge",
    "output_types",
    "type_of_python",
]
