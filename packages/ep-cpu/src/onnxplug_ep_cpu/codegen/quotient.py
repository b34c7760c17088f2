"""Quotients of integer vectors, for which processors have no instruction."""

from __future__ import annotations

from onnxplug_ep_cpu.codegen.emit import I32, I64, Emitter


def quotient(f: Emitter, a: str, b: str, wide: bool) -> str:
    """a / b of int32, or ``wide`` of int64, rounded toward zero; a by zero, and what exceeds the type wraps."""
    type_ = I64 if wide else I32
    v, bools = f.vec(type_), f.vec("i1")
    one = f"splat ({type_} 1)"
    minus = f.value(f"icmp eq {v} {b}, splat ({type_} -1)")
    unfit = f.value(f"or {bools} {minus}, {f.value(f'icmp eq {v} {b}, zeroinitializer')}")
    divisor = f.value(f"select {bools} {unfit}, {v} {one}, {v} {b}")
    made = _of_int64(f, a, divisor) if wide else _in_double(f, a, divisor)
    return f.value(f"select {bools} {minus}, {v} {f.value(f'sub {v} zeroinitializer, {a}')}, {v} {made}")


def _in_double(f: Emitter, a: str, b: str) -> str:
    """Of int32: doubles lie closer than 1 / |b| around a / b, so that rounding reaches no integer from below."""
    ints, doubles = f.vec(I32), f.vec("double")
    x, y = (f.value(f"sitofp {ints} {n} to {doubles}") for n in (a, b))
    return f.value(f"fptosi {doubles} {f.value(f'fdiv {doubles} {x}, {y}')} to {ints}")


def _of_int64(f: Emitter, a: str, b: str) -> str:
    """Of int64: in double precision if all of both vectors are numbers of 32 bits, else one after the other."""
    v, ints, bools = f.vec(I64), f.vec(I32), f.vec("i1")
    low = [f.value(f"trunc {v} {n} to {ints}") for n in (a, b)]
    same = [f.value(f"icmp eq {v} {f.value(f'sext {ints} {t} to {v}')}, {n}") for t, n in zip(low, (a, b), strict=True)]
    small = f.intrinsic(
        f"llvm.vector.reduce.and.v{f.lanes}i1", "i1", (bools, f.value(f"and {bools} {same[0]}, {same[1]}"))
    )
    near, far, done = (f.label(hint) for hint in ("near", "far", "divided"))
    f.do(f"br i1 {small}, label %{near}, label %{far}")
    f.start(near)
    short = f.value(f"sext {ints} {_in_double(f, *low)} to {v}")
    f.do(f"br label %{done}")
    f.start(far)
    long = f.value(f"sdiv {v} {a}, {b}")
    f.do(f"br label %{done}")
    f.start(done)
    return f.value(f"phi {v} [{short}, %{near}], [{long}, %{far}]")
