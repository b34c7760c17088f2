"""Windows of channels-last bytes laid out as rows, so that a convolution is a matrix product."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I8, I32, PTR, Emitter

STEP = 16
"""Bytes moved at once: so many may be read and written behind what a tap has."""


@record(frozen=True, slots=True)
class Unfold:
    """row[image][pixel] = the bytes of its taps, one after the other; an item is (image, block of pixels).

    Arguments: rows, source, table (int32 [pixel][tap], bytes; negative: padding), a tap of padding; pixels, taps, bytes of a tap,
    bytes of a row, bytes of an image, pixels of an item, items of an image.
    """

    def emit(self, f: Emitter) -> None:
        rows, source, table, padding = (f.arg(i, PTR) for i in range(4))
        pixels, taps, size, row, image, block, blocks = (f.arg(i) for i in range(4, 11))
        chunk = f.vec(I8, STEP)
        with f.items() as item:
            number, part = f.div(item, blocks), f.rem(item, blocks)
            base = f.at(source, f.mul(number, image))
            first = f.mul(part, block)
            with f.loop(first, f.smallest(f.add(first, block), pixels)) as pixel:
                places = f.at(table, f.mul(pixel.index, f.shl(taps, 2)))
                start = f.at(rows, f.mul(f.add(f.mul(number, pixels), pixel.index), row))
                with f.loop(0, taps, carried=[(PTR, start)]) as tap:
                    offset = f.value(f"sext i32 {f.load(I32, f.at(places, f.shl(tap.index, 2)))} to i64")
                    here = f.select(f.less(offset, 0), PTR, padding, f.at(base, offset))
                    with f.loop(0, size, STEP) as at:
                        f.store(chunk, f.load(chunk, f.at(here, at.index), 1), f.at(tap.vars[0], at.index), 1)
                    tap.next = [f.at(tap.vars[0], size)]
