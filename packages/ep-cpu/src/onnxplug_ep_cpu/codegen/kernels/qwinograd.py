"""Winograd's F(2 x 2, 3 x 3) in integers: transforms of filters, input tiles and products, channels-last, without any error.

As in ``winograd``, Y = A' [(G g G') * (B' d B)] A. Filters are transformed by 2 G on either side, so that everything is an integer
and the result four times too large, which the last transform undoes. Transformed data are below 4 x 255 and filters below
9 x 255 in magnitude: int16, whose products the kernel of pairs sums in int32. It may overflow on the way, since sums are taken
modulo 2**32; only four times the result has to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import I8, I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES
from onnxplug_ep_cpu.codegen.kernels.qend import Where, write

I16 = "i16"
TAPS, SIDE, RESULTS = 3, 4, 2
PLANES = SIDE * SIDE
POINT = 5
"""The plane whose every element has a constant added to the input four times; of its products each result has one."""

Line = Callable[[Emitter, str, Sequence[str]], list[str]]


def _both_ways(f: Emitter, type_: str, line: Line, square: Sequence[Sequence[str]]) -> list[list[str]]:
    half = [line(f, type_, column) for column in zip(*square, strict=True)]
    return [line(f, type_, row) for row in zip(*half, strict=True)]


def _add(f: Emitter, type_: str, a: str, b: str) -> str:
    return f.value(f"add {type_} {a}, {b}")


def _sub(f: Emitter, type_: str, a: str, b: str) -> str:
    return f.value(f"sub {type_} {a}, {b}")


def _filters(f: Emitter, t: str, g: Sequence[str]) -> list[str]:
    """2 G g."""
    ends = _add(f, t, g[0], g[2])
    return [_add(f, t, g[0], g[0]), _add(f, t, ends, g[1]), _sub(f, t, ends, g[1]), _add(f, t, g[2], g[2])]


def _inputs(f: Emitter, t: str, d: Sequence[str]) -> list[str]:
    """B' d."""
    return [_sub(f, t, d[0], d[2]), _add(f, t, d[1], d[2]), _sub(f, t, d[2], d[1]), _sub(f, t, d[1], d[3])]


def _results(f: Emitter, t: str, m: Sequence[str]) -> list[str]:
    """A' m."""
    return [_add(f, t, m[0], _add(f, t, m[1], m[2])), _sub(f, t, _sub(f, t, m[1], m[2]), m[3])]


class Filter(IntEnum):
    """Slots of ``QFilterTransform``; steps in bytes."""

    OUT = 0  # int16 [plane][panel][pair of channels][column][2]
    SOURCE = 1  # [output][channel][tap]
    ZEROS = 2  # int16 [output]
    OUTPUTS = 3
    CHANNELS = 4
    WIDTH = 5
    PANEL_STEP = 6
    PLANE_STEP = 7


@record(frozen=True, slots=True)
class QFilterTransform:
    """Filters as panels for the product kernel; an item is a column of a panel. The last panel overlaps the one before it."""

    element: str

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Filter.ZEROS else "i64") for slot in Filter]
        extend = "zext" if self.element == "uint8" else "sext"
        taps = TAPS * TAPS
        with f.items() as item:
            panel, column = f.div(item, a[Filter.WIDTH]), f.rem(item, a[Filter.WIDTH])
            first = f.smallest(f.mul(panel, a[Filter.WIDTH]), f.sub(a[Filter.OUTPUTS], a[Filter.WIDTH]))
            output = f.add(first, column)
            zero = f.load(I16, f.at(a[Filter.ZEROS], f.shl(output, 1)), 2)
            source = f.at(a[Filter.SOURCE], f.mul(f.mul(output, a[Filter.CHANNELS]), taps))
            to = f.at(f.at(a[Filter.OUT], f.mul(panel, a[Filter.PANEL_STEP])), f.shl(column, 2))
            with f.loop(0, a[Filter.CHANNELS]) as channel:
                at = f.at(source, f.mul(channel.index, taps))
                loaded = [f.load(I8, f.at(at, tap), 1) for tap in range(taps)]
                wide = [_sub(f, I16, f.value(f"{extend} i8 {x} to i16"), zero) for x in loaded]
                planes = _both_ways(f, I16, _filters, [wide[i : i + TAPS] for i in range(0, taps, TAPS)])
                pair = f.mul(f.value(f"lshr i64 {channel.index}, 1"), f.shl(a[Filter.WIDTH], 2))
                place = f.at(f.at(to, pair), f.shl(f.and_(channel.index, 1), 1))
                _store_planes(f, I16, planes, place, a[Filter.PLANE_STEP])


class Input(IntEnum):
    """Slots of ``QInputTransform``; steps in bytes."""

    OUT = 0
    SOURCE = 1
    TABLE = 2  # [tile of an image][element] offsets in elements; negative: padding
    PADDING = 3  # the zero point for each channel; 0 where the source is int16, which is less it already
    FIRST = 4  # number of the first tile, counted over images
    TILES = 5  # of an image
    CHANNELS = 6
    IMAGE_STEP = 7
    PLANE_STEP = 8


@record(frozen=True, slots=True)
class QInputTransform:
    """Tiles of the input less the zero point, as int16 [plane][tile][channel]; an item is a tile. The last vector of channels
    overlaps the one before it."""

    element: str

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Input.PADDING else "i64") for slot in Input]
        count, unit = 2 * f.lanes, SIZES[self.element]
        wide = f.vec(I16, count)
        pointers = f.value(f"alloca [{PLANES} x ptr], align 64")
        zero = self._wide(f, f.load(MEMORY[self.element], a[Input.PADDING], unit), 1)
        added = f.splat(f.value(f"shl i16 {zero}, 2"), I16, count)
        last = f.sub(a[Input.CHANNELS], count)
        with f.items() as item:
            number = f.add(item, a[Input.FIRST])
            image, tile = f.div(number, a[Input.TILES]), f.rem(number, a[Input.TILES])
            source = f.at(a[Input.SOURCE], f.mul(image, a[Input.IMAGE_STEP]))
            entry = f.at(a[Input.TABLE], f.mul(tile, 4 * PLANES))
            with f.loop(0, PLANES) as element:
                offset = f.value(f"sext i32 {f.load(I32, f.at(entry, f.shl(element.index, 2)))} to i64")
                here = f.select(f.less(offset, 0), PTR, a[Input.PADDING], f.at(source, f.mul(offset, unit)))
                f.store(PTR, here, f.at(pointers, f.shl(element.index, 3)), 8)
            to = f.at(a[Input.OUT], f.shl(f.mul(item, a[Input.CHANNELS]), 1))
            with f.loop(0, a[Input.CHANNELS], count) as channel:
                at = f.smallest(channel.index, last)
                loaded = []
                for element_of in range(PLANES):
                    row = f.load(PTR, f.at(pointers, 8 * element_of), 8)
                    raw = f.load(f.vec(MEMORY[self.element], count), f.at(row, f.mul(at, unit)), unit)
                    loaded.append(self._wide(f, raw, count))
                planes = _both_ways(f, wide, _inputs, [loaded[i : i + SIDE] for i in range(0, PLANES, SIDE)])
                row_of, column_of = divmod(POINT, SIDE)
                planes[row_of][column_of] = _sub(f, wide, planes[row_of][column_of], added)
                _store_planes(f, wide, planes, f.at(to, f.shl(at, 1)), a[Input.PLANE_STEP])

    def _wide(self, f: Emitter, raw: str, count: int) -> str:
        """One or a vector of elements as int16."""
        if self.element == "int16":
            return raw
        extend = "zext" if self.element == "uint8" else "sext"
        from_, to = (t if count == 1 else f.vec(t, count) for t in (I8, I16))
        return f.value(f"{extend} {from_} {raw} to {to}")


class Output(IntEnum):
    """Slots of ``QOutputTransform``; steps in bytes. Operands follow, three slots each: address, pixel step, image step."""

    OUT = 0
    SOURCE = 1  # int32 [plane][tile][channel]
    TABLE = 2  # [tile of an image] number of its first pixel
    FIRST = 3
    TILES = 4
    CHANNELS = 5
    ROW = 6  # pixels of a row of the image
    PIXEL_STEP = 7
    IMAGE_STEP = 8
    PLANE_STEP = 9
    OPERANDS = 10


@record(frozen=True, slots=True)
class QOutputTransform:
    """Tiles of the result and ``expr`` of them; an item is a tile. Operands and ``expr`` are as in ``QGemm``."""

    vectors: int
    expr: ex.Expr
    operands: tuple[tuple[str, str], ...]
    result: str

    def emit(self, f: Emitter) -> None:
        slots = [slot for slot in Output if slot is not Output.OPERANDS]
        a = [f.arg(slot, PTR if slot <= Output.TABLE else "i64") for slot in slots]
        extra = f.operands(Output.OPERANDS, len(self.operands), 3)
        width = self.vectors * f.lanes
        last = f.sub(a[Output.CHANNELS], width)
        with f.items() as item:
            number = f.add(item, a[Output.FIRST])
            image, tile = f.div(number, a[Output.TILES]), f.rem(number, a[Output.TILES])
            pixel = f.value(f"sext i32 {f.load(I32, f.at(a[Output.TABLE], f.shl(tile, 2)))} to i64")
            out = f.at(a[Output.OUT], f.mul(image, a[Output.IMAGE_STEP]))
            moved = [f.at(where, f.mul(image, step)) for where, _, step in extra]
            source = f.at(a[Output.SOURCE], f.shl(f.mul(item, a[Output.CHANNELS]), 2))
            with f.loop(0, a[Output.CHANNELS], width) as channel:
                at = f.smallest(channel.index, last)
                sums = [self._results(f, f.at(source, f.add(f.shl(at, 2), 4 * f.lanes * i)), a[Output.PLANE_STEP])
                        for i in range(self.vectors)]  # fmt: skip
                operands: list[Where] = [
                    (
                        kind,
                        element,
                        f.at(where, f.mul(at, SIZES[element])) if kind in ("column", "full") else where,
                        step,
                    )
                    for (kind, element), where, (_, step, _) in zip(self.operands, moved, extra, strict=True)
                ]
                for line in range(RESULTS):
                    m = f.add(pixel, a[Output.ROW]) if line else pixel
                    to = f.at(f.at(out, f.mul(m, a[Output.PIXEL_STEP])), f.mul(at, SIZES[self.result]))
                    here = [by_vector[line][x] for x in range(RESULTS) for by_vector in sums]
                    write(f, self.expr, here, self.vectors, to, a[Output.PIXEL_STEP], self.result, m, operands, None)

    def _results(self, f: Emitter, source: str, step: str) -> list[list[str]]:
        """The four results of a vector of channels."""
        v, loaded = f.vec(I32), []
        for plane in range(PLANES):
            loaded.append(f.load(v, source))
            source = f.at(source, step) if plane + 1 < PLANES else source
        made = _both_ways(f, v, _results, [loaded[i : i + SIDE] for i in range(0, PLANES, SIDE)])
        return [[f.value(f"ashr {v} {x}, splat (i32 2)") for x in row] for row in made]


def _store_planes(f: Emitter, type_: str, planes: Sequence[Sequence[str]], to: str, step: str) -> None:
    flat = [x for row in planes for x in row]
    for number, value in enumerate(flat):
        f.store(type_, value, to, 2)
        if number + 1 < len(flat):
            to = f.at(to, step)
