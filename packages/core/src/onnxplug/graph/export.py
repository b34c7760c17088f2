"""Graph back to ModelProto, for ``optimized_model_filepath``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.contract.model import type_to_proto
from onnxplug.graph.build import GRADIENT_BODY, is_gradient
from onnxplug.graph.external import move_out
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.protos import array_to_proto, node_proto
from onnxplug.graph.schemas import EP_CONTEXT
from onnxplug.graph.value import Value
from onnxplug.load.model import normal_domain

_CONTRIB = "com.microsoft"
_SEPARATE = 4
"""The IR version from which on initializers need not be graph inputs."""
_INLINE_LIMIT = 1 << 31
"""A protobuf message cannot be larger; beyond it the weights go to a file beside the model."""
_SMALL = 1024
"""What stays in the model then, in bytes: a file of its own pages is no gain for it."""


def save_graph(graph: Graph, model: Any, path: str, weights: str = "", least: int = 0) -> None:
    """Write the graph as a model with the metadata of ``model``; initializers of at least ``least`` bytes into the file
    ``weights`` beside it, if that is given. InvalidArgument when a file cannot be written."""
    proto = model_proto(graph, model)
    size = sum(v.constant.nbytes for v in graph.initializers.values() if v.constant is not None)
    if not weights and size >= _INLINE_LIMIT:
        weights, least = os.path.basename(path) + ".data", _SMALL
    if weights:
        move_out(proto, os.path.dirname(path) or os.curdir, weights, least)
    try:
        with open(path, "wb") as file:
            file.write(proto.SerializeToString())
    except OSError as error:
        raise InvalidArgument(f"Cannot write the optimized model to '{path}': {error.strerror or error}") from error


def model_proto(graph: Graph, model: Any) -> Any:
    """The ModelProto of a graph with the metadata of ``model``."""
    proto = _frame(model)
    proto.opset_import.extend(_imports(graph, model))
    proto.graph.CopyFrom(graph_proto(graph))
    proto.graph.doc_string = model.graph.doc_string
    return proto


def graph_proto(graph: Graph) -> Any:
    """The GraphProto of a graph, nested graphs included."""
    import onnx

    proto = onnx.GraphProto(name=graph.name)
    proto.input.extend(value_info(v) for v in graph.inputs)
    proto.output.extend(value_info(v) for v in graph.outputs)
    contexts = [node for node in graph.nodes if (node.domain, node.op_type) == EP_CONTEXT]
    proto.value_info.extend(value_info(v) for node in contexts for v in node.outputs if v is not None)
    for node in graph.nodes:
        proto.node.extend(_nodes(node))
    constants = [*graph.initializers.values(), *_gradient_constants(graph.nodes)]
    sparse = [value for value in constants if value.name in graph.sparse_outputs]
    proto.initializer.extend(_tensor(value, value.constant) for value in constants if value not in sparse)
    proto.sparse_initializer.extend(map(_sparse, sparse))
    for value in graph.inputs:
        if value.default is not None:
            proto.initializer.append(_tensor(value, value.default))
    return proto


def _frame(model: Any) -> Any:
    import onnx

    frame = onnx.ModelProto(
        ir_version=max(model.ir_version, _SEPARATE),
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        doc_string=model.doc_string,
    )
    if model.HasField("model_version"):
        frame.model_version = model.model_version
    frame.metadata_props.extend(model.metadata_props)
    frame.functions.extend(model.functions)
    return frame


def _imports(graph: Graph, model: Any) -> list[Any]:
    """What the model imports, and the domains besides that it may do without here: tools declare none of the contrib operators that they
    put into a model which onnxruntime has saved, as it imports what it knows."""
    import onnx

    named = {normal_domain(each.domain) for each in model.opset_import}
    more = {"": graph.opset(""), _CONTRIB: graph.schemas.newest(_CONTRIB)}
    more.update({node.domain: graph.schemas.newest(node.domain) for node in graph.walk() if node.domain not in more})
    return [
        *model.opset_import,
        *(
            onnx.helper.make_opsetid(domain, version)
            for domain, version in more.items()
            if version and domain not in named
        ),
    ]


def _nodes(node: Node) -> list[Any]:
    """The node as it is in a file, behind what it needs beside it.

    A Gradient names tensors of the graph around it, which other passes may have taken away since; the sub-graph it was
    given is written beside it, and what it names is that.
    """
    import onnx

    if not is_gradient(node):
        return [whole_node_proto(node)]
    body, proto = node.subgraphs[GRADIENT_BODY], node_proto(node)
    ends = [v.name for v in body.inputs]
    values = zip(node.inputs, ends, strict=True)
    starts = [onnx.helper.make_node("Identity", [v.name], [end]) for v, end in values if v is not None]
    count = len(node.attributes["xs"])
    for attribute in proto.attribute:
        if attribute.name == "y":
            attribute.s = body.outputs[0].name.encode()
        else:
            names = ends[:count] if attribute.name == "xs" else ends[count:]
            attribute.strings[:] = [name.encode() for name in names]
    return [*starts, *(inner for n in body.nodes for inner in _nodes(n)), proto]


def _gradient_constants(nodes: Iterable[Node]) -> Iterator[Value]:
    for node in nodes:
        if is_gradient(node):
            body = node.subgraphs[GRADIENT_BODY]
            yield from body.initializers.values()
            yield from _gradient_constants(body.nodes)


def whole_node_proto(node: Node) -> Any:
    """The NodeProto of a node, its nested graphs in it."""
    proto = node_proto(node)
    for attribute in proto.attribute:
        if attribute.name in node.subgraphs:
            attribute.g.CopyFrom(graph_proto(node.subgraphs[attribute.name]))
    return proto


def value_info(value: Value) -> Any:
    """The ValueInfoProto of a value."""
    import onnx

    info = onnx.ValueInfoProto(name=value.name)
    if value.type is not None:
        info.type.CopyFrom(type_to_proto(value.type))
    return info


def _tensor(value: Value, array: np.ndarray | None) -> Any:
    from onnx import numpy_helper

    if array is None:
        raise Fail(f"Initializer '{value.name}' has no data to save")
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), value.name)


def _sparse(value: Value) -> Any:
    """The SparseTensorProto of a constant, by linear indices."""
    import onnx

    array = value.constant
    assert array is not None
    places = np.flatnonzero(array)
    values, indices = array_to_proto(value.name, array.ravel()[places]), array_to_proto("", places.astype(np.int64))
    return onnx.SparseTensorProto(values=values, indices=indices, dims=array.shape)
