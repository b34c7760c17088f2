"""Copies between planes of a few channels and pixels of as many, as images have them: shuffles of whole vectors."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES


@record(frozen=True, slots=True)
class Interleave:
    """Pixels of ``channels`` elements that lie behind each other, from planes; or with ``apart`` planes from such pixels.

    An item is (outer index, block of pixels). The last vector of pixels of an item overlaps the one before it. Arguments:
    result, source, pixels (at least a vector), pixels of one item, bytes between planes, then for each outer dimension: size,
    result stride, source stride, in bytes.
    """

    channels: int
    apart: bool
    outer: int
    element: str = "float32"

    def emit(self, f: Emitter) -> None:
        out, source = f.arg(0, PTR), f.arg(1, PTR)
        pixels, block, plane = (f.arg(i) for i in range(2, 5))
        outer = [tuple(f.arg(5 + 3 * d + i) for i in range(3)) for d in range(self.outer)]
        n, c, unit = f.lanes, self.channels, SIZES[self.element]
        v = f.vec(MEMORY[self.element])
        blocks = f.div(f.add(pixels, f.sub(block, 1)), block)
        last = f.sub(pixels, n)
        with f.items() as item:
            number, rest = f.rem(item, blocks), f.div(item, blocks)
            to, at = out, source
            for size, out_stride, source_stride in reversed(outer):
                index, rest = f.rem(rest, size), f.div(rest, size)
                to, at = f.at(to, f.mul(index, out_stride)), f.at(at, f.mul(index, source_stride))
            first = f.mul(number, block)
            with f.loop(first, f.smallest(f.add(first, block), pixels), n) as step:
                pixel = f.smallest(step.index, last)

                def places(base: str, planes: bool, pixel: str = pixel) -> list[str]:
                    start = f.at(base, f.mul(pixel, unit if planes else c * unit))
                    return [f.at(start, f.mul(i, plane) if planes else i * n * unit) for i in range(c)]

                given = [f.load(v, where, unit) for where in places(at, not self.apart)]
                for i, where in enumerate(places(to, self.apart)):
                    if self.apart:
                        picks = [divmod(lane * c + i, n) for lane in range(n)]
                    else:
                        picks = [((i * n + lane) % c, (i * n + lane) // c) for lane in range(n)]
                    f.store(v, _picked(f, v, given, picks), where, unit)


def _picked(f: Emitter, v: str, vectors: list[str], picks: list[tuple[int, int]]) -> str:
    """The vector whose lanes are those (vector, lane) of others."""
    n, made = len(picks), vectors[0]
    for number in range(1, len(vectors)):
        lanes = [
            n + lane if vector == number else place if number > 1 else lane
            for place, (vector, lane) in enumerate(picks)
        ]  # of the vectors so far, their lanes are already in place but for those of the first
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        made = f.value(f"shufflevector {v} {made}, {v} {vectors[number]}, <{n} x i32> <{mask}>")
    return made
