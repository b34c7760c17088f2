"""Copies between layouts whose contiguous dimensions differ: tiles of lanes x lanes, turned in registers."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES


@record(frozen=True, slots=True)
class Transpose:
    """out[o.., i, j] = in[o.., i, j], contiguous along j in the result and along i in the source.

    An item is (outer index, band of ``lanes`` i). Arguments: result, source, size of i, size of j, result's stride of i,
    source's stride of j, then for each outer dimension: size, result stride, source stride. Strides in bytes.
    """

    outer: int
    element: str = "float32"

    def emit(self, f: Emitter) -> None:
        out, source = f.arg(0, PTR), f.arg(1, PTR)
        rows, columns, out_step, source_step = (f.arg(i) for i in range(2, 6))
        outer = [(f.arg(6 + 3 * d), f.arg(7 + 3 * d), f.arg(8 + 3 * d)) for d in range(self.outer)]
        n, type_, unit = f.lanes, MEMORY[self.element], SIZES[self.element]
        v = f.vec(type_)
        bands = f.div(f.add(rows, n - 1), n)
        with f.items() as item:
            band, rest = f.rem(item, bands), f.div(item, bands)
            to, at = out, source
            for size, out_stride, source_stride in reversed(outer):
                index, rest = f.rem(rest, size), f.div(rest, size)
                to, at = f.at(to, f.mul(index, out_stride)), f.at(at, f.mul(index, source_stride))
            i = f.mul(band, n)
            to, at = f.at(to, f.mul(i, out_step)), f.at(at, f.mul(i, unit))
            height = f.smallest(f.sub(rows, i), n)
            full = f.value(f"icmp eq i64 {height}, {n}")
            whole = f.select(full, "i64", f.and_(columns, -n), "0")
            with f.loop(0, whole, n) as j:
                tile_at = f.at(at, f.mul(j.index, source_step))
                lines = []
                for line in range(n):
                    lines.append(f.load(v, tile_at, unit))
                    if line + 1 < n:
                        tile_at = f.at(tile_at, source_step)
                target = f.at(to, f.mul(j.index, unit))
                for number, turned in enumerate(turn(f, v, lines)):
                    f.store(v, turned, target, unit)
                    if number + 1 < n:
                        target = f.at(target, out_step)
            with f.loop(whole, columns) as j:
                column_at, column_to = f.at(at, f.mul(j.index, source_step)), f.at(to, f.mul(j.index, unit))
                with f.loop(0, height) as k:
                    one = f.load(type_, f.at(column_at, f.mul(k.index, unit)), unit)
                    f.store(type_, one, f.at(column_to, f.mul(k.index, out_step)), unit)


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
