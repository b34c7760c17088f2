"""A cache of keys or values with new ones in their places, which data decide."""

from __future__ import annotations

from collections.abc import Callable

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES

ROWS = 32
"""Rows of an item."""


@record(frozen=True, slots=True)
class Append:
    """present[b, h, r] = past[b, h, r] before row ``start``, new[b, h, r - start] from there on, zero behind.

    An item is (batch, head, block of ROWS rows). Where present is past, only rows from ``start`` to KEYS are written: those before are
    there, and those behind nobody reads. ``start`` is the batch's int32 plus FIRST, taken to be at least 0, where ``dynamic``;
    else FIRST. One that leaves a hole, or no room for what is new, sets the status word. Arguments: present, past, new,
    starts, status, FIRST, heads, rows, rows of the past, new rows, size, KEYS, batch, head and row strides of present, past
    and new in bytes. All three hold ``element``.
    """

    dynamic: bool
    element: str

    def emit(self, f: Emitter) -> None:
        present, past, new, starts, status = (f.arg(i, PTR) for i in range(5))
        first, heads, rows, old, fresh, size, keys = (f.arg(i) for i in range(5, 12))
        strides = [[f.arg(12 + 3 * t + i) for i in range(3)] for t in range(3)]
        same = f.value(f"icmp eq ptr {present}, {past}")
        blocks = f.div(f.add(rows, ROWS - 1), ROWS)
        with f.items() as item:
            block, rest = f.rem(item, blocks), f.div(item, blocks)
            head, batch = f.rem(rest, heads), f.div(rest, heads)
            begin = f.mul(block, ROWS)
            end = f.smallest(f.add(begin, ROWS), rows)
            start = first
            if self.dynamic:
                raw = f.load(I32, f.at(starts, f.shl(batch, 2)))
                start = f.add(f.value(f"sext i32 {raw} to i64"), first)
                behind_hole = f.value(f"icmp ugt i64 {start}, {old}")
                with f.when(f.value(f"or i1 {behind_hole}, {f.less(f.sub(rows, fresh), start)}")):
                    f.do(f"store atomic i64 1, ptr {status} monotonic, align 8")
                start = f.select(f.less(start, 0), "i64", "0", start)

            def line(base: str, steps: list[str], index: str) -> str:
                at = f.add(f.mul(batch, steps[0]), f.mul(head, steps[1]))
                return f.at(base, f.add(at, f.mul(index, steps[2])))

            updated = f.select(f.less(begin, start), "i64", start, begin)
            begin = f.select(same, "i64", updated, begin)
            end = f.select(same, "i64", f.smallest(end, keys), end)
            with f.loop(begin, end) as each:
                self._row(f, each.index, start, old, fresh, size, line, (present, past, new), strides)

    def _row(
        self,
        f: Emitter,
        row: str,
        start: str,
        old: str,
        fresh: str,
        size: str,
        line: Callable[[str, list[str], str], str],
        bases: tuple[str, str, str],
        strides: list[list[str]],
    ) -> None:
        present, past, new = bases
        to = line(present, strides[0], row)
        behind = f.sub(row, start)
        kept = f.value(f"and i1 {f.less(behind, 0)}, {f.less(row, old)}")
        added = f.value(f"icmp ult i64 {behind}, {fresh}")
        source = f.select(added, PTR, line(new, strides[2], behind), line(past, strides[1], row))
        filled = f.value(f"or i1 {kept}, {added}")
        whole, type_, unit = f.and_(size, -f.lanes), MEMORY[self.element], SIZES[self.element]
        for width, begin, end in ((f.lanes, "0", whole), (1, whole, size)):
            v = f.vec(type_, width)
            with f.when(filled), f.loop(begin, end, width) as loop:
                offset = f.mul(loop.index, unit)
                f.store(v, f.load(v, f.at(source, offset), unit), f.at(to, offset), unit)
            with f.when(f.value(f"xor i1 {filled}, true")), f.loop(begin, end, width) as loop:
                f.store(v, "zeroinitializer", f.at(to, f.mul(loop.index, unit)), unit)
