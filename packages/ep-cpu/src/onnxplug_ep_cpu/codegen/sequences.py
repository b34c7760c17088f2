"""SplitToSequence and ConcatFromSequence over lists of arrays (see ``objects``)."""

from __future__ import annotations

from typing import ClassVar

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.entry import ELEMENT, ITEM_SIZE, STRIDES
from onnxplug_ep_cpu.codegen.objects import MOST_RANK, Function


@record(frozen=True)
class Split:
    """SplitToSequence: views of an array, of one length (int64 of rank 0; the last is what is left) or of each its own. The
    function's own words: the dtype of lengths, and the length of all where they are no operand."""

    axis: int
    operands: int

    def emit(self, f: Function) -> None:
        x, lengths = f.any_array(0), f.array(1, f.own(0)) if self.operands == 2 else f.dense(f.own(1))
        axis = f.axis(self.axis, x.rank)
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
        stride = f.item(I64, strides, axis)
        dims = f.room()
        with f.each(x.rank) as loop:
            f.put(I64, f.item(I64, x.dims, loop.index), dims, loop.index)
        made = f.call("PyList_New", count)
        f.needs(f.is_there(made))
        f.guard(made)
        with f.each(count, (I64, "0")) as loop:
            start = loop.vars[0]
            left = f.sub(total, start)
            given = f.item(I64, lengths.data, f.select(one, I64, "0", loop.index))
            length = f.select(one, I64, f.smallest(given, left), given)
            f.needs(f.value(f"icmp ule i64 {length}, {left}"))
            f.put(I64, length, dims, axis)
            data = f.at(x.data, f.mul(start, stride))
            part = f.view(x, x.rank, dims, data, strides)
            f.call("PyList_SetItem", made, loop.index, part)
            f.keep(part, x)
            loop.next = [f.add(start, length)]
        f.needs(f.value(f"icmp eq i64 {loop.vars[0]}, {total}"))
        f.give(made)


@record(frozen=True)
class Concat:
    """ConcatFromSequence: dense arrays one after the other along an axis, which is a new one if ``stacked``. The function's own
    words: the type of lists, the dtype of strings."""

    axis: int
    stacked: bool
    strings: bool
    operands: ClassVar[int] = 1

    def emit(self, f: Function) -> None:
        given = f.load(PTR, "%args", 8)
        f.needs_type(given, f.own(0))
        count = f.call("PyList_Size", given)
        f.needs(f.value(f"icmp sgt i64 {count}, 0"))
        first = f.dense(f.call("PyList_GetItem", given, 0))
        rank = f.add(first.rank, 1) if self.stacked else first.rank
        f.needs(f.value(f"icmp sle i64 {rank}, {MOST_RANK}"))
        axis, element = f.axis(self.axis, rank), f.element_word(first.dtype)
        f.needs(f.value(f"icmp {'eq' if self.strings else 'ne'} i64 {element}, {f.element_word(f.own(1))}"))
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
        made, data = f.new(rank, dims, f.load("i32", f.at(first.dtype, ELEMENT + 4)))
        row = f.mul(total, inner)
        with f.each(count, (PTR, data)) as loop:
            x = f.dense(f.call("PyList_GetItem", given, loop.index))
            nbytes = inner if self.stacked else f.mul(f.item(I64, x.dims, axis), inner)
            with f.each(outer) as rows:
                source, target = f.at(x.data, f.mul(rows.index, nbytes)), f.at(loop.vars[0], f.mul(rows.index, row))
                if self.strings:
                    with f.each(f.div(nbytes, 8)) as item:
                        word = f.element(source, item.index)
                        f.call("Py_IncRef", word)
                        f.put(PTR, word, target, item.index)
                else:
                    f.copy(target, source, nbytes)
            loop.next = [f.at(loop.vars[0], nbytes)]
        f.give(made)
