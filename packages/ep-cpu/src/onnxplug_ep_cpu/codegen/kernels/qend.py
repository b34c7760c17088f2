"""What becomes of the int32 sums of integer products: an expression of them and of operands, stored as any element type."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import I8, I32, I64, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import KINDS, MEMORY, SIZES, narrow, spread, widen
from onnxplug_ep_cpu.codegen.kernels.saturate import Saturation, saturates

Where = tuple[str, str, str, str]
"""An operand while a kernel is being written: kind, element, address, row stride."""


@record(frozen=True, slots=True)
class Edge:
    """Where rows of results end inside their last vector: its mask, and the mask of a row's bytes where those are stored as one
    vector."""

    last: str
    row: str | None


def edge_of(f: Emitter, columns: str, vectors: int) -> Edge:
    """The edge of rows of ``columns`` (i64), which reach into the last of so many vectors."""
    row = None
    if f.target.name == "avx512":
        room = 4 * f.lanes
        numbers = ", ".join(f"i8 {i}" for i in range(room))
        limit = f.splat(f.value(f"trunc i64 {columns} to i8"), I8, room)
        row = f.value(f"icmp ult {f.vec(I8, room)} <{numbers}>, {limit}")
    return Edge(f.lanes_below(f.sub(columns, (vectors - 1) * f.lanes)), row)


def inside(edge: Edge | None, vector: int, vectors: int) -> str | None:
    """The mask of a vector of a row; None: all of it."""
    return edge.last if edge is not None and vector == vectors - 1 else None


def read(f: Emitter, element: str, where: str, mask: str | None) -> str:
    """A vector of an element type."""
    return f.load_masked(MEMORY[element], where, mask, SIZES[element])


def write(
    f: Emitter,
    expr: ex.Expr,
    sums: Sequence[str],
    vectors: int,
    c: str,
    ldc: str,
    result: str,
    m: str,
    operands: Sequence[Where],
    edge: Edge | None,
) -> None:
    """Store ``expr`` of int32 sums, [row][vector], from row ``m`` on at ``c``."""
    masks = [inside(edge, i, vectors) for i in range(vectors)]
    columns, scalars = {}, {}
    for n, (kind, element, where, _) in enumerate(operands):
        if kind == "column":
            step = SIZES[element] * f.lanes
            columns[n] = [widen(f, element, read(f, element, f.at(where, step * i), masks[i])) for i in range(vectors)]
        elif kind == "scalar":
            scalars[n] = widen(f, element, spread(f, element, where))
    starts = [f.at(where, f.mul(m, stride)) if kind in ("full", "row") else "" for kind, _, where, stride in operands]
    kinds = ["int32", *(KINDS[element] for _, element, _, _ in operands)]
    fits = edge is None or edge.row is not None
    pack = _Packing(f, expr, result, vectors) if fits and saturates(f, expr, result) else None
    values: list[str] = []
    count = len(sums) // vectors
    for r in range(count):
        if r:
            starts = [f.at(s, stride) if s else "" for s, (_, _, _, stride) in zip(starts, operands, strict=True)]
        once = {n: widen(f, e, spread(f, e, starts[n])) for n, (kind, e, _, _) in enumerate(operands) if kind == "row"}
        for i in range(vectors):
            leaves = [sums[r * vectors + i]]
            for n, (kind, element, _, _) in enumerate(operands):
                if kind == "full":
                    where = f.at(starts[n], SIZES[element] * f.lanes * i)
                    leaves.append(widen(f, element, read(f, element, where, masks[i])))
                else:
                    leaves.append(columns[n][i] if kind == "column" else scalars[n] if kind == "scalar" else once[n])
            values.append(ex.emit(f, expr if pack is None else pack.before, leaves, kinds))
        if pack is None:
            for i, value in enumerate(values):
                where, mask = f.at(c, SIZES[result] * f.lanes * i), masks[i]
                f.store_masked(MEMORY[result], narrow(f, result, value), where, mask, SIZES[result])
            values, c = [], f.at(c, ldc)
        elif len(values) == pack.full or r == count - 1:
            c = pack.store(values, c, ldc, edge)
            values = []


class _Packing:
    """Stores floats as bytes of a quantization, the last instruction of ``expr``."""

    def __init__(self, f: Emitter, expr: ex.Expr, result: str, vectors: int) -> None:
        self._saturation = Saturation(f, expr, result)
        self.before = self._saturation.before
        self.full = 4 // vectors * vectors
        """Values of whole rows that are made bytes at once."""
        self._f, self._vectors = f, vectors

    def store(self, values: Sequence[str], c: str, ldc: str, edge: Edge | None) -> str:
        """Store the values of some rows, [row][vector]; returns where the row behind them is."""
        f, vectors = self._f, self._vectors
        all_, bytes_ = f.vec(I64, f.lanes // 2), f.vec(I8, 4 * f.lanes)
        packed, unit = f.value(f"bitcast {bytes_} {self._saturation.bytes(values)} to {all_}"), f.lanes // 8
        count = vectors * unit if edge is None else 4 * unit
        for first in range(0, len(values), vectors):
            chosen = ", ".join(f"i32 {(first * unit + i) % (4 * unit)}" for i in range(count))
            row = f.value(f"shufflevector {all_} {packed}, {all_} poison, <{count} x i32> <{chosen}>")
            if edge is None:
                f.store(f.vec(I64, count), row, c, 1)
            else:
                assert edge.row is not None
                row, mask = f.value(f"bitcast {all_} {row} to {bytes_}"), f.vec("i1", 4 * f.lanes)
                where = (bytes_, row), (PTR, c), (I32, "1"), (mask, edge.row)
                f.intrinsic(f"llvm.masked.store.v{4 * f.lanes}i8.p0", "void", *where)
            c = f.at(c, ldc)
        return c
