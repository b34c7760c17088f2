"""Nodes of operator Constant: what they give, and which of several definitions of a name counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.types import TensorType, element_of
from onnxplug.graph.check import check_initializer
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.value import Value
from onnxplug.load.model import normal_domain

DUPLICATE = (
    "Duplicate initializer (dense, sparse or ConstantNode): '{}' the model will use the latest encountered initializer. "
    "Please, fix your model."
)
OVERRIDABLE = (
    "Initializer {} appears in graph inputs and will not be treated as constant value/weight. This may prevent some of the graph "
    "optimizations, like const folding. Move it out of graph inputs if there is no need to override it, by either re-generating the "
    "model with latest exporter/converter or with the tool onnxruntime/tools/python/remove_initializer_from_input.py."
)
UNREAD = "Removing initializer '{}'. It is not used by any node and should be removed from the model."
"""onnxruntime's remarks on a model's constants, with their names."""


def earlier_constant(name: str, node: Any, nodes: Sequence[Any]) -> Any:
    """The Constant among GraphProto's ``nodes`` whose output the Constant ``node`` defines anew; None where that is an initializer or a
    graph input. Fail where either is another operator."""
    earlier = next(each for each in nodes if name in each.output)
    if any(each.op_type != "Constant" or normal_domain(each.domain) for each in (earlier, node)):
        raise Fail(f"This is an invalid model. Error: Duplicate definition of name ({name}).")
    return None if earlier is node else earlier


def fill_constant(graph: Graph, value: Value, node: Node, overridable: bool) -> None:
    """Give an initializer of ``graph``, or a graph input, what the Constant ``node`` of its name holds, as onnxruntime does: an input that
    is ``overridable`` as what it is unless fed. Fail where it is of another type."""
    array = constant_array(node)
    type_ = TensorType(element_of(array.dtype), array.shape)
    check_initializer(value.name, value.type, type_)
    value.type = value.type or type_
    if overridable and value in graph.inputs:
        value.default = array
        graph.remarks.append(OVERRIDABLE.format(value.name))
        return
    graph.inputs = [v for v in graph.inputs if v is not value]
    value.hold(array)
    graph.initializers[value.name] = value


def value_attributes(protos: Sequence[Any], schema: Any) -> list[Any]:
    """The AttributeProtos of a Constant that say its value, all if none does: onnxruntime reads no others, and onnxsim leaves marks beside
    it. A sparse tensor under the name ``value``, which onnxruntime takes too, gets the name that ONNX has for it."""
    found = [proto for proto in protos if proto.name in schema.attributes] or list(protos)
    for at, proto in enumerate(found):
        if (proto.name, proto.type) == ("value", proto.SPARSE_TENSOR):
            found[at] = type(proto)()
            found[at].CopyFrom(proto)
            found[at].name = "sparse_value"
    return found


def sparse_outputs(graph: Graph, initializers: Collection[str]) -> Iterator[str]:
    """Names of the outputs that are sparse constants themselves: ``initializers`` of the graph, or a Constant's."""
    for value in graph.outputs:
        made_by = value.producer
        if made_by is None:
            if value.is_constant and value.name in initializers:
                yield value.name
        elif (made_by.op_type, made_by.domain) == ("Constant", "") and "sparse_value" in made_by.attributes:
            yield value.name


def unread(graph: Graph, initializers: Iterable[str]) -> Iterator[str]:
    """Names of the constants that nothing reads: ``initializers`` that the graph has dropped, and what Constants give."""
    yield from (name for name in initializers if name not in graph.initializers)
    for node in graph.nodes:
        if node.op_type == "Constant" and not node.domain:
            yield from (v.name for v in node.outputs if v is not None and not v.consumers and v not in graph.outputs)


def constant_of(value: Value) -> np.ndarray:
    """The array of a value that is constant, or that a node of operator Constant gives."""
    array = value.constant
    if array is None:
        assert value.producer is not None
        array = constant_array(value.producer)
    return array


def constant_array(node: Node) -> np.ndarray:
    """What a node of operator Constant gives (a sparse value as the dense array it stands for)."""
    (name, value), *_ = node.attributes.items()
    dtypes: dict[str, Any] = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    return np.array(value, dtypes.get(name, object if name.startswith("value_string") else None))
