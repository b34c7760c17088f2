"""Normalisation of lines by their own statistics."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import Emitter
from onnxplug_ep_cpu.codegen.kernels.rows import Line, Operand, each_line


@record(frozen=True, slots=True)
class Normalize:
    """``post``((x - mean) / sqrt(variance + epsilon), further operands), with x = ``expr`` of the first operands; not
    ``centred``: x / sqrt(mean square + epsilon). The variance is that of the centred values, in a pass of its own.

    Tensors: result; x where ``keeps`` it; mean and 1 / sqrt(...) of each line where ``statistics``; operands of ``expr``;
    further ones of ``post``. A result is not written without ``finishes``.
    """

    along: bool
    outer: int
    operands: tuple[Operand, ...]
    further: tuple[Operand, ...]
    epsilon: float
    centred: bool = True
    expr: ex.Expr = ex.IDENTITY
    post: ex.Expr = ex.IDENTITY
    keeps: bool = False
    statistics: bool = False
    finishes: bool = True

    def emit(self, f: Emitter) -> None:
        each_line(f, self.along, self._tensors(), self.outer, self._line)

    def _tensors(self) -> list[Operand]:
        vector = ("float32", "v")
        made = [vector] * self.finishes + [vector] * self.keeps + [vector] * (2 * self.statistics)
        return [*made, *self.operands, *self.further]

    def _line(self, line: Line) -> None:
        f, v = line.f, line.f.vec()
        stored = int(self.finishes)
        statistics = stored + self.keeps
        first = statistics + 2 * self.statistics
        numbers = range(first, first + len(self.operands))
        further = range(numbers.stop, numbers.stop + len(self.further))
        plain = self.expr == ex.IDENTITY and self.operands == (("float32", "v"),)
        if self.keeps:
            source = stored
        else:
            source = first if plain or not self.finishes else 0
        fresh = self.keeps or source == 0

        def again(index: str, mask: str | None) -> str:
            if fresh or plain:
                return line.read(source, index, mask)
            return line.evaluate(self.expr, numbers, index, mask)

        def added(a: list[str], b: list[str]) -> list[str]:
            return [f.value(f"fadd {v} {a[0]}, {b[0]}")]

        def total(index: str, mask: str | None, values: list[str]) -> list[str]:
            x = line.evaluate(self.expr, numbers, index, mask)
            if fresh:
                line.write(source, index, mask, x)
            x = line.held(x, mask, "zeroinitializer")
            return [f.value(f"fadd {v} {values[0]}, {x}") if self.centred else f.fma(x, x, values[0])]

        def squares(index: str, mask: str | None, values: list[str]) -> list[str]:
            x = line.held(f.value(f"fsub {v} {again(index, mask)}, {mean}"), mask, "zeroinitializer")
            return [f.fma(x, x, values[0])]

        count = f.splat(f.value(f"sitofp i64 {line.count} to float"))
        mean = "zeroinitializer"
        (sum_,) = line.passes([(v, "zeroinitializer")], total, added)
        square = average = f.value(f"fdiv {v} {line.fold('add', sum_)}, {count}")
        if self.centred:
            mean = average
            (sum_,) = line.passes([(v, "zeroinitializer")], squares, added)
            square = f.value(f"fdiv {v} {line.fold('add', sum_)}, {count}")
        square = f.value(f"fadd {v} {square}, {f.constant(self.epsilon)}")
        root = f.intrinsic(f"llvm.sqrt.v{f.lanes}f32", v, (v, square))
        scale = f.value(f"fdiv {v} {f.constant(1.0)}, {root}")
        if self.statistics:
            line.put(statistics, mean)
            line.put(statistics + 1, scale)
        if not self.finishes:
            return

        def finish(index: str, mask: str | None, values: list[str]) -> list[str]:
            x = again(index, mask)
            if self.centred:
                x = f.value(f"fsub {v} {x}, {mean}")
            y = line.evaluate(self.post, further, index, mask, f.value(f"fmul {v} {x}, {scale}"))
            line.write(0, index, mask, y)
            return []

        line.passes([], finish, lambda a, b: [])
