"""A kernel's LLVM IR as text: values by name, counted loops with carried values, vectors, masks, memory.

Every kernel has the signature ``void kernel(ptr args, i64 lo, i64 hi)``: it does items ``lo``..``hi`` of its work, and
reads addresses and sizes from ``args``, an array of 64-bit slots.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.loader import GIVEN, GIVEN_BYTES
from onnxplug_ep_cpu.codegen.target import Target

I64, I32, I8, F32, F64, PTR = "i64", "i32", "i8", "float", "double", "ptr"


def float_text(value: float) -> str:
    """A float32 constant as LLVM writes it: the bits of the equal double."""
    try:
        rounded = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        rounded = float("inf") if value > 0 else float("-inf")
    return double_text(rounded)


def double_text(value: float) -> str:
    """A float64 constant as LLVM writes it: its bits."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


@record(slots=True)
class Loop:
    """A loop being written: its index and the values it carries, inside the body; after it ``vars`` are the final ones."""

    index: str
    vars: list[str]
    next: list[str] = field(default_factory=list)


class Emitter:
    """Writes one kernel. Methods return the names of the values they make."""

    def __init__(self, name: str, target: Target) -> None:
        self.name, self.target = name, target
        self.times = 1
        """How many times the target's lanes a vector has, for elements narrower than float32."""
        self.lines: list[str] = [f"define void @{name}(ptr noalias %args, i64 %lo, i64 %hi) #0 {{", "entry:"]
        self.block = "entry"
        self.declared: dict[str, str] = {}
        self._inner: list[Emitter] = []
        self._count = 0

    # ---- the text

    def finish(self) -> str:
        """The kernel's IR with its declarations and attributes."""
        text = "\n".join(line for each in (*self._inner, self) for line in (*each.lines, "  ret void", "}"))
        declared = {name: line for each in (self, *self._inner) for name, line in each.declared.items()}
        attributes = 'attributes #0 = { nounwind "no-trapping-math"="true" "denormal-fp-math"="ieee"'
        if self.target.name == "avx512":
            attributes += ' "prefer-vector-width"="512" "min-legal-vector-width"="512"'
        return "\n".join([*declared.values(), text, attributes + " }", ""])

    def inner(self, emit: Callable[[Emitter], None]) -> str:
        """A function of this kernel's own that does what another kernel does, called with arguments and items like that;
        returns its name."""
        other = Emitter(f"{self.name}.{len(self._inner)}", self.target)
        other.lines[0] = other.lines[0].replace("define", "define internal", 1)
        emit(other)
        self._inner.append(other)
        return other.name

    def value(self, text: str) -> str:
        """A fresh value defined by an instruction."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a value."""
        self.lines.append(f"  {text}")

    def label(self, hint: str) -> str:
        """A fresh block name."""
        self._count += 1
        return f"{hint}{self._count}"

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    def intrinsic(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call an LLVM intrinsic: ``arguments`` are (type, value); a ``void`` one returns nothing."""
        types = ", ".join(t for t, _ in arguments)
        self.declared.setdefault(name, f"declare {result} @{name}({types})")
        call = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})"
        if result == "void":
            self.do(call)
            return ""
        return self.value(call)

    # ---- types

    @property
    def lanes(self) -> int:
        return self.times * self.target.lanes

    def vec(self, element: str = F32, lanes: int | None = None) -> str:
        """The vector type of an element type."""
        return f"<{lanes or self.lanes} x {element}>"

    # ---- integers and addresses

    def arg(self, slot: int, type_: str = I64) -> str:
        """Slot ``slot`` of the arguments."""
        return self.value(f"load {type_}, ptr {self.at('%args', 8 * slot)}, align 8")

    def operands(self, first: int, count: int, slots: int) -> list[list[str]]:
        """The operands behind the other arguments, from slot ``first`` on: of each its address, then steps in bytes."""
        return [[self.arg(first + slots * i + j, I64 if j else PTR) for j in range(slots)] for i in range(count)]

    def at(self, pointer: str, offset: int | str) -> str:
        """``pointer`` moved by bytes."""
        return pointer if offset == 0 else self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def add(self, a: int | str, b: int | str) -> str:
        return self.value(f"add i64 {a}, {b}")

    def sub(self, a: int | str, b: int | str) -> str:
        return self.value(f"sub i64 {a}, {b}")

    def mul(self, a: int | str, b: int | str) -> str:
        return self.value(f"mul i64 {a}, {b}")

    def div(self, a: int | str, b: int | str) -> str:
        return self.value(f"udiv i64 {a}, {b}")

    def rem(self, a: int | str, b: int | str) -> str:
        return self.value(f"urem i64 {a}, {b}")

    def shl(self, a: int | str, bits: int) -> str:
        return self.value(f"shl i64 {a}, {bits}")

    def and_(self, a: int | str, b: int | str) -> str:
        return self.value(f"and i64 {a}, {b}")

    def less(self, a: int | str, b: int | str) -> str:
        return self.value(f"icmp slt i64 {a}, {b}")

    def smallest(self, a: int | str, b: int | str) -> str:
        return self.value(f"select i1 {self.less(a, b)}, i64 {a}, i64 {b}")

    def select(self, condition: str, type_: str, a: str, b: str) -> str:
        return self.value(f"select i1 {condition}, {type_} {a}, {type_} {b}")

    # ---- memory

    def load(self, type_: str, pointer: str, align: int = 4) -> str:
        return self.value(f"load {type_}, ptr {pointer}, align {align}")

    def store(self, type_: str, value: str, pointer: str, align: int = 4) -> None:
        self.do(f"store {type_} {value}, ptr {pointer}, align {align}")

    def load_masked(self, element: str, pointer: str, mask: str | None, align: int = 4) -> str:
        """A vector whose lanes outside ``mask`` are zero and not read; None: all are read."""
        v = self.vec(element)
        if mask is None:
            return self.load(v, pointer, align)
        name = f"llvm.masked.load.v{self.lanes}{_short(element)}.p0"
        return self.intrinsic(
            name, v, (PTR, pointer), (I32, str(align)), (self.vec("i1"), mask), (v, "zeroinitializer")
        )

    def store_masked(self, element: str, value: str, pointer: str, mask: str | None, align: int = 4) -> None:
        """Store the lanes inside ``mask``; None: all."""
        v = self.vec(element)
        if mask is None:
            self.store(v, value, pointer, align)
            return
        name = f"llvm.masked.store.v{self.lanes}{_short(element)}.p0"
        self.intrinsic(name, "void", (v, value), (PTR, pointer), (I32, str(align)), (self.vec("i1"), mask))

    def prefetch(self, pointer: str, write: bool = False, level: int = 1) -> None:
        """Bring a line to the cache of that level, for reading or for writing."""
        kind, near = str(int(write)), str(4 - level)
        self.intrinsic("llvm.prefetch.p0", "void", (PTR, pointer), (I32, kind), (I32, near), (I32, "1"))

    # ---- vectors

    def splat(self, scalar: str, element: str = F32, lanes: int | None = None) -> str:
        """A vector of one value."""
        n = lanes or self.lanes
        v = self.vec(element, n)
        first = self.value(f"insertelement {v} poison, {element} {scalar}, i32 0")
        return self.value(f"shufflevector {v} {first}, {v} poison, <{n} x i32> zeroinitializer")

    def constant(self, value: float) -> str:
        """A float32 constant in every lane, as an operand."""
        return f"splat (float {float_text(value)})"

    def given(self, number: int, element: str = F32) -> str:
        """A 32-bit constant in every lane that lies where the loader puts it (see ``loader``)."""
        return self.value(f"load {self.vec(element)}, ptr {self.given_place(number)}, align 64, !invariant.load !{{}}")

    def given_place(self, number: int) -> str:
        """Where that constant lies, as often as a vector has lanes."""
        name = f"{GIVEN}{number}"
        self.declared.setdefault(name, f"@{name} = external dso_local constant [{GIVEN_BYTES} x i8], align 64")
        return f"@{name}"

    def fma(self, a: str, b: str, c: str, element: str = F32) -> str:
        """a * b + c, fused where the target can."""
        v = self.vec(element)
        return self.intrinsic(f"llvm.fmuladd.v{self.lanes}{_short(element)}", v, (v, a), (v, b), (v, c))

    def lanes_below(self, count: str) -> str:
        """The mask of lanes with a number below ``count`` (i64)."""
        n = self.lanes
        numbers = "<" + ", ".join(f"i64 {i}" for i in range(n)) + ">"
        return self.value(f"icmp slt <{n} x i64> {numbers}, {self.splat(count, I64)}")

    def reduce(self, kind: str, vector: str, element: str = F32) -> str:
        """One float of a vector: ``kind`` is add, fmax or fmin; additions go pairwise."""
        v, suffix = self.vec(element), f"v{self.lanes}{_short(element)}"
        if kind == "add":
            name = f"llvm.vector.reduce.fadd.{suffix}"
            self.declared.setdefault(name, f"declare {element} @{name}({element}, {v})")
            return self.value(f"call reassoc {element} @{name}({element} {float_text(-0.0)}, {v} {vector})")
        return self.intrinsic(f"llvm.vector.reduce.{kind}.{suffix}", element, (v, vector))

    # ---- control

    @contextmanager
    def loop(
        self, first: int | str, end: int | str, step: int | str = 1, carried: Sequence[tuple[str, str]] = ()
    ) -> Iterator[Loop]:
        """Run the body for index = first, first + step, ... < end. ``carried`` are (type, initial value); the body sets
        ``loop.next`` to their next values; after the loop ``loop.vars`` are the final ones."""
        head, body, done = (self.label(hint) for hint in ("head", "body", "done"))
        before = self.block
        self.do(f"br label %{head}")
        self.start(head)
        index = f"%{head}.i"
        names = [f"%{head}.c{i}" for i in range(len(carried))]
        at = len(self.lines)
        self.do(f"%{head}.t = icmp slt i64 {index}, {end}")
        self.do(f"br i1 %{head}.t, label %{body}, label %{done}")
        self.start(body)
        loop = Loop(index, names)
        yield loop
        assert len(loop.next) == len(carried), "the body of a loop sets the next value of everything it carries"
        following = self.add(index, step)
        last = self.block
        self.do(f"br label %{head}")
        phis = [f"  {index} = phi i64 [{first}, %{before}], [{following}, %{last}]"]
        phis += [
            f"  {name} = phi {type_} [{initial}, %{before}], [{new}, %{last}]"
            for name, (type_, initial), new in zip(names, carried, loop.next, strict=True)
        ]
        self.lines[at:at] = phis
        self.start(done)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Run the body if ``condition`` (i1); it defines nothing for later."""
        body, done = self.label("then"), self.label("end")
        self.do(f"br i1 {condition}, label %{body}, label %{done}")
        self.start(body)
        yield
        self.do(f"br label %{done}")
        self.start(done)

    @contextmanager
    def items(self) -> Iterator[str]:
        """The loop over this call's items; gives the item's number."""
        with self.loop("%lo", "%hi") as loop:
            yield loop.index

    @contextmanager
    def channel_blocks(self, channels: str, width: int, masked: bool) -> Iterator[tuple[str, str]]:
        """The loop over this call's items, which are blocks of ``width`` of an image's channels within whatever else is counted; gives the
        first channel and the number of the rest. The last block overlaps the one before it; ``masked``: there is one, of fewer channels.
        """
        parts, last = self.div(self.add(channels, width - 1), width), self.sub(channels, width)
        with self.items() as item:
            part, rest = self.rem(item, parts), self.div(item, parts)
            yield "0" if masked else self.smallest(self.mul(part, width), last), rest


def _short(element: str) -> str:
    return {F32: "f32", "half": "f16", "bfloat": "bf16", "double": "f64"}.get(element, element)
