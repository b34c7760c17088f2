"""Running a placed graph: the plan for the shapes that came, a frame from its pool, and a straight line of calls."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from onnxplug.contract.errors import TERMINATED, Fail, RuntimeException
from onnxplug.contract.memory import HOST
from onnxplug.place.units import ControlUnit, PlacedGraph, RegionUnit
from onnxplug.plan import Plan, step_failure
from onnxplug.run.frame import Frame
from onnxplug.run.memory import Slab
from onnxplug.run.places import Places
from onnxplug.run.planned import POOL, Planned
from onnxplug.run.plans import MAX_PLANS, Plans
from onnxplug.run.quiet import Quiet, hush, restore
from onnxplug.run.rows import shapes_of
from onnxplug.run.strides import Repeat, Strides

if TYPE_CHECKING:
    import numpy as np

    from onnxplug.run.lane import Course, Lane
    from onnxplug.run.runtime import Runtime


GROWTH = 2
"""Times the bytes a plan needs that are taken where shapes grow."""


class GraphRunner:
    """Runs one placed graph, main or nested; safe from several threads."""

    def __init__(self, placed: PlacedGraph, runtime: Runtime) -> None:
        self.placed, self._runtime = placed, runtime
        self.plans = Plans(placed, runtime)
        self._is_main = placed.graph.parent is None
        self._is_region = len(placed.units) == 1 and isinstance(placed.units[0], RegionUnit)
        self._strides: deque[Strides] = deque(maxlen=POOL)

    def run(self, inputs: Sequence[Any], options: Any = None, places: Places | None = None) -> list[Any]:
        """Results for native inputs (graph inputs, then captures), each in its own memory space. Results are fresh, but for those that
        lie in ``places``."""
        may_stride = self._is_region and places is None and self._runtime.profile is None
        if may_stride and (options is None or not options.terminate):
            strides = self.take_strides()
            made = strides(self, inputs, shapes_of(inputs))
            self.give_strides(strides)
            if made is not None:
                return made
        planned = self.plans.of(inputs)
        frame = self.frame(planned)
        frame.fill(inputs, places)
        frame.options = options
        if planned.computes:
            loud = hush()
            try:
                self.execute(frame)
            finally:
                restore(loud)
        else:
            self.execute(frame)
        results = frame.results(deep=self._is_main)
        frame.clear()
        self.give_back(planned, frame)
        return results

    def bound(self, shapes: tuple[Any, ...]) -> Callable[[Sequence[Any], Any], list[Any]]:
        """``run`` of inputs and options where the inputs have these shapes (see ``shapes_of``), for one thread at a time."""
        if not self._is_region:
            return self.run
        strides, runtime = Strides(1), self._runtime

        def run(inputs: Sequence[Any], options: Any) -> list[Any]:
            if runtime.profile is None and (options is None or not options.terminate):
                made = strides(self, inputs, shapes)
                if made is not None:
                    return made
            return self.run(inputs, options)

        return run

    def repeated(self, inputs: Sequence[Any], given: Sequence[np.ndarray | None]) -> Repeat | None:
        """``run`` of always these inputs, with memory given for results (see ``Repeat``); None where the graph is not one small region or
        the memory does not fit."""
        if not self._is_region:
            return None
        planned = self.plans.of(inputs)
        frame = self.frame(planned)
        if planned.is_small and Repeat.fits(frame, given):
            return Repeat(frame, inputs, given)
        self.give_back(planned, frame)
        return None

    def lane(self, shapes: tuple[Any, ...], course: Course) -> tuple[Lane, deque[Lane]] | None:
        """A way to run trip after trip on inputs of these shapes (see ``shapes_of``), ``course`` being always the same, and where it
        goes for another loop to use; None where a trip changes the shapes of what is carried, or the plan does not let the caller say
        where results go."""
        planned = self.plans.of_shapes(shapes)
        idle = planned.lanes
        try:
            return idle.pop(), idle
        except IndexError:
            made = self._lane(planned, course) if planned.straight else None
            return None if made is None else (made, idle)

    def _lane(self, planned: Planned, course: Course) -> Lane | None:
        from onnxplug.run.lane import Lane  # few models have loops

        frame = self.frame(planned)
        if frame.takes_outputs:
            lane = Lane(frame, planned.computes, course)
            if lane.keeps_shapes:
                return lane
        planned.straight = False
        self.give_back(planned, frame)
        return None

    def part(self, placed: PlacedGraph) -> GraphRunner:
        """A runner of some of this graph's units."""
        return GraphRunner(placed, self._runtime)

    @property
    def is_profiled(self) -> bool:
        """Whether each step is timed for a profile."""
        return self._runtime.profile is not None

    @property
    def may_stride(self) -> bool:
        """Whether a trip is the call of one region, and is not profiled."""
        return self._is_region and not self.is_profiled

    def take_strides(self) -> Strides:
        """Strides that nobody else uses; for ``give_strides`` when the trips are over."""
        try:
            return self._strides.pop()
        except IndexError:
            return Strides(self.plans.most)

    def give_strides(self, strides: Strides) -> None:
        """Let another run use them."""
        self._strides.append(strides)

    def frame(self, planned: Planned) -> Frame:
        """A frame that nobody else uses; for ``give_back`` when its run is over."""
        if not planned.is_small:
            return self._large_frame(planned)
        try:
            return planned.pool.pop()
        except IndexError:
            return Frame(planned.plan, self._runtime)

    def _large_frame(self, planned: Planned) -> Frame:
        """A frame that takes much memory. A new one lies in the slab of another plan's idle frame, if there is one: fresh memory comes
        from the system page by page, which takes long."""
        pool = planned.pool
        for _ in range(len(pool)):
            try:
                frame = pool.pop()
            except IndexError:  # another thread has it
                break
            if frame.enter():
                return frame
            pool.appendleft(frame)
        return Frame(planned.plan, self._runtime, self._shared_slab(planned.plan.slabs.get(HOST, 0)))

    def _shared_slab(self, nbytes: int) -> Slab | None:
        """A slab of at least so many bytes in which no run is; it is the caller's from now on. Where shapes have outgrown the idle ones, a
        new one that has room for larger shapes still: what of it no plan uses yet takes no memory of the system's."""
        outgrown = False
        for planned in list(self.plans.kept.values()):
            for frame in tuple(planned.pool):
                slab = frame.slab
                if slab is None or nbytes == 0:
                    continue
                if slab.buffer.nbytes >= nbytes and slab.take():
                    return slab
                outgrown = outgrown or slab.buffer.nbytes < nbytes
        if outgrown:
            with suppress(MemoryError, RuntimeException):  # a limit may leave room for the plan alone
                return Slab(self._runtime.memories[HOST].allocator, GROWTH * nbytes)
        return None

    def give_back(self, planned: Planned, frame: Frame) -> None:
        """Let another run use the frame."""
        if not planned.is_small:
            frame.leave()
        if len(planned.pool) < POOL and (planned.is_small or len(self.plans.kept) <= MAX_PLANS):
            planned.pool.append(frame)

    def own_frame(self, inputs: Sequence[Any]) -> Frame:
        """A frame for such inputs that no other run gets."""
        return Frame(self.plans.of(inputs).plan, self._runtime)

    def record(self, frame: Frame, inputs: Sequence[Any], options: Any = None) -> list[Any]:
        """As ``run``, in a frame of its own. As long as the caller holds frame and results, their memory is used by
        nothing else, so that recorded device work can be replayed on it."""
        frame.fill(inputs)
        frame.options = options
        with Quiet():
            self.execute(frame)
        return frame.results(deep=self._is_main)

    def plan(self, inputs: Sequence[Any]) -> Plan:
        """The plan that ``run`` uses for these inputs."""
        return self.plans.of(inputs).plan

    def release(self) -> None:
        """Drop idle frames and their slabs, those of nested graphs too (arena shrinkage)."""
        self._strides.clear()
        self.plans.release()
        for placed in self.plans.placed():
            for unit in placed.units:
                if isinstance(unit, ControlUnit):
                    for body in self._runtime.bound(unit).runners.values():
                        body.release()

    def execute(self, frame: Frame) -> None:
        """Make the calls of a frame whose inputs are filled in."""
        profile = self._runtime.profile
        line: Any = iter(frame.calls)
        options = frame.options
        try:
            if profile is not None:
                try:
                    self._profiled(frame, line, profile)
                finally:
                    frame.watch(None)
            elif options is not None:
                for call in line:
                    if options.terminate:
                        raise Fail(TERMINATED)
                    call()
            else:
                for call in line:
                    call()
        except Exception as error:
            step = frame.step_of[len(frame.calls) - line.__length_hint__() - 1]
            operands = [None if number is None else frame.values[number] for number in step.ins]
            failure = step_failure(step.unit, error, operands)
            try:
                if failure is error:
                    raise
                raise failure from error
            finally:
                # Its traceback has this frame: a cycle, which would keep what was fed until it is collected.
                del failure

    def _profiled(self, frame: Frame, line: Any, profile: Any) -> None:
        steps = iter(frame.step_of)
        seen: Any = None
        number = -1
        for call in line:
            if frame.options is not None and frame.options.terminate:
                raise Fail(TERMINATED)
            step = next(steps)
            frame.watch(partial(profile.part, step))
            start = time.perf_counter_ns()
            call()
            if step is not seen:  # what a step's later calls tidy up is not work
                number += 1
                profile.step(step, number, frame, start, time.perf_counter_ns())
            seen = step
