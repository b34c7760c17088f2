"""Weights laid out as kernels read them, by generated copies that run once when a region is bound."""

from __future__ import annotations

import math

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.tensor import Ints, Tensor, dense_strides


def packed_panels(
    b: Lowering,
    value: ValueView,
    form: object,
    dims: Ints,
    strides: Ints,
    width: int,
    first: int = 0,
    element: str = "float32",
) -> Tensor:
    """A constant as [group][panel][depth...][width] panels for the product kernel.

    ``dims`` are (groups, columns, depth...) and ``strides`` where they lie in the row-major constant from element ``first``
    on. The last panel overlaps the one before it; a constant of fewer columns than ``width`` ends in zeros.
    """
    groups, columns, *depth = dims
    count, whole = max(1, -(-columns // width)), columns // width
    size = width * math.prod(depth)
    inner = tuple(width * math.prod(depth[i + 1 :]) for i in range(len(depth)))

    def fill(source: Tensor, result: Tensor) -> None:
        real = dict(zip(dense_strides(source.shape), source.strides, strict=True))
        moves = strides if source.is_dense else tuple(real.get(s, s) for s in strides)

        def part(column: int, panels: int, wide: int, at: int) -> None:
            shape = (groups, panels, wide, *depth)
            start = source.shift(first + column * moves[1])
            lies = Tensor(start.buffer, shape, (moves[0], width * moves[1], *moves[1:]), start.offset, element=element)
            to = result.shift(at * size)
            placed = Tensor(to.buffer, shape, (count * size, size, 1, *inner), to.offset, element=element)
            copy(b.packing, b.target, lies, placed)

        if whole:
            part(0, whole, width, 0)
        if whole < count:
            part(max(0, columns - width), 1, min(width, columns), whole)

    return b.pack(value, form, (groups * count * size,), fill, element)
