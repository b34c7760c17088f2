"""Copies of slices that index tuples name."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR, Emitter

UNITS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


@record(frozen=True, slots=True)
class Gather:
    """out[outer, i] = data[outer, tuple i of the indices], slices of ``count`` elements of ``unit`` bytes.

    A tuple has ``depth`` indices of 32 or 64 ``bits``; negative ones count from the end, if they may be ``negative``; one out of
    range sets the status word.
    An item is (outer index, block of tuples). Arguments: out, data, indices, status, count, tuples, tuples per item, blocks,
    bytes from slice to slice of out, outer strides of out, data and indices in bytes; then size and stride in bytes for each index.
    """

    unit: int
    depth: int
    bits: int
    negative: bool = True

    def emit(self, f: Emitter) -> None:
        out, data, indices, status = (f.arg(i, PTR) for i in range(4))
        count, tuples, block, blocks, step, out_outer, data_outer, index_outer = (f.arg(i) for i in range(4, 12))
        axes = [(f.arg(12 + 2 * j), f.arg(13 + 2 * j)) for j in range(self.depth)]
        with f.items() as item:
            part, outer = f.rem(item, blocks), f.div(item, blocks)
            to, source = f.at(out, f.mul(outer, out_outer)), f.at(data, f.mul(outer, data_outer))
            own = f.at(indices, f.mul(outer, index_outer))
            first = f.mul(part, block)
            with f.loop(first, f.smallest(f.add(first, block), tuples)) as i:
                at, entry = source, f.at(own, f.mul(i.index, self.depth * self.bits // 8))
                for j, (size, stride) in enumerate(axes):
                    index = read_index(f, self.bits, f.at(entry, j * self.bits // 8), size, status, self.negative)
                    at = f.at(at, f.mul(index, stride))
                self._copy(f, f.at(to, f.mul(i.index, step)), at, count)

    def _copy(self, f: Emitter, to: str, at: str, count: str) -> None:
        type_ = UNITS[self.unit]
        lanes = 4 * f.lanes // self.unit
        v = f.vec(type_, lanes)
        wide, whole = f.and_(count, -4 * lanes), f.and_(count, -lanes)
        with f.loop(0, wide, 4 * lanes) as c:
            offset = f.mul(c.index, self.unit)
            here, there = f.at(at, offset), f.at(to, offset)
            step = lanes * self.unit
            loaded = [f.load(v, f.at(here, k * step), self.unit) for k in range(4)]
            for k, vector in enumerate(loaded):
                f.store(v, vector, f.at(there, k * step), self.unit)
        with f.loop(wide, whole, lanes) as c:
            offset = f.mul(c.index, self.unit)
            f.store(v, f.load(v, f.at(at, offset), self.unit), f.at(to, offset), self.unit)
        with f.loop(whole, count) as c:
            offset = f.mul(c.index, self.unit)
            f.store(type_, f.load(type_, f.at(at, offset), self.unit), f.at(to, offset), self.unit)


def read_index(f: Emitter, bits: int, where: str, size: str, status: str, negative: bool = True) -> str:
    """The index at an address, from the front; 0, and the status word is set, where it is out of range."""
    raw = f.load(f"i{bits}", where, bits // 8)
    index = raw if bits == 64 else f.value(f"sext i32 {raw} to i64")
    if negative:
        index = f.select(f.less(index, 0), I64, f.add(index, size), index)
    inside = f.value(f"icmp ult i64 {index}, {size}")
    with f.when(f.value(f"xor i1 {inside}, true")):
        f.do(f"store atomic i64 1, ptr {status} monotonic, align 8")
    return f.select(inside, I64, index, "0")
