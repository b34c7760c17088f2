"""Strings in other places: chosen, gathered, in another shape (see ``objects``). Each stands in for a kernel of the catalogue, which
says what it computes."""

from __future__ import annotations

import math
from typing import ClassVar

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.objects import MOST_RANK, Array, Function
from onnxplug_ep_cpu.codegen.text import OBJECT, broadcast, strings_of


@record(frozen=True)
class Where:
    """Where of strings, by truth values (own: 1, their dtype)."""

    operands: ClassVar[int] = 3

    def emit(self, f: Function) -> None:
        condition, x, y = f.array(0, f.own(1)), strings_of(f, 1), strings_of(f, 2)
        lead, (step, step_x, step_y) = broadcast(f, (condition, x, y))
        made, data = f.new(lead.rank, lead.dims, OBJECT.num)
        with f.each(lead.size) as loop:
            holds = f.item("i8", condition.data, f.mul(loop.index, step), 1)
            a, b = f.at(x.data, f.mul(f.mul(loop.index, step_x), 8)), f.at(y.data, f.mul(f.mul(loop.index, step_y), 8))
            word = f.element(f.select(f.value(f"icmp ne i8 {holds}, 0"), PTR, a, b), "0")
            f.call("Py_IncRef", word)
            f.put(PTR, word, data, loop.index)
        f.give(made)


@record(frozen=True)
class Take:
    """Gather of strings along an axis, by int64 indices (own: 1, their dtype); ``flat``: ArrayFeatureExtractor, which takes all
    indices as one row, and none from the end."""

    axis: int
    flat: bool = False
    operands: ClassVar[int] = 2

    def emit(self, f: Function) -> None:
        x, at = strings_of(f, 0), f.array(1, f.own(1))
        axis = f.axis(self.axis, x.rank)
        indices = "1" if self.flat else at.rank
        rank = f.sub(f.add(x.rank, indices), 1)
        f.needs(f.value(f"icmp sle i64 {rank}, {MOST_RANK}"))
        if self.flat:
            f.needs(f.value(f"icmp sgt i64 {rank}, 1"))  # one row of what has none is another shape
        dims, rows, behind = f.room(), f.item(I64, x.dims, axis), f.add(axis, 1)
        outer, inner = f.product(x.dims, 0, axis), f.product(x.dims, behind, x.rank)
        with f.each(axis) as loop:
            f.put(I64, f.item(I64, x.dims, loop.index), dims, loop.index)
        with f.each(indices) as loop:
            f.put(I64, at.size if self.flat else f.item(I64, at.dims, loop.index), dims, f.add(axis, loop.index))
        with f.loop(behind, x.rank) as loop:
            f.put(I64, f.item(I64, x.dims, loop.index), dims, f.sub(f.add(loop.index, indices), 1))
        made, data = f.new(rank, dims, OBJECT.num)
        with f.each(outer) as block, f.each(at.size) as loop:
            index = f.item(I64, at.data, loop.index)
            if not self.flat:
                index = f.select(f.less(index, 0), I64, f.add(index, rows), index)
            f.needs(f.value(f"icmp ult i64 {index}, {rows}"))
            start = f.mul(f.add(f.mul(block.index, rows), index), inner)
            target = f.mul(f.add(f.mul(block.index, at.size), loop.index), inner)
            with f.each(inner) as part:
                word = f.element(x.data, f.add(start, part.index))
                f.call("Py_IncRef", word)
                f.put(PTR, word, data, f.add(target, part.index))
        f.give(made)


@record(frozen=True)
class Shown:
    """Strings in another shape, a view of them. Reshape to ``numbers``, of which one may be -1 and none 0; Flatten at an axis, the
    number; Unsqueeze, which puts axes in, none of them counted from the end. A second operand says the same."""

    op_type: str
    numbers: tuple[int, ...]
    operands: int

    def emit(self, f: Function) -> None:
        x, dims = strings_of(f), f.room()
        if self.op_type == "Reshape":
            rank = self._reshaped(f, x, dims)
        elif self.op_type == "Flatten":
            (at,), rank = self.numbers, "2"
            axis = f.add(x.rank if at < 0 else 0, at)
            f.needs(f.value(f"icmp ule i64 {axis}, {x.rank}"))
            f.put(I64, f.product(x.dims, 0, axis), dims, "0")
            f.put(I64, f.product(x.dims, axis, x.rank), dims, "1")
        else:
            rank = self._unsqueezed(f, x, dims)
        made = f.view(x, rank, dims, x.data)
        f.guard(made)
        f.keep(made, x)
        f.give(made)

    def _reshaped(self, f: Function, x: Array, dims: str) -> str:
        known = math.prod(n for n in self.numbers if n > 0)
        left = f.div(x.size, known) if -1 in self.numbers else "1"
        f.needs(f.value(f"icmp eq i64 {f.mul(left, known)}, {x.size}"))
        for at, number in enumerate(self.numbers):
            f.put(I64, left if number < 0 else str(number), dims, str(at))
        return str(len(self.numbers))

    def _unsqueezed(self, f: Function, x: Array, dims: str) -> str:
        rank = f.add(x.rank, len(self.numbers))
        f.needs(f.value(f"icmp sle i64 {rank}, {MOST_RANK}"))
        f.needs(f.less(max(self.numbers), rank))
        with f.each(rank, (I64, "0")) as loop:
            new = "false"
            for axis in self.numbers:
                new = f.either(new, f.value(f"icmp eq i64 {loop.index}, {axis}"))
            source = f.select(new, I64, "0", loop.vars[0])  # there is one: x has a dimension, or all are new
            place = f.select(f.value(f"icmp eq i64 {x.rank}, 0"), PTR, dims, x.dims)
            f.put(I64, f.select(new, I64, "1", f.item(I64, place, source)), dims, loop.index)
            loop.next = [f.add(loop.vars[0], f.select(new, I64, "0", "1"))]
        return rank
