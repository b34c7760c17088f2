"""Weights laid out as kernels read them, by generated copies that run once when a region is bound."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from onnxplug.contract import ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.loops import copy, write_map
from onnxplug_ep_cpu.codegen.lower.memory import lying, scratch, tensor_of
from onnxplug_ep_cpu.codegen.tensor import NARROW, Ints, Tensor, dense_strides


def _without_subnormals() -> ex.Expr:
    build = ex.Build()
    x = build("leaf", 0)
    small = build("less", build("abs", x), build("const", float(np.finfo(np.float32).tiny)))
    return build.finish(build("where", small, build("const", 0.0), x))


WITHOUT_SUBNORMALS = _without_subnormals()
"""The number, or zero for one that is smaller than float32 holds with all its digits."""
_ORDINARY = float(np.finfo(np.float32).tiny) * 2.0**24
"""Beside a weight of this size a subnormal one is less than its last digit."""


def _is_ordinary(array: np.ndarray) -> bool:
    """Whether a constant has weights beside which subnormal ones change no sum: mostly told by the first few."""
    flat, step = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1), 1 << 12
    return any(bool((np.abs(flat[at : at + step]) >= _ORDINARY).any()) for at in range(0, flat.size, step))


def in_form(
    b: Lowering,
    value: ValueView,
    form: object,
    shape: Ints,
    fill: Callable[[Tensor, Tensor], None],
    element: str = "float32",
    widens: bool = False,
) -> Tensor:
    """A constant in another form, made once per session: ``fill(source, result)`` adds calls to ``b.packing``; what they
    leave is zero, and the constant itself may go. A matrix is not made row-major first. What is no constant is brought
    into the form by each run. ``widens``: fill takes a source of 16 bits."""
    if value.name not in b.prepared.constant:
        return _packed_anew(b, value, shape, fill, element)
    held = b.prepared.held(value, form)
    if held is None:
        array = value.view()
        assert array is not None
        held = b.prepared.hold(value, form, shape, element)
        matrix = array.ndim == 2 and min(array.strides) > 0
        # At any address: in a file mapped to memory few constants start where their type would.
        source = lying(array) if matrix or array.flags.c_contiguous else tensor_of(array)
        narrow = element in NARROW or (source.element in NARROW and not widens)
        if narrow and source.element != element:
            lies, order = source, sorted(range(len(source.shape)), key=lambda d: -source.strides[d])
            source = scratch(lies.shape, order, "float32" if element not in NARROW else element)
            write_map(b.packing, b.target, ex.IDENTITY, [lies], source)
        fill(source, tensor_of(held))
        # A product of a subnormal number takes a hundred times as long.
        if element in ("float32", "bfloat16") and array.dtype != np.float16 and _is_ordinary(array):
            write_map(b.packing, b.target, WITHOUT_SUBNORMALS, [tensor_of(held)], tensor_of(held))
        b.singles.pop(value.name, None)
        b.packer.packs(value, array.nbytes)
    return tensor_of(held)


def _packed_anew(
    b: Lowering, value: ValueView, shape: Ints, fill: Callable[[Tensor, Tensor], None], element: str
) -> Tensor:
    source, result = b.dense(value), scratch(shape, element=element)
    nothing = tensor_of(np.zeros(1, element))
    write_map(b.program, b.target, ex.IDENTITY, [nothing], result)
    b.filling = b.program
    try:
        fill(source, result)
    finally:
        b.filling = None
    return result


def packed_panels(
    b: Lowering,
    value: ValueView,
    form: object,
    dims: Ints,
    strides: Ints,
    width: int,
    first: int = 0,
    element: str = "float32",
    last: int = 0,
    lapped: bool = False,
) -> Tensor:
    """A constant as [group][panel][depth...][width] panels for the product kernel.

    ``dims`` are (groups, columns, depth...) and ``strides`` where they lie in the row-major constant from element ``first``
    on. The last panel overlaps the one before it, and has ``last`` columns if told so; a constant of fewer columns than ``width`` ends in
    zeros, or if ``lapped`` in the vector of its last columns.
    """
    groups, columns, *depth = dims
    count, whole = max(1, -(-columns // width)), columns // width
    area, lanes = math.prod(depth), b.target.lanes
    size, group = width * area, ((count - 1) * width + (last or width)) * area

    def fill(source: Tensor, result: Tensor) -> None:
        real = dict(zip(dense_strides(source.shape), source.strides, strict=True))
        moves = strides if source.is_dense else tuple(real.get(s, s) for s in strides)

        def part(column: int, panels: int, wide: int, at: int, line: int = width) -> None:
            inner = (line * math.prod(depth[i + 1 :]) for i in range(len(depth)))
            shape = (groups, panels, wide, *depth)
            start = source.shift(first + column * moves[1])
            lies = Tensor(start.buffer, shape, (moves[0], width * moves[1], *moves[1:]), start.offset, element=element)
            to = result.shift(at)
            placed = Tensor(to.buffer, shape, (group, size, 1, *inner), to.offset, element=element)
            copy(b.packing, b.target, lies, placed)

        if whole:
            part(0, whole, width, 0)
        if last:
            part(columns - last, 1, last, whole * size, last)
        elif lapped:
            part(0, 1, width - lanes, 0)
            part(columns - lanes, 1, lanes, width - lanes)
        elif whole < count:
            part(max(0, columns - width), 1, min(width, columns), whole * size)

    return in_form(b, value, form, (groups * group,), fill, element)
