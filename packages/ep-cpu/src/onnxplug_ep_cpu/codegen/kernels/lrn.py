"""Local response normalisation over channels-last data: sums of squares of neighbouring channels, then a power."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import approx
from onnxplug_ep_cpu.codegen.emit import F32, PTR, Emitter


@record(frozen=True, slots=True)
class Lrn:
    """y = x (bias + share sum x_j^2)^-beta over channels c - before ... c + after; an item is a block of pixels.

    Arguments: result, source, pixels, pixels per item, channels, bytes between pixels of the result and of the source,
    ``share`` and ``bias`` as floats at an address.
    """

    before: int
    after: int
    beta: float

    def emit(self, f: Emitter) -> None:
        out, source = f.arg(0, PTR), f.arg(1, PTR)
        pixels, block, channels, out_step, source_step = (f.arg(i) for i in range(2, 7))
        numbers = f.arg(7, PTR)
        share, bias = f.splat(f.load(F32, numbers)), f.splat(f.load(F32, f.at(numbers, 4)))
        whole = f.sub(channels, f.lanes + self.after)
        with f.items() as item:
            first = f.mul(item, block)
            end = f.smallest(f.add(first, block), pixels)
            with f.loop(first, end) as pixel:
                x, y = f.at(source, f.mul(pixel.index, source_step)), f.at(out, f.mul(pixel.index, out_step))
                with f.loop(0, channels, f.lanes) as c:
                    inside = _both(
                        f,
                        f.value(f"icmp sge i64 {c.index}, {self.before}"),
                        f.value(f"icmp sle i64 {c.index}, {whole}"),
                    )
                    with f.when(inside):
                        self._step(f, x, y, c.index, share, bias, None)
                    with f.when(f.value(f"xor i1 {inside}, true")):
                        self._step(f, x, y, c.index, share, bias, channels)

    def _step(self, f: Emitter, x: str, y: str, channel: str, share: str, bias: str, edge: str | None) -> None:
        v = f.vec()
        here = f.at(x, f.shl(channel, 2))
        total, middle = "zeroinitializer", ""
        for j in range(-self.before, self.after + 1):
            if edge is None:
                neighbour = f.load(v, f.at(here, 4 * j))
            else:
                neighbour = f.load_masked(F32, f.at(here, 4 * j), _within(f, f.add(channel, j), edge))
            total = f.fma(neighbour, neighbour, total)
            middle = neighbour if j == 0 else middle
        base = f.fma(total, share, bias)
        if self.beta == 0.75:
            root = f.intrinsic(f"llvm.sqrt.v{f.lanes}f32", v, (v, base))
            fourth = f.intrinsic(f"llvm.sqrt.v{f.lanes}f32", v, (v, root))
            result = f.value(f"fdiv {v} {middle}, {f.value(f'fmul {v} {root}, {fourth}')}")
        else:
            power = approx.exp(f, f.value(f"fmul {v} {approx.log(f, base)}, {f.constant(-self.beta)}"))
            result = f.value(f"fmul {v} {middle}, {power}")
        to = f.at(y, f.shl(channel, 2))
        if edge is None:
            f.store(v, result, to)
        else:
            f.store_masked(F32, result, to, _within(f, channel, edge))


def _within(f: Emitter, first: str, count: str) -> str:
    """The mask of lanes whose channel, counted from ``first``, is one of ``count``."""
    n = f.lanes
    numbers = "<" + ", ".join(f"i64 {i}" for i in range(n)) + ">"
    at = f.value(f"add <{n} x i64> {numbers}, {f.splat(first, 'i64')}")
    return f.value(f"icmp ult <{n} x i64> {at}, {f.splat(count, 'i64')}")


def _both(f: Emitter, a: str, b: str) -> str:
    return f.value(f"and i1 {a}, {b}")
