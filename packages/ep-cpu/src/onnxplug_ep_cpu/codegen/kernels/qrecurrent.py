"""The recurrence of an LSTM on 8-bit weights: per step, other kernels quantize the state and multiply it, then gates are applied.

What is added comes in onnxruntime's order, each step rounded: the projected input, the product of the state, the peephole, the
bias. The state that is quantized next may hang by the last bit (``onnxplug_kernels.rational``).
"""

from __future__ import annotations

from enum import IntEnum

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.emit import F32, I32, PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.base import Kernel
from onnxplug_ep_cpu.codegen.kernels.recurrent import lstm_step, part_of


class Arg(IntEnum):
    """Slots of the arguments; strides are in bytes. Behind them, for each direction, what is called before the gates: of each
    kernel its items, then its arguments."""

    PROJECTED = 0  # inputs times weights, [gate][unit] innermost
    PRODUCT = 1  # [direction][batch][gate][unit]: the state times weights
    STATE = 2  # [direction][batch][padded unit], as the others of the state
    SEEN = 3  # the state that is multiplied next: of sequences that have ended, zeros
    CELL = 4
    Y = 5
    BIAS = 6  # [direction][gate][padded unit]
    PEEPHOLES = 7  # [direction][input, output, forget][padded unit]
    LENGTHS = 8
    FIRST = 9  # steps FIRST..END of STEPS are done
    END = 10
    STEPS = 11
    BATCH = 12
    HIDDEN = 13
    DEPTH = 14  # padded hidden size
    BLOCKS = 15
    GROUP = 16  # blocks of units of one item
    GROUPS = 17
    BACKWARD = 18  # directions from here on go backward in time
    X_T = 19
    X_B = 20
    X_D = 21
    Y_T = 22
    Y_D = 23
    Y_B = 24
    CALLS = 25


@record(frozen=True, slots=True)
class QuantizedRecurrence:
    """One or many steps; an item is (direction, group of blocks of units). ``before`` are the kernels called in each step, with
    the number of their arguments; a group is then all blocks. ``activations`` are the functions f, g, h of the operator."""

    activations: tuple[ex.Expr, ...]
    peepholes: bool = False
    lengths: bool = False
    coupled: bool = False
    before: tuple[tuple[Kernel, int], ...] = ()

    def emit(self, f: Emitter) -> None:
        a: dict[Arg, str] = {
            slot: f.arg(slot, PTR if slot < Arg.FIRST else "i64") for slot in Arg if slot is not Arg.CALLS
        }
        names = [f.inner(kernel.emit) for kernel, _ in self.before]
        words = sum(1 + count for _, count in self.before)
        with f.items() as item:
            group, d = f.rem(item, a[Arg.GROUPS]), f.div(item, a[Arg.GROUPS])
            units = part_of(f, group, a[Arg.GROUP], a[Arg.BLOCKS])
            calls = f.at("%args", f.shl(f.add(f.mul(d, words), Arg.CALLS), 3))
            gates = _Gates(f, self, a, d)
            with f.loop(a[Arg.FIRST], a[Arg.END]) as step:
                at = 0
                for name, (_, count) in zip(names, self.before, strict=True):
                    items = f.load("i64", f.at(calls, 8 * at), 8)
                    f.do(f"call void @{name}(ptr {f.at(calls, 8 * at + 8)}, i64 0, i64 {items})")
                    at += 1 + count
                with f.loop(*units) as unit, f.loop(0, a[Arg.BATCH]) as b:
                    gates.apply(step.index, unit.index, b.index)


class _Gates:
    """The end of one direction's steps while it is being written."""

    def __init__(self, f: Emitter, kernel: QuantizedRecurrence, a: dict[Arg, str], d: str) -> None:
        self.f, self.kernel, self.a = f, kernel, a
        self.backward = f.value(f"icmp sge i64 {d}, {a[Arg.BACKWARD]}")
        self.row, self.gate = f.shl(a[Arg.DEPTH], 2), f.shl(a[Arg.HIDDEN], 2)
        whole = f.mul(f.mul(d, a[Arg.BATCH]), self.row)
        self.state, self.seen, self.cell = (f.at(a[slot], whole) for slot in (Arg.STATE, Arg.SEEN, Arg.CELL))
        self.across = f.shl(self.gate, 2)
        self.product = f.at(a[Arg.PRODUCT], f.mul(f.mul(d, a[Arg.BATCH]), self.across))
        self.projected, self.y = f.at(a[Arg.PROJECTED], f.mul(d, a[Arg.X_D])), f.at(a[Arg.Y], f.mul(d, a[Arg.Y_D]))
        self.bias = f.at(a[Arg.BIAS], f.mul(d, f.shl(self.row, 2)))
        self.holes = f.at(a[Arg.PEEPHOLES], f.mul(d, f.mul(self.row, 3)))

    def apply(self, step: str, unit: str, b: str) -> None:
        """The new state of a row's block of units."""
        f, v, a, kernel = self.f, self.f.vec(), self.a, self.kernel
        start = f.mul(unit, 4 * f.lanes)
        mask = f.lanes_below(f.sub(a[Arg.HIDDEN], f.mul(unit, f.lanes)))
        t, alive = self._time(step, b)
        state_at = f.add(f.mul(b, self.row), start)
        x = f.at(self.projected, f.add(f.add(f.mul(t, a[Arg.X_T]), f.mul(b, a[Arg.X_B])), start))
        product = f.at(self.product, f.add(f.mul(b, self.across), start))

        def gate(index: int, seen: str) -> str:
            parts = [f.load_masked(F32, f.at(p, f.mul(self.gate, index)), mask) for p in (x, product)]
            value = f.value(f"fadd {v} {parts[0]}, {parts[1]}")
            if kernel.peepholes and index < 3:
                weight = f.load(v, f.at(f.at(self.holes, f.mul(self.row, index)), start))
                value = self._multiply_add(weight, seen, value)
            return f.value(f"fadd {v} {value}, {f.load(v, f.at(f.at(self.bias, f.mul(self.row, index)), start))}")

        cell = f.load(v, f.at(self.cell, state_at))
        changed, new = lstm_step(f, kernel.activations, kernel.coupled, gate, cell, self._multiply_add)
        shown = new
        if kernel.lengths:
            shown = f.select(alive, v, new, "zeroinitializer")
            new = f.select(alive, v, new, f.load(v, f.at(self.state, state_at)))
            changed = f.select(alive, v, changed, cell)
            f.store(v, shown, f.at(self.seen, state_at))
        f.store(v, changed, f.at(self.cell, state_at))
        f.store(v, new, f.at(self.state, state_at))
        y = f.add(f.add(f.mul(t, a[Arg.Y_T]), f.mul(b, a[Arg.Y_B])), start)
        f.store_masked(F32, shown, f.at(self.y, y), mask)

    def _time(self, step: str, b: str) -> tuple[str, str]:
        """Where in time a row is, and whether its sequence has not ended: backward ones begin at their own end."""
        f, steps = self.f, self.a[Arg.STEPS]
        if not self.kernel.lengths:
            return f.select(self.backward, "i64", f.sub(f.sub(steps, 1), step), step), "true"
        length = f.value(f"sext i32 {f.load(I32, f.at(self.a[Arg.LENGTHS], f.shl(b, 2)))} to i64")
        length = f.smallest(length, steps)
        alive = f.less(step, length)
        turned = f.value(f"and i1 {self.backward}, {alive}")
        return f.select(turned, "i64", f.sub(f.sub(length, 1), step), step), alive

    def _multiply_add(self, x: str, y: str, z: str) -> str:
        f, v = self.f, self.f.vec()
        return f.value(f"fadd {v} {f.value(f'fmul {v} {x}, {y}')}, {z}")
