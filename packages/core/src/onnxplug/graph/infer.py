"""Type and shape inference, one node at a time, by onnx's own inference functions
(onnx.shape_inference.infer_node_outputs)."""

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
from onnxplug.graph.functions import local_function, unfold
from onnxplug.graph.infer_bodies import Infer, Types, gradient, if_, loop, scan
from onnxplug.graph.infer_ml import ML, with_shapes
from onnxplug.graph.ir import Graph, Node, Value
from onnxplug.graph.names import Names
from onnxplug.graph.protos import array_to_proto, node_proto, type_from_proto, type_to_proto
from onnxplug.graph.schemas import EP_CONTEXT, GENERATION
from onnxplug.graph.type_rules import has_more, length_of, merge

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
    if node.schema is not None:
        constants = _constants(node)
        inferred = _of_schema(node, [v.type if v is not None else None for v in node.inputs], constants)
    elif (function := local_function(graph, node)) is not None:
        inferred = _of_function(graph, node, function)
    else:
        inferred = output_types(node, [v.type if v is not None else None for v in node.inputs], {})
    noted = any(v is not None and v.is_noted for v in node.inputs)
    for value, type_ in zip(node.outputs, inferred, strict=False):
        if value is not None:
            _check_element(node, value, type_)
            value.type = merge(value.type, type_)
            value.is_noted = noted or (node.schema is not None and has_more(value.type, type_))


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
        return own(node, inputs, infer_graph)
    if node.schema is None:
        return _without_schema(node, inputs)
    found = _by_schema(node, inputs, constants)
    if (node.domain, node.op_type) == ("", "Reshape"):
        return _reshaped(inputs, found)
    if node.domain == "" and node.op_type in _POOLS and node.attributes.get("ceil_mode", 0):
        return _pooled(node, inputs, found)
    if (node.domain, node.op_type) == ("", "ConvTranspose") and "output_shape" in node.attributes:
        return _sized(node, inputs, found)
    return with_shapes(node, inputs, found) if node.domain == ML else found


def _by_schema(node: Node, inputs: Types, constants: Mapping[str, np.ndarray | None]) -> Types:
    from onnx import AttributeProto, OperatorSetIdProto, TypeProto, defs, shape_inference

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
    _check_reach(node, inputs)
    proto = node_proto(node)
    proto.name = ""
    for index, name in enumerate(proto.output):
        proto.output[index] = name or f"\0{index}"  # inference needs a name for omitted outputs too
    if (node.domain, node.op_type) == ("", "STFT") and "onesided" not in node.attributes:
        # onnx infers with 0, its schema's default is 1
        proto.attribute.append(AttributeProto(name="onesided", type=AttributeProto.INT, i=1))
    if node.domain == "" and node.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", ""):
        # of both, of which a node may have one, onnx reads the pads; kernels go by the other, as onnxruntime's
        kept = [attribute for attribute in proto.attribute if attribute.name != "pads"]
        del proto.attribute[:]
        proto.attribute.extend(kept)
    schema, version = node.schema, node.since_version
    if node.domain == "" and (other := _INFERRED_AS.get((node.op_type, version))) is not None:
        proto.op_type, version = other
        schema = defs.get_schema(*other)
    imports = [OperatorSetIdProto(domain=node.domain, version=version)]
    if node.domain:
        imports.append(OperatorSetIdProto(domain="", version=13))
    try:
        found = shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=imports)
    except Exception as error:  # onnx's, or of whoever brings the schema
        if any(v is not None and t is None for v, t in zip(node.inputs, inputs, strict=True)):
            return [None] * len(node.outputs)
        text = str(error).removeprefix("[ShapeInferenceError] ")
        raise Fail(f"Node ({node.name}) Op ({node.op_type}) [ShapeInferenceError] {text}") from None
    return [type_from_proto(found[name]) if name in found else None for name in proto.output]


_INFERRED_AS = {
    ("GreaterOrEqual", 12): ("Greater", 9),
    ("LessOrEqual", 12): ("Less", 9),
    ("Compress", 9): ("Compress", 11),
    ("NonMaxSuppression", 10): ("NonMaxSuppression", 11),
}
"""Versions whose results onnx infers no shape of, and those that give the same shape."""

_REACHES = {"axis": (-(2**31), 2**31), "batch_dims": (0, 2**31)}


def _check_reach(node: Node, inputs: Types) -> None:
    """Fail for the numbers that onnx's inference takes as places in a shape without looking, which would end the process, or of
    which it takes the last 32 bits."""
    for name, (least, end) in _REACHES.items():
        value = node.attributes.get(name, 0)
        if isinstance(value, int) and not least <= value < end:
            raise Fail(
                f"Node ({node.name}) Op ({node.op_type}) [ShapeInferenceError] {name} {value} is not in any tensor's range"
            )
    if node.op_type == "LayerNormalization" and isinstance(inputs[0], TensorType) and inputs[0].shape is not None:
        axis, rank = node.attributes.get("axis", -1), len(inputs[0].shape)
        if isinstance(axis, int) and not -rank <= axis < rank:
            raise Fail(
                f"Node ({node.name}) Op ({node.op_type}) [ShapeInferenceError] Unexpected axis value ({axis}) rank of first input is "
                f"{rank} in {node.name}."
            )


def _reshaped(inputs: Types, found: Types) -> Types:
    """A result has as many dimensions as its target shape has elements, before version 13 onnx leaves that open; and as many
    elements as its operand, of which onnx takes the target's word."""
    data, target, (made, *_) = inputs[0], inputs[-1], found
    if not isinstance(made, TensorType):
        return found
    if made.shape is None and len(inputs) == 2 and isinstance(target, TensorType):
        count = length_of(target)
        return [TensorType(made.element, (None,) * count)] if isinstance(count, int) else found
    given, taken = (t.static_shape if isinstance(t, TensorType) else None for t in (data, made))
    if given is None or taken is None or math.prod(given) == math.prod(taken):
        return found
    return [TensorType(made.element)]  # the kernel refuses it


_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def _pooled(node: Node, inputs: Types, found: Types) -> Types:
    """No window begins in the padding behind an image (onnx operator specification, MaxPool, ceil_mode): before version 22 onnx's
    inference counts those that do."""
    (x, *_), (made, *_) = inputs, found
    if not isinstance(x, TensorType) or not isinstance(made, TensorType) or x.shape is None or made.shape is None:
        return found
    count = len(made.shape) - 2
    steps, pads = (list(node.attributes.get(name) or [n] * count) for name, n in (("strides", 1), ("pads", 0)))
    sizes = [
        min(n, -(-(size + pad) // step)) if isinstance(n, int) and isinstance(size, int) else n
        for n, size, step, pad in zip(made.shape[2:], x.shape[2:], steps, pads, strict=False)
    ]
    shape = (*made.shape[:2], *sizes)
    return [TensorType(t.element, shape) if isinstance(t, TensorType) else t for t in found]


def _sized(node: Node, inputs: Types, found: Types) -> Types:
    """A transposed convolution is as large as it was told to be: of sizes below its input's onnx leaves dimensions out."""
    (x, *_), (made,), told = inputs, found, node.attributes["output_shape"]
    if not isinstance(x, TensorType) or not isinstance(made, TensorType) or x.shape is None or made.shape is None:
        return found
    if len(made.shape) == len(x.shape) or len(told) < len(x.shape) - 2:
        return found
    return [TensorType(made.element, (*made.shape[:2], *told[2 - len(x.shape) :]))]


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
