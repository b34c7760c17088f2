"""A body run trip after trip in one frame: what it makes goes where the loop wants it, without a plan or a frame being looked
for in each trip."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from onnxplug.contract.kernels import TensorSpec
from onnxplug.run.frame import Frame

ROOM = 32
"""Trips for which a loop without a limit makes room first, and after which a loop looks whether it is still wanted."""


Trip = tuple[Sequence[Any], Sequence[np.ndarray]]
"""Inputs, dense and row-major, and outputs, which have the specs of ``Lane.made`` and share no memory with them."""


class Lane:
    """``run`` may be called any number of times between ``with``. ``made``: specs of the results, in order."""

    def __init__(self, frame: Frame, computes: bool) -> None:
        self._frame, self._computes = frame, computes
        plan = frame.plan
        self._inputs, self._outputs = plan.inputs, plan.outputs
        self.made: list[TensorSpec] = [spec for n in plan.outputs if (spec := plan.slots[n].spec) is not None]
        self._errors: Any = nullcontext()
        self._region = frame.only_region()
        if self._region is not None:
            step = plan.steps[0]
            places: list[int | None] = [*plan.inputs, *plan.outputs]
            fixed = [n for n in (*step.ins, *step.outs) if n not in places]
            places += fixed
            self._fixed = [None if n is None else frame.values[n] for n in fixed]
            self._ins, self._outs = ([places.index(n) for n in numbers] for numbers in (step.ins, step.outs))

    def begin(self, options: Any, profiled: bool, execute: Callable[[Frame], None], idle: deque[Lane]) -> Lane:
        """For one loop, after which it goes to ``idle``. A profile wants to see each trip."""
        self._frame.options = options
        self._one_by_one = profiled or self._region is None
        self._borrowed = execute, idle
        return self

    def __enter__(self) -> Lane:
        self._errors = np.errstate(all="ignore") if self._computes else nullcontext()
        self._errors.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._errors.__exit__(*exception)
        self._frame.clear()
        _, idle = self._borrowed
        del self._borrowed  # it goes with its plan, without waiting for the collector
        idle.append(self)

    def run(self, trips: Sequence[Trip], going: np.ndarray | None = None) -> int:
        """Trip after trip, and how many: none after one that leaves False in ``going``."""
        if not self._one_by_one:
            assert self._region is not None
            region, context = self._region
            ins, outs, fixed = self._ins, self._outs, self._fixed
            rows = [(*given, *made, *fixed) for given, made in trips]
            ran = region.run_trips(context, [([r[i] for i in ins], [r[i] for i in outs]) for r in rows], going)
            if ran is not None:
                return ran
            self._one_by_one = True
        execute, _ = self._borrowed
        for number, trip in enumerate(trips):
            self._fill(trip)
            execute(self._frame)
            if going is not None and not going.item():
                return number + 1
        return len(trips)

    def _fill(self, trip: Trip) -> None:
        values = self._frame.values
        for number, native in zip(self._inputs, trip[0], strict=True):
            values[number] = native
        for number, native in zip(self._outputs, trip[1], strict=True):
            values[number] = native


class Stack:
    """The rows that scan outputs collect, trip after trip; room for ``count`` trips at first."""

    def __init__(self, specs: Sequence[TensorSpec], count: int) -> None:
        self._arrays = [np.empty((count, *spec.shape), spec.dtype) for spec in specs]
        self._room = count

    def rows(self, first: int, last: int) -> list[tuple[np.ndarray, ...]]:
        """For each trip of a range where its rows go. Ranges come in order."""
        if last > self._room:
            self._room = max(2 * first, last)
            for number, old in enumerate(self._arrays):
                self._arrays[number] = np.empty((self._room, *old.shape[1:]), old.dtype)
                self._arrays[number][:first] = old[:first]
        return list(zip(*[items(a[first:last]) for a in self._arrays], strict=True)) or [()] * (last - first)

    def stacked(self, trips: int) -> list[np.ndarray]:
        """The rows of that many trips, in memory of their own."""
        return self._arrays if trips == self._room else [array[:trips].copy() for array in self._arrays]


def in_turn(specs: Sequence[TensorSpec]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arrays for the values that a loop carries: what trips of even and of odd number give, so that none writes over what it
    reads."""
    even, odd = ([np.empty(spec.shape, spec.dtype) for spec in specs] for _ in range(2))
    return even, odd


def items(rows: np.ndarray) -> list[np.ndarray]:
    """The items of the first axis, as arrays."""
    return list(rows) if rows.ndim > 1 else [rows[number, ...] for number in range(len(rows))]
