"""Nodes that stand for others, made of an operator's name and Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxplug.graph.infer import infer_node
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.protos import attribute_value
from onnxplug.graph.value import Value


def make_node(
    graph: Graph,
    name: str,
    op_type: str,
    opset: int,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    attributes: Mapping[str, Any],
    origin: str,
) -> Node:
    """A typed node of ONNX's own domain, as ``opset`` has the operator, that belongs to ``graph`` without being among its nodes
    yet. Its name is made unique; attributes that are None are left out."""
    from onnx import helper

    schema = graph.schemas.find("", op_type, opset)
    protos = [helper.make_attribute(k, _encoded(v)) for k, v in attributes.items() if v is not None]
    values = {p.name: attribute_value(p, graph.folder) for p in protos}
    node = Node(graph.names.node(name), op_type, "", schema.since_version, inputs, outputs, values, protos, schema)
    node.origin = origin
    infer_node(graph, node)
    return node


def plain_node(
    graph: Graph,
    like: Node,
    op_type: str,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    **ints: int | Sequence[int],
) -> Node:
    """A typed node of ONNX's own domain, whose attributes are integers, that does or helps to do what ``like`` did. It belongs to
    ``graph``, of whose opset it is, without being among its nodes yet."""
    from onnx import AttributeProto  # its helpers would bring the whole package

    def proto(name: str, value: int | Sequence[int]) -> Any:
        if isinstance(value, int):
            return AttributeProto(name=name, type=AttributeProto.INT, i=value)
        return AttributeProto(name=name, type=AttributeProto.INTS, ints=value)

    schema = graph.schemas.find("", op_type, graph.opset("") or 0)
    name = graph.names.node(f"{like.name}_{op_type.lower()}")
    protos = [proto(key, value) for key, value in ints.items()]
    made = Node(name, op_type, "", schema.since_version, inputs, outputs, dict(ints), protos, schema)
    made.origin = like.origin
    infer_node(graph, made)
    return made


def _encoded(value: Any) -> Any:
    """Text as the bytes that it was read from, which may be no UTF-8 (see ``onnxplug.graph.protos.attribute_value``)."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
