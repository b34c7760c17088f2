"""A body run trip after trip in one frame: what it makes goes where the loop wants it, without a plan or a frame being looked
for in each trip."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract.claims import Rows
from onnxplug.contract.kernels import TensorSpec
from onnxplug.plan import step_failure
from onnxplug.run.calls import choice
from onnxplug.run.frame import Frame
from onnxplug.run.quiet import Quiet

ROOM = 32
"""Trips for which a loop without a limit makes room first, and after which a loop looks whether it is still wanted."""

LARGE = 1 << 18
"""Bytes of carried values for which memory is not kept."""

_NOTHING = np.empty((), bool)


class Lane:
    """``run`` may be called any number of times between ``with``. ``made``: specs of the results, in order. ``going``: where the
    results of a loop's first output go."""

    def __init__(self, frame: Frame, computes: bool) -> None:
        self._frame, self._computes = frame, computes
        plan = frame.plan
        self._inputs, self._outputs = plan.inputs, plan.outputs
        self.made: list[TensorSpec] = [spec for n in plan.outputs if (spec := plan.slots[n].spec) is not None]
        self.going = np.empty(self.made[0].shape, bool) if self.made else _NOTHING
        self.goes = Rows(self.going[None])
        self._turns: dict[int, Turns | None] = {}
        self._errors: Any = None
        found, steps = frame.only_region(), plan.steps
        self._region = None if found is None or None in (*steps[0].ins, *steps[0].outs) else found
        if self._region is not None:
            step = plan.steps[0]
            places: list[int | None] = [*plan.inputs, *plan.outputs]
            fixed = [n for n in (*step.ins, *step.outs) if n not in places]
            places += fixed
            self._fixed = [Rows(frame.values[n][None]) for n in fixed if n is not None]
            self._ins, self._outs = (choice([places.index(n) for n in numbers]) for numbers in (step.ins, step.outs))

    def begin(self, options: Any, profiled: bool, execute: Callable[[Frame], None], idle: deque[Lane]) -> Lane:
        """For one loop, after which it goes to ``idle``. A profile wants to see each trip."""
        self._frame.options = options
        self._one_by_one = profiled or self._region is None
        self._borrowed = execute, idle
        return self

    def __enter__(self) -> Lane:
        if self._computes:
            self._errors = Quiet()
            self._errors.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._errors is not None:
            self._errors.__exit__(*exception)
            self._errors = None
        self._frame.clear()
        _, idle = self._borrowed
        del self._borrowed  # it goes with its plan, without waiting for the collector
        idle.append(self)

    def turns(self, first: int, values: Sequence[Any]) -> Turns | None:
        """For carried values that are the results from ``first`` on; None where a trip changes their shapes."""
        try:
            turns = self._turns[first]
        except KeyError:
            specs = self.made[first : first + len(values)]
            keep = [spec.shape for spec in specs] == [value.shape for value in values]
            turns = self._turns[first] = Turns(specs) if keep else None
        if turns is None:
            return None
        if turns.large:  # memory that is kept from run to run is paid for in between
            turns = Turns(self.made[first : first + len(values)])
        turns.start(values)
        return turns

    def run(
        self,
        given: Sequence[Rows],
        captured: Sequence[Any],
        made: Sequence[Rows],
        trips: int,
        going: np.ndarray | None = None,
    ) -> int:
        """Trip after trip, and how many: none after one that leaves False in ``going``. What is captured is dense and row-major;
        rows of ``made`` have the specs that ``self.made`` says and share no memory with what their trip is given."""
        if not self._one_by_one:
            assert self._region is not None
            region, context = self._region
            rows = (*given, *[Rows(v[None]) if v.__class__ is np.ndarray else v for v in captured], *made, *self._fixed)
            try:
                ran = region.run_trips(context, self._ins(rows), self._outs(rows), trips, going)
            except Exception as error:
                failure = step_failure(self._frame.plan.steps[0].unit, error)
                if failure is error:
                    raise
                raise failure from error
            if ran is not None:
                return ran
            self._one_by_one = True
        execute, _ = self._borrowed
        values, count = self._frame.values, len(given)
        for number, value in zip(self._inputs[count:], captured, strict=True):
            values[number] = value
        places = (*zip(self._inputs[:count], given, strict=True), *zip(self._outputs, made, strict=True))
        for trip in range(trips):
            for number, row in places:
                values[number] = row.of(trip)
            execute(self._frame)
            if going is not None and not going.item():
                return trip + 1
        return trips


class Stack:
    """The rows that scan outputs collect, trip after trip; room for ``count`` trips at first."""

    def __init__(self, specs: Sequence[TensorSpec], count: int) -> None:
        self._arrays = [np.empty((count, *spec.shape), spec.dtype) for spec in specs]
        self._room = count

    def rows(self, first: int, last: int) -> list[Rows]:
        """Where the rows of a range of trips go. Ranges come in order."""
        if last > self._room:
            self._room = max(2 * first, last)
            for number, old in enumerate(self._arrays):
                self._arrays[number] = np.empty((self._room, *old.shape[1:]), old.dtype)
                self._arrays[number][:first] = old[:first]
        return [Rows(array, first) for array in self._arrays]

    def stacked(self, trips: int) -> list[np.ndarray]:
        """The rows of that many trips, in memory of their own."""
        return self._arrays if trips == self._room else [array[:trips].copy() for array in self._arrays]


class Turns:
    """The values that a loop carries: a trip reads what the one before it made, and writes over what that one read. ``before``:
    what the first trip reads, and those behind it; ``after``: what it makes, and those behind it. Likewise for a range of trips
    that begins with an even one."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        arrays = [np.empty((2, *spec.shape), spec.dtype) for spec in specs]
        self._rows = [(array[0, ...], array[1, ...]) for array in arrays]
        self.large = sum(array.nbytes for array in arrays) > LARGE
        self.before, self.after = [Rows(array, 1) for array in arrays], [Rows(array) for array in arrays]

    def start(self, values: Sequence[Any]) -> None:
        """What the first trip reads."""
        for (_, row), value in zip(self._rows, values, strict=True):
            row[...] = value

    def last(self, trips: int) -> list[np.ndarray]:
        """What is left after so many trips, in memory of its own."""
        at = (trips - 1) & 1
        return [rows[at].copy() for rows in self._rows]
