"""Between protobuf messages and the graph's own types: value types, attributes, nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug._onnx import defer
from onnxplug.contract.errors import InvalidArgument, InvalidProtobuf
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


def declared_type(proto: Any) -> ValueType | None:
    """The type that a model declares; None where it says nothing. InvalidArgument for the number of no element type."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type" and proto.tensor_type.elem_type not in ELEMENT_NAMES:
        raise InvalidArgument(
            f"Failed to load model with error: Invalid tensor data type {proto.tensor_type.elem_type}."
        )
    return type_from_proto(proto)


def _dim(dim: Any) -> Dim:
    which = dim.WhichOneof("value")
    if which == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return utf8_name(dim.dim_param) or None if which == "dim_param" else None


def utf8_name(name: Any) -> str:
    """A name of the model. InvalidProtobuf for what is no UTF-8, of which protobuf gives the bytes."""
    if not isinstance(name, str):
        raise InvalidProtobuf(f"The name {name!r} is not UTF-8 text")
    return name


def array_to_proto(name: str, array: np.ndarray) -> Any:
    """The TensorProto of an array."""
    from onnx import TensorProto

    element = element_of(array.dtype)
    if element in BITS or element == "string":
        from onnx import numpy_helper

        return numpy_helper.from_array(array, name)
    data = array if sys.byteorder == "little" else array.byteswap()
    return TensorProto(name=name, data_type=ELEMENT_CODES[element], dims=array.shape, raw_data=data.tobytes())


GRAPH, GRAPHS = 5, (5, 10)
"""Numbers in AttributeProto.AttributeType: a graph, and all kinds of graphs."""
_READERS: tuple[Callable[[Any, str], Any], ...] = (
    lambda a, folder: list(a.graphs),  # UNDEFINED
    lambda a, folder: a.f,
    lambda a, folder: a.i,
    lambda a, folder: a.s.decode("utf-8", "surrogateescape"),
    lambda a, folder: tensor_array(a.t, folder),
    lambda a, folder: a.g,
    lambda a, folder: list(a.floats),
    lambda a, folder: list(a.ints),
    lambda a, folder: [s.decode("utf-8", "surrogateescape") for s in a.strings],
    lambda a, folder: [tensor_array(t, folder) for t in a.tensors],
    lambda a, folder: list(a.graphs),
    lambda a, folder: sparse_array(a.sparse_tensor, folder),
    lambda a, folder: list(a.sparse_tensors),
    lambda a, folder: a.tp,
    lambda a, folder: list(a.type_protos),
)
"""What reads an attribute, by those numbers."""


def attribute_value(proto: Any, folder: str) -> Any:
    """int, float, str, array, or a list of those; TypeProtos and graphs pass through."""
    return _READERS[proto.type](proto, folder)


def attribute_from_bytes(data: bytes) -> Any:
    """The AttributeProto that was serialized."""
    defer()
    from onnx import AttributeProto

    return AttributeProto.FromString(data)


def function_from_bytes(data: bytes) -> Any:
    """The FunctionProto that was serialized."""
    defer()
    from onnx import FunctionProto

    return FunctionProto.FromString(data)


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
