"""Mixtures of experts: which experts a row's scores choose, rows in the order of their experts, products with their weights, and the
weighted sum of what comes out."""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, I64, PTR, Emitter, float_text
from onnxplug_ep_cpu.codegen.kernels import nbits
from onnxplug_ep_cpu.codegen.kernels.nbits import VECTORS, NBits


@record(frozen=True, slots=True)
class Chosen:
    """The experts of the highest scores of each row, the last of equal ones, and their shares. An item is a row. Arguments: scores and
    weights (rows, experts), flags (rows, experts) of 32 bits, experts (rows, k) of 32 bits, shares (rows, k), and the two sizes.
    ``normalized``: shares are divided by their sum; all are 0 where that is."""

    normalized: bool

    def emit(self, f: Emitter) -> None:
        scores, weights, flags, chosen, shares = (f.arg(slot, PTR) for slot in range(5))
        experts, count = f.arg(5), f.arg(6)
        lowest = float_text(float("-inf"))
        with f.items() as row:
            start = f.shl(f.mul(row, experts), 2)
            score, weight, taken = (f.at(p, start) for p in (scores, weights, flags))
            expert, share = (f.at(p, f.shl(f.mul(row, count), 2)) for p in (chosen, shares))
            with f.loop(0, experts) as e:
                f.store(I32, "0", f.at(taken, f.shl(e.index, 2)))
            with f.loop(0, count, 1, [(F32, float_text(0.0))]) as turn:
                with f.loop(0, experts, 1, [(F32, lowest), (I64, "0")]) as e:
                    at = f.shl(e.index, 2)
                    here = f.load(F32, f.at(score, at))
                    free = f.value(f"icmp eq i32 {f.load(I32, f.at(taken, at))}, 0")
                    # What is no number counts as the best: as many experts are found whatever the scores are.
                    best = f.value(f"and i1 {free}, {f.value(f'fcmp uge float {here}, {e.vars[0]}')}")
                    e.next = [f.select(best, F32, here, e.vars[0]), f.select(best, I64, e.index, e.vars[1])]
                at = f.shl(e.vars[1], 2)
                f.store(I32, "1", f.at(taken, at))
                part = f.load(F32, f.at(weight, at))
                f.store(I32, f.value(f"trunc i64 {e.vars[1]} to i32"), f.at(expert, f.shl(turn.index, 2)))
                f.store(F32, part, f.at(share, f.shl(turn.index, 2)))
                turn.next = [f.value(f"fadd float {turn.vars[0]}, {part}")]
            if self.normalized:
                nothing, zero = f.value(f"fcmp oeq float {turn.vars[0]}, {float_text(0.0)}"), float_text(0.0)
                with f.loop(0, count) as turn_:
                    at = f.at(share, f.shl(turn_.index, 2))
                    part = f.value(f"fdiv float {f.load(F32, at)}, {turn.vars[0]}")
                    f.store(F32, f.select(nothing, F32, zero, part), at)


@record(frozen=True, slots=True)
class Sorted:
    """Pairs of a row and an expert in the order of experts, by counting. One item. Arguments: experts (pairs) of 32 bits; starts
    (experts + 1) and cursors (experts + 1) of 64 bits: where each expert's pairs begin; pairs in order and the place of each pair, of 64
    bits; numbers of pairs and experts."""

    def emit(self, f: Emitter) -> None:
        chosen, starts, cursors, order, places = (f.arg(slot, PTR) for slot in range(5))
        pairs, experts = f.arg(5), f.arg(6)

        def expert(pair: str) -> str:
            number = f.load(I32, f.at(chosen, f.shl(pair, 2)))
            return f.shl(f.value(f"sext i32 {number} to i64"), 3)

        with f.items():
            with f.loop(0, f.add(experts, 1)) as e:
                f.store(I64, "0", f.at(starts, f.shl(e.index, 3)), 8)
            with f.loop(0, pairs) as pair:
                at = f.at(starts, f.add(expert(pair.index), 8))
                f.store(I64, f.add(f.load(I64, at, 8), 1), at, 8)
            with f.loop(0, f.add(experts, 1), 1, [(I64, "0")]) as e:
                at = f.at(starts, f.shl(e.index, 3))
                total = f.add(e.vars[0], f.load(I64, at, 8))
                f.store(I64, total, at, 8)
                f.store(I64, total, f.at(cursors, f.shl(e.index, 3)), 8)
                e.next = [total]
            with f.loop(0, pairs) as pair:
                at = f.at(cursors, expert(pair.index))
                place = f.load(I64, at, 8)
                f.store(I64, f.add(place, 1), at, 8)
                f.store(I64, pair.index, f.at(order, f.shl(place, 3)), 8)
                f.store(I64, place, f.at(places, f.shl(pair.index, 3)), 8)


@record(frozen=True, slots=True)
class Taken:
    """Rows in the order of their experts. An item is a place. Arguments: to, rows, pairs in order, pairs of a row, floats of a row."""

    def emit(self, f: Emitter) -> None:
        to, rows, order = (f.arg(slot, PTR) for slot in range(3))
        count, width = f.arg(3), f.arg(4)
        size = f.shl(width, 2)
        with f.items() as place:
            row = f.div(f.load(I64, f.at(order, f.shl(place, 3)), 8), count)
            source, target = f.at(rows, f.mul(row, size)), f.at(to, f.mul(place, size))
            f.intrinsic("llvm.memcpy.p0.p0.i64", "void", (PTR, target), (PTR, source), (I64, size), ("i1", "false"))


@record(frozen=True, slots=True)
class Combined:
    """The sum of a row's results by their shares. An item is a row. Arguments: to (rows, width), results, places of pairs, shares,
    pairs of a row, floats of a row, bytes from one result to the next."""

    def emit(self, f: Emitter) -> None:
        to, results, places, shares = (f.arg(slot, PTR) for slot in range(4))
        count, width, step = (f.arg(slot) for slot in range(4, 7))
        v = f.vec()
        with f.items() as row:
            target = f.at(to, f.shl(f.mul(row, width), 2))
            first = f.mul(row, count)
            with f.loop(0, width, f.lanes) as column:
                at = f.shl(column.index, 2)
                mask = f.lanes_below(f.sub(width, column.index))
                with f.loop(0, count, 1, [(v, "zeroinitializer")]) as turn:
                    pair = f.add(first, turn.index)
                    place = f.load(I64, f.at(places, f.shl(pair, 3)), 8)
                    share = f.splat(f.load(F32, f.at(shares, f.shl(pair, 2))))
                    result = f.load_masked(F32, f.at(f.at(results, f.mul(place, step)), at), mask)
                    turn.next = [f.fma(share, result, turn.vars[0])]
                f.store_masked(F32, turn.vars[0], f.at(target, at), mask)


class Arg(IntEnum):
    """Slots of the arguments of ``Experts``; strides are in bytes."""

    A = 0
    B = 1  # [expert][panel], a panel as NBits has it
    SCALES = 2
    OFFSETS = 3
    BIAS = 4  # [expert][panel][vector][lane]
    C = 5
    STARTS = 6
    K = 7
    LDA = 8
    LDC = 9
    PANEL = 10
    BLOCKS = 11
    PANELS = 12


@record(frozen=True, slots=True)
class Experts:
    """The rows of each expert, which lie beside each other, times its weights, plus its bias. An item is a panel of an expert's columns;
    an expert without rows costs nothing."""

    product: NBits
    biased: bool

    def emit(self, f: Emitter) -> None:
        one, width = self.product, VECTORS * f.lanes
        held = "" if one.bits == 32 else f.value(f"alloca [{one.depth * width} x float], align 64")
        a = {slot: f.arg(slot, PTR if slot < Arg.K else I64) for slot in Arg}
        given = {nbits.Arg[name]: a[Arg[name]] for name in ("K", "LDA", "LDC")}
        with f.items() as item:
            panel, expert = f.rem(item, a[Arg.PANELS]), f.div(item, a[Arg.PANELS])
            at = f.at(a[Arg.STARTS], f.shl(expert, 3))
            first, end = f.load(I64, at, 8), f.load(I64, f.at(at, 8), 8)
            count = f.sub(end, first)
            with f.when(f.less(0, count)):
                scaled = f.mul(f.mul(item, a[Arg.BLOCKS]), 4 * width)
                scales, offsets = f.at(a[Arg.SCALES], scaled), f.at(a[Arg.OFFSETS], scaled)
                packed = f.at(a[Arg.B], f.mul(item, a[Arg.PANEL]))
                bias = f.at(a[Arg.BIAS], f.mul(item, 4 * width)) if self.biased else None
                x = f.at(a[Arg.A], f.mul(first, a[Arg.LDA]))
                c = f.at(f.at(a[Arg.C], f.mul(first, a[Arg.LDC])), f.mul(panel, 4 * width))
                ranges, rows, start = [], one.rows, "0"
                while rows >= 1:  # what tiles of so many rows leave is done by smaller ones
                    stop = f.sub(count, f.rem(f.sub(count, start), rows))
                    ranges.append((rows, start, stop))
                    rows, start = rows // 2, stop
                one.columns(f, given, held, (packed, scales, offsets), x, c, ranges, bias)
