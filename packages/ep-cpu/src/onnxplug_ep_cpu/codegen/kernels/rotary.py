"""Rotary position embedding: pairs of a head's elements turned by the angle of their row's position."""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I64, PTR, Emitter


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes."""

    X = 0
    Y = 1
    COS = 2
    SIN = 3
    PLACES = 4
    STATUS = 5
    ROWS = 6
    HEADS = 7
    PAIRS = 8  # elements that turn, halved
    REST = 9  # elements behind them, which do not
    X0 = 10
    X1 = 11
    XR = 12
    Y0 = 13
    Y1 = 14
    YR = 15
    ANGLES0 = 16  # from batch entry to batch entry, where positions do not choose
    ANGLES = 17  # from row to row of the angles
    COUNT = 18  # rows of the angles
    PLACES0 = 19
    PLACESR = 20
    STEP = 21  # added for each row, to
    FIRST = 22  # this


_POINTERS = (Arg.X, Arg.Y, Arg.COS, Arg.SIN, Arg.PLACES, Arg.STATUS)


@record(frozen=True, slots=True)
class Rotary:
    """An item is (batch, row), all heads of it. The pair's halves lie apart by PAIRS elements, or ``interleaved`` side by
    side. ``bits``: the position is read as an integer of so many, plus FIRST + STEP row, and chooses the row of cosines
    and sines, one out of range sets the status word; 0: the row is the item's."""

    bits: int
    interleaved: bool

    def emit(self, f: Emitter) -> None:
        a = {slot: f.arg(slot, PTR if slot in _POINTERS else I64) for slot in Arg}
        with f.items() as item:
            row, batch = f.rem(item, a[Arg.ROWS]), f.div(item, a[Arg.ROWS])
            at = self._angles(f, a, batch, row)
            cos, sin = f.at(a[Arg.COS], at), f.at(a[Arg.SIN], at)
            x = f.at(a[Arg.X], f.add(f.mul(batch, a[Arg.X0]), f.mul(row, a[Arg.XR])))
            y = f.at(a[Arg.Y], f.add(f.mul(batch, a[Arg.Y0]), f.mul(row, a[Arg.YR])))
            whole = f.and_(a[Arg.PAIRS], -f.lanes)
            with f.loop(0, a[Arg.HEADS]) as head:
                source, target = f.at(x, f.mul(head.index, a[Arg.X1])), f.at(y, f.mul(head.index, a[Arg.Y1]))
                turn = self._side_by_side if self.interleaved else self._apart
                with f.loop(0, whole, f.lanes) as pair:
                    turn(f, a, source, target, cos, sin, pair.index, f.lanes)
                with f.loop(whole, a[Arg.PAIRS]) as pair:
                    turn(f, a, source, target, cos, sin, pair.index, 1)
                start, end = f.shl(a[Arg.PAIRS], 1), f.add(f.shl(a[Arg.PAIRS], 1), a[Arg.REST])
                with f.loop(start, end) as element:
                    offset = f.shl(element.index, 2)
                    f.store(F32, f.load(F32, f.at(source, offset)), f.at(target, offset))

    def _angles(self, f: Emitter, a: dict[Arg, str], batch: str, row: str) -> str:
        """Bytes to the item's cosines and sines."""
        if not self.bits:
            return f.add(f.mul(batch, a[Arg.ANGLES0]), f.mul(row, a[Arg.ANGLES]))
        where = f.at(a[Arg.PLACES], f.add(f.mul(batch, a[Arg.PLACES0]), f.mul(row, a[Arg.PLACESR])))
        place = f.load(f"i{self.bits}", where, self.bits // 8)
        place = place if self.bits == 64 else f.value(f"sext i32 {place} to i64")
        place = f.add(place, f.add(a[Arg.FIRST], f.mul(row, a[Arg.STEP])))
        inside = f.value(f"icmp ult i64 {place}, {a[Arg.COUNT]}")
        with f.when(f.value(f"xor i1 {inside}, true")):
            f.do(f"store atomic i64 1, ptr {a[Arg.STATUS]} monotonic, align 8")
        return f.mul(f.select(inside, I64, place, "0"), a[Arg.ANGLES])

    def _apart(self, f: Emitter, a: dict[Arg, str], x: str, y: str, cos: str, sin: str, pair: str, width: int) -> None:
        v = f.vec(F32, width)
        low = f.shl(pair, 2)
        high = f.add(low, f.shl(a[Arg.PAIRS], 2))
        first, second, c, s = (f.load(v, f.at(p, o)) for p, o in ((x, low), (x, high), (cos, low), (sin, low)))
        real, imaginary = _turned(f, v, first, second, c, s)
        f.store(v, real, f.at(y, low))
        f.store(v, imaginary, f.at(y, high))

    def _side_by_side(
        self, f: Emitter, a: dict[Arg, str], x: str, y: str, cos: str, sin: str, pair: str, width: int
    ) -> None:
        v, wide = f.vec(F32, width), f.vec(F32, 2 * width)
        at, double = f.shl(pair, 2), f.shl(pair, 3)
        both = f.load(wide, f.at(x, double))
        first, second = (
            f.value(f"shufflevector {wide} {both}, {wide} poison, {_order(range(start, 2 * width, 2))}")
            for start in (0, 1)
        )
        real, imaginary = _turned(f, v, first, second, f.load(v, f.at(cos, at)), f.load(v, f.at(sin, at)))
        order = [i // 2 + (i % 2) * width for i in range(2 * width)]
        f.store(wide, f.value(f"shufflevector {v} {real}, {v} {imaginary}, {_order(order)}"), f.at(y, double))


def _order(lanes: range | list[int]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"


def _turned(f: Emitter, v: str, first: str, second: str, cos: str, sin: str) -> tuple[str, str]:
    """A pair turned by an angle."""

    def product(x: str, y: str) -> str:
        return f.value(f"fmul {v} {x}, {y}")

    real = f.value(f"fsub {v} {product(cos, first)}, {product(sin, second)}")
    return real, f.value(f"fadd {v} {product(sin, first)}, {product(cos, second)}")
