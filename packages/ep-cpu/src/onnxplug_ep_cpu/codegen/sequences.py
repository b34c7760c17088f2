"""SplitToSequence and ConcatFromSequence over lists of arrays (see ``objects``)."""

from __future__ import annotations

from typing import ClassVar

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.entry import ELEMENT, ITEM_SIZE, STRIDES
from onnxplug_ep_cpu.codegen.objects import MOST_RANK, Array, Function

_KEPT_FLAGS = 0x100 | 0x400
"""NPY_ARRAY_ALIGNED and NPY_ARRAY_WRITEABLE, which a view has of what it shows."""


def _axis(f: Function, axis: int, rank: str) -> str:
    """The axis from the front, which there is."""
    found = f.add(rank, axis) if axis < 0 else f.value(f"add i64 0, {axis}")
    f.needs(f.value(f"icmp ult i64 {found}, {rank}"))
    return found


def _number(f: Function, x: Array) -> str:
    return f.load("i32", f.at(x.dtype, ELEMENT + 4))


@record(frozen=True)
class Split:
    """SplitToSequence: views of an array, of one length (int64 of rank 0; the last is what is left) or of each its own. The
    function's own words: the dtype of lengths."""

    axis: int
    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        x, lengths = f.any_array(0), f.array(1, f.own(0))
        axis = _axis(f, self.axis, x.rank)
        f.needs(f.value(f"icmp sle i64 {x.rank}, {MOST_RANK}"))
        f.needs(f.value(f"icmp sle i64 {lengths.rank}, 1"))
        total, one = f.item(I64, x.dims, axis), f.value(f"icmp eq i64 {lengths.rank}, 0")
        # without lengths the first one is never read, and the place where there is none may be
        size = f.select(f.value(f"icmp eq i64 {lengths.size}, 0"), PTR, x.dims, lengths.data)
        step = f.select(one, I64, f.load(I64, size, 8), "1")
        f.needs(f.value(f"icmp sgt i64 {step}, 0"))
        parts = f.div(f.sub(f.add(total, step), 1), step)
        count = f.select(one, I64, parts, lengths.size)
        strides = f.load(PTR, f.at(x.object, STRIDES), 8)
        stride, number = f.item(I64, strides, axis), _number(f, x)
        flags = f.value(f"and i32 {x.flags}, {_KEPT_FLAGS}")
        dims = f.room()
        with f.each(x.rank) as loop:
            f.put(I64, f.item(I64, x.dims, loop.index), dims, loop.index)
        made = f.call("PyList_New", count)
        f.needs(f.is_there(made))
        f.guard(made)
        rank, kind = f.value(f"trunc i64 {x.rank} to i32"), f.array_type()
        with f.each(count, (I64, "0")) as loop:
            start = loop.vars[0]
            left = f.sub(total, start)
            given = f.item(I64, lengths.data, f.select(one, I64, "0", loop.index))
            length = f.select(one, I64, f.smallest(given, left), given)
            f.needs(f.value(f"icmp ule i64 {length}, {left}"))
            f.put(I64, length, dims, axis)
            data = f.at(x.data, f.mul(start, stride))
            part = f.call("PyArray_New", kind, rank, dims, number, strides, data, 0, flags, "null")
            f.needs(f.is_there(part))
            f.call("PyList_SetItem", made, loop.index, part)
            f.call("Py_IncRef", x.object)
            f.needs(f.value(f"icmp eq i32 {f.call('PyArray_SetBaseObject', part, x.object)}, 0"))
            loop.next = [f.add(start, length)]
        f.needs(f.value(f"icmp eq i64 {loop.vars[0]}, {total}"))
        f.give(made)


@record(frozen=True)
class Concat:
    """ConcatFromSequence: dense arrays of numbers one after the other along an axis, which is a new one if ``stacked``. The
    function's own words: the type of lists."""

    axis: int
    stacked: bool
    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        given = f.load(PTR, "%args", 8)
        f.needs_type(given, f.own(0))
        count = f.call("PyList_Size", given)
        f.needs(f.value(f"icmp sgt i64 {count}, 0"))
        first = f.dense(f.call("PyList_GetItem", given, 0))
        rank = f.add(first.rank, 1) if self.stacked else first.rank
        f.needs(f.value(f"icmp sle i64 {rank}, {MOST_RANK}"))
        axis, element = _axis(f, self.axis, rank), f.element_word(first.dtype)
        f.needs(f.value(f"icmp ne i64 {element}, {f.element_word(f.own(1))}"))
        width = f.load(I64, f.at(first.dtype, ITEM_SIZE), 8)
        outer = f.product(first.dims, 0, axis)
        behind = axis if self.stacked else f.add(axis, 1)
        inner = f.mul(f.product(first.dims, behind, first.rank), width)
        with f.each(count, (I64, "0")) as loop:
            x = f.dense(f.call("PyList_GetItem", given, loop.index))
            f.needs(f.value(f"icmp eq i64 {f.element_word(x.dtype)}, {element}"))
            f.needs(f.value(f"icmp eq i64 {x.rank}, {first.rank}"))
            with f.each(x.rank) as dim:
                equal = f.value(f"icmp eq i64 {f.item(I64, x.dims, dim.index)}, {f.item(I64, first.dims, dim.index)}")
                along = "false" if self.stacked else f.value(f"icmp eq i64 {dim.index}, {axis}")
                f.needs(f.either(equal, along))
            loop.next = [f.add(loop.vars[0], 1 if self.stacked else f.item(I64, x.dims, axis))]
        total, dims = loop.vars[0], f.room()
        with f.each(axis) as dim:
            f.put(I64, f.item(I64, first.dims, dim.index), dims, dim.index)
        f.put(I64, total, dims, axis)
        with f.loop(behind, first.rank) as dim:
            target = f.add(dim.index, 1) if self.stacked else dim.index
            f.put(I64, f.item(I64, first.dims, dim.index), dims, target)
        made, data = f.new(rank, dims, _number(f, first))
        row = f.mul(total, inner)
        with f.each(count, (PTR, data)) as loop:
            x = f.dense(f.call("PyList_GetItem", given, loop.index))
            nbytes = inner if self.stacked else f.mul(f.item(I64, x.dims, axis), inner)
            with f.each(outer) as rows:
                source, target = f.at(x.data, f.mul(rows.index, nbytes)), f.at(loop.vars[0], f.mul(rows.index, row))
                f.copy(target, source, nbytes)
            loop.next = [f.at(loop.vars[0], nbytes)]
        f.give(made)
