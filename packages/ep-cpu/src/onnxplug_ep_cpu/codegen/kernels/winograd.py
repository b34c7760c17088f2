"""Winograd's minimal filtering F(m x m, 3 x 3): transforms of filters, input tiles and products, channels-last.

Y = A' [(G g G') * (B' d B)] A (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). Points are
0, 1, -1, infinity for m = 2, and 1/2, -2 with them for m = 4: they err least of those with cheap transforms. Plane xi of
(m + 2)^2 holds element xi of the transformed tiles: [plane][tile][channel].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter

Points = Callable[[Emitter, Sequence[str]], list[str]]


def _sum(f: Emitter, first: str, *others: str) -> str:
    for other in others:
        first = f.value(f"fadd {f.vec()} {first}, {other}")
    return first


def _difference(f: Emitter, a: str, b: str) -> str:
    return f.value(f"fsub {f.vec()} {a}, {b}")


def _plus(f: Emitter, factor: float, a: str, b: str) -> str:
    """factor a + b."""
    return f.fma(a, f.constant(factor), b)


def _input_4(f: Emitter, d: Sequence[str]) -> list[str]:
    s, t = _difference(f, d[4], d[2]), _difference(f, d[3], d[1])
    even, odd = _plus(f, 1.5, d[3], s), _difference(f, _plus(f, 1.5, d[2], d[3]), d[1])
    return [
        _sum(f, _plus(f, 1.5, t, s), _difference(f, d[0], d[2])),
        _sum(f, even, odd),
        _difference(f, even, odd),
        _plus(f, 2.0, t, s),
        _plus(f, -0.5, t, s),
        _difference(f, _difference(f, _plus(f, 1.5, s, d[5]), d[3]), t),
    ]


def _output_4(f: Emitter, m: Sequence[str]) -> list[str]:
    p, q = _sum(f, m[1], m[2]), _difference(f, m[1], m[2])
    return [
        _sum(f, _sum(f, m[0], p), _sum(f, m[3], m[4])),
        _plus(f, -2.0, m[4], _plus(f, 0.5, m[3], q)),
        _plus(f, 4.0, m[4], _plus(f, 0.25, m[3], p)),
        _plus(f, -8.0, m[4], _plus(f, 0.125, m[3], _sum(f, q, m[5]))),
    ]


def _filter_4(f: Emitter, g: Sequence[str]) -> list[str]:
    def row(scale: float, point: float) -> str:
        total = f.value(f"fmul {f.vec()} {g[0]}, {f.constant(scale)}")
        return _plus(f, scale * point * point, g[2], _plus(f, scale * point, g[1], total))

    return [row(1.0, 0.0), row(1 / 3, 1.0), row(-1 / 3, -1.0), row(-16 / 15, 0.5), row(1 / 15, -2.0), g[2]]


def _input_2(f: Emitter, d: Sequence[str]) -> list[str]:
    pairs = ((2, 0), (2, 1), (3, 1))
    outer, minus, last = (_difference(f, d[a], d[b]) for a, b in pairs)
    return [outer, _sum(f, d[2], d[1]), minus, last]


def _output_2(f: Emitter, m: Sequence[str]) -> list[str]:
    return [_sum(f, m[0], m[1], m[2]), _sum(f, _difference(f, m[1], m[2]), m[3])]


def _filter_2(f: Emitter, g: Sequence[str]) -> list[str]:
    ends = _sum(f, g[0], g[2])
    half = f.constant(0.5)
    both = [f.value(f"fmul {f.vec()} {x}, {half}") for x in (_sum(f, ends, g[1]), _difference(f, ends, g[1]))]
    return [f.value(f"fneg {f.vec()} {g[0]}"), *both, g[2]]


_TRANSFORMS: dict[int, tuple[Points, Points, Points]] = {
    2: (_filter_2, _input_2, _output_2),
    4: (_filter_4, _input_4, _output_4),
}


def _both_ways(f: Emitter, transform: Points, square: Sequence[Sequence[str]]) -> list[list[str]]:
    """The transform of columns, then of rows."""
    columns = [transform(f, column) for column in zip(*square, strict=True)]
    return [transform(f, row) for row in zip(*columns, strict=True)]


class Filter(IntEnum):
    """Slots of ``FilterTransform``; steps in bytes. Source: [tap][channel][output]."""

    OUT = 0
    SOURCE = 1
    OUTPUTS = 2
    CHANNELS = 3
    PANELS = 4
    TAP_STEP = 5
    PLANE_STEP = 6


@dataclass(frozen=True, slots=True)
class FilterTransform:
    """Filters as panels for the product kernel, [plane][panel][channel][width]; an item is (channel, panel)."""

    size: int
    vectors: int

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Filter.SOURCE else "i64") for slot in Filter]
        v, width = f.vec(), self.vectors * f.lanes
        last = f.sub(a[Filter.OUTPUTS], width)
        with f.items() as item:
            panel, channel = f.rem(item, a[Filter.PANELS]), f.div(item, a[Filter.PANELS])
            n = f.smallest(f.mul(panel, width), last)
            at = f.at(a[Filter.SOURCE], f.shl(f.add(f.mul(channel, a[Filter.OUTPUTS]), n), 2))
            row = f.add(f.mul(panel, a[Filter.CHANNELS]), channel)
            to = f.at(a[Filter.OUT], f.mul(row, 4 * width))
            with f.loop(0, 4 * width, 4 * f.lanes) as part:
                taps, tap_at = [], f.at(at, part.index)
                for tap in range(9):
                    taps.append(f.load(v, tap_at))
                    if tap < 8:
                        tap_at = f.at(tap_at, a[Filter.TAP_STEP])
                planes = _both_ways(f, _TRANSFORMS[self.size][0], [taps[0:3], taps[3:6], taps[6:9]])
                _store_planes(f, planes, f.at(to, part.index), a[Filter.PLANE_STEP])


class Input(IntEnum):
    """Slots of ``InputTransform``; steps in bytes."""

    OUT = 0
    SOURCE = 1
    TABLE = 2  # [tile of an image][element] offsets in floats; negative: padding
    ZEROS = 3
    FIRST = 4  # number of the first tile, counted over images
    TILES = 5  # of an image
    CHANNELS = 6
    PARTS = 7  # blocks of channels
    PART = 8  # channels of a block
    IMAGE_STEP = 9
    PLANE_STEP = 10


@dataclass(frozen=True, slots=True)
class InputTransform:
    """Tiles of the input; an item is (tile, block of channels). The last vector of channels overlaps the one before it."""

    size: int

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Input.ZEROS else "i64") for slot in Input]
        v, side = f.vec(), self.size + 2
        pointers = f.value(f"alloca [{side * side} x ptr], align 16")
        last = f.sub(a[Input.CHANNELS], f.lanes)
        with f.items() as item:
            part, tile = f.rem(item, a[Input.PARTS]), f.div(item, a[Input.PARTS])
            source, local = _tile(f, a[Input.SOURCE], f.add(tile, a[Input.FIRST]), a[Input.TILES], a[Input.IMAGE_STEP])
            entry = f.at(a[Input.TABLE], f.mul(local, 4 * side * side))
            with f.loop(0, side * side) as element:
                offset = f.value(f"sext i32 {f.load(I32, f.at(entry, f.shl(element.index, 2)))} to i64")
                here = f.select(f.less(offset, 0), PTR, a[Input.ZEROS], f.at(source, f.shl(offset, 2)))
                f.store(PTR, here, f.at(pointers, f.shl(element.index, 3)), 8)
            to = f.at(a[Input.OUT], f.shl(f.mul(tile, a[Input.CHANNELS]), 2))
            first = f.mul(part, a[Input.PART])
            end = f.smallest(f.add(first, a[Input.PART]), a[Input.CHANNELS])
            with f.loop(first, end, f.lanes) as channel:
                at = f.shl(f.smallest(channel.index, last), 2)
                square = [
                    [f.load(v, f.at(f.load(PTR, f.at(pointers, 8 * (y * side + x)), 8), at)) for x in range(side)]
                    for y in range(side)
                ]
                planes = _both_ways(f, _TRANSFORMS[self.size][1], square)
                _store_planes(f, planes, f.at(to, at), a[Input.PLANE_STEP])


class Output(IntEnum):
    """Slots of ``OutputTransform``; steps in bytes. Operands follow, three slots each: address, pixel step, image step."""

    OUT = 0
    SOURCE = 1
    TABLE = 2  # [tile of an image][element] numbers of pixels; those outside the image repeat the tile's first
    FIRST = 3
    TILES = 4
    CHANNELS = 5
    PARTS = 6
    PART = 7
    PIXEL_STEP = 8
    IMAGE_STEP = 9
    PLANE_STEP = 10
    OPERANDS = 11


@dataclass(frozen=True, slots=True)
class OutputTransform:
    """Tiles of the result and ``expr`` of them; operands are "column", "full" or "scalar" as the product kernel's are."""

    size: int
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()

    def emit(self, f: Emitter) -> None:
        slots = [slot for slot in Output if slot is not Output.OPERANDS]
        a = [f.arg(slot, PTR if slot <= Output.TABLE else "i64") for slot in slots]
        extra = [
            [f.arg(Output.OPERANDS + 3 * i + j, "i64" if j else PTR) for j in range(3)]
            for i in range(len(self.operands))
        ]
        v, count, side = f.vec(), self.size * self.size, self.size + 2
        # One array of addresses for the result and one for each operand that has an element for every result.
        moving = [i for i, kind in enumerate(self.operands) if kind == "full"]
        arrays = [f.value(f"alloca [{count} x ptr], align 16") for _ in range(1 + len(moving))]
        steps = [
            (a[Output.OUT], a[Output.PIXEL_STEP], a[Output.IMAGE_STEP]),
            *((p, s, t) for p, s, t in (extra[i] for i in moving)),
        ]
        scalars = {i: f.splat(f.load(F32, extra[i][0])) for i, kind in enumerate(self.operands) if kind == "scalar"}
        last = f.sub(a[Output.CHANNELS], f.lanes)
        with f.items() as item:
            part, tile = f.rem(item, a[Output.PARTS]), f.div(item, a[Output.PARTS])
            places = [_tile(f, p, f.add(tile, a[Output.FIRST]), a[Output.TILES], image) for p, _, image in steps]
            entry = f.at(a[Output.TABLE], f.mul(places[0][1], 4 * count))
            with f.loop(0, count) as element:
                number = f.value(f"sext i32 {f.load(I32, f.at(entry, f.shl(element.index, 2)))} to i64")
                for array, (base, _), (_, pixel, _) in zip(arrays, places, steps, strict=True):
                    f.store(PTR, f.at(base, f.mul(number, pixel)), f.at(array, f.shl(element.index, 3)), 8)
            source = f.at(a[Output.SOURCE], f.shl(f.mul(tile, a[Output.CHANNELS]), 2))
            first = f.mul(part, a[Output.PART])
            end = f.smallest(f.add(first, a[Output.PART]), a[Output.CHANNELS])
            with f.loop(first, end, f.lanes) as channel:
                at = f.shl(f.smallest(channel.index, last), 2)
                plane, planes = f.at(source, at), []
                for number_of in range(side * side):
                    planes.append(f.load(v, plane))
                    if number_of + 1 < side * side:
                        plane = f.at(plane, a[Output.PLANE_STEP])
                square = [planes[i : i + side] for i in range(0, side * side, side)]
                results = [x for row in _both_ways(f, _TRANSFORMS[self.size][2], square) for x in row]
                columns = {
                    i: f.load(v, f.at(extra[i][0], at)) for i, kind in enumerate(self.operands) if kind == "column"
                }
                # Elements outside the image go where the tile's first does, which is stored last.
                for element_of in reversed(range(count)):
                    here = [f.at(f.load(PTR, f.at(array, 8 * element_of), 8), at) for array in arrays]
                    full = dict(zip(moving, here[1:], strict=True))
                    leaves = [results[element_of]]
                    for i, kind in enumerate(self.operands):
                        leaves.append(
                            f.load(v, full[i]) if kind == "full" else columns[i] if kind == "column" else scalars[i]
                        )
                    f.store(v, ex.emit(f, self.expr, leaves), here[0])


def _tile(f: Emitter, base: str, tile: str, tiles: str, image_step: str) -> tuple[str, str]:
    """The address of a tile's image, and the tile's number in it."""
    return f.at(base, f.mul(f.div(tile, tiles), image_step)), f.rem(tile, tiles)


def _store_planes(f: Emitter, planes: Sequence[Sequence[str]], to: str, step: str) -> None:
    flat = [x for row in planes for x in row]
    for number, value in enumerate(flat):
        f.store(f.vec(), value, to)
        if number + 1 < len(flat):
            to = f.at(to, step)
