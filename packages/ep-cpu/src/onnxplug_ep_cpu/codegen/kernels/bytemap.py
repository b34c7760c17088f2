"""A function of bytes through a table of its 256 results.

x86 looks sixteen entries up at once in a register, for indices below 16, and gives 0 for those whose highest bit is set. An index
that counts down by 16, saturating, is such a one until it has passed below 0; so each sixteenth of the table but the first of a
half is kept as its difference (exclusive or) from the one before, and the sixteenths up to an index's own add up to that one.
"""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I8, I64, PTR, Emitter

_PART = 16
_HALF = 128


@record(frozen=True, slots=True)
class ByteMap:
    """result = table[operand], as unsigned numbers; an item is a block of rows and of columns. Arguments: result, operand,
    table, columns, columns per block, blocks of columns, rows, rows per block, blocks of rows, row strides of result and
    operand."""

    def emit(self, f: Emitter) -> None:
        out, x, table = (f.arg(i, PTR) for i in range(3))
        columns, column_block, column_blocks, rows, row_block, _, out_row, x_row = (f.arg(i) for i in range(3, 11))
        width = 4 * f.lanes
        vectors = f.target.name in ("avx2", "avx512")
        parts = self._differences(f, table) if vectors else ""
        with f.items() as item:
            column, row = f.rem(item, column_blocks), f.div(item, column_blocks)
            first, start = f.mul(row, row_block), f.mul(column, column_block)
            stop = f.smallest(f.add(start, column_block), columns)
            with f.loop(first, f.smallest(f.add(first, row_block), rows)) as r:
                to, at = f.at(out, f.mul(r.index, out_row)), f.at(x, f.mul(r.index, x_row))
                whole = start
                if vectors:
                    whole = f.add(start, f.and_(f.sub(stop, start), -width))
                    with f.loop(start, whole, width) as c:
                        self._vector(f, parts, to, at, c.index)
                    last = f.sub(stop, width)  # what is left, with some of what has been done
                    fits = f.value(f"and i1 {f.less(whole, stop)}, {f.value(f'icmp sge i64 {last}, {start}')}")
                    with f.when(fits):
                        self._vector(f, parts, to, at, last)
                    whole = f.select(fits, I64, stop, whole)
                with f.loop(whole, stop) as c:
                    place = f.value(f"zext i8 {f.load(I8, f.at(at, c.index), 1)} to i64")
                    f.store(I8, f.load(I8, f.at(table, place), 1), f.at(to, c.index), 1)

    @staticmethod
    def _differences(f: Emitter, table: str) -> str:
        """The table in the form of the module's text."""
        part = f.vec(I8, _PART)
        held = f.value(f"alloca [256 x i8], align {_PART}")
        before = ""
        for at in range(0, 256, _PART):
            entries = f.load(part, f.at(table, at), 1)
            kept = f.value(f"xor {part} {entries}, {before}") if at % _HALF else entries
            f.store(part, kept, f.at(held, at), _PART)
            before = entries
        return held

    @staticmethod
    def _vector(f: Emitter, parts: str, to: str, at: str, column: str) -> None:
        width = 4 * f.lanes
        bytes_, part = f.vec(I8, width), f.vec(I8, _PART)
        shuffle = {8: "llvm.x86.avx2.pshuf.b", 16: "llvm.x86.avx512.pshuf.b.512"}[f.lanes]
        everywhere = ", ".join(f"i32 {i % _PART}" for i in range(width))
        x = f.load(bytes_, f.at(at, column), 1)
        total = ""
        for half in (0, _HALF):
            index = f.value(f"xor {bytes_} {x}, splat (i8 -128)") if half else x
            for start in range(half, half + _HALF, _PART):
                if start % _HALF:
                    step = (bytes_, index), (bytes_, f"splat (i8 {_PART})")
                    index = f.intrinsic(f"llvm.ssub.sat.v{width}i8", bytes_, *step)
                entries = f.load(part, f.at(parts, start), _PART)
                entries = f.value(f"shufflevector {part} {entries}, {part} poison, <{width} x i32> <{everywhere}>")
                found = f.intrinsic(shuffle, bytes_, (bytes_, entries), (bytes_, index))
                total = f.value(f"xor {bytes_} {total}, {found}") if total else found
        f.store(bytes_, total, f.at(to, column), 1)
