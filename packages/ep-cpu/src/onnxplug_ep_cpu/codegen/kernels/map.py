"""Fused element-wise loops over strided operands, and the copies that are their simplest case."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, I8, I32, I64, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.half import from_bfloat, from_half, to_bfloat, to_half
from onnxplug_ep_cpu.codegen.kernels.saturate import Saturation, saturates

# Element types in memory by NumPy's name.
MEMORY = {
    "float32": F32,
    "int64": I64,
    "int32": I32,
    "bool": I8,
    "uint8": I8,
    "int8": I8,
    "int16": "i16",
    "uint16": "i16",
    "float16": "half",
    "bfloat16": "i16",
    "float64": "double",
    "bits8": I8,
    "bits16": "i16",
}
"""``bits`` are elements of which only the size matters."""
SIZES = {
    "float32": 4,
    "int64": 8,
    "int32": 4,
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "float64": 8,
    "bits8": 1,
    "bits16": 2,
}

# What expressions take an element for.
KINDS = {
    **dict.fromkeys(MEMORY, "float32"),
    **{element: element for element in ("float64", "int64", "int32", "bool", "bits8", "bits16")},
}

LONG = 2048
"""Bytes of a row from which on the C library copies it, which brings the target's lines into line first."""

_AS_THEY_ARE = ("float32", "float64", "int32", "int64", "bits8", "bits16")
_LOGIC = ("leaf", "bool", "and", "or", "xor", "not", "where")


@record(frozen=True, slots=True)
class Map:
    """result = expr(operands) over ``outer`` + 2 dimensions; an item is (outer index, block of rows, block of columns).

    ``operands`` are (element type, "v" if its columns are contiguous else "s": one value for the row). Arguments: address of
    the result, columns, columns per block, blocks of columns, rows, rows per block, blocks of rows, the outer sizes; then for
    the result and for each operand (address first) the row stride and the outer strides, in bytes.
    """

    expr: ex.Expr
    operands: tuple[tuple[str, str], ...]
    outer: int
    result: str = "float32"

    def emit(self, f: Emitter) -> None:
        out = f.arg(0, PTR)
        columns, column_block, column_blocks, rows, row_block, row_blocks = (f.arg(i) for i in range(1, 7))
        sizes = [f.arg(7 + i) for i in range(self.outer)]
        at = 7 + self.outer

        def strides() -> list[str]:
            nonlocal at
            found = [f.arg(at + i) for i in range(1 + self.outer)]
            at += 1 + self.outer
            return found

        out_strides = strides()
        pointers, operand_strides = [], []
        for _ in self.operands:
            pointers.append(f.arg(at, PTR))
            at += 1
            operand_strides.append(strides())
        with f.items() as item:
            column, rest = f.rem(item, column_blocks), f.div(item, column_blocks)
            row, rest = f.rem(rest, row_blocks), f.div(rest, row_blocks)
            bases, everything = [out, *pointers], [out_strides, *operand_strides]
            for dim in reversed(range(self.outer)):
                index, rest = f.rem(rest, sizes[dim]), f.div(rest, sizes[dim])
                bases = [f.at(b, f.mul(index, s[1 + dim])) for b, s in zip(bases, everything, strict=True)]
            first, start = f.mul(row, row_block), f.mul(column, column_block)
            end, stop = f.smallest(f.add(first, row_block), rows), f.smallest(f.add(start, column_block), columns)
            with f.loop(first, end) as r:
                here = [f.at(b, f.mul(r.index, s[0])) for b, s in zip(bases, everything, strict=True)]
                if self.copies and self.operands[0][1] == "v":
                    self._copied(f, here, start, stop)
                else:
                    self._columns(f, here, start, stop)

    def _copied(self, f: Emitter, here: list[str], start: str, stop: str) -> None:
        """The columns from ``start`` to ``stop`` of a row as they are."""
        size = SIZES[self.result]
        nbytes = f.mul(f.sub(stop, start), size)
        short = f.less(nbytes, LONG)
        with f.when(short):
            self._columns(f, here, start, stop)
        with f.when(f.value(f"xor i1 {short}, true")):
            to, source = (f.at(place, f.mul(start, size)) for place in here)
            f.intrinsic("llvm.memcpy.p0.p0.i64", "void", (PTR, to), (PTR, source), (I64, nbytes), ("i1", "false"))

    def _columns(self, f: Emitter, here: list[str], start: str, stop: str) -> None:
        """The columns from ``start`` to ``stop`` of a row."""
        if self.times > 1:  # elements of a byte or two: vectors full of them, then the rest as others
            f.times = self.times
            full = f.add(start, f.and_(f.sub(stop, start), -2 * f.lanes))
            with f.when(f.less(start, full)):
                self._pairs(f, here, start, full)
            f.times = 1
            self._row(f, here, full, stop)
        elif saturates(f, self.expr, self.result):  # what four vectors have room for becomes one of bytes
            full = f.add(start, f.and_(f.sub(stop, start), -4 * f.lanes))
            with f.when(f.less(start, full)):
                self._saturated(f, here, start, full)
            self._row(f, here, full, stop)
        else:
            self._row(f, here, start, stop)

    def _row(self, f: Emitter, here: list[str], start: str, stop: str) -> None:
        """The columns from ``start`` to ``stop`` of a row."""
        wide, whole = (f.add(start, f.and_(f.sub(stop, start), -n * f.lanes)) for n in (2, 1))
        fixed = self._pairs(f, here, start, wide)
        with f.when(f.less(wide, whole)):
            self._step(f, here, fixed, wide, None)
        with f.when(f.less(whole, stop)):
            self._step(f, here, fixed, whole, f.lanes_below(f.sub(stop, whole)))

    def _pairs(self, f: Emitter, here: list[str], start: str, stop: str) -> list[str]:
        """The columns from ``start`` to ``stop``, which are whole pairs of vectors; returns what is the same for all of a row."""
        fixed = self._fixed(f, here)
        with f.loop(start, stop, 2 * f.lanes) as c:
            self._step(f, here, fixed, c.index, None)
            self._step(f, here, fixed, f.add(c.index, f.lanes), None)
        return fixed

    def _fixed(self, f: Emitter, here: list[str]) -> list[str]:
        """The operands that are the same for all of a row."""
        return [
            self._widen(f, e, spread(f, e, p)) if kind == "s" else ""
            for (e, kind), p in zip(self.operands, here[1:], strict=True)
        ]

    def _saturated(self, f: Emitter, here: list[str], start: str, stop: str) -> None:
        """The columns from ``start`` to ``stop``, which are whole vectors of bytes that end in a quantization."""
        fixed, end = self._fixed(f, here), Saturation(f, self.expr, self.result)
        with f.loop(start, stop, 4 * f.lanes) as c:
            columns = [f.add(c.index, n * f.lanes) for n in range(4)]
            values = [ex.emit(f, end.before, self._leaves(f, here, fixed, at, None), self._kinds) for at in columns]
            f.store(f.vec(I8, 4 * f.lanes), end.bytes(values), f.at(here[0], c.index), 1)

    @property
    def times(self) -> int:
        """How many times the lanes of float32 a vector has that is full: nothing is computed but what elements have room for."""
        elements = {self.result, *(e for e, _ in self.operands)}
        logic = all(op in _LOGIC for op, *_ in self.expr) and elements <= {"bool", "bits8"}
        return 4 // min(4, SIZES[self.result]) if self.copies or logic else 1

    @property
    def copies(self) -> bool:
        """Elements are moved as they are."""
        return self.expr == ex.IDENTITY and self.operands[0][0] == self.result

    def _widen(self, f: Emitter, element: str, raw: str) -> str:
        return raw if self.copies else widen(f, element, raw)

    @property
    def _kinds(self) -> list[str]:
        return [KINDS[element] for element, _ in self.operands]

    def _leaves(self, f: Emitter, here: list[str], fixed: list[str], column: str, mask: str | None) -> list[str]:
        """The operands of a vector of results."""
        leaves = []
        for (element, kind), pointer, same in zip(self.operands, here[1:], fixed, strict=True):
            if kind == "s":
                leaves.append(same)
                continue
            where = f.at(pointer, f.mul(column, SIZES[element]))
            leaves.append(self._widen(f, element, f.load_masked(MEMORY[element], where, mask, SIZES[element])))
        return leaves

    def _step(self, f: Emitter, here: list[str], fixed: list[str], column: str, mask: str | None) -> None:
        leaves = self._leaves(f, here, fixed, column, mask)
        if self.copies:
            (result,) = leaves
        else:
            result = narrow(f, self.result, ex.emit(f, self.expr, leaves, self._kinds))
        where = f.at(here[0], f.mul(column, SIZES[self.result]))
        f.store_masked(MEMORY[self.result], result, where, mask, SIZES[self.result])


def spread(f: Emitter, element: str, pointer: str) -> str:
    """The element at an address in every lane."""
    return f.splat(f.load(MEMORY[element], pointer, SIZES[element]), MEMORY[element])


def widen(f: Emitter, element: str, raw: str) -> str:
    """A loaded vector as expressions read it (see KINDS)."""
    if element in _AS_THEY_ARE:
        return raw
    if element == "bool":
        return f.value(f"icmp ne {f.vec(I8)} {raw}, zeroinitializer")
    if element == "float16":
        return from_half(f, raw)
    if element == "bfloat16":
        return from_bfloat(f, raw)
    convert = "uitofp" if element in ("uint8", "uint16") else "sitofp"
    return f.value(f"{convert} {f.vec(MEMORY[element])} {raw} to {f.vec()}")


def narrow(f: Emitter, element: str, value: str) -> str:
    """A result as memory holds it."""
    if element in _AS_THEY_ARE:
        return value
    if element == "bool":
        return f.value(f"zext {f.vec('i1')} {value} to {f.vec(I8)}")
    if element in ("uint8", "int8", "int16", "uint16"):
        return f.value(f"trunc {f.vec(I32)} {value} to {f.vec(MEMORY[element])}")
    if element == "bfloat16":
        return to_bfloat(f, value)
    assert element == "float16", element
    return to_half(f, value)
