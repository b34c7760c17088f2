"""Walking rows down decision trees, eight ways at a time so that the latency of one hides behind the others.

A node is a record: the threshold, the place of its feature, and where it leads, as bytes into the table: first where its
condition fails, then where it holds. A leaf leads to itself; in place of a threshold it has, marked as a number that is not
denormal, the number of its first vote. The condition is ``x <= threshold``; flags in the low bits of a feature's place say that it
is ``x == threshold``, or that it holds for NaN as well.

A row's votes are added tree by tree, in the precision of its numbers: forests of classifiers come to ties, and what rounding makes of
half of the votes is a class. It must be the class that onnxruntime, which adds so too, gives.
"""

from __future__ import annotations

from enum import IntEnum
from functools import reduce

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, I64, PTR, Emitter

WAYS = 8
"""Rows (or trees) that are walked side by side."""
LEVELS = 2
"""Steps between looks whether all have come to leaves, in trees deeper than ``DEEPEST``."""
DEEPEST = 8
"""Up to this depth the steps are as many as the trees are deep."""
HOLDS_FOR_NAN, EQUALITY = 1, 2
"""Flags beside the place of a feature."""
MARK = 0x40000000
"""Beside the number of a leaf's first vote."""
F64 = "double"
_LOADED = {"float32": F32, "float64": F64, "int32": I32, "int64": I64}
_UNITS = {"float32": 4, "float64": 8, "int32": 4, "int64": 8}
_SHIFTS = {"float32": 2, "float64": 3}
_NEUTRAL = {"add": "0.0", "min": "0x7FF0000000000000", "max": "0xFFF0000000000000"}


class Arg(IntEnum):
    """Slots of the arguments; steps are in bytes."""

    X = 0  # rows
    STEP = 1  # from row to row, or from WAYS rows to the next
    NODES = 2
    ROOTS = 3  # of each tree, int32 bytes into NODES
    WEIGHTS = 4  # of votes, as SUMS
    TARGETS = 5  # of votes, int32 bytes into a row of sums
    SUMS = 6  # [row][target]
    COLUMNS = 7  # of SUMS
    VOTES = 8  # of each leaf
    TREES = 9
    ROWS = 10  # or blocks of WAYS rows
    AT_ONCE = 11  # rows or blocks of an item


_POINTERS = frozenset({Arg.X, Arg.NODES, Arg.ROOTS, Arg.WEIGHTS, Arg.TARGETS, Arg.SUMS})


@record(frozen=True, slots=True)
class Walk:
    """Sums (or extremes, by ``kind``) of the votes of the leaves that rows come to; an item is some rows. The ways are rows of ``row``
    bytes, or ``by_tree`` trees, for one row after the other. ``wide``: thresholds are float64. ``depth`` 0: deeper than
    ``DEEPEST``. ``votes``: of each leaf, 0 for any number; ``dense``: one for each target, in order. Sums are ``total``, float32 or
    float64."""

    element: str
    total: str
    wide: bool
    missing: bool
    equality: bool
    depth: int
    votes: int
    dense: bool
    kind: str = "add"
    row: int = 0
    by_tree: bool = False

    def emit(self, f: Emitter) -> None:
        a = {slot: f.arg(slot, PTR if slot in _POINTERS else I64) for slot in Arg}
        unit = _SHIFTS[self.total]
        row_step = f.shl(a[Arg.COLUMNS], unit)
        with f.items() as item:
            start = f.mul(item, a[Arg.AT_ONCE])
            end = f.smallest(f.add(start, a[Arg.AT_ONCE]), a[Arg.ROWS])
            rows = 1 if self.by_tree else WAYS
            with f.loop(f.mul(start, f.mul(a[Arg.COLUMNS], rows)), f.mul(end, f.mul(a[Arg.COLUMNS], rows))) as i:
                f.store(_LOADED[self.total], _NEUTRAL[self.kind], f.at(a[Arg.SUMS], f.shl(i.index, unit)), 1 << unit)
            with f.loop(0, a[Arg.TREES], WAYS if self.by_tree else 1) as tree:
                where = f.at(a[Arg.ROOTS], f.shl(tree.index, 2))
                roots = [self._root(f, f.at(where, 4 * way if self.by_tree else 0)) for way in range(WAYS)]
                with f.loop(start, end) as row:
                    x = f.at(a[Arg.X], f.mul(row.index, a[Arg.STEP]))
                    leaves = self._walk(f, a[Arg.NODES], x, roots)
                    to = f.at(a[Arg.SUMS], f.mul(f.mul(row.index, rows), row_step))
                    for way, leaf in enumerate(leaves):
                        self._vote(f, a, leaf, to)
                        if not self.by_tree and way < WAYS - 1:
                            to = f.at(to, row_step)

    def _root(self, f: Emitter, where: str) -> str:
        return f.value(f"sext i32 {f.load(I32, where)} to i64")

    # ---- from the roots to leaves

    def _walk(self, f: Emitter, nodes: str, x: str, roots: list[str]) -> list[str]:
        """Where each way ends, as bytes into the nodes."""
        xs = [f.at(x, self.row * way) for way in range(WAYS)]
        at = roots
        if self.depth:
            for _ in range(self.depth):
                at = [self._step(f, f.at(nodes, here), x) for here, x in zip(at, xs, strict=True)]
            return at
        head, done, before = f.label("walk"), f.label("leaves"), f.block
        f.do(f"br label %{head}")
        f.start(head)
        place = len(f.lines)
        at = names = [f"%{head}.n{way}" for way in range(WAYS)]
        for _ in range(LEVELS):
            last = at
            at = [self._step(f, f.at(nodes, here), x) for here, x in zip(at, xs, strict=True)]
        moves = [f.value(f"xor i64 {new}, {old}") for new, old in zip(at, last, strict=True)]
        moved = reduce(lambda a, b: f.value(f"or i64 {a}, {b}"), moves)
        f.do(f"br i1 {f.value(f'icmp ne i64 {moved}, 0')}, label %{head}, label %{done}")
        f.lines[place:place] = [
            f"  {name} = phi i64 [{root}, %{before}], [{new}, %{head}]"
            for name, root, new in zip(names, roots, at, strict=True)
        ]
        f.start(done)
        return at

    def _step(self, f: Emitter, node: str, x: str) -> str:
        compared, size = (F64, 8) if self.wide else (F32, 4)
        threshold = f.load(compared, node, size)
        flagged = f.value(f"sext i32 {f.load(I32, f.at(node, size))} to i64")
        feature = f.and_(flagged, -4) if self.missing or self.equality else flagged
        value = self._value(f, f.at(x, feature), compared)
        holds = f.value(f"fcmp ole {compared} {value}, {threshold}")
        if self.equality:
            inexact = f.value(f"icmp eq i64 {f.and_(flagged, EQUALITY)}, 0")
            above = f.value(f"fcmp oge {compared} {value}, {threshold}")
            holds = f.value(f"and i1 {holds}, {f.value(f'or i1 {inexact}, {above}')}")
        if self.missing:
            told = f.value(f"icmp ne i64 {f.and_(flagged, HOLDS_FOR_NAN)}, 0")
            broken = f.value(f"fcmp uno {compared} {value}, {value}")
            holds = f.value(f"or i1 {holds}, {f.value(f'and i1 {told}, {broken}')}")
        taken = f.shl(f.value(f"zext i1 {holds} to i64"), 2)  # an address, since a branch here is rarely foreseen
        return self._root(f, f.at(f.at(node, 2 * size), taken))

    def _value(self, f: Emitter, where: str, compared: str) -> str:
        loaded = f.load(_LOADED[self.element], where, _UNITS[self.element])
        if self.element in ("int32", "int64"):
            return f.value(f"sitofp {_LOADED[self.element]} {loaded} to {compared}")
        return f.value(f"fpext float {loaded} to double") if self.element == "float32" and self.wide else loaded

    # ---- at the leaves

    def _vote(self, f: Emitter, a: dict[Arg, str], leaf: str, to: str) -> None:
        marked = f.value(f"zext i32 {f.load(I32, f.at(a[Arg.NODES], leaf))} to i64")
        first = f.and_(marked, MARK - 1)
        kind, unit = _LOADED[self.total], _SHIFTS[self.total]
        weights = f.at(a[Arg.WEIGHTS], f.shl(first, unit))
        targets = f.at(a[Arg.TARGETS], f.shl(first, 2))

        def vote(number: int | str) -> None:
            place = number << unit if isinstance(number, int) else f.shl(number, unit)
            four = 4 * number if isinstance(number, int) else f.shl(number, 2)
            where = f.at(to, place if self.dense else self._root(f, f.at(targets, four)))
            given = f.load(kind, f.at(weights, place), 1 << unit)
            f.store(kind, self._joined(f, f.load(kind, where, 1 << unit), given), where, 1 << unit)

        if self.votes:
            for number in range(self.votes):
                vote(number)
            return
        with f.loop(0, a[Arg.VOTES]) as i:
            vote(i.index)

    def _joined(self, f: Emitter, a: str, b: str) -> str:
        """Two numbers added, or the smaller or larger one."""
        kind = _LOADED[self.total]
        if self.kind == "add":
            return f.value(f"fadd {kind} {a}, {b}")
        takes = f.value(f"fcmp {'olt' if self.kind == 'min' else 'ogt'} {kind} {b}, {a}")
        return f.select(takes, kind, b, a)
