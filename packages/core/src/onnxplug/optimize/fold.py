"""Constant folding through a provider's kernels, and folding of shapes that inference already knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract.types import ELEMENT_CODES, TensorType, element_of
from onnxplug.graph.constants import constant_array
from onnxplug.graph.infer import infer_parts
from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.schemas import CONTROL_FLOW, RANDOM
from onnxplug.graph.sources import Stored, Transposed, Widened
from onnxplug.graph.value import Load, Value

MAX_BYTES = 64 << 20
"""A folded result is kept only up to this size, unless it is no larger than what it replaces."""
QUANTIZATION = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
"""Operators that providers may want whole, with what they quantize; constants may be quantized before."""
_DOMAINS = frozenset({"", "ai.onnx.ml", "com.microsoft"})
_QUANTIZED = frozenset({("", "QuantizeLinear"), ("com.microsoft", "QuantizeLinear")})


def fold_constants(graph: Graph, context: Any) -> bool:
    """Replace nodes whose inputs are all constant, and Shape/Size of values whose shape is known, by constants."""
    return fold(graph, context, is_computed)


def fold(graph: Graph, context: Any, admits: Callable[[Node], bool]) -> bool:
    """Replace nodes that ``admits`` admits by constants where what they read is constant; types of what reads these are inferred
    again."""
    kept, readers = [], set()
    for node in graph.nodes:
        results = _results(node, context) if admits(node) else None
        if results is None:
            kept.append(node)
            continue
        for value, array in zip(node.outputs, results, strict=False):
            if value is not None and array is not None:
                make_constant(graph, value, array, _again(node))
                readers.update(value.consumers)
    changed = len(kept) != len(graph.nodes)
    graph.nodes = kept
    if changed:
        infer_parts(graph, readers)  # a constant that was computed may decide a shape
    return changed


def _again(node: Node) -> Load | None:
    """How a weight of the model is had again that a node transposes or widens: tied ones, and those of half precision, are large."""
    weight = node.inputs[0] if node.domain == "" and node.op_type in ("Transpose", "Cast") else None
    if weight is None or not isinstance(weight.source, Stored):
        return None
    if node.op_type == "Cast":
        to, of = element_of(np.dtype(np.float32)), weight.source.type.element
        if node.attributes["to"] != ELEMENT_CODES[to] or of not in ("float16", "bfloat16"):
            return None
        weight.release()
        return Widened(weight)
    rank = len(weight.source.type.shape or ())
    return Transposed(weight, tuple(node.attributes.get("perm", range(rank)[::-1])))


def make_constant(graph: Graph, value: Value, array: np.ndarray, again: Load | None = None) -> None:
    """What a node made is an initializer of the graph from now on; ``again``: how its array is had once more."""
    array.flags.writeable = False
    value.hold(array, again)
    value.producer = None
    value.type, value.told = TensorType(element_of(array.dtype), array.shape), None
    graph.initializers[value.name] = value


def is_computed(node: Node) -> bool:
    """Whether a node computes the same from the same operands, and may be done before providers see it. Weights that a model has as
    floats, with a pair that quantizes them, are the bytes from then on that providers multiply."""
    if (node.domain, node.op_type) in _QUANTIZED:
        return True
    return node.domain in _DOMAINS and node.op_type not in QUANTIZATION | RANDOM | CONTROL_FLOW and not node.subgraphs


def _results(node: Node, context: Any) -> Sequence[np.ndarray | None] | None:
    if node.domain == "" and node.op_type == "Constant" and "sparse_value" not in node.attributes:
        return [constant_array(node)]
    if node.op_type in ("Shape", "Size") and node.domain == "" and node.inputs[0] is not None:
        known = _known_shape(node, node.inputs[0].type)
        if known is not None:
            return [known]
    given = [v for v in node.inputs if v is not None]
    like = _example(given[1]) if node.op_type == "CastLike" and len(given) == 2 else None
    if like is not None:
        given = given[:1]
    if any(not v.is_constant for v in given) or (not given and node.op_type not in ("Constant", "ConstantOfShape")):
        return None
    if any(v is not None and v.type is not None and not isinstance(v.type, TensorType) for v in node.outputs):
        return None
    limit = max(MAX_BYTES, sum(v.constant.nbytes for v in given if v.constant is not None))
    if _size(node) > limit:
        return None
    arrays = [None if v is None else v.constant for v in node.inputs] if like is None else [given[0].constant, like]
    try:
        results = context.evaluate(node, arrays)
    except MemoryError:
        return None
    if results is None:
        return None
    folded = [_array(r) for r in results[: len(node.outputs)]]
    fits = len(folded) == len(node.outputs) and all(map(_is, node.outputs, folded))
    return folded if fits and sum(a.nbytes for a in folded if a is not None) <= limit else None


def _example(value: Value) -> np.ndarray | None:
    """An array of a value's element type, for a node that asks for no more; None where the type is not known."""
    if not isinstance(value.type, TensorType) or value.type.dtype == object:
        return None
    return np.zeros(0, value.type.dtype)


def _array(result: Any) -> np.ndarray | None:
    if not isinstance(result, np.ndarray | np.generic):
        return None
    return np.asarray(result, object if result.dtype.kind in "US" else None)


def _is(value: Value | None, array: np.ndarray | None) -> bool:
    """Whether an array is what inference said of a value."""
    if value is None:
        return True
    declared = value.type.element if isinstance(value.type, TensorType) else None
    return array is not None and declared in (None, element_of(array.dtype))


def _known_shape(node: Node, type_: Any) -> np.ndarray | None:
    if not isinstance(type_, TensorType) or type_.shape is None:
        return None
    if node.op_type == "Size":
        size = None if type_.static_shape is None else math.prod(type_.static_shape)
        return None if size is None or size > np.iinfo(np.int64).max else np.array(size, np.int64)
    part = type_.shape[node.attributes.get("start", 0) : node.attributes.get("end", len(type_.shape))]
    return np.array(part, np.int64) if all(isinstance(d, int) for d in part) else None


def _size(node: Node) -> int:
    """Bytes of the results as far as inference knows them."""
    total = 0
    for value in node.outputs:
        if value is not None and isinstance(value.type, TensorType) and value.type.static_shape is not None:
            total += math.prod(value.type.static_shape) * value.type.dtype.itemsize
    return total
