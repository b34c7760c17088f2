"""Graph back to ModelProto, for ``optimized_model_filepath``."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.graph.ir import Graph, Node, Value
from onnxplug.graph.protos import node_proto, type_to_proto

_INLINE_LIMIT = 1 << 31
"""A protobuf message cannot be larger; beyond it the weights go to a file beside the model."""


def save_graph(graph: Graph, model: Any, path: str) -> None:
    """Write the graph as a model with the metadata of ``model``. Fail when the file cannot be written."""
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(_frame(model))
    proto.graph.CopyFrom(graph_proto(graph))
    proto.graph.doc_string = model.graph.doc_string
    size = sum(v.constant.nbytes for v in graph.initializers.values() if v.constant is not None)
    try:
        external = size >= _INLINE_LIMIT
        onnx.save(
            proto, path, save_as_external_data=external, location=os.path.basename(path) + ".data" if external else None
        )
    except OSError as error:
        raise Fail(f"Cannot write the optimized model to '{path}': {error.strerror or error}") from error


def graph_proto(graph: Graph) -> Any:
    """The GraphProto of a graph, nested graphs included."""
    import onnx

    proto = onnx.GraphProto(name=graph.name)
    proto.input.extend(_info(v) for v in graph.inputs)
    proto.output.extend(_info(v) for v in graph.outputs)
    proto.node.extend(map(_node, graph.nodes))
    for value in graph.initializers.values():
        proto.initializer.append(_tensor(value, value.constant))
    for value in graph.inputs:
        if value.default is not None:
            proto.initializer.append(_tensor(value, value.default))
    return proto


def _frame(model: Any) -> Any:
    import onnx

    frame = onnx.ModelProto(
        ir_version=model.ir_version, producer_name=model.producer_name, producer_version=model.producer_version, domain=model.domain,
        doc_string=model.doc_string,
    )  # fmt: skip
    if model.HasField("model_version"):
        frame.model_version = model.model_version
    frame.opset_import.extend(model.opset_import)
    frame.metadata_props.extend(model.metadata_props)
    frame.functions.extend(model.functions)
    return frame


def _node(node: Node) -> Any:
    proto = node_proto(node)
    for attribute in proto.attribute:
        if attribute.name in node.subgraphs:
            attribute.g.CopyFrom(graph_proto(node.subgraphs[attribute.name]))
    return proto


def _info(value: Value) -> Any:
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
