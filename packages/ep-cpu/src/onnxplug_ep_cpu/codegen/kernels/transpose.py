"""Copies between layouts whose contiguous dimensions differ: tiles of lanes x lanes, turned in registers."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES


@record(frozen=True, slots=True)
class Transpose:
    """out[o.., i, j] = in[o.., i, j], contiguous along j in the result and along i in the source.

    An item is (outer index, block of j, band of ``wide`` i), in steps of as many j: bands that follow each other read on where the one
    before ended, and a block's lines are few enough that their pages stay known. With as many as a cache line holds, a line of the result
    is written at once, which counts where the lines of a band exclude each other from the cache. The last band and the last
    step overlap those before them; what is narrower than that is copied by elements.
    Arguments: result, source, size of i, size of j, result's stride of i, source's stride of j, a block's j (a multiple of ``wide``, or
    all), then for each outer dimension: size, result stride, source stride. Strides in bytes.
    """

    outer: int
    wide: int
    element: str = "float32"

    def emit(self, f: Emitter) -> None:
        out, source = f.arg(0, PTR), f.arg(1, PTR)
        rows, columns, out_step, source_step, block = (f.arg(i) for i in range(2, 7))
        outer = [(f.arg(7 + 3 * d), f.arg(8 + 3 * d), f.arg(9 + 3 * d)) for d in range(self.outer)]
        type_, unit, wide = MEMORY[self.element], SIZES[self.element], self.wide
        bands = f.div(f.add(rows, wide - 1), wide)
        blocks = f.div(f.add(columns, f.sub(block, 1)), block)
        with f.items() as item:
            number, rest = f.rem(item, bands), f.div(item, bands)
            begin, rest = f.mul(f.rem(rest, blocks), block), f.div(rest, blocks)
            end = f.smallest(f.add(begin, block), columns)
            to, at = out, source
            for size, out_stride, source_stride in reversed(outer):
                index, rest = f.rem(rest, size), f.div(rest, size)
                to, at = f.at(to, f.mul(index, out_stride)), f.at(at, f.mul(index, source_stride))
            turns = f.value(f"and i1 {f.less(wide - 1, rows)}, {f.less(wide - 1, columns)}")
            first = f.mul(number, wide)
            i = f.select(turns, "i64", f.smallest(first, f.sub(rows, wide)), first)
            to, at = f.at(to, f.mul(i, out_step)), f.at(at, f.mul(i, unit))
            last = f.sub(columns, wide)
            with f.loop(begin, f.select(turns, "i64", end, begin), wide) as step:
                j = f.smallest(step.index, last)
                self._block(f, f.at(to, f.mul(j, unit)), f.at(at, f.mul(j, source_step)), out_step, source_step)
            height = f.smallest(f.sub(rows, i), wide)
            with f.loop(begin, f.select(turns, "i64", begin, end)) as column:
                column_at = f.at(at, f.mul(column.index, source_step))
                column_to = f.at(to, f.mul(column.index, unit))
                with f.loop(0, height) as k:
                    one = f.load(type_, f.at(column_at, f.mul(k.index, unit)), unit)
                    f.store(type_, one, f.at(column_to, f.mul(k.index, out_step)), unit)

    def _block(self, f: Emitter, to: str, at: str, out_step: str, source_step: str) -> None:
        """``wide`` x ``wide`` elements, a register's square at a time; those of a line of the result follow each other."""
        n, wide, type_, unit = f.lanes, self.wide, MEMORY[self.element], SIZES[self.element]
        v = f.vec(type_)
        for i in range(0, wide, n):
            for j in range(0, wide, n):
                source, result, lines = f.at(at, f.mul(j, source_step)), f.at(to, f.mul(i, out_step)), []
                for line in range(n):
                    source = f.at(source, source_step) if line else source
                    lines.append(f.load(v, f.at(source, i * unit), unit))
                for line, turned in enumerate(turn(f, v, lines)):
                    result = f.at(result, out_step) if line else result
                    f.store(v, turned, f.at(result, j * unit), unit)


def turn(f: Emitter, v: str, lines: list[str]) -> list[str]:
    """The transpose of a square of vectors, by log2(n) rounds of two-way shuffles."""
    n, step = len(lines), 1
    while step < n:
        low = [i if not i & step else n + i - step for i in range(n)]
        high = [i + step if not i & step else n + i for i in range(n)]
        rows = list(lines)
        for i in range(n):
            if not i & step:
                a, b = lines[i], lines[i + step]
                for at, order in ((i, low), (i + step, high)):
                    mask = ", ".join(f"i32 {k}" for k in order)
                    rows[at] = f.value(f"shufflevector {v} {a}, {v} {b}, <{n} x i32> <{mask}>")
        lines, step = rows, step * 2
    return lines
