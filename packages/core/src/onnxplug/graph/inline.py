"""Function inlining: a node whose operator has a body (model-local function or schema function) becomes the body's
nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxplug.contract.errors import InvalidGraph
from onnxplug.graph.build import SEPARATOR, Builder, function_opsets
from onnxplug.graph.infer import infer_node
from onnxplug.graph.ir import Graph, Node, Value
from onnxplug.graph.protos import node_proto, type_to_proto

_MAX_DEPTH = 64


def function_body(graph: Graph, node: Node) -> Any:
    """The FunctionProto that defines the node's operator, or None."""
    local = graph.functions.get((node.domain, node.op_type, node.overload))
    if local is not None:
        return local
    schema = node.schema
    if schema is None:
        return None
    opset = graph.opsets.get(node.domain, node.since_version)
    if schema.has_context_dependent_function:
        return _context_dependent(schema, node, opset)
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= graph.opsets.get("", v)]
        return schema.get_function_with_opset_version(max(versions)) if versions else schema.function_body
    return None


def inline(graph: Graph, node: Node, function: Any, folder: Path) -> list[Node]:
    """Replace ``node`` of ``graph`` by the function's nodes, types inferred; returns them. Names become
    ``node/inner``."""
    if node.name.count(SEPARATOR) > _MAX_DEPTH:
        raise InvalidGraph(
            f"Function '{node.op_type}' of domain '{node.domain}' is recursive (at node '{node.name[:80]}...')"
        )
    scope: dict[str, Value] = {}
    for index, name in enumerate(function.input):
        given = node.inputs[index] if index < len(node.inputs) else None
        scope[name] = given if given is not None else Value("")
    absent = {name for name in function.input if scope[name].name == "" and scope[name].type is None}
    outputs = dict(zip(function.output, node.outputs, strict=False))
    for proto in function.node:
        for name in proto.output:
            if name:
                scope[name] = outputs.get(name) or Value(node.name + SEPARATOR + name)
    builder = Builder(folder)
    attributes = {a.name: a for a in function.attribute_proto} | {a.name: a for a in node.attribute_protos}
    opsets = function_opsets(function, graph)
    new = []
    for proto in function.node:
        bound = _bind_attributes(proto, attributes)
        for index, name in enumerate(bound.input):
            if name in absent:
                bound.input[index] = ""
        _drop_trailing(bound)
        inner = builder.node(graph, bound, scope, node.name + SEPARATOR, opsets)
        inner.origin = node.origin
        new.append(inner)
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = new
    for name, value in outputs.items():
        if value is not None and name in function.input:  # an output that is an input: the value itself
            graph.replace(value, scope[name])
    for inner in new:
        infer_node(inner)
    graph.refresh()
    return new


def _context_dependent(schema: Any, node: Node, opset: int) -> Any:
    from onnx import FunctionProto

    types = [
        type_to_proto(v.type).SerializeToString() if v is not None and v.type is not None else b"" for v in node.inputs
    ]
    text = node_proto(node).SerializeToString()
    versions = schema.context_dependent_function_opset_versions
    usable = [v for v in versions if v <= opset] or list(versions)
    body = schema.get_context_dependent_function_with_opset_version(max(usable), text, types)
    function = FunctionProto()
    function.ParseFromString(body)
    return function if function.node else None


def _bind_attributes(proto: Any, attributes: dict[str, Any]) -> Any:
    """A copy of a function's node with attribute references replaced by the caller's attributes, in nested graphs
    too."""
    from onnx import NodeProto

    copy = NodeProto()
    copy.CopyFrom(proto)
    del copy.attribute[:]
    for attribute in proto.attribute:
        if attribute.ref_attr_name:
            given = attributes.get(attribute.ref_attr_name)
            if given is not None:
                added = copy.attribute.add()
                added.CopyFrom(given)
                added.name = attribute.name
            continue
        added = copy.attribute.add()
        added.CopyFrom(attribute)
        if attribute.type == attribute.GRAPH:
            nodes = [_bind_attributes(n, attributes) for n in attribute.g.node]
            del added.g.node[:]
            added.g.node.extend(nodes)
    return copy


def _drop_trailing(proto: Any) -> None:
    while proto.input and not proto.input[-1] and proto.op_type not in ("Loop", "Scan"):
        del proto.input[-1]
