"""Running sums and products of lines."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, F64, I32, I64, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import SIZES
from onnxplug_ep_cpu.codegen.kernels.rows import Line, Operand, each_line
from onnxplug_ep_cpu.codegen.target import Target

_TYPES = {"float32": F32, "float64": F64, "int32": I32, "int64": I64}
_ONES = {"float32": "float 1.0", "float64": "double 1.0", "int32": "i32 1", "int64": "i64 1"}


def together(target: Target, element: str) -> int:
    """Vectors of lines that are summed side by side: their sums are half of the registers. Of fewer, what is read of a row is so little
    that rows a power of two of bytes apart push one another out of the cache before their neighbours are read."""
    return 1 << (target.registers * 2 // SIZES[element]).bit_length() - 1


@record(frozen=True, slots=True)
class Running:
    """Element j of a line is the sum ("add") or product ("mul") of those up to j; ``exclusive``: without j itself;
    ``backwards``: of those from j on. Tensors: result, operand, both of one ``element`` type.

    Floats are added and multiplied one after another, as numpy and onnxruntime do: the rounding of a long line is then theirs, and
    so are the phases that a vocoder sums and the tokens that a sum of probabilities admits. Integers round nothing: along lines a
    vector's own sums take a logarithm of its lanes as steps, and what went before is added to all of them.
    """

    along: bool
    outer: int
    kind: str
    element: str
    exclusive: bool
    backwards: bool

    def emit(self, f: Emitter) -> None:
        operand: Operand = (self.element, "v")
        stage = self._along if self.along else self._across
        each_line(
            f,
            self.along,
            [operand, operand],
            self.outer,
            stage,
            together=together(f.target, self.element),
        )

    def _join(self, f: Emitter, a: str, b: str) -> str:
        pair: ex.Expr = (("leaf", 0), ("leaf", 1), (self.kind, 0, 1))
        return ex.emit(f, pair, [a, b], [self.element] * 2)

    def _neutral(self) -> str:
        return "zeroinitializer" if self.kind == "add" else f"splat ({_ONES[self.element]})"

    def _across(self, line: Line) -> None:
        f, v = line.f, line.f.vec(_TYPES[self.element])
        lines = [line, *line.beside]
        with f.loop(0, line.count, 1, [(v, self._neutral())] * len(lines)) as loop:
            index = f.sub(f.sub(line.count, 1), loop.index) if self.backwards else loop.index
            read = [each.read(1, index, each.mask) for each in lines]  # all before anything is written
            for each, before, x in zip(lines, loop.vars, read, strict=True):
                total = self._join(f, before, x)
                each.write(0, index, each.mask, before if self.exclusive else total)
                loop.next.append(total)

    def _along(self, line: Line) -> None:
        f, v = line.f, line.f.vec(_TYPES[self.element])
        whole = f.and_(line.count, -f.lanes)
        carried = [(v, self._neutral())]
        if not self.backwards:
            with f.loop(0, whole, f.lanes, carried) as loop:
                loop.next = [self._vector(line, loop.index, None, loop.vars[0])]
            with f.loop(whole, line.count, f.lanes, [(v, loop.vars[0])]) as tail:
                tail.next = [self._vector(line, whole, f.lanes_below(f.sub(line.count, whole)), tail.vars[0])]
            return
        with f.loop(whole, line.count, f.lanes, carried) as tail:
            tail.next = [self._vector(line, whole, f.lanes_below(f.sub(line.count, whole)), tail.vars[0])]
        with f.loop(0, whole, f.lanes, [(v, tail.vars[0])]) as loop:
            index = f.sub(f.sub(whole, f.lanes), loop.index)
            loop.next = [self._vector(line, index, None, loop.vars[0])]

    def _vector(self, line: Line, index: str, mask: str | None, before: str) -> str:
        """Write the vector at an index; returns the sum of all so far in every lane. Lanes outside ``mask`` are zero: in a
        product nothing that counts comes after them, or they are left out."""
        f, n = line.f, line.f.lanes
        x = line.read(1, index, mask)
        if mask is not None and self.kind == "mul":
            v = f.vec(_TYPES[self.element])
            x = f.value(f"select {f.vec('i1')} {mask}, {v} {x}, {v} {self._neutral()}")
        if self.element in ("float32", "float64"):
            return self._in_order(line, index, mask, x, before)
        step = 1
        while step < n:
            x = self._join(f, x, self._shifted(f, x, step))
            step *= 2
        y = self._shifted(f, x, 1) if self.exclusive else x
        line.write(0, index, mask, self._join(f, before, y))
        end = 0 if self.backwards else n - 1
        v = f.vec(_TYPES[self.element])
        total = f.value(f"shufflevector {v} {x}, {v} poison, <{n} x i32> <{', '.join([f'i32 {end}'] * n)}>")
        return self._join(f, before, total)

    def _in_order(self, line: Line, index: str, mask: str | None, x: str, before: str) -> str:
        f, n, scalar = line.f, line.f.lanes, _TYPES[self.element]
        v = f.vec(scalar)
        total, y = f.value(f"extractelement {v} {before}, i32 0"), "poison"
        for lane in reversed(range(n)) if self.backwards else range(n):
            last = total
            total = f.value(f"f{self.kind} {scalar} {last}, " + f.value(f"extractelement {v} {x}, i32 {lane}"))
            y = f.value(f"insertelement {v} {y}, {scalar} {last if self.exclusive else total}, i32 {lane}")
        line.write(0, index, mask, y)
        return f.splat(total, scalar)

    def _shifted(self, f: Emitter, x: str, step: int) -> str:
        """Lane i has what lane i - step (backwards: i + step) had."""
        n, v = f.lanes, f.vec(_TYPES[self.element])
        sources = [i + step if self.backwards else i - step for i in range(n)]
        order = ", ".join(f"i32 {s if 0 <= s < n else n}" for s in sources)
        return f.value(f"shufflevector {v} {x}, {v} {self._neutral()}, <{n} x i32> <{order}>")
