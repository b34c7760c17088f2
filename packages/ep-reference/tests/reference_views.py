"""A one-node ``GraphView`` made from a backend case, standing in for the core's graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from onnxplug.contract import MapType, OptionalType, SequenceType, TensorType, ValueType
from onnxplug.contract.types import ELEMENT_NAMES, Shape

DEFAULT_DOMAIN = {"ai.onnx": ""}


@dataclass(eq=False)
class Value:
    name: str
    type: ValueType | None = None
    constant: np.ndarray | None = None
    producer: Any = None
    consumers: tuple[Any, ...] = ()

    @property
    def dtype(self) -> np.dtype | None:
        return self.type.dtype if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> Shape | None:
        return self.type.shape if isinstance(self.type, TensorType) else None


@dataclass(eq=False)
class Node:
    op_type: str
    inputs: list[Value | None]
    outputs: list[Value | None]
    since_version: int
    domain: str = ""
    name: str = "node"
    attributes: dict[str, Any] = field(default_factory=dict)
    subgraphs: dict[str, Any] = field(default_factory=dict)
    constraint_types: dict[str, str] = field(default_factory=dict)
    captures: tuple[Value, ...] = ()


@dataclass(eq=False)
class Graph:
    nodes: list[Node]


def value_type(proto: onnx.TypeProto) -> ValueType | None:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        tensor = proto.tensor_type
        if tensor.elem_type not in ELEMENT_NAMES:
            return None
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
        return TensorType(ELEMENT_NAMES[tensor.elem_type], tuple(dims) if tensor.HasField("shape") else None)
    if kind == "map_type":
        return MapType(ELEMENT_NAMES[proto.map_type.key_type], value_type(proto.map_type.value_type))
    if kind in ("sequence_type", "optional_type"):
        element = value_type(getattr(proto, kind).elem_type)
        return SequenceType(element) if kind == "sequence_type" else OptionalType(element)
    return None


def make_node(proto: onnx.NodeProto, opset: int, types: dict[str, ValueType | None] | None = None) -> Node:
    """The view of ``proto`` in a model that imports ``opset`` of its domain."""
    types = types or {}
    domain = DEFAULT_DOMAIN.get(proto.domain, proto.domain)
    values = {name: Value(name, types.get(name)) for name in (*proto.input, *proto.output) if name}
    schema = defs.get_schema(proto.op_type, opset, domain)
    node = Node(
        proto.op_type,
        [values.get(name) for name in proto.input],
        [values.get(name) for name in proto.output],
        schema.since_version,
        domain,
        proto.name or proto.op_type,
        {a.name: attribute(a) for a in proto.attribute if a.type != onnx.AttributeProto.GRAPH},
        {a.name: a.g for a in proto.attribute if a.type == onnx.AttributeProto.GRAPH},
    )
    for operands, formals in ((node.inputs, schema.inputs), (node.outputs, schema.outputs)):
        for index, operand in enumerate(operands):
            if operand is not None and operand.type is not None and formals:
                formal = formals[min(index, len(formals) - 1)]
                node.constraint_types.setdefault(formal.type_str, str(operand.type))
    return node


def attribute(proto: onnx.AttributeProto) -> Any:
    got = helper.get_attribute_value(proto)
    if isinstance(got, bytes):
        return got.decode()
    if isinstance(got, onnx.TensorProto):
        return numpy_helper.to_array(got)
    if proto.type == onnx.AttributeProto.STRINGS:
        return [item.decode() for item in got]
    return list(got) if proto.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else got


def only_node(model: onnx.ModelProto) -> Node:
    """The node of a model that has one."""
    opsets = {DEFAULT_DOMAIN.get(o.domain, o.domain): o.version for o in model.opset_import}
    graph = model.graph
    proto = graph.node[0]
    types = {v.name: value_type(v.type) for v in (*graph.input, *graph.output)}
    return make_node(proto, opsets[DEFAULT_DOMAIN.get(proto.domain, proto.domain)], types)
