"""Looking for zeros where there must be none."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import PTR, Emitter
from onnxplug_ep_cpu.codegen.kernels.map import MEMORY, SIZES


@record(frozen=True, slots=True)
class Nonzero:
    """Sets the status word if an element is zero. An item is a block. Arguments: elements, status, their number, those of a block."""

    element: str

    def emit(self, f: Emitter) -> None:
        x, status, count, block = f.arg(0, PTR), f.arg(1, PTR), f.arg(2), f.arg(3)
        type_, unit = MEMORY[self.element], SIZES[self.element]
        v, bools = f.vec(type_), f.vec("i1")
        with f.items() as item:
            first = f.mul(item, block)
            end = f.smallest(f.add(first, block), count)
            whole = f.add(first, f.and_(f.sub(end, first), -f.lanes))
            with f.loop(first, whole, f.lanes, [(bools, "zeroinitializer")]) as i:
                zero = f.value(f"icmp eq {v} {f.load(v, f.at(x, f.mul(i.index, unit)), unit)}, zeroinitializer")
                i.next = [f.value(f"or {bools} {i.vars[0]}, {zero}")]
            some = f.intrinsic(f"llvm.vector.reduce.or.v{f.lanes}i1", "i1", (bools, i.vars[0]))
            with f.loop(whole, end, 1, [("i1", some)]) as rest:
                zero = f.value(f"icmp eq {type_} {f.load(type_, f.at(x, f.mul(rest.index, unit)), unit)}, 0")
                rest.next = [f.value(f"or i1 {rest.vars[0]}, {zero}")]
            with f.when(rest.vars[0]):
                f.do(f"store atomic i64 1, ptr {status} monotonic, align 8")
