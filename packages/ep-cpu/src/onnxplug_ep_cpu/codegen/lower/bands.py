"""Convolutions by channel and the products before and after them band by band: rows of one stay in the cache until the next has read
them, and are never in memory as a whole.

Rows of a product are computed again where two bands of the filters behind it meet, so that it pays for few such rows only: strides of 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.pad import part
from onnxplug_ep_cpu.codegen.lower.pending import Anchor, Pending
from onnxplug_ep_cpu.codegen.tensor import Tensor, channels_last
from onnxplug_kernels.windows import Windows

LEAST_ROWS = 4
"""Rows of a band, of which a convolution by channel makes some together."""
AGAIN = 1 / 8
"""The part of a product's rows that may be computed again."""


def rows_of(b: Lowering, line: int, height: int, share: int = 4) -> int:
    """Rows of a band of an image of ``height``, if ``line`` bytes for each are to stay in one of so many shares of the cache; all, where
    they do anyway or too few would. Bands are of one height where they can be: kernels suit it."""
    cache = b.target.l2 * b.threads
    fitting = cache // share // max(1, line) // 2 * 2
    if 2 * line * height <= cache or not LEAST_ROWS <= fitting < height:
        return height
    whole = (rows for rows in range(fitting, max(LEAST_ROWS, fitting // 2) - 1, -2) if height % rows == 0)
    return next(whole, fitting)


def by_bands(start: int, end: int, rows: int, make: Callable[[int, int], Pending]) -> Anchor:
    """Calls for the rows from ``start`` to before ``end`` of a result, by so many ``rows`` at once as ``make`` makes them."""

    def anchor(expr: ex.Expr, leaves: list[Tensor], target: Tensor) -> None:
        for first in range(start, end, rows):
            stop = min(first + rows, end)
            made, here = make(first, stop), (end - start, first - start, stop - start)
            assert made.anchor is not None
            made.anchor(expr, [_cut(leaf, *here) for leaf in leaves], part(target, 2, *here[1:]))

    return anchor


def after_bands(b: Lowering, held: Pending, product: Callable[[Tensor], Pending]) -> Anchor | None:
    """What ``product`` makes of the pixels of ``held``; None where bands of it bring nothing."""
    images, channels, height, width = held.shape
    if held.banded is None or (rows := rows_of(b, 4 * images * channels * width, height)) == height:
        return None
    bands: list[Tensor] = []

    def make(first: int, stop: int) -> Pending:
        if not bands:
            bands.append(b.scratch((images, channels, rows, width), channels_last(4)))
        here = part(bands[0], 2, 0, stop - first)
        write_rows(b, held, first, stop, here)
        return product(here)

    return by_bands(0, height, rows, make)


def write_rows(b: Lowering, held: Pending, first: int, stop: int, target: Tensor) -> None:
    """Some rows of a value."""
    assert held.banded is not None
    made = held.banded(first, stop)
    leaves = [leaf and _cut(leaf, held.shape[2], first, stop) for leaf in held.leaves]
    b.write_to(replace(made, expr=held.expr, leaves=leaves, nodes=held.nodes), target)


def met(moves: Windows, size: int, first: int, stop: int) -> tuple[int, int]:
    """The rows of an image of ``size`` that windows in rows from ``first`` to before ``stop`` of the result meet."""
    reach, stride = (moves.kernel[0] - 1) * moves.dilations[0], moves.strides[0]
    low = min(max(0, first * stride - moves.begins[0]), size - 1)
    return low, min(max(low + 1, (stop - 1) * stride - moves.begins[0] + reach + 1), size)


def source_rows(b: Lowering, held: Pending, moves: Windows) -> int | None:
    """Rows of a band of what filters of ``moves`` make of ``held``, if that is to be made for each band; else None."""
    if held.banded is None or len(held.shape) != 4:
        return None
    images, channels, _, width = held.shape
    result, stride = moves.output[0], moves.strides[0]
    rows = rows_of(b, 4 * images * channels * width * stride, result, 2)
    again = (moves.kernel[0] - 1) * moves.dilations[0] + 1 - stride
    return rows if rows < result and again <= AGAIN * rows * stride else None


def _cut(leaf: Tensor, height: int, first: int, stop: int) -> Tensor:
    """What some rows of a result read of an operand."""
    axis = len(leaf.shape) - 2
    return part(leaf, axis, first, stop) if axis >= 0 and leaf.shape[axis] == height > 1 else leaf
