"""Products of one row with as many others as a vector has lanes, each along their depth."""

from __future__ import annotations

from onnxplug_ep_cpu.codegen.emit import F32, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES, widen


def spread_rows(f: Emitter, base: str, step: str, first: str, last: str | None) -> list[str]:
    """Addresses of ``lanes`` rows, ``step`` bytes apart, from number ``first`` on. ``last``: there may be fewer, and ``first`` is 0;
    beyond the last one it is repeated."""
    if last is not None:
        return [f.at(base, f.mul(f.smallest(str(i), last), step)) for i in range(f.lanes)]
    lines = [f.at(base, f.mul(first, step))]
    for _ in range(1, f.lanes):
        lines.append(f.at(lines[-1], step))
    return lines


def dots(f: Emitter, row: str, lines: list[str], depth: str, held: str = "float32") -> str:
    """The products of a row with ``lanes`` others, which are ``held`` so, in one vector."""
    v, whole, unit = f.vec(), f.and_(depth, -f.lanes), SIZES[held]
    sums = ["zeroinitializer"] * f.lanes
    for first, end, mask in ((0, whole, None), (whole, depth, f.lanes_below(f.sub(depth, whole)))):
        with f.loop(first, end, f.lanes, [(v, s) for s in sums]) as loop:
            at = f.shl(loop.index, 2)
            x = f.load_masked(F32, f.at(row, at), mask)
            place = f.mul(loop.index, unit)
            others = (widen(f, held, f.load_masked(MEMORY[held], f.at(line, place), mask, unit)) for line in lines)
            loop.next = [f.fma(x, y, s) for y, s in zip(others, loop.vars, strict=True)]
        sums = loop.vars
    return _sums_across(f, sums)


def _sums_across(f: Emitter, vectors: list[str]) -> str:
    """One vector whose lane i is the sum of vector i: pairs merge until one is left."""
    v, n, step = f.vec(), f.lanes, 1
    while len(vectors) > 1:
        low = ", ".join(f"i32 {i if not i & step else n + i - step}" for i in range(n))
        high = ", ".join(f"i32 {i + step if not i & step else n + i}" for i in range(n))
        merged = []
        for a, b in zip(vectors[::2], vectors[1::2], strict=True):
            first = f.value(f"shufflevector {v} {a}, {v} {b}, <{n} x i32> <{low}>")
            second = f.value(f"shufflevector {v} {a}, {v} {b}, <{n} x i32> <{high}>")
            merged.append(f.value(f"fadd {v} {first}, {second}"))
        vectors, step = merged, 2 * step
    return vectors[0]
