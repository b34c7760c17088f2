"""Rows of a table whose numbers have few bits and a scale for each block, taken by index."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I8, I32, I64, PTR, Emitter


@record(frozen=True, slots=True)
class BlockRows:
    """y[i] = (row - zero points) scales for the row that index i of 32 or 64 ``index_bits`` names, zeros where it is outside. An item is
    an index. Arguments: y, rows of bytes, indices, scales and zero points (row, block); numbers of rows, of vectors of bytes of a row, of
    blocks of a row, vectors of bytes of a block, bytes of a row, floats of a row. ``zero``: the zero point of
    all. ``spanned``: the blocks that a vector of bytes is of, where they are shorter."""

    bits: int
    index_bits: int
    zero: int | None
    spanned: int = 1

    def emit(self, f: Emitter) -> None:
        y, rows, indices, scales, zeros = (f.arg(slot, PTR) for slot in range(5))
        count, vectors, blocks, common, size, width = (f.arg(slot) for slot in range(5, 11))
        v, ints, parts = f.vec(), f.vec(I32), 8 // self.bits
        with f.items() as item:
            raw = f.load(f"i{self.index_bits}", f.at(indices, f.mul(item, self.index_bits // 8)), self.index_bits // 8)
            index = raw if self.index_bits == 64 else f.value(f"sext i32 {raw} to i64")
            index = f.select(f.less(index, 0), I64, f.add(index, count), index)
            inside = f.value(f"icmp ult i64 {index}, {count}")
            index = f.select(inside, I64, index, "0")
            to, row = f.at(y, f.shl(f.mul(item, width), 2)), f.at(rows, f.mul(index, size))
            first = f.shl(f.mul(index, blocks), 2)
            with f.loop(0, vectors) as vector:
                place = f.mul(vector.index, self.spanned) if self.spanned > 1 else f.div(vector.index, common)
                block = f.add(first, f.shl(place, 2))
                scale = self._of_blocks(f, f.at(scales, block))
                scale = f.select(inside, v, scale, "zeroinitializer")
                if self.zero is None:
                    zero = self._of_blocks(f, f.at(zeros, block))
                else:
                    zero = f.constant(float(self.zero))
                held = f.load(f.vec(I8), f.at(row, f.mul(vector.index, f.lanes)), 1)
                held = f.value(f"zext {f.vec(I8)} {held} to {ints}")
                made = []
                for i in range(parts):
                    field = f.value(f"lshr {ints} {held}, splat (i32 {self.bits * i})") if i else held
                    field = f.value(f"and {ints} {field}, splat (i32 {2**self.bits - 1})") if parts > 1 else field
                    number = f.value(f"fsub {v} {f.value(f'sitofp {ints} {field} to {v}')}, {zero}")
                    made.append(f.value(f"fmul {v} {number}, {scale}"))
                where = f.at(to, f.mul(vector.index, 4 * f.lanes * parts))
                for i, part in enumerate(_interleaved(f, made)):
                    f.store(v, part, f.at(where, 4 * f.lanes * i))

    def _of_blocks(self, f: Emitter, pointer: str) -> str:
        """What holds for each byte of a vector."""
        if self.spanned == 1:
            return f.splat(f.load("float", pointer))
        few = f.vec("float", self.spanned)
        places = ", ".join(f"i32 {lane * self.spanned // f.lanes}" for lane in range(f.lanes))
        return f.value(f"shufflevector {few} {f.load(few, pointer, 4)}, {few} poison, <{f.lanes} x i32> <{places}>")


def _interleaved(f: Emitter, parts: list[str]) -> list[str]:
    """The first of each vector, then the second of each, and so on, as vectors."""
    v, n = f.vec(), f.lanes
    while len(parts) > 1:
        half = len(parts) // 2
        if half == 1:
            return [
                f.value(f"shufflevector {v} {parts[0]}, {v} {parts[1]}, <{n} x i32> <{_places(n, start)}>")
                for start in (0, n // 2)
            ]
        even, odd = _interleaved(f, parts[::2]), _interleaved(f, parts[1::2])
        return [x for pair in zip(even, odd, strict=True) for x in _interleaved(f, list(pair))]
    return parts


def _places(n: int, start: int) -> str:
    """Lanes of two vectors in turn, from one on."""
    return ", ".join(f"i32 {start + i // 2 + n * (i % 2)}" for i in range(n))
