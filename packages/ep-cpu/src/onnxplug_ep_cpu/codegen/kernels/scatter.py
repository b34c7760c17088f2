"""Elements and slices moved to or from the places that indices name, one after the other along an axis."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, F64, I32, I64, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.gather import UNITS, read_index

JOINED = {"float32": F32, "float64": F64, "int32": I32, "int64": I64}
"""Element types that are reduced."""
MOVES = ("gather", "none")


@record(frozen=True, slots=True)
class ScatterSlices:
    """out[outer, tuple i of the indices] = or reduced with updates[outer, i], slices whose elements lie together.

    ``kind`` is a reduction or "none"; with "gather" the second takes what the first has. ``element`` is NumPy's name of the type
    of a reduction, else its size in bytes. A tuple has ``depth`` indices of 32 or 64 ``bits``, ``negative`` ones or not, as in
    ``Gather``. An item is (outer index, block of a slice's elements), so that no two write the same place. Arguments: out, updates,
    indices, status, elements of a slice, of an item, blocks, tuples, bytes from slice to slice of the updates and from tuple to
    tuple, outer strides of out, updates and indices in bytes; then size and stride in bytes for each index.
    """

    kind: str
    element: str | int
    depth: int
    bits: int
    negative: bool = True

    def emit(self, f: Emitter) -> None:
        out, updates, indices, status = (f.arg(i, PTR) for i in range(4))
        count, block, blocks, tuples, step, index_step = (f.arg(i) for i in range(4, 10))
        outer_strides = [f.arg(i) for i in range(10, 13)]
        axes = [(f.arg(13 + 2 * j), f.arg(14 + 2 * j)) for j in range(self.depth)]
        with f.items() as item:
            part, outer = f.rem(item, blocks), f.div(item, blocks)
            to, source, names = (
                f.at(pointer, f.mul(outer, stride))
                for pointer, stride in zip((out, updates, indices), outer_strides, strict=True)
            )
            first = f.mul(part, block)
            end = f.smallest(f.add(first, block), count)
            with f.loop(0, tuples) as i:
                place, entry = to, f.at(names, f.mul(i.index, index_step))
                for j, (size, stride) in enumerate(axes):
                    index = read_index(f, self.bits, f.at(entry, j * self.bits // 8), size, status, self.negative)
                    place = f.at(place, f.mul(index, stride))
                self._slice(f, place, f.at(source, f.mul(i.index, step)), first, end)

    def _slice(self, f: Emitter, place: str, update: str, first: str, end: str) -> None:
        type_, unit = _type(self.element)
        lanes = 4 * f.lanes // unit
        whole = f.add(first, f.and_(f.sub(end, first), -lanes))
        for start, stop, step, held in ((first, whole, lanes, f.vec(type_, lanes)), (whole, end, 1, type_)):
            with f.loop(start, stop, step) as c:
                offset = f.mul(c.index, unit)
                put(f, self.kind, held, unit, f.at(place, offset), f.at(update, offset))


@record(frozen=True, slots=True)
class ScatterElements:
    """For each of the indices, the element of out with that index is, or is reduced with, the update at the index's own place;
    ``kind``, ``element``, ``bits`` and ``negative`` as in ``ScatterSlices``. ``even``: along the inner loop what is taken lies together,
    and its indices do; vectors are then gathered.

    Two loops run inside of ``outer`` others; an item is (outer index, block of the first, block of the second), and the loop over
    what an index replaces is in one block. Arguments: status, size and stride in bytes of the axis; for the two loops their size,
    the size of an item and the number of blocks; the outer sizes; then for out, updates and indices the address and the strides
    of the two loops and the outer ones in bytes.
    """

    kind: str
    element: str | int
    bits: int
    outer: int
    negative: bool = True
    even: bool = False

    def emit(self, f: Emitter) -> None:
        status, size, axis = f.arg(0, PTR), f.arg(1), f.arg(2)
        (n, block, blocks), (m, inner_block, inner_blocks) = ([f.arg(at + i) for i in range(3)] for at in (3, 6))
        sizes, at = [f.arg(9 + i) for i in range(self.outer)], 9 + self.outer
        tensors = []
        for _ in range(3):
            tensors.append((f.arg(at, PTR), [f.arg(at + 1 + i) for i in range(2 + self.outer)]))
            at += 3 + self.outer
        with f.items() as item:
            inner, rest = f.rem(item, inner_blocks), f.div(item, inner_blocks)
            part, rest = f.rem(rest, blocks), f.div(rest, blocks)
            bases = [pointer for pointer, _ in tensors]
            for dim in reversed(range(self.outer)):
                index, rest = f.rem(rest, sizes[dim]), f.div(rest, sizes[dim])
                bases = [f.at(b, f.mul(index, s[2 + dim])) for b, (_, s) in zip(bases, tensors, strict=True)]
            first, start = f.mul(part, block), f.mul(inner, inner_block)
            with f.loop(first, f.smallest(f.add(first, block), n)) as i:
                rows = [f.at(b, f.mul(i.index, s[0])) for b, (_, s) in zip(bases, tensors, strict=True)]
                steps = [s[1] for _, s in tensors]
                run = self._gathered if self.even else self._one_by_one
                run(f, rows, steps, (start, f.smallest(f.add(start, inner_block), m)), (size, axis), status)

    def _one_by_one(
        self, f: Emitter, rows: list[str], steps: list[str], part: tuple[str, str], axis: tuple[str, str], status: str
    ) -> None:
        """Elements ``part`` of a row; ``axis``: its size and stride."""
        type_, unit = _type(self.element)
        begun = [(PTR, f.at(b, f.mul(part[0], step))) for b, step in zip(rows, steps, strict=True)]
        with f.loop(*part, 1, begun) as j:
            out, update, name = j.vars
            j.next = [f.at(b, step) for b, step in zip(j.vars, steps, strict=True)]
            place = f.at(out, f.mul(read_index(f, self.bits, name, axis[0], status, self.negative), axis[1]))
            put(f, self.kind, type_, unit, place, update)

    def _gathered(
        self, f: Emitter, rows: list[str], steps: list[str], part: tuple[str, str], axis: tuple[str, str], status: str
    ) -> None:
        """The same by vectors."""
        type_, unit = _type(self.element)
        (data, out, names), (first, end), (size, stride), step = rows, part, axis, steps[0]
        longs, bools, n = f.vec(I64), f.vec("i1"), f.lanes
        sizes, strides = f.splat(size, I64), f.splat(stride, I64)
        lanes = "<" + ", ".join(f"i64 {i}" for i in range(n)) + ">"
        apart = f.value(f"mul {longs} {f.splat(step, I64)}, {lanes}")

        def vector(at: str, mask: str | None, wrong: str) -> str:
            index = f.load_masked(f"i{self.bits}", f.at(names, f.mul(at, self.bits // 8)), mask, self.bits // 8)
            if self.bits == 32:
                index = f.value(f"sext {f.vec('i32')} {index} to {longs}")
            if self.negative:
                below = f.value(f"icmp slt {longs} {index}, zeroinitializer")
                index = f.value(
                    f"select {bools} {below}, {longs} {f.value(f'add {longs} {index}, {sizes}')}, {longs} {index}"
                )
            inside = f.value(f"icmp ult {longs} {index}, {sizes}")
            offsets = f.value(f"add {longs} {f.value(f'mul {longs} {index}, {strides}')}, {apart}")
            places = f.value(f"getelementptr i8, ptr {f.at(data, f.mul(at, step))}, {longs} {offsets}")
            taken = inside if mask is None else f.value(f"and {bools} {inside}, {mask}")
            found = f.intrinsic(
                f"llvm.masked.gather.v{n}{type_}.v{n}p0", f.vec(type_),
                (f.vec(PTR), places), (I32, str(unit)), (bools, taken), (f.vec(type_), "zeroinitializer"),
            )  # fmt: skip
            f.store_masked(type_, found, f.at(out, f.mul(at, unit)), mask, unit)
            beyond = f.value(f"xor {bools} {inside}, splat (i1 true)")
            beyond = beyond if mask is None else f.value(f"and {bools} {beyond}, {mask}")
            return f.value(f"or {bools} {wrong}, {beyond}")

        whole = f.add(first, f.and_(f.sub(end, first), -n))
        with f.loop(first, whole, n, [(bools, "zeroinitializer")]) as i:
            i.next = [vector(i.index, None, i.vars[0])]
        with f.loop(whole, end, n, [(bools, i.vars[0])]) as i:
            i.next = [vector(whole, f.lanes_below(f.sub(end, whole)), i.vars[0])]
        with f.when(f.intrinsic(f"llvm.vector.reduce.or.v{n}i1", "i1", (bools, i.vars[0]))):
            f.do(f"store atomic i64 1, ptr {status} monotonic, align 8")


def _type(element: str | int) -> tuple[str, int]:
    """LLVM's name of an element's type and its bytes."""
    if isinstance(element, int):
        return UNITS[element], element
    return JOINED[element], 8 if element in ("float64", "int64") else 4


def put(f: Emitter, kind: str, type_: str, unit: int, place: str, update: str) -> None:
    """Move or join one scalar or vector of elements of ``unit`` bytes."""
    if kind == "gather":
        place, update = update, place
    value = f.load(type_, update, unit)
    if kind not in MOVES:
        value = _joined(f, kind, type_, f.load(type_, place, unit), value)
    f.store(type_, value, place, unit)


def _joined(f: Emitter, kind: str, type_: str, a: str, b: str) -> str:
    """The reduction of two scalars or vectors; the extreme of NaN and anything is NaN."""
    floating = F32 in type_ or F64 in type_
    if kind in ("add", "mul"):
        return f.value(f"{'f' if floating else ''}{kind} {type_} {a}, {b}")
    flags = f"{type_.partition('x')[0]}x i1>" if "x" in type_ else "i1"
    better = {"max": "gt", "min": "lt"}[kind]
    first = f.value(f"{'fcmp o' if floating else 'icmp s'}{better} {type_} {a}, {b}")
    kept = f.value(f"select {flags} {first}, {type_} {a}, {type_} {b}")
    if not floating:
        return kept
    broken = f.value(f"fcmp uno {type_} {a}, {a}")
    return f.value(f"select {flags} {broken}, {type_} {a}, {type_} {kept}")
