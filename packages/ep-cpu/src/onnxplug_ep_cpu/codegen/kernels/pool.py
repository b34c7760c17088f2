"""Pooling of channels-last data: a vector of channels at a time, the taps of a pixel through a table."""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes."""

    OUT = 0
    SOURCE = 1
    TABLE = 2  # [pixel][tap] offsets in elements; negative: NEUTRAL
    NEUTRAL = 3  # a row that changes no result
    SCALE = 4  # a factor for each pixel ("mean")
    PIXELS = 5
    BLOCK = 6  # pixels of one item
    TAPS = 7
    CHANNELS = 8
    OUT_PIXEL = 9
    OUT_IMAGE = 10
    SOURCE_IMAGE = 11


@record(frozen=True, slots=True)
class Pool:
    """The "max" of a window, or its sum times a factor ("mean").

    An item is (image, block of pixels, block of channels). The last block of channels overlaps the one before it; ``masked``:
    there are fewer channels than lanes. The largest is found of bytes as well, ``times`` the lanes of floats in a vector.
    """

    kind: str
    vectors: int
    masked: bool = False
    element: str = "float32"
    times: int = 1

    def emit(self, f: Emitter) -> None:
        a = [f.arg(slot, PTR if slot <= Arg.SCALE else "i64") for slot in Arg]
        type_, unit, lanes = MEMORY[self.element], SIZES[self.element], self.times * f.lanes
        v, width, bits = f.vec(type_, lanes), self.vectors * lanes, unit.bit_length() - 1
        blocks = f.div(f.add(a[Arg.PIXELS], f.sub(a[Arg.BLOCK], 1)), a[Arg.BLOCK])
        mask = f.lanes_below(a[Arg.CHANNELS]) if self.masked else None
        with f.channel_blocks(a[Arg.CHANNELS], width, self.masked) as (channel, rest):
            block, image = f.rem(rest, blocks), f.div(rest, blocks)
            source = f.at(f.at(a[Arg.SOURCE], f.mul(image, a[Arg.SOURCE_IMAGE])), f.shl(channel, bits))
            out = f.at(f.at(a[Arg.OUT], f.mul(image, a[Arg.OUT_IMAGE])), f.shl(channel, bits))
            first = f.mul(block, a[Arg.BLOCK])
            end = f.smallest(f.add(first, a[Arg.BLOCK]), a[Arg.PIXELS])
            with f.loop(first, end) as pixel:
                entry = f.at(a[Arg.TABLE], f.shl(f.mul(pixel.index, a[Arg.TAPS]), 2))
                least = {"float32": f.constant(float("-inf")), "uint8": "zeroinitializer", "int8": "splat (i8 -128)"}
                start = least[self.element] if self.kind == "max" else f.constant(0.0)
                with f.loop(0, a[Arg.TAPS], carried=[(v, start)] * self.vectors) as tap:
                    offset = f.value(f"sext i32 {f.load(I32, f.at(entry, f.shl(tap.index, 2)))} to i64")
                    row = f.select(f.less(offset, 0), PTR, a[Arg.NEUTRAL], f.at(source, f.shl(offset, bits)))
                    for i in range(self.vectors):
                        where = f.at(row, unit * lanes * i)
                        x = f.load(v, where, unit) if mask is None else f.load_masked(type_, where, mask, unit)
                        tap.next.append(self._combine(f, tap.vars[i], x))
                where = f.at(out, f.mul(pixel.index, a[Arg.OUT_PIXEL]))
                share = f.splat(f.load(F32, f.at(a[Arg.SCALE], f.shl(pixel.index, 2)))) if self.kind == "mean" else ""
                for i, total in enumerate(tap.vars):
                    result = f.value(f"fmul {v} {total}, {share}") if share else total
                    if mask is None:
                        f.store(v, result, f.at(where, unit * lanes * i), unit)
                    else:
                        f.store_masked(type_, result, where, mask, unit)

    def _combine(self, f: Emitter, total: str, x: str) -> str:
        if self.element != "float32":
            lanes, kind = self.times * f.lanes, "umax" if self.element == "uint8" else "smax"
            v = f.vec(MEMORY[self.element], lanes)
            return f.intrinsic(f"llvm.{kind}.v{lanes}i8", v, (v, total), (v, x))
        op = "max" if self.kind == "max" else "add"
        return ex.emit(f, (("leaf", 0), ("leaf", 1), (op, 0, 1)), [total, x])
