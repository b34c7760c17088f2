"""Copies that widen quantized data for integer products, and the range that dynamic quantization is made of."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I8, PTR, Emitter


@record(frozen=True, slots=True)
class Widen:
    """int16 = 8-bit - zero point over ``block`` elements an item. Arguments: result, source, zero point, elements, block."""

    element: str

    def emit(self, f: Emitter) -> None:
        out, source, zero_at = (f.arg(i, PTR) for i in range(3))
        count, block = f.arg(3), f.arg(4)
        extend, n = "zext" if self.element == "uint8" else "sext", 2 * f.lanes
        zero = f.value(f"{extend} i8 {f.load(I8, zero_at, 1)} to i16")
        wide, bytes_ = f.vec("i16", n), f.vec(I8, n)
        zeros = f.splat(zero, "i16", n)
        with f.items() as item:
            first = f.mul(item, block)
            end = f.smallest(f.add(first, block), count)
            whole = f.add(first, f.and_(f.sub(end, first), -n))
            with f.loop(first, whole, n) as loop:
                value = f.value(f"{extend} {bytes_} {f.load(bytes_, f.at(source, loop.index), 1)} to {wide}")
                f.store(wide, f.value(f"sub {wide} {value}, {zeros}"), f.at(out, f.shl(loop.index, 1)), 2)
            with f.loop(whole, end) as loop:
                value = f.value(f"{extend} i8 {f.load(I8, f.at(source, loop.index), 1)} to i16")
                f.store("i16", f.value(f"sub i16 {value}, {zero}"), f.at(out, f.shl(loop.index, 1)), 2)


@record(frozen=True, slots=True)
class Extremes:
    """The least and greatest of ``block`` float32 an item, 0 included, as pairs. Arguments: pairs, source, elements, block.

    A NaN is left out: dynamic quantization has no meaning for it.
    """

    def emit(self, f: Emitter) -> None:
        out, source = f.arg(0, PTR), f.arg(1, PTR)
        count, block = f.arg(2), f.arg(3)
        v, bools = f.vec(), f.vec("i1")

        def step(low: str, high: str, smaller: str, larger: str) -> list[str]:
            below, above = f.value(f"fcmp olt {v} {smaller}, {low}"), f.value(f"fcmp ogt {v} {larger}, {high}")
            return [
                f.value(f"select {bools} {below}, {v} {smaller}, {v} {low}"),
                f.value(f"select {bools} {above}, {v} {larger}, {v} {high}"),
            ]

        with f.items() as item:
            first = f.mul(item, block)
            end = f.smallest(f.add(first, block), count)
            whole = f.add(first, f.and_(f.sub(end, first), -2 * f.lanes))
            with f.loop(first, whole, 2 * f.lanes, [(v, "zeroinitializer")] * 4) as loop:
                at = f.at(source, f.shl(loop.index, 2))
                x, y = f.load(v, at), f.load(v, f.at(at, 4 * f.lanes))
                low, high, low2, high2 = loop.vars
                loop.next = [*step(low, high, x, x), *step(low2, high2, y, y)]
            low, high, low2, high2 = loop.vars
            low, high = step(low, high, low2, high2)
            with f.loop(whole, end, f.lanes, [(v, low), (v, high)]) as rest:
                mask = f.lanes_below(f.sub(end, rest.index))
                x = f.load_masked(F32, f.at(source, f.shl(rest.index, 2)), mask)
                rest.next = step(rest.vars[0], rest.vars[1], x, x)
            at = f.at(out, f.shl(item, 3))
            f.store(F32, f.reduce("fmin", rest.vars[0]), at)
            f.store(F32, f.reduce("fmax", rest.vars[1]), f.at(at, 4))


@record(frozen=True, slots=True)
class Range:
    """Scale and zero point of dynamic quantization, from pairs of extremes: DynamicQuantizeLinear-11.

    Arguments: scale (float32), zero point (uint8), zero point as float32, pairs, their number.
    """

    def emit(self, f: Emitter) -> None:
        scale_at, zero_at, float_at, pairs = (f.arg(i, PTR) for i in range(4))
        count = f.arg(4)
        with f.items():
            with f.loop(0, count, carried=[(F32, "0.0"), (F32, "0.0")]) as loop:
                at = f.at(pairs, f.shl(loop.index, 3))
                low, high = f.load(F32, at), f.load(F32, f.at(at, 4))
                loop.next = [
                    f.select(f.value(f"fcmp olt float {low}, {loop.vars[0]}"), F32, low, loop.vars[0]),
                    f.select(f.value(f"fcmp ogt float {high}, {loop.vars[1]}"), F32, high, loop.vars[1]),
                ]
            low, high = loop.vars
            empty = f.value(f"fcmp oeq float {low}, {high}")
            width = f.value(f"fdiv float {f.value(f'fsub float {high}, {low}')}, 255.0")
            scale = f.select(empty, F32, "1.0", width)
            zero = f.intrinsic(
                "llvm.roundeven.f32", F32, (F32, f.value(f"fdiv float {f.value(f'fneg float {low}')}, {scale}"))
            )
            zero = f.select(f.value(f"fcmp ogt float {zero}, 0.0"), F32, zero, "0.0")
            zero = f.select(f.value(f"fcmp olt float {zero}, 255.0"), F32, zero, "255.0")
            f.store(F32, scale, scale_at)
            f.store(F32, zero, float_at)
            f.store(I8, f.value(f"fptoui float {zero} to i8"), zero_at, 1)
