"""A depthwise convolution and the product over its channels band by band: rows of one stay in the cache until the other has read them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.pad import part
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, channels_last

LEAST_ROWS = 4
"""Rows of a band, of which a depthwise convolution makes some together."""


def by_bands(b: Lowering, held: Pending, product: Callable[[Tensor], Pending], whole: Pending) -> Pending | None:
    """``whole``, what ``product`` makes of the pixels of ``held``, without ``held`` ever being in memory as a whole; None where that would
    bring nothing: it stays in the cache anyway, or few rows do."""
    images, channels, height, width = held.shape
    line = 4 * images * channels * width
    fitting = b.target.l2 // 4 * b.threads // max(1, line) // LEAST_ROWS * LEAST_ROWS
    if held.banded is None or 2 * line * height <= b.target.l2 * b.threads or not LEAST_ROWS <= fitting < height:
        return None
    rows = -(-height // -(-height // fitting))
    rows = min(fitting, -(-rows // LEAST_ROWS) * LEAST_ROWS)

    def anchor(expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        band = b.scratch((images, channels, rows, width), channels_last(4))
        for first in range(0, height, rows):
            stop = min(first + rows, height)
            here = part(band, 2, 0, stop - first)
            b.write_to(_rows(held, first, stop), here)
            made = product(here)
            assert made.anchor is not None
            made.anchor(expr, [_cut(leaf, height, first, stop) for leaf in leaves], part(target, 2, first, stop))

    return replace(whole, anchor=anchor)


def _rows(held: Pending, first: int, stop: int) -> Pending:
    """Some rows of a value."""
    assert held.banded is not None
    made = held.banded(first, stop)
    leaves = [leaf and _cut(leaf, held.shape[2], first, stop) for leaf in held.leaves]
    return replace(made, expr=held.expr, leaves=leaves, nodes=held.nodes)


def _cut(leaf: Tensor, height: int, first: int, stop: int) -> Tensor:
    """What some rows of a result read of an operand."""
    axis = len(leaf.shape) - 2
    return part(leaf, axis, first, stop) if axis >= 0 and leaf.shape[axis] == height > 1 else leaf
