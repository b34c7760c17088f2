"""The largest element of each window and where it is, over channels-last data."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, I64, PTR, Emitter


@record(frozen=True, slots=True)
class Maxima:
    """Of equal elements the first counts, and NaN is the largest.

    An item is (image, block of pixels, vector of channels); the last vector of channels overlaps the one before it, ``masked``:
    there are fewer channels than lanes. Arguments: values, places (int64, laid out alike), source, offsets [pixel][tap] of elements in
    an image and of places in a plane (int32), pixels, pixels of an item, taps, channels, bytes of the source from image to image, places
    of a plane. What taps in the padding read is another tap's.
    """

    masked: bool

    def emit(self, f: Emitter) -> None:
        values, places, source, offsets, where = (f.arg(i, PTR) for i in range(5))
        pixels, block, taps, channels, image_step, plane = (f.arg(i) for i in range(5, 11))
        blocks = f.div(f.add(pixels, f.sub(block, 1)), block)
        parts = f.div(f.add(channels, f.lanes - 1), f.lanes)
        mask = f.lanes_below(channels) if self.masked else None
        v, ints, longs, bools = f.vec(), f.vec(I32), f.vec(I64), f.vec("i1")
        steps = f.value(f"mul {longs} <{', '.join(f'i64 {lane}' for lane in range(f.lanes))}>, {f.splat(plane, I64)}")
        with f.items() as item:
            part, rest = f.rem(item, parts), f.div(item, parts)
            first, image = f.mul(f.rem(rest, blocks), block), f.div(rest, blocks)
            channel = "0" if self.masked else f.smallest(f.mul(part, f.lanes), f.sub(channels, f.lanes))
            here = f.at(f.at(source, f.mul(image, image_step)), f.shl(channel, 2))
            plane_number = f.add(f.mul(image, channels), channel)
            base = f.value(f"add {longs} {steps}, {f.splat(f.mul(plane_number, plane), I64)}")
            with f.loop(first, f.smallest(f.add(first, block), pixels)) as pixel:
                at = f.shl(f.mul(pixel.index, taps), 2)
                entry, named = f.at(offsets, at), f.at(where, at)
                start = [(v, self._read(f, here, entry, mask)), (ints, f.splat(f.load(I32, named), I32))]
                with f.loop(1, taps, carried=start) as tap:
                    step = f.shl(tap.index, 2)
                    x = self._read(f, here, f.at(entry, step), mask)
                    best, place = tap.vars
                    above = f.value(f"fcmp ugt {v} {x}, {best}")
                    takes = f.value(f"and {bools} {above}, {f.value(f'fcmp ord {v} {best}, {best}')}")
                    name = f.splat(f.load(I32, f.at(named, step)), I32)
                    tap.next = [
                        f.value(f"select {bools} {takes}, {v} {x}, {v} {best}"),
                        f.value(f"select {bools} {takes}, {ints} {name}, {ints} {place}"),
                    ]
                best, place = tap.vars
                to = f.add(f.mul(f.add(f.mul(image, pixels), pixel.index), channels), channel)
                found = f.value(f"add {longs} {base}, {f.value(f'sext {ints} {place} to {longs}')}")
                for type_, result, memory, bits in ((F32, best, values, 2), (I64, found, places, 3)):
                    f.store_masked(type_, result, f.at(memory, f.shl(to, bits)), mask)

    def _read(self, f: Emitter, image: str, entry: str, mask: str | None) -> str:
        where = f.at(image, f.shl(f.value(f"sext i32 {f.load(I32, entry)} to i64"), 2))
        return f.load_masked(F32, where, mask)
