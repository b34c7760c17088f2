"""Pixels of a row that are made together, so that what their windows share is read once."""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.emit import Emitter


@record(frozen=True, slots=True)
class Neighbours:
    """``pixels`` of the result whose windows are ``width`` taps, ``dilation`` columns of the source apart; the windows themselves are
    ``stride`` apart."""

    pixels: int
    width: int
    stride: int
    dilation: int

    @property
    def reach(self) -> int:
        """Columns from the first to the last that they meet."""
        return (self.pixels - 1) * self.stride + (self.width - 1) * self.dilation

    def uses(self) -> dict[int, list[tuple[int, int]]]:
        """For each column they meet, counted from the first: (pixel, tap) pairs it counts for."""
        found: dict[int, list[tuple[int, int]]] = {}
        for n in range(self.pixels):
            for k in range(self.width):
                found.setdefault(n * self.stride + k * self.dilation, []).append((n, k))
        return found

    def each(self, f: Emitter, columns: str, last: str, left: str, size: str) -> Iterator[tuple[str, str, bool]]:
        """The loop over a row of ``columns``, the last of which start at ``last`` and overlap those before: (the first pixel, the
        first column of the source that it meets, whether some are padding). A row of the source has ``size``, behind ``left`` of
        padding. The body is written twice: most pixels need no checks."""
        with f.loop(0, columns, self.pixels) as group:
            x = f.smallest(group.index, last)
            start = f.sub(f.mul(x, self.stride), left)
            within = f.value(f"icmp slt i64 {f.add(start, self.reach)}, {size}")
            inside = f.value(f"and i1 {within}, {f.value(f'icmp sge i64 {start}, 0')}")
            for condition, edge in ((inside, False), (f.value(f"xor i1 {inside}, true"), True)):
                with f.when(condition):
                    yield x, start, edge

    def checks(self, f: Emitter, start: str, size: str) -> dict[int, str]:
        """For each column they meet whether the source has it."""
        return {j: f.value(f"icmp ult i64 {f.add(start, j)}, {size}") for j in self.uses()}
