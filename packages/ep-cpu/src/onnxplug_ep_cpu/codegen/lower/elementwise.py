"""Element-wise work: expressions, which grow into the loop or kernel that makes their operand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.tensor import Tensor

MAX_LEAVES = 8
"""Operands of one loop; more would not fit the registers."""
MAX_COST = 120
_CONSTANTS = ("float32", "float64", "int32", "int64", "bool")


def combine(b: Lowering, node: NodeView, expr: ex.Expr, inputs: Sequence[ValueView | None]) -> None:
    """The node's output is ``expr`` of its inputs, broadcast."""
    (output,) = node.outputs
    assert output is not None
    pending = merged(b, b.shape(output), expr, [v for v in inputs if v is not None])
    pending.element = b.element(output)
    b.pend(output, pending)


def merged(b: Lowering, shape: tuple[int, ...], expr: ex.Expr, inputs: Sequence[ValueView]) -> Pending:
    """A pending value of ``expr`` over inputs, taking over what is pending among them."""
    build = ex.Build()
    leaves: list[Tensor | None] = []
    anchored: Pending | None = None
    held = [b.pending(value) for value in inputs]
    order = sorted(range(len(inputs)), key=lambda i: not _is_anchor(held[i], shape))
    at: dict[int, int] = {}
    for index in order:
        value = held[index]
        if isinstance(value, Pending):
            takes = _is_anchor(value, shape) and (not leaves if anchored is None else value.anchor is anchored.anchor)
            grows = (
                value.anchor is None and _worth_growing(value, shape) and len(leaves) + len(value.leaves) <= MAX_LEAVES
            )
            if takes and anchored is None:
                anchored = value
            if takes or (grows and (anchored is None or all(_fits(anchored, t) for t in value.leaves))):
                positions = []
                for leaf in value.leaves:
                    positions.append(_leaf(build, leaves, leaf))
                at[index] = build.include(value.expr, positions)
                continue
            value = b.read(inputs[index])
        if anchored is not None and not _fits(anchored, value):
            anchored, at = None, {}
            return merged_in_memory(b, shape, expr, inputs)
        at[index] = _leaf(build, leaves, value)
    result = build.finish(build.include(expr, [at[i] for i in range(len(inputs))]))
    if anchored is None:
        return Pending(shape, result, leaves)
    return Pending(shape, result, leaves, anchored.anchor, anchored.takes, anchored.order, banded=anchored.banded)


def merged_in_memory(b: Lowering, shape: tuple[int, ...], expr: ex.Expr, inputs: Sequence[ValueView]) -> Pending:
    """A pending value over inputs that are all written first."""
    return Pending(shape, expr, [b.read(value) for value in inputs])


def _is_anchor(value: Tensor | Pending, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(value, Pending)
        and value.anchor is not None
        and value.shape == shape
        and ex.cost(value.expr) < MAX_COST
    )


def _worth_growing(value: Pending, shape: tuple[int, ...]) -> bool:
    """Not where a small value would be computed again for each place it is broadcast to."""
    again = math.prod(shape) > 2 * math.prod(value.shape) and ex.cost(value.expr) > 2
    return not again and ex.cost(value.expr) < MAX_COST


def _fits(anchored: Pending, leaf: Tensor | None) -> bool:
    return leaf is not None and anchored.takes is not None and anchored.takes(leaf)


def _leaf(build: ex.Build, leaves: list[Tensor | None], leaf: Tensor | None) -> int:
    """The position of an operand; a scalar constant is part of the expression, unless other shapes make it another."""
    array = None if leaf is None or leaf.buffer.known or leaf.size != 1 else leaf.buffer.array
    if leaf is not None and array is not None and leaf.element in _CONSTANTS:
        value = array.reshape(-1)[leaf.offset // leaf.itemsize]
        if leaf.element == "float64":
            return build("float64", float(value))
        return build("const", float(value)) if leaf.element == "float32" else build(leaf.element, int(value))
    if leaf in leaves:
        return build("leaf", leaves.index(leaf))
    leaves.append(leaf)
    return build("leaf", len(leaves) - 1)
