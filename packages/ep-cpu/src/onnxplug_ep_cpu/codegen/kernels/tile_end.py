"""What a matrix product makes of a tile's sums before they are written: an expression of them and further operands."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES
from onnxplug_ep_cpu.codegen.kernels.tile import Sums


@record(frozen=True, slots=True)
class TileEnd:
    """``operands`` say how leaves 1.. of ``expr`` are read, as ``Gemm`` has them; a tile is ``vectors`` wide."""

    vectors: int
    expr: ex.Expr
    operands: tuple[str, ...]
    element: str

    def finish(
        self,
        f: Emitter,
        sums: Sums,
        c: str,
        ldc: str,
        m: str,
        operands: list[tuple[str, str, str]],
        mask: str | None,
        stack: str | None,
        last: str | None = None,
    ) -> None:
        """Write a tile whose first row is ``m`` to ``c``, rows ``ldc`` bytes apart, from ``operands``: kind, address and row stride of
        each. ``mask``: the columns there are. With a ``stack`` to keep the sums on, one row after the other. ``last``: where the last
        vector of a row is, in bytes, if not behind the others."""
        if stack is None:
            self._write(f, sums, c, ldc, m, operands, mask, self._steps(f, last))
            return
        self.keep(f, sums, stack)
        self.finish_kept(f, len(sums), stack, c, ldc, m, operands, mask, last)

    def keep(self, f: Emitter, sums: Sums, at: str) -> None:
        """Put a tile's sums one row after the other."""
        v, unit = f.vec(MEMORY[self.element]), SIZES[self.element] * f.lanes
        for number, total in enumerate(total for row in sums for total in row):
            f.store(v, total, f.at(at, unit * number))

    def finish_kept(
        self,
        f: Emitter,
        rows: int | str,
        kept: str,
        c: str,
        ldc: str,
        m: str,
        operands: list[tuple[str, str, str]],
        mask: str | None = None,
        last: str | None = None,
    ) -> None:
        """``finish`` for a tile of ``rows`` that was kept."""
        v, unit = f.vec(MEMORY[self.element]), SIZES[self.element] * f.lanes
        with f.loop(0, rows) as row:
            at, line = f.at(c, f.mul(row.index, ldc)), f.at(kept, f.mul(row.index, unit * self.vectors))
            again = [f.load(v, f.at(line, unit * i)) for i in range(self.vectors)]
            self._write(f, [again], at, ldc, f.add(m, row.index), operands, mask, self._steps(f, last))

    def _steps(self, f: Emitter, last: str | None) -> list[int | str]:
        """Where the vectors of a row are, in bytes."""
        steps: list[int | str] = [SIZES[self.element] * f.lanes * i for i in range(self.vectors)]
        if last is not None:
            steps[-1] = last
        return steps

    def _write(
        self,
        f: Emitter,
        sums: Sums,
        c: str,
        ldc: str,
        m: str,
        operands: list[tuple[str, str, str]],
        mask: str | None,
        steps: list[int | str],
    ) -> None:
        type_ = MEMORY[self.element]
        columns = {
            (i, n): f.load_masked(type_, f.at(where, steps[i]), mask)
            for n, (kind, where, _) in enumerate(operands)
            if kind == "column"
            for i in range(self.vectors)
        }
        scalars = {
            n: f.splat(f.load(type_, where), type_) for n, (kind, where, _) in enumerate(operands) if kind == "scalar"
        }
        starts = [f.at(where, f.mul(m, stride)) if kind in ("full", "row") else "" for kind, where, stride in operands]
        for r, row in enumerate(sums):
            if r:
                c = f.at(c, ldc)
                starts = [f.at(s, stride) if s else "" for s, (_, _, stride) in zip(starts, operands, strict=True)]
            once = {
                n: f.splat(f.load(type_, starts[n]), type_) for n, (kind, _, _) in enumerate(operands) if kind == "row"
            }
            for i, total in enumerate(row):
                leaves = [total]
                for n, (kind, _, _) in enumerate(operands):
                    if kind == "full":
                        leaves.append(f.load_masked(type_, f.at(starts[n], steps[i]), mask))
                    else:
                        leaves.append(
                            columns[i, n] if kind == "column" else scalars[n] if kind == "scalar" else once[n]
                        )
                result = ex.emit(f, self.expr, leaves, [self.element] * len(leaves))
                where = f.at(c, steps[i])
                f.store_masked(type_, result, where, mask)
