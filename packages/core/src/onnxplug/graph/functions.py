"""Functions: which body defines a node's operator, and the body's nodes with the node's operands and attributes put in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxplug.contract.errors import Fail, InvalidGraph
from onnxplug.contract.model import type_to_proto
from onnxplug.graph.build import SEPARATOR, Builder
from onnxplug.graph.export import graph_proto
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.protos import node_proto
from onnxplug.graph.value import Value
from onnxplug.load.model import opset_imports


def local_function(graph: Graph, node: Node) -> Any:
    """The model-local FunctionProto of a node's operator, or None."""
    return graph.functions.get((node.domain, node.op_type, node.overload))


def function_body(graph: Graph, node: Node) -> Any:
    """The FunctionProto that defines the node's operator, model-local or the schema's own, or None."""
    local = local_function(graph, node)
    if local is not None:
        return local
    schema = node.schema
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        return _context_dependent(schema, node, graph.opsets.get(node.domain, node.since_version))
    if schema.has_function:
        return _written(schema, graph.opsets.get("", 1))
    return None


def unfold(graph: Graph, node: Node, function: Any) -> tuple[list[Node], list[Value | None]]:
    """The function's nodes, reading the node's inputs, and the values that stand for the node's outputs. Values get the names
    ``node/inner``; nodes and values belong to ``graph`` but are not put into it."""
    if len(node.inputs) > len(function.input) or len(node.outputs) > len(function.output):
        raise Fail(
            f"Node ({node.name}) Op ({node.op_type}) has {len(node.inputs)} inputs and {len(node.outputs)} outputs, the function "
            f"has {len(function.input)} and {len(function.output)}"
        )
    given = [*node.inputs, *[None] * (len(function.input) - len(node.inputs))]
    own, scope = _attributes(node)
    scope.update((name, value) for name, value in zip(function.input, given, strict=True) if value is not None)
    absent = {name for name, value in zip(function.input, given, strict=True) if value is None}
    for proto in function.node:
        for name in proto.output:
            if name in scope or name in absent:
                raise Fail(f"Function '{function.name}' of domain '{function.domain}' defines '{name}' twice.")
            if name:
                scope[name] = Value(graph.names.value(node.name + SEPARATOR + name))
    builder = Builder()
    attributes = _defaults(node) | {a.name: a for a in (*function.attribute_proto, *own)}
    opsets = {**graph.opsets, **opset_imports(function)}
    bound = [_bind(proto, attributes, absent) for proto in function.node]
    for proto in bound:
        _drop_trailing(proto)
    nodes = [builder.node(graph, proto, scope, node.name + SEPARATOR, opsets) for proto in bound]
    for inner in nodes:
        inner.origin = node.origin
    builder.differentiated(graph, nodes, bound, scope, opsets)
    return nodes, [
        _result(name, value, scope, function) for name, value in zip(function.output, node.outputs, strict=False)
    ]


def _attributes(node: Node) -> tuple[list[Any], dict[str, Value]]:
    """The node's attributes, nested graphs as passes left them, and the outer values that these read: by names that no body
    has, since they will stand inside one."""
    from onnx import AttributeProto

    protos: list[Any] = []
    outer: dict[str, Value] = {}
    for proto in node.attribute_protos:
        nested = node.subgraphs.get(proto.name)
        if nested is not None:
            captured = {v.name: v for v in nested.free_values()}
            names = {name: node.name + SEPARATOR + name for name in captured}
            outer.update((names[name], value) for name, value in captured.items())
            proto = AttributeProto(name=proto.name, type=proto.type, g=_renamed(graph_proto(nested), names))
        protos.append(proto)
    return protos, outer


def _renamed(graph: Any, names: Mapping[str, str]) -> Any:
    """The GraphProto with values it reads renamed, in place."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        for attribute in node.attribute:
            if attribute.type == attribute.GRAPH:
                _renamed(attribute.g, names)
    for output in graph.output:
        output.name = names.get(output.name, output.name)
    return graph


def _defaults(node: Node) -> dict[str, Any]:
    """The attributes that an operator has when a node leaves them out."""
    formal = {} if node.schema is None else node.schema.attributes
    return {name: a.default_value for name, a in formal.items() if a.default_value.type}


def _result(name: str, wanted: Value | None, scope: Mapping[str, Value], function: Any) -> Value | None:
    if wanted is None:
        return None
    if name not in scope:
        raise InvalidGraph(
            f"This is an invalid model. Output '{name}' of function '{function.name}' of domain '{function.domain}' is not made."
        )
    return scope[name]


def _written(schema: Any, opset: int) -> Any:
    """The body as onnx wrote it for the newest opset that is not above ``opset``."""
    usable = [v for v in schema.function_opset_versions if v <= opset] or list(schema.function_opset_versions)
    return _parsed(schema.get_function_with_opset_version(max(usable)))


def _context_dependent(schema: Any, node: Node, opset: int) -> Any:
    types = [
        type_to_proto(v.type).SerializeToString() if v is not None and v.type is not None else b"" for v in node.inputs
    ]
    call = node_proto(node)
    del call.attribute[:]
    call.attribute.extend(_attributes(node)[0])
    for index, name in enumerate(call.output):
        call.output[index] = name or f"\0{index}"  # the body of SequenceMap makes all of them
    text = call.SerializeToString()
    versions = schema.context_dependent_function_opset_versions
    usable = [v for v in versions if v <= opset] or list(versions)
    function = _parsed(schema.get_context_dependent_function_with_opset_version(max(usable), text, types))
    return function if function.node else None


def _parsed(body: bytes) -> Any:
    from onnx import FunctionProto

    return FunctionProto.FromString(body)


def _bind(proto: Any, attributes: Mapping[str, Any], absent: set[str]) -> Any:
    """A copy of a function's node, nested graphs included, with attribute references replaced by the caller's attributes and
    reads of inputs the caller left out blanked."""
    from onnx import NodeProto

    copy = NodeProto()
    copy.CopyFrom(proto)
    for index, name in enumerate(copy.input):
        if name in absent:
            copy.input[index] = ""
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
            own = {v.name for v in attribute.g.input} | {t.name for t in attribute.g.initializer}
            nodes = [_bind(n, attributes, absent - own) for n in attribute.g.node]
            del added.g.node[:]
            added.g.node.extend(nodes)
    return copy


def _drop_trailing(proto: Any) -> None:
    while proto.input and not proto.input[-1] and proto.op_type not in ("Loop", "Scan"):
        del proto.input[-1]
