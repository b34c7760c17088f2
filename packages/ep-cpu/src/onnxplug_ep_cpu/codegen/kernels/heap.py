"""A heap of int64 without sign in memory: the least comes off first, and what is never asked for is never put in order."""

from __future__ import annotations

from onnxplug_ep_cpu.codegen.emit import I64, Emitter


def build(f: Emitter, heap: str, many: str) -> None:
    """Make a heap of ``many`` numbers as they lie. Behind them there is room for one more."""
    f.store(I64, "-1", f.at(heap, f.shl(many, 3)), 8)  # so that the last one with a child has two
    half = f.value(f"lshr i64 {many}, 1")
    with f.loop(0, half) as i:
        place = f.sub(f.sub(half, 1), i.index)
        _sink(f, heap, many, f.load(I64, f.at(heap, f.shl(place, 3)), 8), place)


def pop(f: Emitter, heap: str, many: str) -> tuple[str, str]:
    """The least of ``many``, at least one, taken off; and how many are left."""
    least, left = f.load(I64, heap, 8), f.sub(many, 1)
    end = f.at(heap, f.shl(left, 3))
    last = f.load(I64, end, 8)
    f.store(I64, "-1", end, 8)
    _sink(f, heap, left, last, "0")
    return least, left


def _sink(f: Emitter, heap: str, many: str, number: str, place: str) -> None:
    """Put a number where it belongs, below ``place``, which is free: lesser ones come up."""
    head, look, rise, done = (f.label(name) for name in ("free", "children", "rise", "found"))
    before = f.block
    f.do(f"br label %{head}")
    f.start(head)
    free, child = f"%{head}.i", f"%{rise}.i"
    f.do(f"{free} = phi i64 [{place}, %{before}], [{child}, %{rise}]")
    first = f.add(f.shl(free, 1), 1)
    f.do(f"br i1 {f.less(first, many)}, label %{look}, label %{done}")
    f.start(look)
    at = f.at(heap, f.shl(first, 3))
    one, other = f.load(I64, at, 8), f.load(I64, f.at(at, 8), 8)
    second = f.value(f"icmp ult i64 {other}, {one}")
    lesser = f.select(second, I64, other, one)
    f.do(f"br i1 {f.value(f'icmp ult i64 {lesser}, {number}')}, label %{rise}, label %{done}")
    f.start(rise)
    f.do(f"{child} = add i64 {first}, {f.value(f'zext i1 {second} to i64')}")
    f.store(I64, lesser, f.at(heap, f.shl(free, 3)), 8)
    f.do(f"br label %{head}")
    f.start(done)
    f.store(I64, number, f.at(heap, f.shl(free, 3)), 8)
