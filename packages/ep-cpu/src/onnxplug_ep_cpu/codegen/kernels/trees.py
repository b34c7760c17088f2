"""Walking rows down decision trees, eight ways at a time so that the latency of one hides behind the others.

A node is a record: the threshold, the place of its feature, and where it leads, as bytes into the table: first where its
condition fails, then where it holds. A leaf leads to itself; in place of a threshold it has, marked as a number that is not
denormal, the number of its first vote. The condition is ``x <= threshold``; flags in the low bits of a feature's place say that it
is ``x == threshold``, or that it holds for NaN as well.
"""

from __future__ import annotations

from enum import IntEnum
from functools import reduce

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, I64, PTR, Emitter

WAYS = 8
"""Rows (or trees) that are walked side by side."""
LEVELS = 4
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
_NEUTRAL = {"add": "0.0", "min": "0x7FF0000000000000", "max": "0xFFF0000000000000"}


class Arg(IntEnum):
    """Slots of the arguments; steps are in bytes."""

    X = 0  # rows, or [block of WAYS rows][feature][way]
    STEP = 1  # from row to row, or from block to block
    NODES = 2
    ROOTS = 3  # of each tree, int32 bytes into NODES
    WEIGHTS = 4  # of votes, float64
    TARGETS = 5  # of votes, int32 bytes into a row of sums
    SUMS = 6  # [group][row][target] float64
    COLUMNS = 7  # of SUMS
    VOTES = 8  # of each leaf
    TREES = 9
    GROUP = 10  # trees of a group
    GROUP_STEP = 11
    ROWS = 12  # or blocks of WAYS rows
    AT_ONCE = 13  # rows or blocks of an item
    PARTS = 14  # items of a group


_POINTERS = frozenset({Arg.X, Arg.NODES, Arg.ROOTS, Arg.WEIGHTS, Arg.TARGETS, Arg.SUMS})


@record(frozen=True, slots=True)
class Walk:
    """Sums (or extremes, by ``kind``) of the votes of the leaves that rows come to, for each group of trees; an item is (group,
    some rows). ``by_tree``: the ways are trees and rows come singly. ``wide``: thresholds are float64. ``depth`` 0: deeper than
    ``DEEPEST``. ``votes``: of each leaf, 0 for any number; ``dense``: one for each target, in order."""

    element: str
    wide: bool
    missing: bool
    equality: bool
    depth: int
    votes: int
    dense: bool
    kind: str = "add"
    by_tree: bool = False

    def emit(self, f: Emitter) -> None:
        a = {slot: f.arg(slot, PTR if slot in _POINTERS else I64) for slot in Arg}
        row_step = f.shl(a[Arg.COLUMNS], 3)
        with f.items() as item:
            part, group = f.rem(item, a[Arg.PARTS]), f.div(item, a[Arg.PARTS])
            first = f.mul(group, a[Arg.GROUP])
            last = f.smallest(f.add(first, a[Arg.GROUP]), a[Arg.TREES])
            start = f.mul(part, a[Arg.AT_ONCE])
            end = f.smallest(f.add(start, a[Arg.AT_ONCE]), a[Arg.ROWS])
            sums = f.at(a[Arg.SUMS], f.mul(group, a[Arg.GROUP_STEP]))
            rows = 1 if self.by_tree else WAYS
            with f.loop(f.mul(start, f.mul(a[Arg.COLUMNS], rows)), f.mul(end, f.mul(a[Arg.COLUMNS], rows))) as i:
                f.store(F64, _NEUTRAL[self.kind], f.at(sums, f.shl(i.index, 3)), 8)
            with f.loop(first, last, WAYS if self.by_tree else 1) as tree:
                where = f.at(a[Arg.ROOTS], f.shl(tree.index, 2))
                roots = [self._root(f, f.at(where, 4 * way if self.by_tree else 0)) for way in range(WAYS)]
                with f.loop(start, end) as row:
                    x = f.at(a[Arg.X], f.mul(row.index, a[Arg.STEP]))
                    leaves = self._walk(f, a[Arg.NODES], x, roots)
                    to = f.at(sums, f.mul(f.mul(row.index, rows), row_step))
                    for way, leaf in enumerate(leaves):
                        self._vote(f, a, leaf, to)
                        if not self.by_tree and way < WAYS - 1:
                            to = f.at(to, row_step)

    def _root(self, f: Emitter, where: str) -> str:
        return f.value(f"sext i32 {f.load(I32, where)} to i64")

    # ---- from the roots to leaves

    def _walk(self, f: Emitter, nodes: str, x: str, roots: list[str]) -> list[str]:
        """Where each way ends, as bytes into the nodes."""
        unit = _UNITS[self.element]
        xs = [f.at(x, 0 if self.by_tree else unit * way) for way in range(WAYS)]
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
        value = self._value(f, f.at(x, feature if self.by_tree else f.mul(feature, WAYS)), compared)
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
        weights = f.at(a[Arg.WEIGHTS], f.shl(first, 3))
        targets = f.at(a[Arg.TARGETS], f.shl(first, 2))

        def vote(number: int | str) -> None:
            eight = 8 * number if isinstance(number, int) else f.shl(number, 3)
            four = 4 * number if isinstance(number, int) else f.shl(number, 2)
            where = f.at(to, eight if self.dense else self._root(f, f.at(targets, four)))
            f.store(F64, joined(f, self.kind, f.load(F64, where, 8), f.load(F64, f.at(weights, eight), 8)), where, 8)

        if self.votes:
            for number in range(self.votes):
                vote(number)
            return
        with f.loop(0, a[Arg.VOTES]) as i:
            vote(i.index)


def joined(f: Emitter, kind: str, a: str, b: str) -> str:
    """Two float64 added, or the smaller or larger one."""
    if kind == "add":
        return f.value(f"fadd double {a}, {b}")
    takes = f.value(f"fcmp {'olt' if kind == 'min' else 'ogt'} double {b}, {a}")
    return f.select(takes, F64, b, a)


@record(frozen=True, slots=True)
class Count:
    """Scores from the sums of all groups: joined, divided by a number, with base values added; extremes of no vote are 0. An item is
    some rows. Arguments: scores (``element``), sums, base values (float64), columns of the scores and of the sums, groups,
    bytes of a group, rows, rows of an item, divisor (float64)."""

    element: str
    kind: str = "add"

    def emit(self, f: Emitter) -> None:
        out, sums, base = (f.arg(i, PTR) for i in range(3))
        targets, columns, groups, group_step, rows, block = (f.arg(i) for i in range(3, 9))
        divisor = f.arg(9, F64)
        with f.items() as item:
            first = f.mul(item, block)
            with f.loop(first, f.smallest(f.add(first, block), rows)) as row:
                to, at = f.mul(row.index, targets), f.at(sums, f.shl(f.mul(row.index, columns), 3))
                with f.loop(0, targets) as t:
                    here = f.at(at, f.shl(t.index, 3))
                    with f.loop(0, groups, 1, [(F64, _NEUTRAL[self.kind])]) as g:
                        g.next = [
                            joined(f, self.kind, g.vars[0], f.load(F64, f.at(here, f.mul(g.index, group_step)), 8))
                        ]
                    (total,) = g.vars
                    if self.kind != "add":
                        none = f.value(f"fcmp oeq double {total}, {_NEUTRAL[self.kind]}")
                        total = f.select(none, F64, "0.0", total)
                    total = f.value(f"fdiv double {total}, {divisor}")
                    total = f.value(f"fadd double {total}, {f.load(F64, f.at(base, f.shl(t.index, 3)), 8)}")
                    place = f.add(to, t.index)
                    if self.element == "float64":
                        f.store(F64, total, f.at(out, f.shl(place, 3)), 8)
                    else:
                        f.store(F32, f.value(f"fptrunc double {total} to float"), f.at(out, f.shl(place, 2)))
