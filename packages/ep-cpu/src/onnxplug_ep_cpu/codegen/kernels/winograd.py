"""Winograd's minimal filtering of images: transforms of filters, input tiles and products, channels-last.

Y = A' [(G g G') * (B' d B)] A (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016), with the transforms
of ``filtering`` for either axis. Plane xi holds element xi of the transformed tiles: [plane][tile][channel].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.filtering import Axis
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES, widen

Transform = Callable[[Emitter, Sequence[str]], list[str]]
ALIGN = 64
"""Of what lies on the stack: so aligned, vectors that LLVM keeps there do not cross cache lines, at almost twice the speed."""


def _both_ways(f: Emitter, rows: Transform, columns: Transform, square: Sequence[Sequence[str]]) -> list[list[str]]:
    """A transform of every column, then one of every row."""
    half = [rows(f, column) for column in zip(*square, strict=True)]
    return [columns(f, row) for row in zip(*half, strict=True)]


class Filter(IntEnum):
    """Slots of ``FilterTransform``; steps in bytes. Source: [tap][channel of a group][output]."""

    OUT = 0
    SOURCE = 1
    FACTORS = 2  # [plane][tap], those of rows times those of columns
    OUTPUTS = 3
    CHANNELS = 4
    PANELS = 5  # of a group
    TAP_STEP = 6
    PLANE_STEP = 7
    GROUPS = 8
    TAPS = 9
    PLANES = 10


@record(frozen=True, slots=True)
class FilterTransform:
    """Filters as panels for the product kernel, [plane][group][panel][channel][width]; an item is (channel, group, panel). It runs once
    for a session: one kernel for tiles of all sizes is compiled sooner than any for one size. The source holds ``element``."""

    vectors: int
    element: str

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Filter.FACTORS else "i64") for slot in Filter]
        v, width, unit = f.vec(), self.vectors * f.lanes, SIZES[self.element]
        own = f.div(a[Filter.OUTPUTS], a[Filter.GROUPS])
        last, panels = f.sub(own, width), f.mul(a[Filter.PANELS], a[Filter.GROUPS])
        with f.items() as item:
            number, channel = f.rem(item, panels), f.div(item, panels)
            group, panel = f.div(number, a[Filter.PANELS]), f.rem(number, a[Filter.PANELS])
            n = f.add(f.mul(group, own), f.smallest(f.mul(panel, width), last))
            at = f.at(a[Filter.SOURCE], f.mul(f.add(f.mul(channel, a[Filter.OUTPUTS]), n), unit))
            row = f.add(f.mul(number, a[Filter.CHANNELS]), channel)
            to = f.at(a[Filter.OUT], f.mul(row, 4 * width))
            zeros = [(v, "zeroinitializer")] * self.vectors
            with f.loop(0, a[Filter.PLANES], carried=[(PTR, to), (PTR, a[Filter.FACTORS])]) as plane:
                with f.loop(0, a[Filter.TAPS], carried=[(PTR, at), (PTR, plane.vars[1]), *zeros]) as tap:
                    (there, factor_at), sums = tap.vars[:2], tap.vars[2:]
                    factor = f.splat(f.load(F32, factor_at))
                    places = [f.at(there, unit * f.lanes * i) for i in range(self.vectors)]
                    weights = (widen(f, self.element, f.load(f.vec(MEMORY[self.element]), p, unit)) for p in places)
                    sums = [f.fma(factor, w, x) for w, x in zip(weights, sums, strict=True)]
                    tap.next = [f.at(there, a[Filter.TAP_STEP]), f.at(factor_at, 4), *sums]
                for i, total in enumerate(tap.vars[2:]):
                    f.store(v, total, f.at(plane.vars[0], 4 * f.lanes * i))
                plane.next = [f.at(plane.vars[0], a[Filter.PLANE_STEP]), tap.vars[1]]


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


@record(frozen=True, slots=True)
class InputTransform:
    """Tiles of the input; an item is (tile, block of channels). The last vector of channels overlaps the one before it."""

    rows: Axis
    columns: Axis

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Input.ZEROS else "i64") for slot in Input]
        v, side = f.vec(), self.columns.side
        elements = self.rows.side * side
        pointers = f.value(f"alloca [{elements} x ptr], align {ALIGN}")
        last = f.sub(a[Input.CHANNELS], f.lanes)
        with f.items() as item:
            part, tile = f.rem(item, a[Input.PARTS]), f.div(item, a[Input.PARTS])
            source, local = _tile(f, a[Input.SOURCE], f.add(tile, a[Input.FIRST]), a[Input.TILES], a[Input.IMAGE_STEP])
            entry = f.at(a[Input.TABLE], f.mul(local, 4 * elements))
            with f.loop(0, elements) as element:
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
                    for y in range(self.rows.side)
                ]
                planes = _both_ways(f, self.rows.inputs, self.columns.inputs, square)
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
    STATUS = 11
    OPERANDS = 12


_POINTERS = (Output.OUT, Output.SOURCE, Output.TABLE, Output.STATUS)
SUMS = 4
"""Sums of zeros at a time, so that none waits for the one before it."""


@record(frozen=True, slots=True)
class OutputTransform:
    """Tiles of the result and ``expr`` of them; operands are "column", "full" or "scalar" as the product kernel's are.

    A result that is not finite sets the status word: tiles add their elements up before they multiply, so that an infinity or NaN, or a
    sum beyond all numbers, reaches results that do not see it. Zero times each result, added up, is zero if all are finite, else NaN.
    """

    rows: Axis
    columns: Axis
    expr: ex.Expr = ex.IDENTITY
    operands: tuple[str, ...] = ()

    def emit(self, f: Emitter) -> None:
        slots = [slot for slot in Output if slot is not Output.OPERANDS]
        a = [f.arg(slot, PTR if slot in _POINTERS else "i64") for slot in slots]
        extra = f.operands(Output.OPERANDS, len(self.operands), 3)
        v, count, width = f.vec(), self.rows.outputs * self.columns.outputs, self.columns.planes
        total = self.rows.planes * width
        # One array of addresses for the result and one for each operand that has an element for every result.
        moving = [i for i, kind in enumerate(self.operands) if kind == "full"]
        arrays = [f.value(f"alloca [{count} x ptr], align {ALIGN}") for _ in range(1 + len(moving))]
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
            zero = f.constant(0.0)
            with f.loop(first, end, f.lanes, [(v, zero)] * min(SUMS, count)) as channel:
                at = f.shl(f.smallest(channel.index, last), 2)
                plane, planes = f.at(source, at), []
                for number_of in range(total):
                    planes.append(f.load(v, plane))
                    if number_of + 1 < total:
                        plane = f.at(plane, a[Output.PLANE_STEP])
                square = [planes[i : i + width] for i in range(0, total, width)]
                made = _both_ways(f, self.rows.results, self.columns.results, square)
                results = [x for row in made for x in row]
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
                zeros = list(channel.vars)
                for number_of, result in enumerate(results):
                    zeros[number_of % SUMS] = f.fma(result, zero, zeros[number_of % SUMS])
                channel.next = zeros
            total_of = f.reduce("add", functools.reduce(lambda x, y: f.value(f"fadd {v} {x}, {y}"), channel.vars))
            with f.when(f.value(f"fcmp uno float {total_of}, 0.0")):
                f.do(f"store atomic i64 1, ptr {a[Output.STATUS]} monotonic, align 8")


def _tile(f: Emitter, base: str, tile: str, tiles: str, image_step: str) -> tuple[str, str]:
    """The address of a tile's image, and the tile's number in it."""
    return f.at(base, f.mul(f.div(tile, tiles), image_step)), f.rem(tile, tiles)


def _store_planes(f: Emitter, planes: Sequence[Sequence[str]], to: str, step: str) -> None:
    flat = [x for row in planes for x in row]
    for number, value in enumerate(flat):
        f.store(f.vec(), value, to)
        if number + 1 < len(flat):
            to = f.at(to, step)
