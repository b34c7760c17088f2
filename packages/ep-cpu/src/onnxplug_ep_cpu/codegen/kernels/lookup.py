"""Replacing numbers through a table of keys and values."""

from __future__ import annotations

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import F32, I64, PTR, Emitter

_UNITS = {4: "i32", 8: "i64"}


@record(frozen=True, slots=True)
class Lookup:
    """out = values at the place of the key that equals x, else a default. An item is a block of elements.

    ``direct``: keys are int64 numbers without large gaps, and values are a table from the smallest one on. Otherwise keys are
    sorted, int64 or with ``floating`` float32; what NaN becomes follows the default. Values have ``unit`` bytes. Arguments: out,
    x, keys, values, default (an address), elements, elements of an item, keys' count, smallest key, steps of the search.
    """

    floating: bool
    direct: bool
    unit: int

    def emit(self, f: Emitter) -> None:
        out, x, keys, values, default = (f.arg(i, PTR) for i in range(5))
        size, block, count, smallest, steps = (f.arg(i) for i in range(5, 10))
        type_, key = _UNITS[self.unit], F32 if self.floating else I64
        width = 4 if self.floating else 8
        other = f.load(type_, default, self.unit)
        with f.items() as item:
            first = f.mul(item, block)
            with f.loop(first, f.smallest(f.add(first, block), size)) as i:
                value = f.load(key, f.at(x, f.mul(i.index, width)), width)
                if self.direct:
                    place = f.sub(value, smallest)
                    found = f.value(f"icmp ult i64 {place}, {count}")
                else:
                    place = self._search(f, keys, value, key, width, count, steps)
                    there = f.load(key, f.at(keys, f.mul(place, width)), width)
                    equal = "fcmp oeq" if self.floating else "icmp eq"
                    found = f.value(f"{equal} {key} {there}, {value}")
                place = f.select(found, I64, place, "0")
                result = f.select(found, type_, f.load(type_, f.at(values, f.mul(place, self.unit)), self.unit), other)
                if self.floating:
                    broken = f.value(f"fcmp uno float {value}, {value}")
                    result = f.select(broken, type_, f.load(type_, f.at(default, self.unit), self.unit), result)
                f.store(type_, result, f.at(out, f.mul(i.index, self.unit)), self.unit)

    def _search(self, f: Emitter, keys: str, value: str, key: str, width: int, count: str, steps: str) -> str:
        """The place of the last key that is not above the value, or 0."""
        above = "fcmp ole" if self.floating else "icmp sle"
        with f.loop(0, steps, 1, [(I64, "0"), (I64, count)]) as step:
            low, span = step.vars
            half = f.value(f"lshr i64 {span}, 1")
            middle = f.add(low, half)
            takes = f.value(f"{above} {key} {f.load(key, f.at(keys, f.mul(middle, width)), width)}, {value}")
            step.next = [f.select(takes, I64, middle, low), f.sub(span, half)]
        return step.vars[0]
