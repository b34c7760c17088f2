"""A one-node model said otherwise, for oracles that do not know it as it stands.

Under another name: a version or an operator that means the same, or the nodes an operator stands for. In float: the same node with its
floating types replaced. By positions: where a result's elements are elements of an input, the node is run on the positions of the elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper

import onnxplug_testkit.kernels.same_contrib  # noqa: F401  enters what com.microsoft's operators stand for
from onnxplug.contract import numpy_dtype
from onnxplug.contract.types import ELEMENT_NAMES
from onnxplug_testkit.kernels.same import same_nodes

Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Restated:
    """``model`` in place of another; ``feed`` and ``back`` translate inputs and results. ``admit``: the inputs on which both agree
    (doubles that single precision holds). ``inlined``: it has several nodes, each of which rounds. ``single``: results in double are
    exact to single precision."""

    text: str
    model: onnx.ModelProto
    feed: Callable[[Feeds], Feeds] = dict
    back: Callable[[list[Any], Feeds], list[Any]] = lambda results, feeds: results
    admit: Callable[[Feeds], Feeds] = dict
    inlined: bool = False
    single: bool = False


def restatements(made: onnx.ModelProto) -> Iterator[Restated]:
    """Other forms of a one-node model, the nearest first."""
    same = same_nodes(made)
    if same is not None:
        yield Restated("restated", same, inlined=len(same.graph.node) > 1)
    for base in [made] if same is None else [made, same]:
        for form in (_in_float(base), _by_positions(base)):
            if form is not None:
                yield form


_TYPES = ("to", "dtype", "output_dtype", "stash_type")
"""Attributes that hold a type."""
_FLOATING = {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}
_WHOLE = {TensorProto.INT32, TensorProto.INT64, TensorProto.UINT32, TensorProto.UINT64}
_LOGARITHMS = frozenset({"ReduceLogSum", "ReduceLogSumExp"})
"""Operators whose result in integers is that in floats, cut off."""
_MODELS = frozenset(
    {"LinearRegressor", "SVMClassifier", "SVMRegressor", "Scaler", "TreeEnsembleClassifier", "TreeEnsembleRegressor"}
)
"""Operators that compute in floats whatever number their first input holds."""


def _in_float(made: onnx.ModelProto) -> Restated | None:
    graph, replaced, op_type = made.graph, _FLOATING, made.graph.node[0].op_type
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    first, results = {v.name for v in graph.input[:1]}, {v.name for v in graph.output}
    whole = first | results if op_type in _LOGARITHMS else first if op_type in _MODELS else set()
    changed = {
        name: numpy_dtype(ELEMENT_NAMES[code])
        for name, code in types.items()
        if code in replaced or (name in whole and code in _WHOLE)
    }
    if not changed:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(made)
    for value in (*model.graph.input, *model.graph.output):
        if value.name in changed:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for index, tensor in enumerate(model.graph.initializer):
        if tensor.data_type in replaced:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            model.graph.initializer[index].CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.INT and attribute.name in _TYPES:
                attribute.i = TensorProto.FLOAT if attribute.i in replaced else attribute.i
            elif attribute.type == AttributeProto.TENSOR and attribute.t.data_type in replaced:
                attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float32)))
    wanted = [v.name for v in graph.output]

    def feed(feeds: Feeds) -> Feeds:
        return {name: value.astype(np.float32) if name in changed else value for name, value in feeds.items()}

    def back(results: list[Any], feeds: Feeds) -> list[Any]:
        with np.errstate(all="ignore"):
            return [r.astype(changed[n]) if n in changed else r for n, r in zip(wanted, results, strict=True)]

    def admit(feeds: Feeds) -> Feeds:
        held = feed(feeds)
        return {name: value.astype(changed[name]) if name in changed else value for name, value in held.items()}

    return Restated("in float", model, feed, back, admit, single=TensorProto.DOUBLE in types.values())


_MOVES: Mapping[tuple[str, str], int] = {
    ("", "DynamicSlice"): 0,
    ("", "GridSample"): 0,
    ("", "OneHot"): 2,
    ("", "Resize"): 0,
    ("", "Tile"): 0,
    ("", "Trilu"): 0,
    ("", "Upsample"): 0,
    ("com.microsoft", "ExpandDims"): 0,
    ("com.microsoft", "GatherND"): 0,
    ("com.microsoft", "SampleOp"): 0,
    ("com.microsoft", "Trilu"): 0,
    ("com.microsoft", "UnfoldTensor"): 0,
}
"""Operators that only move elements, in their mode ``nearest`` if they have modes, and the input whose elements they move. Position 0
stands for an element that comes from nowhere: zero, false or the empty string."""


def _by_positions(made: onnx.ModelProto) -> Restated | None:
    graph = made.graph
    *before, node = graph.node
    moved = _MOVES.get((node.domain, node.op_type))
    if moved is None or any(each.op_type != "Constant" for each in before) or not _is_nearest(node):
        return None
    name, result = node.input[moved], graph.output[0]
    source = next((v for v in graph.input if v.name == name), None)
    if source is None or source.type.tensor_type.elem_type != result.type.tensor_type.elem_type:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(made)
    for value in (*model.graph.input, model.graph.output[0]):
        if value.name in (name, result.name):
            value.type.tensor_type.elem_type = TensorProto.FLOAT

    def feed(feeds: Feeds) -> Feeds:
        shape = feeds[name].shape
        return {**feeds, name: np.arange(1, feeds[name].size + 1, dtype=np.float32).reshape(shape)}

    def back(results: list[Any], feeds: Feeds) -> list[Any]:
        data = feeds[name].ravel()
        nothing = np.array([""], object) if data.dtype.hasobject else np.zeros(1, data.dtype)
        return [np.concatenate([nothing, data])[results[0].astype(np.int64)], *results[1:]]

    return Restated("by positions", model, feed, back)


def _is_nearest(node: onnx.NodeProto) -> bool:
    mode = next((a.s.decode() for a in node.attribute if a.name == "mode"), None)
    return mode == "nearest" or (mode is None and node.op_type != "GridSample")
