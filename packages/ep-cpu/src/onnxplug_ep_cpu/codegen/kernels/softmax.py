"""Softmax and its logarithm over the lines of a tensor."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import approx, approx64
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import Emitter
from onnxplug_ep_cpu.codegen.instructions import constant
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY
from onnxplug_ep_cpu.codegen.kernels.rows import Line, Operand, each_line, joined


@record(frozen=True, slots=True)
class Softmax:
    """``post``(exp(x - max) / sum of them, further operands), with x = ``expr`` of the first operands; with ``log`` the logarithm
    of that. Tensors: result, two numbers of each line to work with, operands, further ones."""

    along: bool
    outer: int
    operands: tuple[Operand, ...]
    further: tuple[Operand, ...] = ()
    expr: ex.Expr = ex.IDENTITY
    post: ex.Expr = ex.IDENTITY
    log: bool = False
    element: str = "float32"

    def emit(self, f: Emitter) -> None:
        vector = (self.element, "v")
        tensors = [vector, vector, vector, *self.operands, *self.further]
        each_line(f, self.along, tensors, self.outer, self._largest, self._sum, self._finish)

    @property
    def _type(self) -> str:
        return MEMORY[self.element]

    @property
    def _numbers(self) -> range:
        return range(3, 3 + len(self.operands))

    @property
    def _source(self) -> int:
        """Where x is read again."""
        return 3 if self.expr == ex.IDENTITY and self.operands == ((self.element, "v"),) else 0

    def _largest(self, line: Line) -> None:
        f, type_ = line.f, self._type
        v, least = f.vec(type_), constant(f, ("const" if self.element == "float32" else self.element, float("-inf")))

        def top(index: str, mask: str | None, values: list[str]) -> list[str]:
            x = line.evaluate(self.expr, self._numbers, index, mask)
            if self._source == 0:
                line.write(0, index, mask, x)
            return [approx.larger(f, values[0], line.held(x, mask, least, type_), type_)]

        (largest,) = line.passes([(v, least)], top, lambda a, b: [approx.larger(f, a[0], b[0], type_)])
        line.put(1, joined(f, largest, type_, lambda a, b: approx.larger(f, a, b, type_)) if self.along else largest)

    def _sum(self, line: Line) -> None:
        f, v, largest = line.f, line.f.vec(self._type), line.take(1)
        single = self.element == "float32"

        def total(index: str, mask: str | None, values: list[str]) -> list[str]:
            below = f.value(f"fsub {v} {line.read(self._source, index, mask)}, {largest}")
            e = approx.exp_below(f, below) if single else approx64.exp(f, below)
            if not self.log:
                line.write(0, index, mask, e)
            return [f.value(f"fadd {v} {values[0]}, {line.held(e, mask, 'zeroinitializer', self._type)}")]

        def added(a: list[str], b: list[str]) -> list[str]:
            return [f.value(f"fadd {v} {a[0]}, {b[0]}")]

        (whole,) = line.passes([(v, "zeroinitializer")], total, added, ways=2)
        whole = line.fold("add", whole, self.element)
        if self.log:
            line.put(2, (approx.log if single else approx64.log)(f, whole))
        else:
            one = f.constant(1.0) if single else approx64.constant(1.0)
            line.put(2, f.value(f"fdiv {v} {one}, {whole}"))

    def _finish(self, line: Line) -> None:
        f, v, shift = line.f, line.f.vec(self._type), line.take(2)
        largest = line.take(1) if self.log else ""
        further = range(self._numbers.stop, self._numbers.stop + len(self.further))

        def finish(index: str, mask: str | None, values: list[str]) -> list[str]:
            if self.log:
                below = f.value(f"fsub {v} {line.read(self._source, index, mask)}, {largest}")
                y = f.value(f"fsub {v} {below}, {shift}")
            else:
                y = f.value(f"fmul {v} {line.read(0, index, mask)}, {shift}")
            line.write(0, index, mask, line.evaluate(self.post, further, index, mask, y, element=self.element))
            return []

        line.passes([], finish, lambda a, b: [])
