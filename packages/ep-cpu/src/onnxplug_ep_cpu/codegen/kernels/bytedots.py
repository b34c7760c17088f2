"""Instructions that multiply bytes and add their products: VNNI, NEON's dot products, and the pairs of AVX2 and plain AVX-512.

Vectors of bytes have four for each lane of int32; ``x`` is unsigned and ``w`` signed, except with NEON, where both are signed.
"""

from __future__ import annotations

from onnxplug_ep_cpu.codegen.emit import I8, I32, Emitter
from onnxplug_ep_cpu.codegen.target import Target

I16 = "i16"


def quad_form(target: Target) -> str | None:
    """How a target multiplies four bytes at a time: "vnni", "dot" (NEON), "pairs" (see ``qdot``), or not at all."""
    has = target.features.split(",")
    if target.name in ("avx512", "avx2"):
        vnni = "+avx512vnni" if target.name == "avx512" else "+avxvnni"
        return "vnni" if vnni in has else "pairs"
    return "dot" if target.name == "neon" and "+dotprod" in has else None


def shuffled(f: Emitter, x: str, places: str) -> str:
    """The bytes of each 16 of ``x`` that ``places`` number."""
    bytes_ = f.vec(I8, 4 * f.lanes)
    name = {8: "llvm.x86.avx2.pshuf.b", 16: "llvm.x86.avx512.pshuf.b.512"}[f.lanes]
    return f.intrinsic(name, bytes_, (bytes_, x), (bytes_, places))


def halves(f: Emitter, bytes_: str, shift: str) -> list[str]:
    """The even and the odd bytes as int16; ``shift`` is "ashr" for signed bytes, "lshr" for unsigned ones."""
    words = f.vec(I16, 2 * f.lanes)
    x = f.value(f"bitcast {f.vec(I8, 4 * f.lanes)} {bytes_} to {words}")
    if shift == "lshr":
        even = f.value(f"and {words} {x}, splat (i16 255)")
    else:
        even = f.value(f"ashr {words} {f.value(f'shl {words} {x}, splat (i16 8)')}, splat (i16 8)")
    return [even, f.value(f"{shift} {words} {x}, splat (i16 8)")]


def add_pairs(f: Emitter, total: str, x: str, w: str) -> str:
    """total + x0 w0 + x1 w1 of int16, in int32."""
    v, words = f.vec(I32), f.vec(I16, 2 * f.lanes)
    name = {8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[f.lanes]
    return f.value(f"add {v} {total}, {f.intrinsic(name, v, (words, x), (words, w))}")


def add_quads(f: Emitter, form: str, total: str, x: str, w: str) -> str:
    """total + x0 w0 + x1 w1 + x2 w2 + x3 w3."""
    v, bytes_ = f.vec(I32), f.vec(I8, 4 * f.lanes)
    if form == "vnni":
        return f.intrinsic(f"llvm.x86.avx512.vpdpbusd.{32 * f.lanes}", v, (v, total), (bytes_, x), (bytes_, w))
    if form == "dot":
        return f.intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", v, (v, total), (bytes_, x), (bytes_, w))
    return add_pairs(f, total, products(f, x, w), "splat (i16 1)")


def products(f: Emitter, x: str, w: str) -> str:
    """x0 w0 + x1 w1 of bytes in int16, where no sum saturates."""
    bytes_ = f.vec(I8, 4 * f.lanes)
    name = {8: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.avx512.pmaddubs.w.512"}[f.lanes]
    return f.intrinsic(name, f.vec(I16, 2 * f.lanes), (bytes_, x), (bytes_, w))
