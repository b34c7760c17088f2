"""Transposed convolutions to a few channels: vectors of columns of planes, whose phases are interleaved where rows are written."""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.interleave import in_turn

MOST_SUMS = 16
"""Vectors of sums up to which every tap has its own, so that none waits for the one before it."""


class Arg(IntEnum):
    """Slots of the arguments; steps in bytes. The addresses of operands follow."""

    OUT = 0
    SOURCE = 1  # planes with columns of zeros around them
    WEIGHTS = 2  # [tap of a column][channel][tap of a row][output]
    TABLE = 3  # int64, of each row of the result: how many taps of a column it meets, of each where its row and its weights are
    ENTRY = 4  # of one row there
    CHANNELS = 5
    PLANE = 6
    IMAGE = 7
    ROWS = 8
    COLUMNS = 9
    OUT_IMAGE = 10
    OUT_CHANNEL = 11
    OUT_ROW = 12
    OPERANDS = 13


@record(frozen=True, slots=True)
class Spread:
    """``expr`` of the sums for ``outputs`` channels; an item is (image, output row). Output column ``stride`` q + phase is the sum of
    columns q + shift over the ``taps`` of a row that have its phase, (phase, shift) each. ``wide`` vectors of q are taken
    together. ``operands`` are "column" or "scalar" as the product kernel's are."""

    outputs: int
    stride: int
    taps: tuple[tuple[int, int], ...]
    wide: int
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()

    @property
    def _apart(self) -> bool:
        """Whether every tap has sums of its own."""
        return len(self.taps) * self.outputs * self.wide <= MOST_SUMS

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Arg.TABLE else "i64") for slot in Arg if slot is not Arg.OPERANDS]
        extra = [f.arg(Arg.OPERANDS + i, PTR) for i in range(len(self.operands))]
        step = self.stride * self.wide * f.lanes
        with f.items() as item:
            row, image = f.rem(item, a[Arg.ROWS]), f.div(item, a[Arg.ROWS])
            source = f.at(a[Arg.SOURCE], f.mul(image, a[Arg.IMAGE]))
            out = f.at(f.at(a[Arg.OUT], f.mul(image, a[Arg.OUT_IMAGE])), f.mul(row, a[Arg.OUT_ROW]))
            entry = f.at(a[Arg.TABLE], f.mul(row, a[Arg.ENTRY]))
            with f.loop(0, a[Arg.COLUMNS], step) as column:
                here = f.at(source, f.mul(f.div(column.index, self.stride), 4))
                sums = self._sums(f, a, here, entry)
                for output in range(self.outputs):
                    to = f.at(f.at(out, f.mul(a[Arg.OUT_CHANNEL], output)), f.shl(column.index, 2))
                    self._write(f, extra, sums, output, to, f.sub(a[Arg.COLUMNS], column.index))

    def _place(self, tap: int, output: int, vector: int) -> int:
        """Which sum a product belongs to."""
        group = tap if self._apart else self.taps[tap][0]
        return (group * self.outputs + output) * self.wide + vector

    def _sums(self, f: Emitter, a: list[str], here: str, entry: str) -> list[str]:
        v, unit = f.vec(), 4 * len(self.taps) * self.outputs
        groups = len(self.taps) if self._apart else self.stride
        zeros = [(v, "zeroinitializer")] * (groups * self.outputs * self.wide)
        with f.loop(0, f.load("i64", entry), 1, zeros) as tap:
            pair = f.at(entry, f.shl(tap.index, 4))
            rows, weights = (f.load("i64", f.at(pair, at)) for at in (8, 16))
            x, w = f.at(here, rows), f.at(a[Arg.WEIGHTS], weights)
            with f.loop(0, a[Arg.CHANNELS], 1, zeros) as c:
                plane, own = f.at(x, f.mul(c.index, a[Arg.PLANE])), f.at(w, f.mul(c.index, unit))
                totals = list(c.vars)
                given = {
                    shift: [f.load(v, f.at(plane, 4 * (shift + i * f.lanes))) for i in range(self.wide)]
                    for shift in sorted({shift for _, shift in self.taps})
                }
                for number, (_, shift) in enumerate(self.taps):
                    for output in range(self.outputs):
                        weight = f.splat(f.load(F32, f.at(own, 4 * (number * self.outputs + output))))
                        for i, columns in enumerate(given[shift]):
                            at = self._place(number, output, i)
                            totals[at] = f.fma(columns, weight, totals[at])
                c.next = totals
            # a sum of sums has a smaller error than one long sum
            tap.next = [f.value(f"fadd {v} {x}, {y}") for x, y in zip(tap.vars, c.vars, strict=True)]
        return tap.vars

    def _write(self, f: Emitter, extra: list[str], sums: list[str], output: int, to: str, many: str) -> None:
        """Write the columns of an output, of which there are ``many``."""
        v = f.vec()
        for i in range(self.wide):
            phases = []
            for phase in range(self.stride):
                found = sorted({self._place(n, output, i) for n, (own, _) in enumerate(self.taps) if own == phase})
                total = sums[found[0]] if found else "zeroinitializer"
                for at in found[1:]:
                    total = f.value(f"fadd {v} {total}, {sums[at]}")
                leaves = [total]
                for kind, pointer in zip(self.operands, extra, strict=True):
                    leaves.append(f.splat(f.load(F32, f.at(pointer, 4 * output if kind == "column" else 0))))
                phases.append(ex.emit(f, self.expr, leaves))
            for part, columns in enumerate(in_turn(f, f.vec(), phases)):
                first = (i * self.stride + part) * f.lanes
                f.store_masked(F32, columns, f.at(to, 4 * first), f.lanes_below(f.sub(many, first)))
