"""Lines of a tensor, each handled whole: the passes that reductions, softmax and normalisations are made of.

A line is the elements along one axis. *Along*: the axis is contiguous and vectors run along it. *Across*: another dimension is,
and the lanes of a vector are neighbouring lines. Kernels are written once for both.

Arguments: elements of a line, lines, lines per item, blocks of lines, the outer sizes; then for every tensor its address, its
strides along the axis, from line to line, and of the outer dimensions, in bytes. An item is (outer index, block of lines).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import KINDS, MEMORY, SIZES, narrow, spread, widen

Operand = tuple[str, str]
"""(element type, "v" if vectors of it are contiguous else "s": one value for all lanes)."""

SLOTS = 4
"""Arguments before the outer sizes."""


@record(slots=True)
class Line:
    """The line (or vector of lines) being worked on. Tensors go by their number."""

    f: Emitter
    along: bool
    count: str
    operands: Sequence[Operand]
    pointers: list[str]
    steps: list[str]
    mask: str | None = None
    fixed: dict[int, str] = field(default_factory=dict)
    beside: list[Line] = field(default_factory=list)
    """Further vectors of lines, next to this one (across lines)."""

    def read(self, number: int, index: str, mask: str | None) -> str:
        """A vector of a tensor at an index of the line, as expressions read it."""
        f, (element, kind) = self.f, self.operands[number]
        if self.along and kind == "s":
            if number not in self.fixed:
                raise AssertionError("what is the same for a whole line is read before its passes")
            return self.fixed[number]
        where = self._where(number, index)
        if kind == "s":
            return widen(f, element, spread(f, element, where))
        type_, align = MEMORY[element], SIZES[element]
        return widen(f, element, f.load_masked(type_, where, mask, align))

    def write(self, number: int, index: str, mask: str | None, value: str) -> None:
        """Store a vector of a tensor."""
        self._store(number, self._where(number, index), mask, value)

    def put(self, number: int, value: str) -> None:
        """Store a result that each line has one of; ``value`` as ``fold`` gives it."""
        f, (element, _) = self.f, self.operands[number]
        if not self.along:
            self._store(number, self.pointers[number], self.mask, value)
            return
        type_ = MEMORY[element]
        first = f.value(f"extractelement {f.vec(type_)} {narrow(f, element, value)}, i32 0")
        f.store(type_, first, self.pointers[number], SIZES[element])

    def take(self, number: int) -> str:
        """What ``put`` stored, in every lane."""
        f, (element, _) = self.f, self.operands[number]
        if self.along:
            return spread(f, element, self.pointers[number])
        type_, align = MEMORY[element], SIZES[element]
        if self.mask is None:
            return f.load(f.vec(type_), self.pointers[number], align)
        return f.load_masked(type_, self.pointers[number], self.mask, align)

    def evaluate(
        self,
        expr: ex.Expr,
        numbers: Sequence[int],
        index: str,
        mask: str | None,
        *first: str,
        element: str = "float32",
    ) -> str:
        """``expr`` at an index; its leaves are ``first`` (vectors of ``element``), then tensors."""
        leaves = [*first, *(self.read(n, index, mask) for n in numbers)]
        kinds = [element] * len(first) + [KINDS[self.operands[n][0]] for n in numbers]
        return ex.emit(self.f, expr, leaves, kinds)

    def held(self, value: str, mask: str | None, outside: str, type_: str = "float") -> str:
        """``value`` with ``outside`` in the lanes that are past the end of a line."""
        if mask is None or not self.along:
            return value
        v = self.f.vec(type_)
        return self.f.value(f"select {self.f.vec('i1')} {mask}, {v} {value}, {v} {outside}")

    def fold(self, kind: str, vector: str, element: str = "float32") -> str:
        """Lanes joined ("add", "mul", "max", "min") to one value, in every lane; across lines they are apart already."""
        if not self.along:
            return vector
        pair: ex.Expr = (("leaf", 0), ("leaf", 1), (kind, 0, 1))
        return joined(self.f, vector, MEMORY[element], lambda a, b: ex.emit(self.f, pair, [a, b], [element] * 2))

    def passes(
        self,
        carried: Sequence[tuple[str, str]],
        body: Callable[[str, str | None, list[str]], list[str]],
        join: Callable[[list[str], list[str]], list[str]] | None = None,
        ways: int = 4,
    ) -> list[str]:
        """Run ``body(index, mask, values) -> next values`` over the line; with ``join`` in ``ways`` chains, which it merges."""
        f = self.f
        if not self.along:
            with f.loop(0, self.count, 1, carried) as loop:
                loop.next = body(loop.index, self.mask, loop.vars)
            return loop.vars
        types = [type_ for type_, _ in carried]
        first, values = "0", [initial for _, initial in carried]
        whole = f.and_(self.count, -f.lanes)
        if join is not None:
            first, values = self._chains(carried, body, join, ways)
        with f.loop(first, whole, f.lanes, list(zip(types, values, strict=True))) as loop:
            loop.next = body(loop.index, None, loop.vars)
        with f.loop(whole, self.count, f.lanes, list(zip(types, loop.vars, strict=True))) as tail:
            tail.next = body(tail.index, f.lanes_below(f.sub(self.count, whole)), tail.vars)
        return tail.vars

    def _chains(
        self,
        carried: Sequence[tuple[str, str]],
        body: Callable[[str, str | None, list[str]], list[str]],
        join: Callable[[list[str], list[str]], list[str]],
        ways: int,
    ) -> tuple[str, list[str]]:
        f, n = self.f, len(carried)
        end = f.and_(self.count, -f.lanes * ways)
        with f.loop(0, end, f.lanes * ways, [*carried] * ways) as loop:
            for way in range(ways):
                index = f.add(loop.index, way * f.lanes) if way else loop.index
                loop.next += body(index, None, loop.vars[way * n : (way + 1) * n])
        sets = [loop.vars[way * n : (way + 1) * n] for way in range(ways)]
        while len(sets) > 1:
            sets = [join(sets[i], sets[i + 1]) for i in range(0, len(sets), 2)]
        return end, sets[0]

    def _where(self, number: int, index: str) -> str:
        f = self.f
        step = f.mul(index, SIZES[self.operands[number][0]] if self.along else self.steps[number])
        return f.at(self.pointers[number], step)

    def _store(self, number: int, where: str, mask: str | None, value: str) -> None:
        f, element = self.f, self.operands[number][0]
        type_, align = MEMORY[element], SIZES[element]
        f.store_masked(type_, narrow(f, element, value), where, mask, align)


def joined(f: Emitter, vector: str, type_: str, join: Callable[[str, str], str]) -> str:
    """All lanes joined, in every lane: halves, then quarters, ..."""
    v, n = f.vec(type_), f.lanes
    step = n // 2
    while step:
        order = ", ".join(f"i32 {(i + step) % n}" for i in range(n))
        vector = join(vector, f.value(f"shufflevector {v} {vector}, {v} poison, <{n} x i32> <{order}>"))
        step //= 2
    return vector


def each_line(
    f: Emitter, along: bool, operands: Sequence[Operand], outer: int, *stages: Callable[[Line], None], together: int = 1
) -> None:
    """Write ``stages`` for every line of the call's items (across: for vectors of lines, whole and partial). Along lines a stage
    has done all lines of an item before the next begins, so that the latencies of one line hide behind another's work. Across
    them stages get ``together`` vectors of lines at a time where there are as many: what lies together is read together."""
    count, lines, block, blocks = (f.arg(i) for i in range(SLOTS))
    sizes = [f.arg(SLOTS + i) for i in range(outer)]
    at, pointers, steps, strides = SLOTS + outer, [], [], []
    for _ in operands:
        pointers.append(f.arg(at, PTR))
        steps.append("" if along else f.arg(at + 1))
        strides.append([f.arg(at + 2 + i) for i in range(1 + outer)])
        at += 3 + outer
    with f.items() as item:
        part, rest = f.rem(item, blocks), f.div(item, blocks)
        bases = pointers
        for dim in reversed(range(outer)):
            index, rest = f.rem(rest, sizes[dim]), f.div(rest, sizes[dim])
            bases = [f.at(b, f.mul(index, s[1 + dim])) for b, s in zip(bases, strides, strict=True)]
        first = f.mul(part, block)
        end = f.smallest(f.add(first, block), lines)

        def work(index: str, mask: str | None, stages: Sequence[Callable[[Line], None]], many: int = 1) -> None:
            here = [f.at(b, f.mul(index, s[0])) for b, s in zip(bases, strides, strict=True)]
            line = Line(f, along, count, operands, here, steps, mask)
            for number in range(1, many):
                moved = [
                    f.at(pointer, number * f.lanes * SIZES[element]) if kind == "v" else pointer
                    for pointer, (element, kind) in zip(here, operands, strict=True)
                ]
                line.beside.append(Line(f, along, count, operands, moved, steps))
            if along:
                for number, (element, kind) in enumerate(operands):
                    if kind == "s":
                        line.fixed[number] = widen(f, element, spread(f, element, here[number]))
            for stage in stages:
                stage(line)

        if along:
            for stage in stages:
                with f.loop(first, end) as loop:
                    work(loop.index, None, [stage])
            return
        whole = f.add(first, f.and_(f.sub(end, first), -f.lanes))
        if together > 1:
            wide = f.add(first, f.and_(f.sub(end, first), -f.lanes * together))
            with f.loop(first, wide, f.lanes * together) as loop:
                work(loop.index, None, stages, together)
            first = wide
        with f.loop(first, whole, f.lanes) as loop:
            work(loop.index, None, stages)
        with f.when(f.less(whole, end)):
            work(whole, f.lanes_below(f.sub(end, whole)), stages)
