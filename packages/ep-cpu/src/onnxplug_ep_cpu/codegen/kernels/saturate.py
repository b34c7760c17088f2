"""Floats made bytes of a quantization, the vectors of four at once, by instructions that saturate."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_ep_cpu.codegen import approx
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import I8, I32, Emitter
from onnxplug_ep_cpu.codegen.instructions import Instruction, constant

I16 = "i16"


def saturates(f: Emitter, expr: ex.Expr, result: str) -> bool:
    """Whether results of ``expr`` are best made bytes like this: it ends in a quantization to them, and the target can."""
    return expr[-1][0] == "quantize" and result in ("uint8", "int8") and f.target.name in ("avx2", "avx512")


class Saturation:
    """The last instruction of ``expr``, a quantization whose limits are those of ``result``."""

    def __init__(self, f: Emitter, expr: ex.Expr, result: str) -> None:
        _, value, _, high, zero = expr[-1]
        self.before = expr[: value + 1]
        """The expression up to what is rounded."""
        self._f, self._result = f, result
        self._limit, self._point = constant(f, expr[high]), self._zero_point(expr[zero])

    def _zero_point(self, instruction: Instruction) -> str | None:
        """A zero point as int16 in every lane; None for 0."""
        f, (op, value) = self._f, instruction
        if op != "given_int32":
            return f"splat (i16 {value})" if value else None
        return f.splat(f.load(I16, f.given_place(value), 2), I16, 2 * f.lanes)

    def bytes(self, values: Sequence[str]) -> str:
        """Up to four vectors of floats as a vector of bytes, one behind the other."""
        f = self._f
        ints, words, bytes_ = f.vec(I32), f.vec(I16, 2 * f.lanes), f.vec(I8, 4 * f.lanes)
        wide = f.target.name == "avx512"
        numbers = []
        for value in values:  # too small a float and NaN become the smallest integer, too large ones would as well
            held = f.vec(), approx.smaller(f, value, self._limit)
            if wide:
                as_it_is = (ints, "zeroinitializer"), ("i16", "-1"), (I32, "4")
                numbers.append(f.intrinsic("llvm.x86.avx512.mask.cvtps2dq.512", ints, held, *as_it_is))
            else:
                numbers.append(f.intrinsic("llvm.x86.avx.cvt.ps2dq.256", ints, held))
        numbers += [numbers[-1]] * (4 - len(numbers))
        pairs = []
        for one, other in (numbers[:2], numbers[2:]):
            name = "llvm.x86.avx512.packssdw.512" if wide else "llvm.x86.avx2.packssdw"
            pair = f.intrinsic(name, words, (ints, one), (ints, other))
            if self._point is not None:
                pair = f.intrinsic(f"llvm.sadd.sat.v{2 * f.lanes}i16", words, (words, pair), (words, self._point))
            pairs.append(pair)
        kind = "packuswb" if self._result == "uint8" else "packsswb"
        name = f"llvm.x86.avx512.{kind}.512" if wide else f"llvm.x86.avx2.{kind}"
        packed = f.intrinsic(name, bytes_, *((words, pair) for pair in pairs))
        blocks = f.lanes // 4  # of 128 bits, in each of which all vectors have a part
        places = ", ".join(f"i32 {4 * block + part}" for part in range(4) for block in range(blocks))
        packed = f.value(f"bitcast {bytes_} {packed} to {ints}")
        packed = f.value(f"shufflevector {ints} {packed}, {ints} poison, <{f.lanes} x i32> <{places}>")
        return f.value(f"bitcast {ints} {packed} to {bytes_}")
