"""The greatest or smallest elements of lines, best first, with their places."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import I32, I64, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES


@record(frozen=True, slots=True)
class TopK:
    """Of equal elements the first comes first; NaN is greater than all else. At most ``most`` elements of a line are wanted.

    Elements are compared as integers that order like them. An item is a block of lines. Arguments: values, places (int64), lines,
    elements of a line, how many are wanted, number of lines, lines of an item, bytes from line to line.
    """

    largest: bool
    most: int
    element: str = "float32"

    @property
    def key(self) -> str:
        """The integers of the size of an element."""
        return I64 if SIZES[self.element] == 8 else I32

    @property
    def bits(self) -> int:
        """The binary logarithm of that size."""
        return SIZES[self.element].bit_length() - 1

    @property
    def lowest(self) -> str:
        """The lowest of them."""
        return str(-(1 << (8 * SIZES[self.element] - 1)))

    def emit(self, f: Emitter) -> None:
        values, places, x = (f.arg(i, PTR) for i in range(3))
        size, wanted, lines, block, step = (f.arg(i) for i in range(3, 8))
        keys = f.value(f"alloca [{self.most} x {self.key}], align 64")
        lanes = f.value(f"alloca [{f.lanes} x {self.key}], align 64")
        whole = f.and_(size, -f.lanes)
        with f.items() as item:
            first = f.mul(item, block)
            with f.loop(first, f.smallest(f.add(first, block), lines)) as line:
                at = f.at(x, f.mul(line.index, step))
                done = f.mul(line.index, wanted)
                to = f.at(places, f.shl(done, 3))
                state = [(self.key, self.lowest), (I64, "0")]
                with f.loop(0, whole, f.lanes, state) as i:
                    i.next = self._vector(f, at, i.index, None, lanes, keys, to, wanted, *i.vars)
                with f.loop(whole, size, f.lanes, [(self.key, i.vars[0]), (I64, i.vars[1])]) as i:
                    rest = f.sub(size, whole)
                    i.next = self._vector(f, at, i.index, rest, lanes, keys, to, wanted, *i.vars)
                with f.loop(0, wanted) as k:
                    place = f.load(I64, f.at(to, f.shl(k.index, 3)), 8)
                    value = f.load(self.key, f.at(at, f.shl(place, self.bits)))
                    f.store(self.key, value, f.at(values, f.shl(f.add(done, k.index), self.bits)))

    def _vector(
        self,
        f: Emitter,
        at: str,
        index: str,
        rest: str | None,
        lanes: str,
        keys: str,
        to: str,
        wanted: str,
        bound: str,
        held: str,
    ) -> list[str]:
        """Take what a vector has of the best; returns the key that the next ones must exceed, and how many are held."""
        type_, ints = MEMORY[self.element], f.vec(self.key)
        where = f.at(at, f.shl(index, self.bits))
        raw = f.load(f.vec(type_), where) if rest is None else f.load_masked(type_, where, f.lanes_below(rest))
        order = ordered(f, raw, self.largest, self.element)
        above = f.value(f"icmp sgt {ints} {order}, {f.splat(bound, self.key)}")
        some = f.intrinsic(f"llvm.vector.reduce.or.v{f.lanes}i1", "i1", (f.vec("i1"), above))
        some = f.value(f"or i1 {some}, {f.less(held, wanted)}")
        before, takes, done = f.block, f.label("takes"), f.label("passed")
        f.do(f"br i1 {some}, label %{takes}, label %{done}")
        f.start(takes)
        f.store(ints, order, lanes, 64)
        with f.loop(0, str(f.lanes) if rest is None else rest, 1, [(self.key, bound), (I64, held)]) as lane:
            key = f.load(self.key, f.at(lanes, f.shl(lane.index, self.bits)))
            lane.next = self._insert(f, key, f.add(index, lane.index), keys, to, wanted, *lane.vars)
        last = f.block
        f.do(f"br label %{done}")
        f.start(done)
        return [
            f.value(f"phi {self.key} [{bound}, %{before}], [{lane.vars[0]}, %{last}]"),
            f.value(f"phi i64 [{held}, %{before}], [{lane.vars[1]}, %{last}]"),
        ]

    def _insert(
        self, f: Emitter, key: str, place: str, keys: str, to: str, wanted: str, bound: str, held: str
    ) -> list[str]:
        """Put an element behind those that are not worse."""
        room = f.less(held, wanted)
        good = f.value(f"or i1 {room}, {f.value(f'icmp sgt {self.key} {key}, {bound}')}")
        before = f.block
        enter, head, look, move, put, done = (f.label(n) for n in ("enter", "slot", "look", "move", "put", "kept"))
        f.do(f"br i1 {good}, label %{enter}, label %{done}")
        f.start(enter)
        start = f.select(room, I64, held, f.sub(wanted, 1))
        f.do(f"br label %{head}")
        f.start(head)
        slot = f"%{head}.s"
        f.lines.append(f"  {slot} = phi i64 [{start}, %{enter}], [%{move}.s, %{move}]")
        f.do(f"br i1 {f.value(f'icmp sgt i64 {slot}, 0')}, label %{look}, label %{put}")
        f.start(look)
        previous = f.sub(slot, 1)
        other = f.load(self.key, f.at(keys, f.shl(previous, self.bits)))
        f.do(f"br i1 {f.value(f'icmp slt {self.key} {other}, {key}')}, label %{move}, label %{put}")
        f.start(move)
        f.store(self.key, other, f.at(keys, f.shl(slot, self.bits)))
        f.store(I64, f.load(I64, f.at(to, f.shl(previous, 3)), 8), f.at(to, f.shl(slot, 3)), 8)
        f.do(f"%{move}.s = sub i64 {slot}, 1")
        f.do(f"br label %{head}")
        f.start(put)
        f.store(self.key, key, f.at(keys, f.shl(slot, self.bits)))
        f.store(I64, place, f.at(to, f.shl(slot, 3)), 8)
        more = f.smallest(f.add(held, 1), wanted)
        full = f.value(f"icmp eq i64 {more}, {wanted}")
        worst = f.load(self.key, f.at(keys, f.shl(f.sub(wanted, 1), self.bits)))
        limit = f.select(full, self.key, worst, self.lowest)
        f.do(f"br label %{done}")
        f.start(done)
        return [
            f.value(f"phi {self.key} [{bound}, %{before}], [{limit}, %{put}]"),
            f.value(f"phi i64 [{held}, %{before}], [{more}, %{put}]"),
        ]


def ordered(f: Emitter, raw: str, largest: bool, element: str = "float32") -> str:
    """Integers of which the greatest are those of the best elements: NaN is greater than all else, -0 equals 0."""
    bits = 8 * SIZES[element]
    type_, ints = MEMORY[element], f.vec(f"i{bits}")
    if element in ("float32", "float64"):
        v, most = f.vec(type_), f"splat (i{bits} {(1 << (bits - 1)) - 1})"
        plus = f.value(f"fadd {v} {raw}, zeroinitializer")
        pattern = f.value(f"bitcast {v} {plus} to {ints}")
        sign = f.value(f"ashr {ints} {pattern}, splat (i{bits} {bits - 1})")
        order = f.value(f"xor {ints} {pattern}, {f.value(f'and {ints} {sign}, {most}')}")
        broken = f.value(f"fcmp uno {v} {raw}, {raw}")
        raw = f.value(f"select {f.vec('i1')} {broken}, {ints} {most}, {ints} {order}")
    return raw if largest else f.value(f"xor {ints} {raw}, splat (i{bits} -1)")
