"""Weighted sums of a window for each channel of 8-bit channels-last data: depthwise convolution, average pooling.

The zero point is not taken off what is read: padding reads as the zero point, so it is the same for every output and part of
the bias. Sums are kept as float32, which is exact while taps x 255 x 255 stay below 2**24; the caller sees to that. Rows are found through
a table, so the geometry of the window costs nothing here.
"""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import SIZES, widen
from onnxplug_ep_cpu.codegen.kernels.qend import Edge, Where, edge_of, read, write

VECTORS = 4
"""Vectors of channels summed together."""


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes. Operands follow, four slots each: address, pixel stride, image stride, 0."""

    X = 0
    WEIGHTS = 1  # float32 [tap][channel]
    C = 2
    PIXELS = 3
    CHANNELS = 4
    BLOCK = 5  # pixels of one item
    BLOCKS = 6
    X0 = 7  # from image to image
    C0 = 8
    LDC = 9
    TABLE = 10  # int32 [pixel][tap], elements; negative: padding
    TAPS = 11
    PADDING = 12  # a row of zero points
    BIAS = 13  # int32 [channel]
    OPERANDS = 14


_POINTERS = frozenset({Arg.X, Arg.WEIGHTS, Arg.C, Arg.TABLE, Arg.PADDING, Arg.BIAS})


@record(frozen=True, slots=True)
class QDepthwise:
    """One kernel; an item is (image, block of pixels). Operands and ``expr`` are as in ``QGemm``."""

    element: str
    expr: ex.Expr
    operands: tuple[tuple[str, str], ...]
    result: str

    def emit(self, f: Emitter) -> None:
        a: dict[Arg, str] = {
            slot: f.arg(slot, PTR if slot in _POINTERS else "i64") for slot in Arg if slot is not Arg.OPERANDS
        }
        extra = f.operands(Arg.OPERANDS, len(self.operands), 4)
        wide = f.lanes * VECTORS
        whole = f.mul(f.div(a[Arg.CHANNELS], wide), wide)
        vectors = f.and_(a[Arg.CHANNELS], -f.lanes)
        with f.items() as item:
            block, image = f.rem(item, a[Arg.BLOCKS]), f.div(item, a[Arg.BLOCKS])
            x, c = f.at(a[Arg.X], f.mul(image, a[Arg.X0])), f.at(a[Arg.C], f.mul(image, a[Arg.C0]))
            operands = [
                (kind, element, f.at(where, f.mul(image, s0)), stride)
                for (kind, element), (where, stride, s0, _) in zip(self.operands, extra, strict=True)
            ]
            first = f.mul(block, a[Arg.BLOCK])
            with f.loop(first, f.smallest(f.add(first, a[Arg.BLOCK]), a[Arg.PIXELS])) as pixel:
                table = f.at(a[Arg.TABLE], f.mul(pixel.index, f.shl(a[Arg.TAPS], 2)))
                to = f.at(c, f.mul(pixel.index, a[Arg.LDC]))
                with f.loop(0, whole, wide) as channel:
                    self._block(f, a, x, table, to, channel.index, pixel.index, operands, VECTORS, None)
                with f.loop(whole, vectors, f.lanes) as channel:
                    self._block(f, a, x, table, to, channel.index, pixel.index, operands, 1, None)
                with f.when(f.less(vectors, a[Arg.CHANNELS])):
                    edge = edge_of(f, f.sub(a[Arg.CHANNELS], vectors), 1)
                    self._block(f, a, x, table, to, vectors, pixel.index, operands, 1, edge)

    def _block(
        self,
        f: Emitter,
        a: dict[Arg, str],
        x: str,
        table: str,
        to: str,
        channel: str,
        pixel: str,
        operands: list[Where],
        vectors: int,
        edge: Edge | None,
    ) -> None:
        v, unit, mask = f.vec(), SIZES[self.element], None if edge is None else edge.last
        across = f.mul(channel, unit)
        x, padding = f.at(x, across), f.at(a[Arg.PADDING], across)
        row = f.shl(a[Arg.CHANNELS], 2)
        carried = [(PTR, f.at(a[Arg.WEIGHTS], f.shl(channel, 2))), *[(v, "zeroinitializer")] * vectors]
        with f.loop(0, a[Arg.TAPS], carried=carried) as tap:
            offset = f.value(f"sext i32 {f.load(I32, f.at(table, f.shl(tap.index, 2)))} to i64")
            source = f.select(f.less(offset, 0), PTR, padding, f.at(x, f.mul(offset, unit)))
            weights, *sums = tap.vars
            tap.next = [f.at(weights, row)]
            for i, total in enumerate(sums):
                value = widen(f, self.element, read(f, self.element, f.at(source, unit * f.lanes * i), mask))
                tap.next.append(f.fma(value, read(f, "float32", f.at(weights, 4 * f.lanes * i), mask), total))
        bias = f.at(a[Arg.BIAS], f.shl(channel, 2))
        sums = []
        for i, total in enumerate(tap.vars[1:]):
            exact = f.value(f"fptosi {v} {total} to {f.vec(I32)}")
            sums.append(f.value(f"add {f.vec(I32)} {exact}, {read(f, 'int32', f.at(bias, 4 * f.lanes * i), mask)}"))
        here = [
            (kind, e, f.at(where, f.mul(channel, SIZES[e])) if kind in ("column", "full") else where, stride)
            for kind, e, where, stride in operands
        ]
        write(
            f,
            self.expr,
            sums,
            vectors,
            f.at(to, f.mul(channel, SIZES[self.result])),
            "0",
            self.result,
            pixel,
            here,
            edge,
        )
