"""From the decisions of one-against-one machines to classes and their probabilities; the lanes of a vector are rows.

Decisions are [pair][row], pairs i < j in the order of i, then j. An item is a vector of rows.
"""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I32, I64, PTR, Emitter, float_text

TURNS = 100
"""Iterations after which probabilities are taken as they are."""
NEAR = 0.005
"""Over the number of classes: the error at which a row has converged."""


@record(frozen=True, slots=True)
class Votes:
    """The first class with most votes: of the pair i < j a positive decision is one for i. Arguments: classes (int64), decisions,
    bytes from pair to pair, number of classes, rows."""

    def emit(self, f: Emitter) -> None:
        out, decisions = f.arg(0, PTR), f.arg(1, PTR)
        step, classes, rows = (f.arg(i) for i in range(2, 5))
        ints, bools = f.vec(I32), f.vec("i1")
        with f.items() as item:
            row = f.mul(item, f.lanes)
            mask = f.lanes_below(f.sub(rows, row))
            here = f.at(decisions, f.shl(row, 2))

            def won(pair: str, here: str = here, mask: str = mask) -> str:
                decision = f.load_masked(F32, f.at(here, f.mul(pair, step)), mask)
                return f.value(f"fcmp ogt {f.vec()} {decision}, zeroinitializer")

            with f.loop(0, classes, 1, [(ints, "splat (i32 -1)"), (ints, "zeroinitializer")]) as i:
                with f.loop(f.add(i.index, 1), classes, 1, [(ints, "zeroinitializer")]) as j:
                    gained = f.value(f"zext {bools} {won(_pair(f, i.index, j.index, classes))} to {ints}")
                    j.next = [f.value(f"add {ints} {j.vars[0]}, {gained}")]
                with f.loop(0, i.index, 1, [(ints, j.vars[0])]) as j:
                    lost = f.value(f"xor {bools} {won(_pair(f, j.index, i.index, classes))}, splat (i1 true)")
                    j.next = [f.value(f"add {ints} {j.vars[0]}, {f.value(f'zext {bools} {lost} to {ints}')}")]
                (votes,) = j.vars
                most, place = i.vars
                better = f.value(f"icmp sgt {ints} {votes}, {most}")
                number = f.splat(f.value(f"trunc i64 {i.index} to i32"), I32)
                i.next = [
                    f.value(f"select {bools} {better}, {ints} {votes}, {ints} {most}"),
                    f.value(f"select {bools} {better}, {ints} {number}, {ints} {place}"),
                ]
            result = f.value(f"sext {ints} {i.vars[1]} to {f.vec(I64)}")
            f.store_masked(I64, result, f.at(out, f.shl(row, 3)), mask, 8)


@record(frozen=True, slots=True)
class Couple:
    """Class probabilities [class][row] from those of pairs, by the iteration of ``onnxplug_kernels.ops.ml_linear`` (Wu, Lin, Weng
    2004, second method; libsvm). Arguments: probabilities, those of pairs, bytes from pair (and class) to the next, number of
    classes, rows."""

    def emit(self, f: Emitter) -> None:
        out, pairs = f.arg(0, PTR), f.arg(1, PTR)
        step, classes, rows = (f.arg(i) for i in range(2, 5))
        v, unit = f.vec(), 4 * f.lanes
        q_step = f.mul(classes, unit)
        room = f.value(f"alloca i8, i64 {f.mul(f.add(classes, 3), q_step)}, align 64")
        at: dict[str, str] = {"q": room}
        for name, before in (("p", "q"), ("new", "p"), ("qp", "new")):
            at[name] = f.at(at[before], f.mul(q_step, classes) if before == "q" else q_step)
        count = f.value(f"sitofp i64 {classes} to float")
        even = f.splat(f.value(f"fdiv float 1.0, {count}"))
        near = f.splat(f.value(f"fdiv float {float_text(NEAR)}, {count}"))
        with f.items() as item:
            row = f.mul(item, f.lanes)
            mask = f.lanes_below(f.sub(rows, row))
            self._matrix(f, at, f.at(pairs, f.shl(row, 2)), step, classes, q_step, mask)
            with f.loop(0, classes) as i:
                f.store(v, even, self._of(f, at["p"], i.index))
            self._iterate(f, at, classes, q_step, near, mask)
            with f.loop(0, classes) as i:
                where = f.at(f.at(out, f.shl(row, 2)), f.mul(i.index, step))
                f.store_masked(F32, f.load(v, self._of(f, at["p"], i.index)), where, mask)

    def _of(self, f: Emitter, base: str, index: str) -> str:
        return f.at(base, f.mul(index, 4 * f.lanes))

    def _matrix(
        self, f: Emitter, at: dict[str, str], pairs: str, step: str, classes: str, q_step: str, mask: str
    ) -> None:
        """q_ij = -r_ij r_ji, and on the diagonal the sum of r_ji^2 over j."""
        v = f.vec()
        with f.loop(0, classes) as i:
            line = f.at(at["q"], f.mul(i.index, q_step))
            with f.loop(0, classes, 1, [(v, "zeroinitializer")]) as j:
                low, high = f.smallest(i.index, j.index), f.select(f.less(i.index, j.index), I64, j.index, i.index)
                same = f.value(f"icmp eq i64 {low}, {high}")
                pair = f.select(same, I64, "0", _pair(f, low, high, classes))
                r = f.load_masked(F32, f.at(pairs, f.mul(pair, step)), mask)
                rest = f.value(f"fsub {v} {f.constant(1.0)}, {r}")
                theirs = f.value(
                    f"select i1 {f.less(i.index, j.index)}, {v} {rest}, {v} {r}"
                )  # r_ji: r belongs to the lower one
                product = f.value(f"fneg {v} {f.value(f'fmul {v} {r}, {rest}')}")
                f.store(v, product, self._of(f, line, j.index))
                more = f.value(f"fadd {v} {j.vars[0]}, {f.value(f'fmul {v} {theirs}, {theirs}')}")
                j.next = [f.select(same, v, j.vars[0], more)]
            f.store(v, j.vars[0], self._of(f, line, i.index))

    def _iterate(self, f: Emitter, at: dict[str, str], classes: str, q_step: str, near: str, mask: str) -> None:
        v, bools = f.vec(), f.vec("i1")
        with f.loop(0, TURNS, 1, [("i1", "true")]) as turn:
            going, done = f.label("going"), f.label("done")
            before = f.block
            f.do(f"br i1 {turn.vars[0]}, label %{going}, label %{done}")
            f.start(going)
            (total,) = self._products(f, at, classes, q_step)
            with f.loop(0, classes, 1, [(v, "zeroinitializer")]) as i:
                error = f.value(f"fsub {v} {f.load(v, self._of(f, at['qp'], i.index))}, {total}")
                error = f.intrinsic(f"llvm.fabs.v{f.lanes}f32", v, (v, error))
                larger = f.value(f"fcmp ogt {v} {error}, {i.vars[0]}")
                i.next = [f.value(f"select {bools} {larger}, {v} {error}, {v} {i.vars[0]}")]
            active = f.value(f"and {bools} {f.value(f'fcmp oge {v} {i.vars[0]}, {near}')}, {mask}")
            some = f.intrinsic(f"llvm.vector.reduce.or.v{f.lanes}i1", "i1", (bools, active))
            with f.when(some):
                self._turn(f, at, classes, q_step, total, active)
            last = f.block
            f.do(f"br label %{done}")
            f.start(done)
            turn.next = [f.value(f"phi i1 [false, %{before}], [{some}, %{last}]")]

    def _products(self, f: Emitter, at: dict[str, str], classes: str, q_step: str) -> list[str]:
        """qp = q p, and a copy of p; returns p.qp."""
        v = f.vec()
        with f.loop(0, classes, 1, [(v, "zeroinitializer")]) as i:
            line = f.at(at["q"], f.mul(i.index, q_step))
            with f.loop(0, classes, 1, [(v, "zeroinitializer")]) as j:
                q, p = f.load(v, self._of(f, line, j.index)), f.load(v, self._of(f, at["p"], j.index))
                j.next = [f.fma(q, p, j.vars[0])]
            f.store(v, j.vars[0], self._of(f, at["qp"], i.index))
            mine = f.load(v, self._of(f, at["p"], i.index))
            f.store(v, mine, self._of(f, at["new"], i.index))
            i.next = [f.fma(mine, j.vars[0], i.vars[0])]
        return i.vars

    def _turn(self, f: Emitter, at: dict[str, str], classes: str, q_step: str, total: str, active: str) -> None:
        v, one = f.vec(), f.constant(1.0)
        with f.loop(0, classes, 1, [(v, total)]) as i:
            line = f.at(at["q"], f.mul(i.index, q_step))
            own = f.load(v, self._of(f, line, i.index))
            qp = f.load(v, self._of(f, at["qp"], i.index))
            diff = f.value(f"fdiv {v} {f.value(f'fsub {v} {i.vars[0]}, {qp}')}, {own}")
            mine = self._of(f, at["new"], i.index)
            f.store(v, f.value(f"fadd {v} {f.load(v, mine)}, {diff}"), mine)
            scale = f.value(f"fdiv {v} {one}, {f.value(f'fadd {v} {one}, {diff}')}")
            twice = f.fma(diff, own, f.value(f"fadd {v} {qp}, {qp}"))
            grown = f.value(f"fmul {v} {f.fma(diff, twice, i.vars[0])}, {f.value(f'fmul {v} {scale}, {scale}')}")
            i.next = [grown]
            with f.loop(0, classes) as j:
                where = self._of(f, at["qp"], j.index)
                moved = f.fma(diff, f.load(v, self._of(f, line, j.index)), f.load(v, where))
                f.store(v, f.value(f"fmul {v} {moved}, {scale}"), where)
                where = self._of(f, at["new"], j.index)
                f.store(v, f.value(f"fmul {v} {f.load(v, where)}, {scale}"), where)
        with f.loop(0, classes) as i:
            where = self._of(f, at["p"], i.index)
            new = f.load(v, self._of(f, at["new"], i.index))
            f.store(v, f.value(f"select {f.vec('i1')} {active}, {v} {new}, {v} {f.load(v, where)}"), where)


def _pair(f: Emitter, low: str, high: str, classes: str) -> str:
    """The number of a pair low < high: low * classes - low * (low + 1) / 2 + high - low - 1."""
    before = f.value(f"lshr i64 {f.mul(low, f.add(low, 1))}, 1")
    return f.sub(f.add(f.sub(f.mul(low, classes), before), f.sub(high, low)), 1)
