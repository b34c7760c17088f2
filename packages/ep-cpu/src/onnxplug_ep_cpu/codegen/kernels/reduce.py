"""Reductions of lines to one value each, and the place of their extreme."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, F64, I32, I64, Emitter
from onnxplug_ep_cpu.codegen.instructions import constant
from onnxplug_ep_cpu.codegen.kernels.map import KINDS
from onnxplug_ep_cpu.codegen.kernels.rows import SLOTS, Line, Operand, each_line, joined

_TYPE = {"float32": F32, "float64": F64, "int32": I32, "int64": I64}
_LIMITS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


@record(frozen=True, slots=True)
class Reduce:
    """The sum ("add"), product ("mul"), "max" or "min" of ``expr`` of the operands over each line; "mean" is their sum divided
    by a number that follows the arguments of ``rows``. ``element`` is the type of the result. Tensors: result, operands."""

    along: bool
    outer: int
    kind: str
    operands: tuple[Operand, ...]
    expr: ex.Expr = ex.IDENTITY
    element: str = "float32"

    def emit(self, f: Emitter) -> None:
        each_line(f, self.along, [(self.element, "v"), *self.operands], self.outer, self._line)

    def _line(self, line: Line) -> None:
        f = line.f
        numbers = range(1, 1 + len(self.operands))
        kind = "add" if self.kind == "mean" else self.kind
        neutral = _neutral(f, kind, self.element)
        pair: ex.Expr = (("leaf", 0), ("leaf", 1), (kind, 0, 1))

        def join(a: list[str], b: list[str]) -> list[str]:
            return [ex.emit(f, pair, [a[0], b[0]], [self.element] * 2)]

        def step(index: str, mask: str | None, values: list[str]) -> list[str]:
            x = line.evaluate(self.expr, numbers, index, mask)
            return join(values, [line.held(x, mask, neutral, _TYPE[self.element])])

        (total,) = line.passes([(f.vec(_TYPE[self.element]), neutral)], step, join)
        if self.along:
            total = joined(f, total, _TYPE[self.element], lambda a, b: join([a], [b])[0])
        if self.kind == "mean":
            slot = SLOTS + self.outer + (3 + self.outer) * (1 + len(self.operands))
            type_ = _TYPE[self.element]
            count = f.splat(f.value(f"sitofp i64 {f.arg(slot)} to {type_}"), type_)
            total = f.value(f"fdiv {f.vec(type_)} {total}, {count}")
        line.put(0, total)


def _neutral(f: Emitter, kind: str, element: str) -> str:
    if element in ("float32", "float64"):
        value = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}[kind]
        return constant(f, ("const" if element == "float32" else element, value))
    low, high = _LIMITS[element]
    return f"splat ({_TYPE[element]} {({'add': 0, 'mul': 1, 'max': low, 'min': high})[kind]})"


@record(frozen=True, slots=True)
class ArgExtreme:
    """The index of the largest (or, not ``largest``, smallest) element of each line: the first of equals, or the ``last``; NaN
    comes before all else. Bytes are compared as float32. Tensors: result (int64), operand."""

    along: bool
    outer: int
    operands: tuple[Operand, ...]
    largest: bool = True
    last: bool = False

    def emit(self, f: Emitter) -> None:
        each_line(f, self.along, [("int64", "v"), *self.operands], self.outer, self._line)

    def _line(self, line: Line) -> None:
        f, ints, bools, element = line.f, line.f.vec(I32), line.f.vec("i1"), KINDS[self.operands[0][0]]
        v = f.vec(_TYPE[element])
        worst = _neutral(f, "max" if self.largest else "min", element)
        better = ("gt", "ge")[self.last] if self.largest else ("lt", "le")[self.last]
        lanes = "<" + ", ".join(f"i32 {i if self.along else 0}" for i in range(f.lanes)) + ">"

        def step(index: str, mask: str | None, values: list[str]) -> list[str]:
            x = line.read(1, index, mask)
            best, place = values
            if element in _LIMITS:
                takes = f.value(f"icmp s{better} {v} {x}, {best}")
            else:
                takes = f.value(f"fcmp o{better} {v} {x}, {best}")
                broken, ended = f.value(f"fcmp uno {v} {x}, {x}"), f.value(f"fcmp ord {v} {best}, {best}")
                both = broken if self.last else f.value(f"and {bools} {broken}, {ended}")
                takes = f.value(f"or {bools} {takes}, {both}")
            if mask is not None and self.along:
                takes = f.value(f"and {bools} {takes}, {mask}")
            here = f.value(f"add {ints} {f.splat(f.value(f'trunc i64 {index} to i32'), I32)}, {lanes}")
            return [
                f.value(f"select {bools} {takes}, {v} {x}, {v} {best}"),
                f.value(f"select {bools} {takes}, {ints} {here}, {ints} {place}"),
            ]

        best, place = line.passes([(v, worst), (ints, lanes)], step)
        if self.along:
            place = self._across_lanes(f, best, place, line.count, element)
        line.put(0, f.value(f"sext {ints} {place} to {f.vec(I64)}"))

    def _across_lanes(self, f: Emitter, best: str, place: str, count: str, element: str) -> str:
        """The place of the best lane, in every lane; lanes past the end of a short line have no part."""
        type_, whole = _TYPE[element], element in _LIMITS
        v, ints, bools, n = f.vec(type_), f.vec(I32), f.vec("i1"), f.lanes
        inside = f.lanes_below(count)
        kind = ("s" if whole else "f") + ("max" if self.largest else "min")
        extreme = f.splat(f.reduce(kind, best, type_), type_)
        taking = f.value(f"{'icmp eq' if whole else 'fcmp oeq'} {v} {best}, {extreme}")
        taking = f.value(f"and {bools} {taking}, {inside}")
        if not whole:
            broken = f.value(f"and {bools} {f.value(f'fcmp uno {v} {best}, {best}')}, {inside}")
            some = f.intrinsic(f"llvm.vector.reduce.or.v{n}i1", "i1", (bools, broken))
            taking = f.value(f"select i1 {some}, {bools} {broken}, {bools} {taking}")
        outside = f"splat (i32 {-1 if self.last else 2**31 - 1})"
        held = f.value(f"select {bools} {taking}, {ints} {place}, {ints} {outside}")
        found = f.intrinsic(f"llvm.vector.reduce.{'smax' if self.last else 'smin'}.v{n}i32", I32, (ints, held))
        return f.splat(found, I32)
