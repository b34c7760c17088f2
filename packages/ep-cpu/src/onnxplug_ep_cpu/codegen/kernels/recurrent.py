"""The recurrence of RNN, GRU and LSTM: per step a product of the last state with packed weights, gates applied in registers.

Weights lie as [direction][block of ``lanes`` hidden units][k][gate][lane], k and units padded with zeros, so one pass over a
block's weights gives every gate of its units. The state is kept twice, read from one copy and written to the other by turns;
the cell of an LSTM is only read by who writes it and kept once. Units of the padding stay 0 in what is multiplied: an infinite
state times their weights is NaN, which the next product would spread to all units.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.gather import read_index

_Finish = Callable[[str, list[str]], None]

UNROLL = 4
"""Steps of k in one turn of the loop; the hidden size is padded to a multiple of it."""
CHAINS = 8
"""Independent sums that hide the latency of a multiply-add."""


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes."""

    SUMS = 0  # projected inputs, [gate][unit] innermost
    WEIGHTS = 1
    STATE = 2
    CELL = 3
    Y = 4
    BIAS = 5  # GRU: recurrent bias of the hidden gate
    PEEPHOLES = 6  # [direction][input, output, forget][padded unit]
    LENGTHS = 7
    RESET = 8  # GRU: reset gate times state; update gates behind it
    SECOND = 9  # GRU: weights of the hidden gate where it comes second
    FIRST = 10  # steps FIRST..END of STEPS are done
    END = 11
    STEPS = 12
    BATCH = 13
    HIDDEN = 14
    DEPTH = 15  # padded hidden size
    BLOCKS = 16
    GROUP = 17  # blocks of units of one item
    GROUPS = 18
    PART = 19  # batch rows of one item
    PARTS = 20
    BACKWARD = 21  # directions from here on go backward in time
    PHASES = 22  # bit 0: gates of the state; bit 1: the gate of what they made
    SUMS_T = 23
    SUMS_B = 24
    SUMS_D = 25
    Y_T = 26
    Y_D = 27
    Y_B = 28
    PARITY = 29  # from one copy of the state to the other
    UPDATES = 30  # from the reset gates to the update gates


_POINTERS = frozenset(
    {Arg.SUMS, Arg.WEIGHTS, Arg.STATE, Arg.CELL, Arg.Y, Arg.BIAS, Arg.PEEPHOLES, Arg.LENGTHS, Arg.RESET, Arg.SECOND}
)


@record(frozen=True, slots=True)
class Recurrence:
    """One or many steps; an item is (direction, part of the batch, group of blocks of units).

    ``cell`` is "rnn", "lstm", "gru" (the reset gate multiplies the product) or "gru_reset" (it multiplies the state before the
    product, which makes two phases of a step). ``activations`` are the functions f, g, h of the operator.
    """

    cell: str
    rows: int
    activations: tuple[ex.Expr, ...]
    peepholes: bool = False
    lengths: bool = False
    coupled: bool = False

    @property
    def gates(self) -> int:
        """Gates of the state's product."""
        return {"rnn": 1, "lstm": 4, "gru": 3, "gru_reset": 2}[self.cell]

    def emit(self, f: Emitter) -> None:
        a = {slot: f.arg(slot, PTR if slot in _POINTERS else "i64") for slot in Arg}
        with f.items() as item:
            group, rest = f.rem(item, a[Arg.GROUPS]), f.div(item, a[Arg.GROUPS])
            part, d = f.rem(rest, a[Arg.PARTS]), f.div(rest, a[Arg.PARTS])
            units = part_of(f, group, a[Arg.GROUP], a[Arg.BLOCKS])
            batch = part_of(f, part, a[Arg.PART], a[Arg.BATCH])
            backward = f.value(f"icmp sge i64 {d}, {a[Arg.BACKWARD]}")
            with f.loop(a[Arg.FIRST], a[Arg.END]) as step:
                last = f.sub(f.sub(a[Arg.STEPS], 1), step.index)
                t = f.select(backward, "i64", last, step.index)
                turn = _Turn(f, self, a, d, t, step.index)
                if self.cell == "gru_reset":
                    self._two_phases(f, a, turn, units, batch)
                else:
                    turn.phase(units, batch, range(self.gates), a[Arg.WEIGHTS], turn.old, turn.finish)

    def _two_phases(
        self, f: Emitter, a: dict[Arg, str], turn: _Turn, units: tuple[str, str], batch: tuple[str, str]
    ) -> None:
        for bit, gates, weights, operand, finish in (
            (1, range(2), a[Arg.WEIGHTS], turn.old, turn.reset),
            (2, range(2, 3), a[Arg.SECOND], turn.scaled, turn.renew),
        ):
            with f.when(f.value(f"icmp ne i64 {f.and_(a[Arg.PHASES], bit)}, 0")):
                turn.phase(units, batch, gates, weights, operand, finish)


@record(frozen=True, slots=True)
class Lengths:
    """Sets the status word where a length is not in 0..steps. Arguments: lengths, status, their number, steps + 1."""

    def emit(self, f: Emitter) -> None:
        lengths, status, count, end = f.arg(0, PTR), f.arg(1, PTR), f.arg(2), f.arg(3)
        with f.items(), f.loop(0, count) as i:
            read_index(f, 32, f.at(lengths, f.shl(i.index, 2)), end, status, negative=False)


class _Turn:
    """One time step of one direction while it is being written."""

    def __init__(self, f: Emitter, kernel: Recurrence, a: dict[Arg, str], d: str, t: str, step: str) -> None:
        self.f, self.kernel, self.a, self.d, self.t = f, kernel, a, d, t
        self.row = f.shl(a[Arg.DEPTH], 2)
        whole = f.mul(a[Arg.BATCH], self.row)
        at = f.mul(d, whole)
        odd = f.mul(f.and_(step, 1), a[Arg.PARITY])
        state = f.at(a[Arg.STATE], at)
        self.old = f.at(state, odd)
        self.new = f.at(state, f.sub(a[Arg.PARITY], odd))
        self.cell = f.at(a[Arg.CELL], at)
        self.scaled = f.at(a[Arg.RESET], at)
        self.updates = f.at(self.scaled, a[Arg.UPDATES])
        self.sums = f.at(a[Arg.SUMS], f.add(f.mul(t, a[Arg.SUMS_T]), f.mul(d, a[Arg.SUMS_D])))
        self.y = f.at(a[Arg.Y], f.add(f.mul(t, a[Arg.Y_T]), f.mul(d, a[Arg.Y_D])))
        self.bias = f.at(a[Arg.BIAS], f.mul(d, self.row))
        self.holes = f.at(a[Arg.PEEPHOLES], f.mul(d, f.mul(self.row, 3)))

    def phase(
        self, units: tuple[str, str], batch: tuple[str, str], gates: range, weights: str, operand: str, finish: _Finish
    ) -> None:
        """Every block of units: its product for each batch row, then ``finish(b, sums)``."""
        f, a, rows = self.f, self.a, self.kernel.rows
        block = f.mul(a[Arg.DEPTH], 4 * f.lanes * len(gates))
        base = f.at(weights, f.mul(self.d, f.mul(a[Arg.BLOCKS], block)))
        low, end = batch
        counts, bounds = [rows], []
        while counts[-1] > 1:
            counts.append(-(-counts[-1] // 2))
        for count in counts:
            high = f.add(low, f.mul(f.div(f.sub(end, low), count), count))
            bounds.append((count, low, high))
            low = high
        with f.loop(*units) as unit:
            packed = f.at(base, f.mul(unit.index, block))
            self.start = f.mul(unit.index, 4 * f.lanes)
            self.mask = f.lanes_below(f.sub(a[Arg.HIDDEN], f.mul(unit.index, f.lanes)))
            for count, low, high in bounds:
                with f.loop(low, high, count) as b:
                    starts = [f.at(operand, f.mul(f.add(b.index, i), self.row)) for i in range(count)]
                    for i, gate in itertools.product(range(count), gates):  # far apart: no processor foresees them
                        f.prefetch(self._where(f.add(b.index, i), gate))
                    for i, sums in enumerate(self._product(starts, packed, len(gates))):
                        finish(f.add(b.index, i), sums)

    def _product(self, starts: list[str], packed: str, gates: int) -> list[list[str]]:
        """[row][gate] sums over k, in one order however many rows there are: threads divide the batch in different ways."""
        f, v = self.f, self.f.vec()
        each = len(starts) * gates
        ways = min(UNROLL, -(-CHAINS // (self.kernel.rows * gates)))
        zeros = [(v, "zeroinitializer")] * each * ways
        order = [(r, g) for g in range(gates) for r in range(len(starts))]  # the elements of a k stay in registers
        if len(starts) > gates:  # its weights do
            order.sort()
        with f.loop(0, self.a[Arg.DEPTH], UNROLL, zeros) as loop:
            sums = list(loop.vars)
            at = f.at(packed, f.mul(loop.index, 4 * f.lanes * gates))
            here = [f.at(start, f.shl(loop.index, 2)) for start in starts]
            for k in range(UNROLL):
                weight = functools.cache(lambda g, k=k: f.load(v, f.at(at, 4 * f.lanes * (k * gates + g))))
                x = functools.cache(lambda r, k=k: f.splat(f.load(F32, f.at(here[r], 4 * k))))
                for r, g in order:
                    i = (k % ways) * each + r * gates + g
                    sums[i] = f.fma(x(r), weight(g), sums[i])
            loop.next = sums
        total = loop.vars[:each]
        for way in range(1, ways):
            total = [f.value(f"fadd {v} {x}, {loop.vars[way * each + i]}") for i, x in enumerate(total)]
        return [total[r * gates : (r + 1) * gates] for r in range(len(starts))]

    # ---- the end of a step

    def finish(self, b: str, sums: list[str]) -> None:
        """The new state of a row's block."""
        f, v, kernel = self.f, self.f.vec(), self.kernel
        state_at = f.add(f.mul(b, self.row), self.start)
        old = f.load(v, f.at(self.old, state_at))
        if kernel.cell == "lstm":
            new = self._lstm(b, sums, state_at)
        elif kernel.cell == "rnn":
            new = self._apply(0, self._gate(b, 0, sums[0]))
        else:
            update = self._apply(0, self._gate(b, 0, sums[0]))
            reset = self._apply(0, self._gate(b, 1, sums[1]))
            inner = f.value(f"fadd {v} {sums[2]}, {f.load(v, f.at(self.bias, self.start))}")
            inner = self._apply(1, f.fma(reset, inner, self._projected(b, 2)))
            new = self._mix(update, inner, old)
        self._store(b, state_at, new, old)

    def _lstm(self, b: str, sums: list[str], state_at: str) -> str:
        f, v, kernel = self.f, self.f.vec(), self.kernel
        cell_at = f.at(self.cell, state_at)
        cell = f.load(v, cell_at)

        def gate(index: int, seen: str) -> str:
            value = self._gate(b, index, sums[index])
            if kernel.peepholes and index < 3:
                weight = f.load(v, f.at(f.at(self.holes, f.mul(self.row, index)), self.start))
                value = f.fma(weight, seen, value)
            return value

        changed, new = lstm_step(f, kernel.activations, kernel.coupled, gate, cell, f.fma)
        f.store(v, self._if_alive(b, changed, cell), cell_at)
        return new

    def reset(self, b: str, sums: list[str]) -> None:
        """Where the reset gate multiplies the state: both gates, kept for the second phase."""
        f, v = self.f, self.f.vec()
        state_at = f.add(f.mul(b, self.row), self.start)
        old = f.load(v, f.at(self.old, state_at))
        f.store(v, self._apply(0, self._gate(b, 0, sums[0])), f.at(self.updates, state_at))
        scaled = f.value(f"fmul {v} {self._apply(0, self._gate(b, 1, sums[1]))}, {old}")
        f.store(v, self._without_padding(scaled), f.at(self.scaled, state_at))

    def renew(self, b: str, sums: list[str]) -> None:
        """The second phase: the hidden gate from the state that was reset."""
        f, v = self.f, self.f.vec()
        state_at = f.add(f.mul(b, self.row), self.start)
        old, update = f.load(v, f.at(self.old, state_at)), f.load(v, f.at(self.updates, state_at))
        self._store(b, state_at, self._mix(update, self._apply(1, self._gate(b, 2, sums[0])), old), old)

    def _mix(self, update: str, new: str, old: str) -> str:
        f, v = self.f, self.f.vec()
        kept = f.value(f"fsub {v} {f.constant(1.0)}, {update}")
        return f.fma(kept, new, f.value(f"fmul {v} {update}, {old}"))

    def _where(self, b: str, gate: int) -> str:
        """The projected input of a gate of a row's block."""
        f, a = self.f, self.a
        at = f.at(self.sums, f.add(f.mul(b, a[Arg.SUMS_B]), self.start))
        return f.at(at, f.mul(a[Arg.HIDDEN], 4 * gate))

    def _projected(self, b: str, gate: int) -> str:
        return self.f.load_masked(F32, self._where(b, gate), self.mask)

    def _gate(self, b: str, gate: int, total: str) -> str:
        return self.f.value(f"fadd {self.f.vec()} {total}, {self._projected(b, gate)}")

    def _apply(self, function: int, x: str) -> str:
        return ex.emit(self.f, self.kernel.activations[function], [x])

    def _alive(self, b: str) -> str:
        f = self.f
        length = f.value(f"sext i32 {f.load(I32, f.at(self.a[Arg.LENGTHS], f.shl(b, 2)))} to i64")
        return f.less(self.t, length)

    def _if_alive(self, b: str, new: str, old: str) -> str:
        return self.f.select(self._alive(b), self.f.vec(), new, old) if self.kernel.lengths else new

    def _without_padding(self, x: str) -> str:
        f, v = self.f, self.f.vec()
        return f.value(f"select <{f.lanes} x i1> {self.mask}, {v} {x}, {v} zeroinitializer")

    def _store(self, b: str, state_at: str, new: str, old: str) -> None:
        f, v = self.f, self.f.vec()
        new = self._without_padding(new)
        shown = self._if_alive(b, new, "zeroinitializer")
        f.store(v, self._if_alive(b, new, old), f.at(self.new, state_at))
        f.store_masked(F32, shown, f.at(self.y, f.add(f.mul(b, self.a[Arg.Y_B]), self.start)), self.mask)


def lstm_step(
    f: Emitter,
    activations: tuple[ex.Expr, ...],
    coupled: bool,
    gate: Callable[[int, str], str],
    cell: str,
    multiply_add: Callable[[str, str, str], str],
) -> tuple[str, str]:
    """The new cell and state of an LSTM. ``gate(i, cell)`` is what an activation is applied to: of the input, output and forget
    gate, which may see the cell, and of what is added to it; ``coupled``: what is not added is kept."""
    v = f.vec()

    def apply(function: int, x: str) -> str:
        return ex.emit(f, activations[function], [x])

    into = apply(0, gate(0, cell))
    kept = f.value(f"fsub {v} {f.constant(1.0)}, {into}") if coupled else apply(0, gate(2, cell))
    fresh = apply(1, gate(3, cell))
    changed = multiply_add(kept, cell, f.value(f"fmul {v} {into}, {fresh}"))
    return changed, f.value(f"fmul {v} {apply(0, gate(1, changed))}, {apply(2, changed)}")


def part_of(f: Emitter, index: str, size: str, end: str) -> tuple[str, str]:
    """First and end of a part of so many."""
    first = f.mul(index, size)
    return first, f.smallest(f.add(first, size), end)
