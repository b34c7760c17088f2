"""Type and shape inference, one node at a time, by onnx's own inference functions
(onnx.shape_inference.infer_node_outputs)."""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.types import (
    Dim,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
    element_of,
)
from onnxplug.graph.build import GRADIENT_BODY, arrange
from onnxplug.graph.check import check_types
from onnxplug.graph.functions import local_function, unfold
from onnxplug.graph.infer_ml import ML, with_shapes
from onnxplug.graph.ir import Graph, Names, Node, Value
from onnxplug.graph.protos import array_to_proto, node_proto, type_from_proto, type_to_proto
from onnxplug.graph.schemas import EP_CONTEXT

_DATA_LIMIT = 4096  # elements; shape arguments are small, and larger constants never decide a shape

_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, MemoryError)
"""What onnx's inference raises for damaged nodes, besides errors of its own."""

Types = list[ValueType | None]


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
    if node.schema is not None:
        constants = {v.name: array for v in node.inputs if v is not None and (array := _known(v)) is not None}
        inferred = _of_schema(node, [v.type if v is not None else None for v in node.inputs], constants)
    elif (function := local_function(graph, node)) is not None:
        inferred = _of_function(graph, node, function)
    else:
        inferred = output_types(node, [v.type if v is not None else None for v in node.inputs], {})
    for value, type_ in zip(node.outputs, inferred, strict=False):
        if value is not None:
            _check_element(node, value, type_)
            value.type = merge(value.type, type_)


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


def _of_schema(node: Node, inputs: Types, constants: Mapping[str, np.ndarray]) -> Types:
    """Types of the outputs of a node whose operator has a schema, which its inputs must fit."""
    if (node.domain, node.op_type) in _OWN:
        check_types(node)
        return output_types(node, inputs, constants)
    known = (None if v is None or (a := constants.get(v.name)) is None else _text_of(a) for v in node.inputs)
    omitted = tuple(v is None for v in node.outputs)
    key = node.schema, node.signature, tuple(inputs), omitted, tuple(known)
    found = _inferred.pop(key, None)
    if found is None:
        check_types(node)
        found = output_types(node, inputs, constants)
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
        return own(node, inputs)
    if node.schema is None:
        return _without_schema(node, inputs)
    found = _by_schema(node, inputs, constants)
    if (node.domain, node.op_type) == ("", "Reshape"):
        return _reshaped(inputs, found)
    return with_shapes(node, inputs, found) if node.domain == ML else found


def _by_schema(node: Node, inputs: Types, constants: Mapping[str, np.ndarray | None]) -> Types:
    from onnx import AttributeProto, OperatorSetIdProto, TypeProto, shape_inference
    from onnx.onnx_cpp2py_export.checker import ValidationError

    types = {
        v.name: TypeProto() if t is None else type_to_proto(t)
        for v, t in zip(node.inputs, inputs, strict=True)
        if v is not None
    }
    data = {
        name: array_to_proto(name, np.asarray(a))
        for name, a in constants.items()
        if a is not None and a.dtype != object
    }
    _check_reach(node)
    proto = node_proto(node)
    proto.name = ""
    for index, name in enumerate(proto.output):
        proto.output[index] = name or f"\0{index}"  # inference needs a name for omitted outputs too
    if (node.domain, node.op_type) == ("", "STFT") and "onesided" not in node.attributes:
        # onnx infers with 0, its schema's default is 1
        proto.attribute.append(AttributeProto(name="onesided", type=AttributeProto.INT, i=1))
    imports = [OperatorSetIdProto(domain=node.domain, version=node.since_version)]
    if node.domain:
        imports.append(OperatorSetIdProto(domain="", version=13))
    try:
        found = shape_inference.infer_node_outputs(node.schema, proto, types, data, opset_imports=imports)
    except (shape_inference.InferenceError, ValidationError, *_REFUSALS) as error:
        if any(v is not None and t is None for v, t in zip(node.inputs, inputs, strict=True)):
            return [None] * len(node.outputs)
        text = str(error).removeprefix("[ShapeInferenceError] ")
        raise Fail(f"Node ({node.name}) Op ({node.op_type}) [ShapeInferenceError] {text}") from None
    return [type_from_proto(found[name]) if name in found else None for name in proto.output]


_REACHES = {"LayerNormalization": ("axis", -(2**31), 2**31), "GatherND": ("batch_dims", 0, 2**31)}


def _check_reach(node: Node) -> None:
    """Fail for the numbers that onnx's inference takes as places in a shape without looking: it would end the process."""
    if node.op_type not in _REACHES:
        return
    name, least, end = _REACHES[node.op_type]
    value = node.attributes.get(name, 0)
    if isinstance(value, int) and not least <= value < end:
        raise Fail(
            f"Node ({node.name}) Op ({node.op_type}) [ShapeInferenceError] {name} {value} is not in any tensor's range"
        )


def _reshaped(inputs: Types, found: Types) -> Types:
    """A result has as many dimensions as its target shape has elements: before version 13 onnx leaves that open."""
    target, (made, *_) = inputs[-1], found
    if not isinstance(made, TensorType) or made.shape is not None or not isinstance(target, TensorType):
        return found
    count = _length(target)
    return [TensorType(made.element, (None,) * count)] if isinstance(count, int) and len(inputs) == 2 else found


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


def _known(value: Value) -> np.ndarray | None:
    """The array of a value that is a small constant, or made by a Constant node."""
    if value.is_constant:
        return value.constant if _small(value) else None
    made_by = value.producer
    if made_by is None or made_by.op_type != "Constant" or made_by.domain or "sparse_value" in made_by.attributes:
        return None
    array = constant_array(made_by)
    return array if array.size <= _DATA_LIMIT else None


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


def _small(value: Value) -> bool:
    shape = value.shape
    return shape is not None and all(isinstance(d, int) for d in shape) and math.prod(shape) <= _DATA_LIMIT  # type: ignore[arg-type]


# ---- operators with bodies: the bodies are inferred in place, the node's outputs follow from the bodies' outputs


def _if(node: Node, inputs: Types) -> Types:
    branches = [node.subgraphs["then_branch"], node.subgraphs["else_branch"]]
    for branch in branches:
        infer_graph(branch)
    pairs = [(a.type, b.type) for a, b in zip(branches[0].outputs, branches[1].outputs, strict=True)]
    for a, b in pairs:
        if isinstance(a, TensorType) and isinstance(b, TensorType) and a.element != b.element:
            raise Fail(f"Node ({node.name}) Op (If) [TypeInferenceError] the branches give {a} and {b}")
    return [common(a, b) for a, b in pairs]


def _loop(node: Node, inputs: Types) -> Types:
    """Carried values keep their sizes where the body, given them, gives them back, else their rank likewise: then every trip
    does."""
    body = node.subgraphs["body"]
    carried = [_anonymous(t) for t in inputs[2:]]
    declared = [(value, value.type) for value in _values(body)]
    sized = any(isinstance(t, TensorType) and t.static_shape for t in carried)
    try:
        kept = _kept(body, carried, declared)
    except Fail:  # of what the first trip is given, if there is one
        if not sized:
            raise
        _restore(declared)
        kept = _kept(body, [_ranked(t) for t in carried], declared)
    outputs: Types = [t or v.type for t, v in zip(kept, body.outputs[1:], strict=False)]
    return outputs + [_stacked(v.type) for v in body.outputs[1 + len(carried) :]]


def _kept(body: Graph, carried: Types, declared: list[tuple[Value, ValueType | None]]) -> Types:
    """The types that carried values have in every trip; the body is inferred for them."""
    while True:
        _set_inputs(body, [TensorType("int64", ()), TensorType("bool", ()), *carried])
        infer_graph(body)
        made = [_anonymous(v.type) for v in body.outputs[1 : 1 + len(carried)]]
        kept = [_in_both(t, m) for t, m in zip(carried, made, strict=False)]
        if kept == carried:
            return carried
        carried = kept
        _restore(declared)  # what followed from a size that is not kept is void


def _restore(declared: list[tuple[Value, ValueType | None]]) -> None:
    for value, type_ in declared:
        value.type = type_


def _in_both(given: ValueType | None, made: ValueType | None) -> ValueType | None:
    """What a trip was given as far as it gives it back."""
    if given == made:
        return given
    return _ranked(given) if _ranked(given) == _ranked(made) else _loosened(given)


def _anonymous(type_: ValueType | None) -> ValueType | None:
    """The type without the names of its dimensions: in a body they may name others."""
    if isinstance(type_, TensorType) and type_.shape is not None:
        return TensorType(type_.element, tuple(d if isinstance(d, int) else None for d in type_.shape))
    return type_


def _values(graph: Graph) -> Iterator[Value]:
    """The values of a graph and of those nested in it."""
    yield from graph.inputs
    for node in graph.nodes:
        yield from (v for v in node.outputs if v is not None)
        for body in node.subgraphs.values():
            yield from _values(body)


def _scan(node: Node, inputs: Types) -> Types:
    body = node.subgraphs["body"]
    old = node.since_version == 8  # version 8 has a batch axis and a leading sequence_lens input
    given = inputs[1:] if old else inputs
    scanned = int(node.attributes["num_scan_inputs"])
    states, moved = given[: len(given) - scanned], given[len(given) - scanned :]
    in_axes = node.attributes.get("scan_input_axes") or [0] * scanned
    slices = [_loosened(t) if old else _sliced(t, axis) for t, axis in zip(moved, in_axes, strict=True)]
    _set_inputs(body, [*([_loosened(t) for t in states] if old else states), *slices])
    infer_graph(body)
    made = body.outputs[len(states) :]
    if old:
        return [_loosened(v.type) for v in body.outputs]
    state_types: Types = [v.type for v in body.outputs[: len(states)]]
    if state_types != list(states):
        return state_types + [_loosened(v.type) for v in made]
    out_axes = node.attributes.get("scan_output_axes") or [0] * len(made)
    length = _length(moved[0], in_axes[0]) if scanned else None
    return state_types + [_stacked(v.type, length, axis) for v, axis in zip(made, out_axes, strict=True)]


def _gradient(node: Node, inputs: Types) -> Types:
    body = node.subgraphs[GRADIENT_BODY]
    _set_inputs(body, inputs)
    infer_graph(body)
    return inputs[: len(node.outputs)]


def _as_declared(node: Node, inputs: Types) -> Types:
    return [None] * len(node.outputs)


def _like_first(node: Node, inputs: Types) -> Types:
    return inputs[:1]


_OWN: dict[tuple[str, str], Callable[[Node, Types], Types]] = {
    ("", "GroupNormalization"): _like_first,  # onnx infers nothing for version 18, which it has withdrawn
    ("", "If"): _if,
    ("", "Loop"): _loop,
    ("", "Scan"): _scan,
    ("ai.onnx.preview.training", "Gradient"): _gradient,
    EP_CONTEXT: _as_declared,
}


def _set_inputs(body: Graph, types: Types) -> None:
    for value, type_ in zip(body.inputs, types, strict=False):
        value.type = type_ if type_ is not None else value.type


def _loosened(type_: ValueType | None) -> ValueType | None:
    return TensorType(type_.element) if isinstance(type_, TensorType) else type_


def _ranked(type_: ValueType | None) -> ValueType | None:
    """The type without the sizes of its dimensions."""
    if isinstance(type_, TensorType) and type_.shape is not None:
        return TensorType(type_.element, (None,) * len(type_.shape))
    return type_


def _sliced(type_: ValueType | None, axis: int) -> ValueType | None:
    if isinstance(type_, TensorType) and type_.shape and -len(type_.shape) <= axis < len(type_.shape):
        at = axis % len(type_.shape)
        return TensorType(type_.element, (*type_.shape[:at], *type_.shape[at + 1 :]))
    return _loosened(type_)


def _stacked(type_: ValueType | None, length: Dim = None, axis: int = 0) -> ValueType | None:
    if isinstance(type_, TensorType) and type_.shape is not None and -len(type_.shape) - 1 <= axis <= len(type_.shape):
        at = axis % (len(type_.shape) + 1)
        return TensorType(type_.element, (*type_.shape[:at], length, *type_.shape[at:]))
    return _loosened(type_)


def _length(type_: ValueType | None, axis: int = 0) -> Dim:
    """The size along an axis, where it is known."""
    shape = type_.shape if isinstance(type_, TensorType) else None
    return shape[axis] if shape and -len(shape) <= axis < len(shape) else None


# ---- merging


def _check_element(node: Node, value: Value, inferred: ValueType | None) -> None:
    declared = value.type
    if isinstance(declared, TensorType) and isinstance(inferred, TensorType) and declared.element != inferred.element:
        raise Fail(
            f"Type Error: Type ({declared}) of output arg ({value.name}) of node ({node.name}) does not match expected type "
            f"({inferred})."
        )


def merge(declared: ValueType | None, inferred: ValueType | None) -> ValueType | None:
    """What is known from both; where they contradict inference wins, and a contradicting dimension becomes unknown (as
    onnxruntime does)."""
    if inferred is None or declared is None:
        return inferred if declared is None else declared
    if (
        not isinstance(inferred, TensorType)
        or not isinstance(declared, TensorType)
        or inferred.element != declared.element
    ):
        return inferred
    if inferred.shape is None or declared.shape is None:
        return declared if inferred.shape is None else inferred
    if len(inferred.shape) != len(declared.shape):
        return inferred
    return TensorType(inferred.element, tuple(map(_merge_dim, declared.shape, inferred.shape)))


def _merge_dim(declared: Any, inferred: Any) -> Any:
    if isinstance(inferred, int):
        return inferred
    return declared if declared is not None else inferred


def common(a: ValueType | None, b: ValueType | None) -> ValueType | None:
    """The most specific type both fit."""
    if a is None or b is None or a == b:
        return a or b
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.element == b.element:
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return TensorType(a.element)
        return TensorType(a.element, tuple(x if x == y else None for x, y in zip(a.shape, b.shape, strict=True)))
    return a


def type_of_python(value: Any) -> ValueType | None:
    """The type of a run-time value; None for an empty optional or an empty list."""
    if isinstance(value, np.ndarray):
        return TensorType(element_of(value.dtype), value.shape)
    if isinstance(value, list) and value:
        element = type_of_python(value[0])
        return SequenceType(element) if element is not None else None
    if isinstance(value, dict) and value:
        key = next(iter(value))
        return MapType("string" if isinstance(key, str) else "int64", TensorType("float"))
    return None


__all__ = [
    "OptionalType",
    "SparseTensorType",
    "common",
    "infer_graph",
    "infer_node",
    "merge",
    "output_types",
    "type_of_python",
]
