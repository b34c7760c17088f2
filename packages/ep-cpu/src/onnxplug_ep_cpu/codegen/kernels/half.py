"""Conversions between float16 and float32: by the processor, or by integer arithmetic where it has no instruction for them, since
the functions that LLVM then calls are nowhere to be found in a process. Those of bfloat16 are always integer arithmetic."""

from __future__ import annotations

from onnxplug_ep_cpu.codegen.emit import Emitter

I32, I16 = "i32", "i16"
INFINITY, NAN, BFLOAT_NAN = 0x7C00, 0x7E00, 0x7FC0
OVERFLOW, SMALLEST_NORMAL = 0x47800000, 0x38800000
"""Bits of 2**16 and 2**-14 in float32."""


def from_half(f: Emitter, raw: str) -> str:
    """A loaded vector of halves in float32."""
    if f.target.name != "generic":
        return f.value(f"fpext {f.vec('half')} {raw} to {f.vec()}")
    v = f.vec(I32)
    short = f.value(f"bitcast {f.vec('half')} {raw} to {f.vec(I16)}")
    bits = f.value(f"zext {f.vec(I16)} {short} to {v}")
    sign = _op(f, "shl", _op(f, "and", bits, 0x8000), 16)
    magnitude = _op(f, "and", bits, 0x7FFF)
    small = f.value(f"bitcast {v} {_op(f, 'shl', magnitude, 13)} to {f.vec()}")
    scaled = f.value(f"fmul {f.vec()} {small}, {f.constant(2.0**112)}")  # exact, subnormal numbers included
    number = f.value(f"bitcast {f.vec()} {scaled} to {v}")
    huge = f.value(f"icmp uge {v} {magnitude}, {_splat(f, INFINITY)}")
    number = _choose(f, huge, _op(f, "or", number, 0x7F800000), number)
    return f.value(f"bitcast {v} {f.value(f'or {v} {number}, {sign}')} to {f.vec()}")


def to_half(f: Emitter, value: str) -> str:
    """A vector of float32 rounded to the nearest halves, to the even one of two."""
    if f.target.name != "generic":
        return f.value(f"fptrunc {f.vec()} {value} to {f.vec('half')}")
    v = f.vec(I32)
    bits = f.value(f"bitcast {f.vec()} {value} to {v}")
    sign, magnitude = _op(f, "lshr", _op(f, "and", bits, -(1 << 31)), 16), _op(f, "and", bits, 0x7FFFFFFF)
    odd = _op(f, "and", _op(f, "lshr", magnitude, 13), 1)
    near = f.value(f"add {v} {_op(f, 'add', magnitude, ((15 - 127) << 23) + 0xFFF)}, {odd}")
    normal = _op(f, "lshr", near, 13)
    # Adding 0.5 leaves what a subnormal half keeps in the lowest bits, rounded as additions are.
    shifted = f.value(f"fadd {f.vec()} {f.value(f'bitcast {v} {magnitude} to {f.vec()}')}, {f.constant(0.5)}")
    subnormal = _op(f, "sub", f.value(f"bitcast {f.vec()} {shifted} to {v}"), 0x3F000000)
    small = f.value(f"icmp ult {v} {magnitude}, {_splat(f, SMALLEST_NORMAL)}")
    huge = f.value(f"icmp uge {v} {magnitude}, {_splat(f, OVERFLOW)}")
    no_number = f.value(f"icmp ugt {v} {magnitude}, {_splat(f, 0x7F800000)}")
    beyond = _choose(f, no_number, _splat(f, NAN), _splat(f, INFINITY))
    made = _choose(f, huge, beyond, _choose(f, small, subnormal, normal))
    narrow = f.value(f"trunc {v} {f.value(f'or {v} {made}, {sign}')} to {f.vec(I16)}")
    return f.value(f"bitcast {f.vec(I16)} {narrow} to {f.vec('half')}")


def from_bfloat(f: Emitter, raw: str) -> str:
    """A loaded vector of bfloat16, as integers of 16 bits, in float32: its upper halves."""
    v = f.vec(I32)
    bits = f.value(f"zext {f.vec(I16)} {raw} to {v}")
    return f.value(f"bitcast {v} {_op(f, 'shl', bits, 16)} to {f.vec()}")


def to_bfloat(f: Emitter, value: str) -> str:
    """A vector of float32 rounded to the nearest bfloat16, to the even one of two; what is no number stays none."""
    v = f.vec(I32)
    bits = f.value(f"bitcast {f.vec()} {value} to {v}")
    odd = _op(f, "and", _op(f, "lshr", bits, 16), 1)
    near = f.value(f"add {v} {_op(f, 'add', bits, 0x7FFF)}, {odd}")
    no_number = f.value(f"fcmp uno {f.vec()} {value}, {value}")
    made = _choose(f, no_number, _op(f, "or", _op(f, "and", bits, -(1 << 31)), BFLOAT_NAN << 16), near)
    return f.value(f"trunc {v} {_op(f, 'lshr', made, 16)} to {f.vec(I16)}")


def _splat(f: Emitter, number: int) -> str:
    return f"<{', '.join([f'i32 {number}'] * f.lanes)}>"


def _op(f: Emitter, name: str, vector: str, number: int) -> str:
    return f.value(f"{name} {f.vec(I32)} {vector}, {_splat(f, number)}")


def _choose(f: Emitter, condition: str, a: str, b: str) -> str:
    v = f.vec(I32)
    return f.value(f"select {f.vec('i1')} {condition}, {v} {a}, {v} {b}")
