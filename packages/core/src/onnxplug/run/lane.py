"""A body run trip after trip in one frame: what it makes goes where the loop wants it, without a plan or a frame being looked
for in each trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from onnxplug.contract.claims import TripOperand
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.memory import HOST
from onnxplug.plan import Plan, step_failure
from onnxplug.plan.failures import failures_of
from onnxplug.run.frame import Frame
from onnxplug.run.quiet import hush, restore
from onnxplug.run.rows import of_dense_rows

if TYPE_CHECKING:
    from onnxplug.run.executor import GraphRunner

ROOM = 32
"""Trips for which a loop without a limit makes room first, and after which a loop looks whether it is still wanted. Even: see
``Lane.behind``."""

LARGE = 1 << 18
"""Bytes of carried values for which memory is not kept."""


class Course(NamedTuple):
    """How a loop uses the inputs and outputs of its body, by number: ``carried`` values are inputs from ``read`` on and outputs
    from ``made`` on; inputs in ``along`` have a row for each trip, as have the outputs behind the carried ones. All else is the same
    in each trip."""

    carried: int
    read: int
    made: int
    along: range

    def operands(self, inputs: int, outputs: int) -> tuple[list[TripOperand], list[TripOperand]]:
        """How ``Lane.run`` finds them in its arrays."""

        def input_(at: int) -> TripOperand:
            number = at - self.read
            if 0 <= number < self.carried:
                return TripOperand(at, inputs + self.made + number, inputs + outputs + number)
            return TripOperand(at, at, at, at in self.along)

        def output(at: int) -> TripOperand:
            place, number = inputs + at, at - self.made
            if 0 <= number < self.carried:
                return TripOperand(place, inputs + outputs + number, place)
            return TripOperand(place, place, place, number >= self.carried)

        return list(map(input_, range(inputs))), list(map(output, range(outputs)))


class Lane:
    """A frame of a loop's body in which trip runs after trip. Used by one loop at a time."""

    def __init__(self, frame: Frame, computes: bool, course: Course) -> None:
        self._frame, self._computes, self._course = frame, computes, course
        plan = frame.plan
        made = [spec for n in plan.outputs if (spec := plan.slots[n].spec) is not None]
        behind = course.made + course.carried
        self.rows = made[behind:]
        """Specs of what each trip adds to the scan outputs."""
        self.going = np.empty(made[0].shape, bool) if course.made else None
        """Where the results of a loop's first output go."""
        self._states = [(spec.shape, spec.dtype) for spec in made[course.made : behind]]
        is_small = sum(spec.nbytes for spec in made[course.made : behind]) <= LARGE
        self._spare = [np.empty(*each) for each in self._states] if is_small else None
        self._given, self._results = len(plan.inputs), len(plan.outputs)
        given, results = course.operands(self._given, self._results)
        first = max(course.read + course.carried, course.along.stop)
        self._still = [(n, at) for at, n in enumerate(plan.inputs)][first:]
        moving = [*zip(plan.inputs[:first], given, strict=False), *zip(plan.outputs, results, strict=True)]
        self._rowed = [(n, operand.first) for n, operand in moving if operand.rows]
        self._turning = [(n, operand) for n, operand in moving if not operand.rows]
        self._fixed: list[Any] = []
        self._workspace: Any = None
        self._call = self._trips(plan, given, results)

    def _trips(
        self, plan: Plan, given: Sequence[TripOperand], results: Sequence[TripOperand]
    ) -> Callable[..., int] | None:
        """The function of the region that is all there is to run, if it has one."""
        found, steps = self._frame.only_region(), plan.steps
        if found is None:
            return None
        region, context = found
        operands = dict(zip((*plan.inputs, *plan.outputs), (*given, *results), strict=True))
        count = self._given + self._results + self._course.carried
        for number in (*steps[0].ins, *steps[0].outs):
            if number is None or plan.slots[number].device != HOST:
                return None
            if number not in operands:
                at = count + len(self._fixed)
                operands[number] = TripOperand(at, at, at)
                self._fixed.append(self._frame.values[number])
        self._workspace = context.workspace
        ins, outs = ([operands[n] for n in side if n is not None] for side in (steps[0].ins, steps[0].outs))
        with failures_of(steps[0].unit):
            call = region.trips(ins, outs)
            if call is not None and not callable(call):
                raise TypeError(f"its trips() gave {type(call).__name__}, which is no function")
        return call

    @property
    def keeps_shapes(self) -> bool:
        """Whether what is carried has the same shape behind a trip as before it."""
        plan, first = self._frame.plan, self._course.read
        before = [plan.slots[n].spec for n in plan.inputs[first : first + self._course.carried]]
        return [None if spec is None else spec.shape for spec in before] == [shape for shape, _ in self._states]

    def buffers(self, trips: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Where trips leave what they carry: the first, and every other one behind it; the rest. What the last of so many leaves is
        in memory of its own."""
        empty = np.empty
        fresh = [empty(shape, dtype) for shape, dtype in self._states]
        if trips == 1:
            return fresh, fresh
        spare = self._spare
        if spare is None:
            spare = [empty(shape, dtype) for shape, dtype in self._states]
        return (fresh, spare) if trips & 1 else (spare, fresh)

    def owned(self, buffers: list[np.ndarray]) -> list[np.ndarray]:
        """Those of ``buffers``, in memory of their own."""
        return [array.copy() for array in buffers] if buffers is self._spare else buffers

    def run(
        self, runner: GraphRunner, options: Any, arrays: list[Any], trips: int, going: np.ndarray | None = None
    ) -> int:
        """Trip after trip of the runner's graph, and how many: none after one that leaves False in ``going``. ``arrays``: inputs,
        results, and the other buffers of what is carried. Results have the specs that the lane's are, and share no memory with
        inputs."""
        call = self._call
        if call is None or runner.is_profiled:  # a profile wants to see each trip
            return self._each(runner, options, self._filled(arrays), trips, going)
        done, filled = 0, False
        while True:
            try:
                ran = call(self._workspace, trips - done, going, *arrays, *self._fixed)
                if not 0 <= ran <= trips - done:
                    raise RuntimeError(f"it says that it ran {ran} trips of {trips - done}")
            except Exception as error:
                failure = step_failure(self._frame.plan.steps[0].unit, error)
                if failure is error:
                    raise
                raise failure from error
            done += ran
            if done == trips or (ran and going is not None and not going.item()):
                return done
            if not (done or filled):
                arrays, filled = self._filled(arrays), True
                continue
            arrays = self.behind(arrays, ran)
            done += self._each(runner, options, arrays, 1, going)
            if done == trips or (going is not None and not going.item()):
                return done
            arrays = self.behind(arrays, 1)

    def behind(self, arrays: list[Any], trips: int) -> list[Any]:
        """The arrays for the trips behind so many that have been run with these."""
        if not trips:
            return arrays
        course, count, given, results = self._course, self._course.carried, self._given, self._results
        first, last = given + course.made, given + results
        after, before = arrays[first : first + count], arrays[last:]
        if trips & 1:
            after, before = before, after
        made = arrays[:last]
        for at in (*course.along, *range(first + count, last)):
            made[at] = made[at][trips:]
        made[course.read : course.read + count], made[first : first + count] = before, after
        return made + before

    def _filled(self, arrays: list[Any]) -> list[Any]:
        """The arrays with inputs that have no gaps."""
        made, along = list(arrays), self._course.along
        for at in range(self._given):
            value = arrays[at]
            if value.__class__ is np.ndarray and not value.flags.c_contiguous:
                made[at] = of_dense_rows(value) if at in along else value.copy(order="C")
        return made

    def _each(self, runner: GraphRunner, options: Any, arrays: list[Any], trips: int, going: np.ndarray | None) -> int:
        """The same, each trip as a run of its own."""
        frame, values, execute = self._frame, self._frame.values, runner.execute
        for number, at in self._still:
            values[number] = arrays[at]
        rowed = [(number, arrays[at]) for number, at in self._rowed]
        turning = [(number, arrays[o.first], arrays[o.odd], arrays[o.even]) for number, o in self._turning]
        frame.options = options
        loud = hush() if self._computes else None
        try:
            for trip in range(trips):
                for number, array in rowed:
                    values[number] = array[trip, ...]
                for number, first, odd, even in turning:
                    values[number] = odd if trip & 1 else even if trip else first
                execute(frame)
                if going is not None and not going.item():
                    return trip + 1
        finally:
            if loud is not None:
                restore(loud)
            frame.clear()
        return trips


class Stack:
    """The rows that scan outputs collect, trip after trip; room for ``count`` trips at first."""

    def __init__(self, specs: Sequence[TensorSpec], count: int) -> None:
        self._arrays = [np.empty((count, *spec.shape), spec.dtype) for spec in specs]
        self._room = count

    def rows(self, first: int, last: int) -> list[np.ndarray]:
        """Where the rows of a range of trips go. Ranges come in order."""
        if last > self._room:
            self._room = max(2 * first, last)
            for number, old in enumerate(self._arrays):
                self._arrays[number] = np.empty((self._room, *old.shape[1:]), old.dtype)
                self._arrays[number][:first] = old[:first]
        return [array[first:] for array in self._arrays] if first else self._arrays

    def stacked(self, trips: int) -> list[np.ndarray]:
        """The rows of that many trips, in memory of their own."""
        return self._arrays if trips == self._room else [array[:trips].copy() for array in self._arrays]
