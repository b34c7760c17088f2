"""Nodes of a graph as an ONNX model, for a provider over a library that reads such models.

``boundary`` and ``onnx_model`` are imported from ``onnxplug.contract.model``. A region's model is
``onnx_model(region.graph, region.graph.nodes, region.inputs, region.outputs)``; that of nodes which nobody has claimed yet takes its
inputs and outputs from ``boundary``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.contract.graph import GraphView, NodeView, ValueView
from onnxplug.contract.types import (
    ELEMENT_CODES,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
)

if TYPE_CHECKING:
    import onnx

SMALL = 4096
"""Bytes up to which a constant lies in the model: shapes, axes and such, which readers look at before they load what is large."""
_SHARED = frozenset({"string", "int4", "uint4", "int2", "uint2", "float4e2m1", "float6e2m3", "float6e3m2"})
"""Elements that share bytes in a model, or have none of fixed number: such constants lie in it whatever their size."""
IR_VERSION = 10
LOCATION = "constants"


def boundary(graph: GraphView, nodes: Sequence[NodeView]) -> tuple[list[ValueView], list[ValueView]]:
    """The inputs and outputs that a region of these nodes of ``graph`` has: what they read from outside, but for constants, and what others
    read of their results, the graph's own outputs among it."""
    inside, results = {id(n) for n in nodes}, {id(v) for v in graph.outputs}
    made = {id(v) for n in nodes for v in n.outputs if v is not None}
    read = {id(v): v for n in nodes for v in _reads(n)}
    inputs = [v for key, v in read.items() if key not in made and not v.is_constant]
    outputs = [
        v for n in nodes for v in n.outputs
        if v is not None and (id(v) in results or any(id(c) not in inside for c in v.consumers))
    ]  # fmt: skip
    return inputs, outputs


def onnx_model(
    graph: GraphView,
    nodes: Sequence[NodeView],
    inputs: Sequence[ValueView],
    outputs: Sequence[ValueView],
    newest: Mapping[str, int] | None = None,
    apart_as_inputs: bool = False,
) -> tuple[onnx.ModelProto, dict[str, ValueView]]:
    """The nodes, which are some of ``graph``'s in their order there, as an ``onnx.ModelProto`` under the names they have here, and by
    name the constants that are not in it: those of more than 4 KB are external data without a file, so that weights are not serialized and
    the model stays below protobuf's 2 GB.

    ``newest``: up to which version the reader knows a domain; the model imports no later one unless a node is of it.
    ``apart_as_inputs``: the constants that are not in the model are inputs of it behind the others, for a reader that cannot be handed
    external data, but can have a value take an input's place.
    """
    from onnx import GraphProto, ModelProto, numpy_helper

    constants = {v.name: v for n in nodes for v in _reads(n) if v.is_constant}
    apart = {name: v for name, v in constants.items() if _is_large(v)}
    proto = GraphProto(name=graph.name or "graph")
    proto.node.extend(n.proto() for n in nodes)
    proto.input.extend(_described(v, v.type) for v in inputs)
    proto.output.extend(_described(v, _without_sizes(v.type)) for v in outputs)
    for name, value in constants.items():
        if name in apart and apart_as_inputs:
            proto.input.append(_described(value, value.type))
        elif name in apart:
            proto.initializer.append(_external(value))
        elif (array := value.constant) is not None:
            proto.initializer.append(numpy_helper.from_array(array, name))
    model = ModelProto(ir_version=IR_VERSION, graph=proto)
    for domain, least in _versions(nodes).items():
        imported = graph.opset(domain) or least
        model.opset_import.add(domain=domain, version=max(least, min(imported, (newest or {}).get(domain, imported))))
    return model, apart


def type_to_proto(type_: ValueType) -> Any:
    """The TypeProto of a type."""
    from onnx import TypeProto

    proto = TypeProto()
    if isinstance(type_, TensorType | SparseTensorType):
        tensor = proto.tensor_type if isinstance(type_, TensorType) else proto.sparse_tensor_type
        tensor.elem_type = ELEMENT_CODES[type_.element]
        if type_.shape is not None:
            tensor.shape.SetInParent()
            for dim in type_.shape:
                added = tensor.shape.dim.add()
                if isinstance(dim, int):
                    if dim < 1 << 63:  # what is worked out of sizes a model declares may be more, and is left open
                        added.dim_value = dim
                elif dim:
                    added.dim_param = dim
    elif isinstance(type_, MapType):
        proto.map_type.key_type = ELEMENT_CODES[type_.key]
        proto.map_type.value_type.CopyFrom(type_to_proto(type_.value))
    else:
        assert isinstance(type_, SequenceType | OptionalType)
        inner = proto.sequence_type if isinstance(type_, SequenceType) else proto.optional_type
        inner.elem_type.CopyFrom(type_to_proto(type_.element))
    return proto


def _reads(node: NodeView) -> Iterator[ValueView]:
    yield from (v for v in node.inputs if v is not None)
    yield from node.captures


def _is_large(value: ValueView) -> bool:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.static_shape is None or type_.element in _SHARED:
        return False
    return math.prod(type_.static_shape) * type_.dtype.itemsize > SMALL


def _described(value: ValueView, type_: ValueType | None) -> onnx.ValueInfoProto:
    from onnx import ValueInfoProto

    info = ValueInfoProto(name=value.name)
    if type_ is not None:
        info.type.CopyFrom(type_to_proto(type_))
    return info


def _without_sizes(type_: ValueType | None) -> ValueType | None:
    """The type of an output for a reader that works out its sizes: those that a model only declares may be wrong."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    return TensorType(type_.element, (None,) * len(type_.shape))


def _external(value: ValueView) -> onnx.TensorProto:
    from onnx import TensorProto

    assert isinstance(value.type, TensorType) and value.type.static_shape is not None
    tensor = TensorProto(
        name=value.name, data_type=ELEMENT_CODES[value.type.element], dims=value.type.static_shape,
        data_location=TensorProto.EXTERNAL,
    )  # fmt: skip
    tensor.external_data.add(key="location", value=LOCATION)
    return tensor


def _versions(nodes: Iterable[NodeView]) -> dict[str, int]:
    """By domain the lowest version that has the nodes' operators as they are, nested ones included."""
    found: dict[str, int] = {}
    for node in nodes:
        found[node.domain] = max(found.get(node.domain, 1), node.since_version)
        for body in node.subgraphs.values():
            for domain, least in _versions(body.nodes).items():
                found[domain] = max(found.get(domain, 1), least)
    return found
