"""Strings that a region takes and gives, as numbers. On the way to who reads them numbers are moved as strings would be."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from onnxplug.contract import NodeView, TensorSpec, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import accept, is_lowered
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import axis_of, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor

MOVING = frozenset({"Concat", "Flatten", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that give what they were given, and their lowerings see to where."""


def word_numbers(b: Lowering, value: ValueView) -> dict[str, int]:
    """The numbers, from 1 on, that words of the region's operands get; what is not among them is 0."""
    if value.name in b.words:
        raise Unsupported(f"'{value.name}' is strings that are made in the region")
    return b.prepared.numbers


def spell(b: Lowering, value: ValueView, places: Tensor, words: list[str]) -> None:
    """The value is strings: those that ``places`` (int64) have in a list."""
    b.specs[value.name] = TensorSpec(np.dtype(np.int64), places.shape)
    table = b.words[value.name] = np.empty(len(words), object)
    table[:] = words
    b.define(value, places)


@accept("ArrayFeatureExtractor", domain="ai.onnx.ml")
@accept(*MOVING)
def moves_words(node: NodeView) -> bool:
    """Whether the node gives strings that it was given, elsewhere."""
    if not ((node.domain == "" and node.op_type in MOVING) or node.op_type == "ArrayFeatureExtractor"):
        return False
    moved = node.inputs if node.op_type == "Concat" else node.inputs[:1]
    if not all(v is not None and v.dtype == object and v.shape is not None and v.constant is None for v in moved):
        return False
    (y,) = node.outputs
    index = node.inputs[1] if node.op_type in ("Gather", "ArrayFeatureExtractor") else None
    return y is not None and y.shape is not None and typed(index, {"int32", "int64"}) is None


def read_as_numbers(value: ValueView) -> bool:
    """Whether a node that a region may have numbers strings of the value, there or elsewhere."""
    for node in value.consumers:
        if moves_words(node):
            if any(v is not None and read_as_numbers(v) for v in node.outputs):
                return True
        elif is_lowered(node):
            return True
    return False


def carriers(nodes: Sequence[NodeView], shown: Collection[str]) -> set[int]:
    """The ``id`` of those of these nodes that bring strings from outside to nodes that read them as numbers, and to none else, or that
    move strings of which encoders give places; ``shown``: the names of values that the graph gives."""
    free = {id(node) for node in nodes}
    found: dict[int, NodeView] = {}
    placed: set[int] = set()
    for node in nodes:
        makers = [v.producer for v in node.inputs if v is not None and v.dtype == object]
        if not moves_words(node):
            if makers == [] and (node.domain, node.op_type) == ("ai.onnx.ml", "LabelEncoder") and is_lowered(node):
                placed.add(id(node))
        elif all(maker is None or id(maker) in found for maker in makers):
            found[id(node)] = node
        elif all(id(maker) in placed for maker in makers) and _respelled(node):
            placed.add(id(node))
    for node in reversed(found.copy().values()):
        (y,) = node.outputs
        assert y is not None
        if y.name in shown or not all(
            id(r) in found if moves_words(r) else id(r) in free and is_lowered(r) for r in y.consumers
        ):
            del found[id(node)]
    return {*found, *(id(node) for node in nodes if id(node) in placed and moves_words(node))}


def _respelled(node: NodeView) -> bool:
    """Whether ``respell`` knows the shape of what the node gives."""
    if node.op_type != "Reshape":
        return node.op_type in ("Concat", "Identity")
    wanted = node.inputs[1] if len(node.inputs) > 1 else None
    return wanted is not None and wanted.constant is not None and bool(wanted.constant.all())


def respell(b: Lowering, node: NodeView) -> list[Tensor]:
    """Say of what strings, and of what shape, the places are that a Reshape, Concat or Identity of places gives. Of several lists one is
    made; returns the operands, as places in it."""
    inputs, (y,) = [v for v in node.inputs if v is not None and v.dtype == object], node.outputs
    assert y is not None
    if any(v.name not in b.words for v in inputs):
        raise Unsupported(f"'{y.name}' is strings of several kinds")
    shapes = [b.shape(v) for v in inputs]
    if node.op_type == "Reshape":
        wanted = b.constant(node.inputs[1])
        assert wanted is not None
        shape = np.broadcast_to(0, shapes[0]).reshape(wanted.tolist()).shape
    elif node.op_type == "Concat":
        axis = axis_of(node.attributes["axis"], len(shapes[0]))
        shape = (*shapes[0][:axis], sum(each[axis] for each in shapes), *shapes[0][axis + 1 :])
    else:
        shape = shapes[0]
    words, begins = np.empty(0, object), []
    for value in inputs:
        begins.append(len(words))
        words = np.concatenate([words, b.words[value.name]])
    b.specs[y.name], b.words[y.name] = TensorSpec(np.dtype(np.int64), shape), words
    return [_further(b, b.read(value), begin) for value, begin in zip(inputs, begins, strict=True)]


def _further(b: Lowering, places: Tensor, begin: int) -> Tensor:
    if not begin:
        return places
    build = ex.Build()
    expr = build.finish(build("add", build("leaf", 0), build("int64", begin)))
    return b.write(Pending(places.shape, expr, [places], element="int64"))
