"""The same few columns of many rows."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I32, I64, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.gather import UNITS


@record(frozen=True, slots=True)
class Pick:
    """out[row, i] = data[row, column i], elements of ``unit`` bytes: the results of a vector's worth of rows are whole vectors, whose
    elements lie where a table says.

    An item is a block of such groups of rows. Arguments: out, data, table (bytes from the start of a group to each of its results,
    int32), columns, rows, bytes from row to row of data, groups per item.
    """

    unit: int

    def emit(self, f: Emitter) -> None:
        out, data, table = (f.arg(i, PTR) for i in range(3))
        columns, rows, step, block = (f.arg(i) for i in range(3, 7))
        groups = f.div(f.add(rows, f.lanes - 1), f.lanes)
        with f.items() as item:
            first = f.mul(item, block)
            with f.loop(first, f.smallest(f.add(first, block), groups)) as group:
                row = f.mul(group.index, f.lanes)
                to, source = f.at(out, f.mul(row, f.mul(columns, self.unit))), f.at(data, f.mul(row, step))
                count = f.mul(f.smallest(f.sub(rows, row), f.lanes), columns)
                whole = f.and_(count, -f.lanes)
                with f.loop(0, whole, f.lanes) as c:
                    self._vector(f, to, source, table, c.index, "splat (i1 true)")
                with f.when(f.less(whole, count)):
                    self._vector(f, to, source, table, whole, f.lanes_below(f.sub(count, whole)))

    def _vector(self, f: Emitter, to: str, source: str, table: str, at: str, mask: str) -> None:
        type_, n = UNITS[self.unit], f.lanes
        v, pointers = f.vec(type_), f.vec(PTR)
        offsets = f.load(f.vec(I32), f.at(table, f.shl(at, 2)))
        wide = f.value(f"sext {f.vec(I32)} {offsets} to {f.vec(I64)}")
        places = f.value(f"getelementptr i8, ptr {source}, {f.vec(I64)} {wide}")
        found = f.intrinsic(
            f"llvm.masked.gather.v{n}{type_}.v{n}p0", v,
            (pointers, places), (I32, str(self.unit)), (f.vec("i1"), mask), (v, "zeroinitializer"),
        )  # fmt: skip
        f.store_masked(type_, found, f.at(to, f.mul(at, self.unit)), mask, self.unit)
