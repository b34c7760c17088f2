"""Finding the leaves of decision trees by crossing out those that failed conditions exclude (Lucchese et al., "QuickScorer", SIGIR 2015),
for a vector of rows at a time.

Leaves are numbered such that those where a node's condition holds come before those where it fails. Where it fails, the former are crossed
out; the first leaf that is left is where the row ends, in whatever order nodes are looked at. So no step waits for another one, nor for
memory, and no branch depends on data. A word has 32 leaves; of trees with more of them the last word comes first, and what an
earlier one finds counts.

The votes of a row are added tree by tree in float32, as ``trees`` adds them.
"""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, I64, PTR, Emitter

WORD = 32
"""Leaves of a word."""
TOGETHER = 4
"""Conditions of a turn of the loop."""
CONDITION = 12
"""Bytes of a condition: the feature, the threshold, the leaves that stay."""


class Arg(IntEnum):
    """Slots of the arguments; steps are in bytes."""

    X = 0  # [feature][row]
    STEP = 1  # from feature to feature
    CONDITIONS = 2
    WORDS = 3  # where the conditions of each word end, int32
    TREES = 4  # of each tree: where its words end, and where its votes do, int32
    TARGETS = 5  # of each vote of a tree: the target, int32
    WEIGHTS = 6  # of each vote of a tree: the weights of its leaves
    SUMS = 7  # [target][row]
    COLUMN = 8  # from target to target
    TARGET_COUNT = 9
    TREE_COUNT = 10
    BLOCKS = 11  # of as many rows as a vector has lanes
    AT_ONCE = 12  # of an item


_NUMBERS = frozenset({Arg.STEP, *range(Arg.COLUMN, Arg.AT_ONCE + 1)})


@record(frozen=True, slots=True)
class CrossOut:
    """Sums of the votes of the leaves that rows come to; an item is some blocks of rows. ``small``: trees have one word."""

    small: bool

    def emit(self, f: Emitter) -> None:
        a = {slot: f.arg(slot, I64 if slot in _NUMBERS else PTR) for slot in Arg}
        with f.items() as item:
            first = f.mul(item, a[Arg.AT_ONCE])
            end = f.smallest(f.add(first, a[Arg.AT_ONCE]), a[Arg.BLOCKS])
            with f.loop(0, a[Arg.TARGET_COUNT]) as column, f.loop(first, end) as block:
                f.store(f.vec(), "zeroinitializer", self._sum(f, a, column.index, block.index))
            carried = [(I64, "0")] * 3 + [(PTR, a[Arg.WEIGHTS])]
            with f.loop(0, a[Arg.TREE_COUNT], 1, carried) as tree:
                condition, word, vote, weights = tree.vars
                told = f.at(a[Arg.TREES], f.shl(tree.index, 3))
                words, votes = (_number(f, f.at(told, at)) for at in (0, 4))
                size = f.mul(f.sub(words, word), 4 * WORD)
                with f.loop(first, end) as block:
                    x = f.at(a[Arg.X], f.mul(block.index, 4 * f.lanes))
                    leaf = self._leaf(f, a, x, condition, word, words)
                    with f.loop(vote, votes, 1, [(PTR, weights)]) as each:
                        target = _number(f, f.at(a[Arg.TARGETS], f.shl(each.index, 2)))
                        to = self._sum(f, a, target, block.index)
                        given = self._weight(f, each.vars[0], leaf)
                        f.store(f.vec(), f.value(f"fadd {f.vec()} {f.load(f.vec(), to)}, {given}"), to)
                        each.next = [f.at(each.vars[0], size)]
                passed = _number(f, f.at(a[Arg.WORDS], f.shl(f.sub(words, 1), 2)))
                tree.next = [passed, words, votes, f.at(weights, f.mul(f.sub(votes, vote), size))]

    def _sum(self, f: Emitter, a: dict[Arg, str], target: str, block: str) -> str:
        return f.at(f.at(a[Arg.SUMS], f.mul(target, a[Arg.COLUMN])), f.mul(block, 4 * f.lanes))

    def _leaf(self, f: Emitter, a: dict[Arg, str], x: str, condition: str, word: str, words: str) -> str:
        """The leaf of each row of a block."""
        v, ints, bools = f.vec(), f.vec(I32), f.vec("i1")

        def left(start: str, stop: str) -> str:
            """The leaves of a word that are not crossed out."""
            at = f.at(a[Arg.CONDITIONS], f.mul(start, CONDITION))
            with f.loop(start, stop, TOGETHER, [(ints, "splat (i32 -1)"), (PTR, at)]) as loop:
                stay, at = loop.vars
                for number in range(TOGETHER):
                    here = f.at(at, CONDITION * number)
                    value = f.load(v, f.at(x, f.mul(_number(f, here), a[Arg.STEP])))
                    fails = f.value(f"fcmp ugt {v} {value}, {f.splat(f.load(F32, f.at(here, 4)))}")
                    fewer = f.value(f"and {ints} {stay}, {f.splat(f.load(I32, f.at(here, 8)), I32)}")
                    stay = f.value(f"select {bools} {fails}, {ints} {fewer}, {ints} {stay}")
                loop.next = [stay, f.at(at, CONDITION * TOGETHER)]
            return loop.vars[0]

        def lowest(stay: str) -> str:
            return f.intrinsic(f"llvm.cttz.v{f.lanes}i32", ints, (ints, stay), ("i1", "false"))

        if self.small:
            return lowest(left(condition, _number(f, f.at(a[Arg.WORDS], f.shl(word, 2)))))
        with f.loop(word, words, 1, [(ints, "zeroinitializer"), (I64, condition)]) as each:
            stop = _number(f, f.at(a[Arg.WORDS], f.shl(each.index, 2)))
            stay = left(each.vars[1], stop)
            base = f.shl(f.sub(f.sub(words, 1), each.index), WORD.bit_length() - 1)
            base = f.splat(f.value(f"trunc i64 {base} to i32"), I32)
            found = f.value(f"or {ints} {lowest(stay)}, {base}")
            some = f.value(f"icmp ne {ints} {stay}, zeroinitializer")
            each.next = [f.value(f"select {bools} {some}, {ints} {found}, {ints} {each.vars[0]}"), stop]
        return each.vars[0]

    def _weight(self, f: Emitter, weights: str, leaf: str) -> str:
        """The weights of leaves."""
        v, ints, n = f.vec(), f.vec(I32), f.lanes
        if self.small and f.target.name == "avx512":
            low, high = (f.load(v, f.at(weights, at)) for at in (0, 4 * n))
            return f.intrinsic("llvm.x86.avx512.vpermi2var.ps.512", v, (v, low), (ints, leaf), (v, high))
        wide = f.value(f"zext {ints} {leaf} to {f.vec(I64)}")
        places = f.value(f"getelementptr float, ptr {weights}, {f.vec(I64)} {wide}")
        return f.intrinsic(
            f"llvm.masked.gather.v{n}f32.v{n}p0", v,
            (f.vec(PTR), places), (I32, "4"), (f.vec("i1"), "splat (i1 true)"), (v, "zeroinitializer"),
        )  # fmt: skip


def _number(f: Emitter, where: str) -> str:
    return f.value(f"sext i32 {f.load(I32, where)} to i64")
