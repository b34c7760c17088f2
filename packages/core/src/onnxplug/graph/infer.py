"""Type and shape inference, one node at a time: by onnx, by the bodies of constructs and functions, by rules of our own."""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.types import OptionalType, TensorType, ValueType
from onnxplug.graph.build import arrange
from onnxplug.graph.check import check_types
from onnxplug.graph.constants import constant_array
from onnxplug.graph.functions import local_function, unfold
from onnxplug.graph.infer_bodies import Infer, Types, gradient, if_, loop, scan
from onnxplug.graph.infer_ml import ML, with_shapes
from onnxplug.graph.infer_onnx import inferred_by_onnx
from onnxplug.graph.infer_slices import cut_type
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.names import Names
from onnxplug.graph.schemas import EP_CONTEXT, GENERATION
from onnxplug.graph.told import tell, told_types
from onnxplug.graph.type_rules import has_more, merge
from onnxplug.graph.value import Value

_DATA_LIMIT = 4096  # elements; shape arguments are small, and larger constants never decide a shape


def infer_graph(graph: Graph) -> None:
    """Fill in the types of every value, nested graphs included. Raises Fail when types contradict the operators'
    schemas."""
    for node in graph.nodes:
        infer_node(graph, node)


def infer_node(graph: Graph, node: Node) -> None:
    """Types of one node's outputs from its inputs' types, merged with what the model declares. Fail where an element type
    contradicts the declared one."""
    if (node.domain, node.op_type) not in _OWN:
        for body in node.subgraphs.values():  # graphs given to a function: as far as their inputs declare types
            infer_graph(body)
    constants: dict[str, np.ndarray] = {}
    if node.schema is not None:
        constants = _constants(node)
        inferred = _of_schema(node, [v.type if v is not None else None for v in node.inputs], constants)
    elif (function := local_function(graph, node)) is not None:
        inferred = _of_function(graph, node, function)
    else:
        inferred = output_types(node, [v.type if v is not None else None for v in node.inputs], {})
    noted = any(v is not None and v.is_noted for v in node.inputs)
    told = told_types(node, inferred, lambda given: _of_schema(node, given, constants, plain=True))
    for value, type_, less in zip(node.outputs, inferred, told, strict=False):
        if value is not None:
            _check_element(node, value, type_)
            tell(graph, value, type_, less)
            value.type = merge(value.type, type_)
            follows = merge(type_, cut_type(node)) if node.op_type == "Slice" else type_
            value.is_noted = noted or (node.schema is not None and has_more(value.type, follows))


def infer_parts(graph: Graph, nodes: Set[Node]) -> None:
    """Infer ``nodes`` of ``graph``, and what depends on them as far as types change."""
    changed: set[Value] = set()
    for node in graph.nodes:
        if node in nodes or not changed.isdisjoint(node.reads):
            old = [None if v is None else v.type for v in node.outputs]
            infer_node(graph, node)
            changed.update(v for v, type_ in zip(node.outputs, old, strict=True) if v is not None and v.type != type_)


_inferred: OrderedDict[Any, Types] = OrderedDict()
"""What was inferred for nodes without bodies, the latest used last: a network's layers are alike, and so are sessions of one
model."""
_REMEMBERED = 4096


def _of_schema(node: Node, inputs: Types, constants: Mapping[str, np.ndarray], plain: bool = False) -> Types:
    """Types of the outputs of a node whose operator has a schema, which its inputs must fit; ``plain``: as onnx alone infers them."""
    if (node.domain, node.op_type) in _OWN:
        check_types(node)
        return output_types(node, inputs, constants)
    known = (None if v is None or (a := constants.get(v.name)) is None else _text_of(a) for v in node.inputs)
    omitted = tuple(v is None for v in node.outputs)
    key = node.schema, node.signature, tuple(inputs), omitted, tuple(known), plain
    found = _inferred.pop(key, None)
    if found is None:
        check_types(node)
        found = (inferred_by_onnx if plain else output_types)(node, inputs, constants)
    _inferred[key] = found
    while len(_inferred) > _REMEMBERED:
        with contextlib.suppress(KeyError):  # another thread was first
            _inferred.popitem(last=False)
    return found


def _text_of(array: np.ndarray) -> tuple[np.dtype, tuple[int, ...], bytes | str]:
    """What tells small constants apart."""
    return array.dtype, array.shape, repr(array.tolist()) if array.dtype == object else array.tobytes()


def output_types(node: Node, inputs: Types, constants: Mapping[str, np.ndarray | None]) -> Types:
    """Output types for given input types and known small constant inputs (by value name); None where nothing is
    known."""
    own = _OWN.get((node.domain, node.op_type))
    if own is not None:
        return own(node, inputs, infer_graph)
    if node.schema is None:
        return _without_schema(node, inputs)
    found = inferred_by_onnx(node, inputs, constants)
    return with_shapes(node, inputs, found) if node.domain == ML else found


def _of_function(graph: Graph, node: Node, function: Any) -> Types:
    """Types of the outputs of a model-local function: its body is unfolded aside and inferred."""
    aside = Graph(node.name, graph.opsets, graph.schemas, graph)
    aside.names = Names()
    aside.nodes, results = unfold(aside, node, function)
    arrange(aside)
    infer_graph(aside)
    return [None if v is None else v.type for v in results]


def _without_schema(node: Node, inputs: Types) -> Types:
    """An operator that nobody brings a schema of: the element type of the first tensor input, nothing about the shape."""
    first = next((t for t in inputs if isinstance(t, TensorType)), None)
    return [TensorType(first.element) if first is not None and i == 0 else None for i in range(len(node.outputs))]


def _constants(node: Node) -> dict[str, np.ndarray]:
    """The small constants that a node reads, by name. Fail where one cannot be read, unless the node forbids its type."""
    try:
        return {v.name: array for v in node.inputs if v is not None and (array := _known(v)) is not None}
    except Fail:
        check_types(node)
        raise


def _known(value: Value) -> np.ndarray | None:
    """The array of a value that is a small constant, or made by a Constant node."""
    if value.is_constant:
        return value.constant if _small(value) else None
    made_by = value.producer
    if made_by is None or made_by.op_type != "Constant" or made_by.domain or "sparse_value" in made_by.attributes:
        return None
    array = constant_array(made_by)
    return array if array.size <= _DATA_LIMIT else None


def _small(value: Value) -> bool:
    shape = value.type.static_shape if isinstance(value.type, TensorType) else None
    return shape is not None and math.prod(shape) <= _DATA_LIMIT


def _as_declared(node: Node, inputs: Types, infer: Infer) -> Types:
    return [None] * len(node.outputs)


def _like_first(node: Node, inputs: Types, infer: Infer) -> Types:
    return inputs[:1]


def _generated(node: Node, inputs: Types, infer: Infer) -> Types:
    from onnxplug.graph.generation import generated  # which few models have

    return generated(node, inputs, infer)


_OWN: dict[tuple[str, str], Callable[[Node, Types, Infer], Types]] = {
    ("", "GroupNormalization"): _like_first,  # onnx infers nothing for version 18, which it has withdrawn
    ("", "MeanVarianceNormalization"): _like_first,  # nor for this one
    ("", "If"): if_,
    ("", "Loop"): loop,
    ("", "Scan"): scan,
    ("ai.onnx.preview.training", "Gradient"): gradient,
    EP_CONTEXT: _as_declared,
    **{("com.microsoft", op_type): _generated for op_type in GENERATION},
}


def _check_element(node: Node, value: Value, inferred: ValueType | None) -> None:
    declared = value.type  # of whatever shape: they are not in the text
    if isinstance(inferred, OptionalType) and not isinstance(declared, OptionalType):
        inferred = inferred.element  # of what there is: a Loop that begins with nothing may end with something
    if declared is not None and inferred is not None and str(declared) != str(inferred):
        raise Fail(
            f"Type Error: Type ({declared}) of output arg ({value.name}) of node ({node.name}) does not match expected type "
            f"({inferred})."
        )
