"""Between protobuf messages and the graph's own types: value types, attributes, nodes."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.contract.types import (
    ELEMENT_CODES,
    ELEMENT_NAMES,
    Dim,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
    element_of,
)
from onnxplug.load.tensors import BITS, sparse_array, tensor_array

if TYPE_CHECKING:
    from onnxplug.graph.ir import Node


def type_from_proto(proto: Any) -> ValueType | None:
    """The type of a TypeProto; None when it says nothing."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        if tensor.elem_type not in ELEMENT_NAMES:
            return None
        shape = tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else None
        return (TensorType if kind == "tensor_type" else SparseTensorType)(ELEMENT_NAMES[tensor.elem_type], shape)
    if kind == "map_type":
        key, value = ELEMENT_NAMES.get(proto.map_type.key_type), type_from_proto(proto.map_type.value_type)
        return None if key is None or value is None else MapType(key, value)
    if kind in ("sequence_type", "optional_type"):
        element = type_from_proto(getattr(proto, kind).elem_type)
        return None if element is None else (SequenceType if kind == "sequence_type" else OptionalType)(element)
    return None


def _dim(dim: Any) -> Dim:
    which = dim.WhichOneof("value")
    if which == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return dim.dim_param or None if which == "dim_param" else None


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
                    added.dim_value = dim
                elif dim:
                    added.dim_param = dim
    elif isinstance(type_, MapType):
        proto.map_type.key_type = ELEMENT_CODES[type_.key]
        proto.map_type.value_type.CopyFrom(type_to_proto(type_.value))
    else:
        inner = proto.sequence_type if isinstance(type_, SequenceType) else proto.optional_type
        inner.elem_type.CopyFrom(type_to_proto(type_.element))
    return proto


def array_to_proto(name: str, array: np.ndarray) -> Any:
    """The TensorProto of an array."""
    from onnx import TensorProto

    element = element_of(array.dtype)
    if element in BITS or element == "string":
        from onnx import numpy_helper

        return numpy_helper.from_array(array, name)
    data = array if sys.byteorder == "little" else array.byteswap()
    return TensorProto(name=name, data_type=ELEMENT_CODES[element], dims=array.shape, raw_data=data.tobytes())


@functools.cache
def _attribute_kinds() -> dict[int, str]:
    from onnx import AttributeProto

    return {number: name for name, number in AttributeProto.AttributeType.items()}


def attribute_value(proto: Any, folder: Path) -> Any:
    """int, float, str, array, or a list of those; TypeProtos and graphs pass through."""
    kind = _attribute_kinds()[proto.type]
    match kind:
        case "FLOAT" | "INT":
            return proto.f if kind == "FLOAT" else proto.i
        case "STRING":
            return proto.s.decode("utf-8", "surrogateescape")
        case "TENSOR":
            return tensor_array(proto.t, folder)
        case "SPARSE_TENSOR":
            return sparse_array(proto.sparse_tensor, folder)
        case "FLOATS" | "INTS":
            return list(proto.floats if kind == "FLOATS" else proto.ints)
        case "STRINGS":
            return [s.decode("utf-8", "surrogateescape") for s in proto.strings]
        case "TENSORS":
            return [tensor_array(t, folder) for t in proto.tensors]
        case "TYPE_PROTO":
            return proto.tp
        case "TYPE_PROTOS":
            return list(proto.type_protos)
        case _:
            return proto.g if kind == "GRAPH" else list(proto.graphs)


def node_proto(node: Node) -> Any:
    """A NodeProto with this node's current operand names; nested graphs only as far as ``attribute_protos`` holds
    them."""
    from onnx import NodeProto

    proto = NodeProto(op_type=node.op_type, domain=node.domain, name=node.name)
    if node.overload:
        proto.overload = node.overload
    proto.input.extend("" if v is None else v.name for v in node.inputs)
    proto.output.extend("" if v is None else v.name for v in node.outputs)
    proto.attribute.extend(node.attribute_protos)
    return proto
