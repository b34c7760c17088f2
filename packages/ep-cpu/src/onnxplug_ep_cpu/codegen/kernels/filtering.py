"""Minimal filtering along one axis: the transforms of Toom and Cook that Winograd convolution applies to either axis.

F(m, r) makes m results of r taps with n = m + r - 1 products, Y = A' [(G g) * (B' d)]: polynomials multiplied by their values at
n - 1 points and infinity (Blahut, "Fast Algorithms for Signal Processing", 2010, ch. 5). B' depends on the points alone, its
rows are the coefficients of monic polynomials; points are chosen to err little with cheap transforms. A stride splits taps and
inputs into phases, each filtered by itself, whose results are summed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import Emitter

HALF = Fraction(1, 2)
_POINTS: dict[int, tuple[int | Fraction, ...]] = {
    3: (0, 1),
    4: (0, 1, -1),
    5: (0, 1, -1, HALF),
    6: (0, 1, -1, HALF, -2),
    8: (0, 1, -1, 2, -2, HALF, -HALF),
}
"""Number of products -> the points other than infinity; those of opposite sign follow each other."""


@record(frozen=True, slots=True)
class Axis:
    """``outputs`` results of ``taps`` taps, ``stride`` inputs apart."""

    outputs: int
    taps: int
    stride: int = 1

    @property
    def side(self) -> int:
        """Inputs."""
        return (self.outputs - 1) * self.stride + self.taps

    @property
    def planes(self) -> int:
        """Products."""
        return sum(self.outputs + taps - 1 for taps in self._phases())

    def _phases(self) -> list[int]:
        """The taps of each phase."""
        return [len(range(phase, self.taps, self.stride)) for phase in range(min(self.stride, self.taps))]

    @property
    def filters(self) -> list[list[Fraction]]:
        """G: for each product the factors of the taps."""
        made = []
        for phase, taps in enumerate(self._phases()):
            for factors in _filters(self.outputs, taps):
                row = [Fraction(0)] * self.taps
                row[phase :: self.stride] = factors
                made.append(row)
        return made

    def inputs(self, f: Emitter, d: Sequence[str]) -> list[str]:
        """B' d."""
        made: list[str] = []
        for phase, taps in enumerate(self._phases()):
            part = d[phase :: self.stride][: self.outputs + taps - 1]
            made += list(part) if 1 in (taps, self.outputs) else _INPUTS[len(part)](f, part)
        return made

    def results(self, f: Emitter, m: Sequence[str]) -> list[str]:
        """A' m."""
        totals: list[str] = [""] * self.outputs
        at = 0
        for taps in self._phases():
            part = m[at : at + self.outputs + taps - 1]
            at += len(part)
            made = list(part) if taps == 1 else _results(f, self.outputs, part)
            totals = [_sum(f, total, x) if total else x for total, x in zip(totals, made, strict=True)]
        return totals


def _sum(f: Emitter, first: str, *others: str) -> str:
    for other in others:
        first = f.value(f"fadd {f.vec()} {first}, {other}")
    return first


def _difference(f: Emitter, a: str, b: str) -> str:
    return f.value(f"fsub {f.vec()} {a}, {b}")


def _plus(f: Emitter, factor: float, a: str, b: str) -> str:
    """factor a + b."""
    return f.fma(a, f.constant(factor), b)


def _inputs_3(f: Emitter, d: Sequence[str]) -> list[str]:
    return [_difference(f, d[1], d[0]), d[1], _difference(f, d[2], d[1])]


def _inputs_4(f: Emitter, d: Sequence[str]) -> list[str]:
    outer, minus, last = (_difference(f, d[a], d[b]) for a, b in ((2, 0), (2, 1), (3, 1)))
    return [outer, _sum(f, d[2], d[1]), minus, last]


def _inputs_5(f: Emitter, d: Sequence[str]) -> list[str]:
    t = _difference(f, d[3], d[1])
    even, odd = _plus(f, -0.5, d[1], d[2]), _plus(f, -0.5, d[2], d[3])
    return [
        _plus(f, 0.5, _difference(f, d[0], d[2]), t),
        _sum(f, odd, even),
        _difference(f, odd, even),
        t,
        _plus(f, -0.5, t, _difference(f, d[4], d[2])),
    ]


def _inputs_6(f: Emitter, d: Sequence[str]) -> list[str]:
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


def _inputs_8(f: Emitter, d: Sequence[str]) -> list[str]:
    made = [_plus(f, 5.25, _difference(f, d[2], d[4]), _difference(f, d[6], d[0]))]
    # The product of the other pairs' x^2 - p^2 is x^4 - a x^2 + c.
    for p, a, c in ((1.0, 4.25, 1.0), (2.0, 1.25, 0.25), (0.5, 5.0, 4.0)):
        even = _plus(f, -a, d[4], _plus(f, c, d[2], d[6]))
        odd = _plus(f, -a, d[3], _plus(f, c, d[1], d[5]))
        made += [_plus(f, p, odd, even), _plus(f, -p, odd, even)]
    return [*made, _plus(f, 5.25, _difference(f, d[3], d[5]), _difference(f, d[7], d[1]))]


_INPUTS: dict[int, Callable[[Emitter, Sequence[str]], list[str]]] = {
    3: _inputs_3,
    4: _inputs_4,
    5: _inputs_5,
    6: _inputs_6,
    8: _inputs_8,
}


def _filters(outputs: int, taps: int) -> list[list[Fraction]]:
    """Values of the filter's polynomial at the points, over those of the product of distances to the other points."""
    if taps == 1:
        return [[Fraction(1)]] * outputs
    unit = [[Fraction(i == j) for j in range(taps)] for i in range(taps)]
    if outputs == 1:
        return unit
    points = [Fraction(p) for p in _POINTS[outputs + taps - 1]]
    made = []
    for point in points:
        scale = 1 / math.prod((point - other for other in points if other != point), start=Fraction(1))
        made.append([scale * point**power for power in range(taps)])
    return [*made, unit[-1]]


def _results(f: Emitter, outputs: int, m: Sequence[str]) -> list[str]:
    """Sums over points p of p^i m; those of p and -p share their sum and difference."""
    if outputs == 1:
        return [_sum(f, *m)]
    points = [Fraction(p) for p in _POINTS[len(m)]]
    terms: list[tuple[Fraction, str, str]] = []
    """(point, what even powers multiply, what odd ones do)."""
    at = 1
    while at < len(points):
        if at + 1 < len(points) and points[at + 1] == -points[at]:
            terms.append((points[at], _sum(f, m[at], m[at + 1]), _difference(f, m[at], m[at + 1])))
            at += 2
        else:
            terms.append((points[at], m[at], m[at]))
            at += 1
    made = []
    for power in range(outputs):
        total = m[0] if power == 0 else m[-1] if power == outputs - 1 else ""
        for point, even, odd in terms:
            value, factor = odd if power % 2 else even, point**power
            if not total:
                total = value if factor == 1 else f.value(f"fmul {f.vec()} {value}, {f.constant(float(factor))}")
            else:
                total = _sum(f, total, value) if factor == 1 else _plus(f, float(factor), value, total)
        made.append(total)
    return made
