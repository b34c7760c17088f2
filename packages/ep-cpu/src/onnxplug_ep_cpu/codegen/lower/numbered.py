"""Strings that a region takes and gives, as numbers. On the way to who reads them numbers are moved as strings would be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from onnxplug.contract import NodeView, TensorSpec, ValueView
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import accept, is_lowered
from onnxplug_ep_cpu.codegen.lower.support import typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.tensor import Tensor

MOVING = frozenset({"Concat", "Flatten", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that give what they were given, and their lowerings see to where."""


def numbered(words: Iterable[str], numbers: dict[str, int]) -> np.ndarray:
    """The words' numbers, int64; new ones get the next, from 1 on."""
    return np.array([numbers.setdefault(word, len(numbers) + 1) for word in words], np.int64)


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


def carriers(nodes: Sequence[NodeView], shown: Collection[str]) -> set[int]:
    """The ``id`` of those of these nodes that bring strings from outside to nodes that read them as numbers, and to none else;
    ``shown``: the names of values that the graph gives."""
    found: dict[int, NodeView] = {}
    for node in nodes:
        if moves_words(node) and all(
            v is None or v.dtype != object or v.producer is None or id(v.producer) in found for v in node.inputs
        ):
            found[id(node)] = node
    free = {id(node) for node in nodes}
    for node in reversed(found.copy().values()):
        (y,) = node.outputs
        assert y is not None
        if y.name in shown or not all(
            id(r) in found if moves_words(r) else id(r) in free and is_lowered(r) for r in y.consumers
        ):
            del found[id(node)]
    return set(found)
