"""Strings taken at regular steps: parts, repeats and orders of axes that a node's constants name (see ``objects``). Each stands in for a
kernel of the catalogue, which says what it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I64, PTR
from onnxplug_ep_cpu.codegen.objects import Array, Function
from onnxplug_ep_cpu.codegen.text import OBJECT, strings_of


class Axis(NamedTuple):
    """So many elements, each so many behind the last one in the source."""

    extent: str
    step: str


class Layout(NamedTuple):
    """The dimensions of a result, the axes that are gone over for it, the last one fastest, and where in the source that starts."""

    dims: Sequence[str]
    axes: Sequence[Axis]
    start: str = "0"


def _axes_of(f: Function, x: Array, rank: int) -> list[Axis]:
    """Those of a dense operand, which has so many."""
    f.needs(f.value(f"icmp eq i64 {x.rank}, {rank}"))
    axes, step = [], "1"
    for at in reversed(range(rank)):
        axes.append(Axis(f.item(I64, x.dims, str(at)), step))
        step = f.mul(step, axes[-1].extent)
    return axes[::-1]


def _dims(f: Function, layout: Layout) -> tuple[str, str]:
    """Rank and dimensions, as a new array takes them."""
    dims = f.room()
    for at, extent in enumerate(layout.dims):
        f.put(I64, extent, dims, str(at))
    return str(len(layout.dims)), dims


def _fill(f: Function, x: Array, data: str, axes: Sequence[Axis], source: str, target: str = "0") -> None:
    """Put elements of ``x`` in an array, axis by axis."""
    if not axes:
        word = f.element(x.data, source)
        f.call("Py_IncRef", word)
        f.put(PTR, word, data, target)
        return
    (extent, step), *inner = axes
    with f.each(extent) as loop:
        _fill(f, x, data, inner, f.add(source, f.mul(loop.index, step)), f.add(f.mul(target, extent), loop.index))


@record(frozen=True)
class Strided:
    """Slice (``numbers``: for each axis start, end and step above 0), Tile (repeats), Expand (the shape) or Transpose (the order) of
    strings of so many dimensions."""

    op_type: str
    rank: int
    numbers: tuple[tuple[int, ...], ...]
    operands: int

    def emit(self, f: Function) -> None:
        x = strings_of(f)
        axes = _axes_of(f, x, self.rank)
        made_by = {"Slice": self._sliced, "Tile": self._tiled, "Expand": self._expanded, "Transpose": self._ordered}
        layout = made_by[self.op_type](f, axes)
        made, data = f.new(*_dims(f, layout), OBJECT.num)
        _fill(f, x, data, layout.axes, layout.start)
        f.give(made)

    def _sliced(self, f: Function, axes: Sequence[Axis]) -> Layout:
        start, taken = "0", []
        for (extent, step), (first, end, every) in zip(axes, self.numbers, strict=True):
            low, high = _inside(f, first, extent), _inside(f, end, extent)
            length = f.sub(f.select(f.less(low, high), I64, high, low), low)
            taken.append(Axis(f.div(f.add(length, every - 1), every), f.mul(step, every)))
            start = f.add(start, f.mul(low, step))
        return Layout([extent for extent, _ in taken], taken, start)

    def _tiled(self, f: Function, axes: Sequence[Axis]) -> Layout:
        (repeats,) = self.numbers
        taken = [each for times, axis in zip(repeats, axes, strict=True) for each in (Axis(str(times), "0"), axis)]
        return Layout([f.mul(axis.extent, times) for times, axis in zip(repeats, axes, strict=True)], taken)

    def _expanded(self, f: Function, axes: Sequence[Axis]) -> Layout:
        (shape,) = self.numbers
        rank = max(len(shape), len(axes))
        given = [*[Axis("1", "0")] * (rank - len(axes)), *axes]
        taken = []
        for (extent, step), wanted in zip(given, (1,) * (rank - len(shape)) + shape, strict=True):
            single = f.value(f"icmp eq i64 {extent}, 1")
            if wanted != 1:
                f.needs(f.either(single, f.value(f"icmp eq i64 {extent}, {wanted}")))
            taken.append(Axis(f.select(single, I64, str(wanted), extent), f.select(single, I64, "0", step)))
        return Layout([extent for extent, _ in taken], taken)

    def _ordered(self, f: Function, axes: Sequence[Axis]) -> Layout:
        taken = [axes[at] for at in self.numbers[0]]
        return Layout([extent for extent, _ in taken], taken)


def _inside(f: Function, bound: int, extent: str) -> str:
    """A bound counted from the front, inside the axis."""
    if bound >= 0:
        return f.smallest(bound, extent)
    found = f.add(extent, bound)
    return f.select(f.less(found, 0), I64, "0", found)


@record(frozen=True)
class Split:
    """Split of strings of so many dimensions along an axis, in parts of these lengths; else in ``count`` parts, of which the last may be
    ``shorter``."""

    axis: int
    rank: int
    lengths: tuple[int, ...]
    count: int
    shorter: bool
    operands: int

    def emit(self, f: Function) -> None:
        x = strings_of(f)
        axes = _axes_of(f, x, self.rank)
        total, step = axes[self.axis]
        lengths = self._lengths(f, total)
        parts = f.call("PyTuple_New", len(lengths))
        f.needs(f.is_there(parts))
        f.guard(parts)
        start = "0"
        for number, length in enumerate(lengths):
            taken = [*axes[: self.axis], Axis(length, step), *axes[self.axis + 1 :]]
            layout = Layout([extent for extent, _ in taken], taken, f.mul(start, step))
            made, data = f.further(*_dims(f, layout), OBJECT.num)
            f.call("PyTuple_SetItem", parts, number, made)
            _fill(f, x, data, layout.axes, layout.start)
            start = f.add(start, length)
        f.give(parts)

    def _lengths(self, f: Function, total: str) -> list[str]:
        if self.lengths:
            f.needs(f.value(f"icmp eq i64 {total}, {sum(self.lengths)}"))
            return [str(length) for length in self.lengths]
        size = f.div(f.add(total, self.count - 1), self.count)
        last = f.sub(total, f.mul(size, self.count - 1))
        f.needs(f.value(f"icmp sgt i64 {last}, 0"))
        if not self.shorter:
            f.needs(f.value(f"icmp eq i64 {last}, {size}"))
        return [*[size] * (self.count - 1), last]
