"""Running a placed graph: the plan for the shapes that came, a frame from its pool, and a straight line of calls."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from onnxplug.contract.errors import TERMINATED, Fail
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.memory import HOST
from onnxplug.contract.types import TensorType
from onnxplug.place.units import ControlUnit, PlacedGraph, RegionUnit
from onnxplug.plan import Plan, step_failure
from onnxplug.plan.specs import LARGE
from onnxplug.run.calls import choice
from onnxplug.run.frame import Frame
from onnxplug.run.memory import Slab
from onnxplug.run.planned import POOL, Planned, Signature, planned_dtype
from onnxplug.run.planners import Planners
from onnxplug.run.quiet import Quiet, hush, restore
from onnxplug.run.rows import shapes_of
from onnxplug.run.strides import Strides

if TYPE_CHECKING:
    from onnxplug.run.lane import Course, Lane
    from onnxplug.run.runtime import Runtime

MAX_PLANS = 16
"""Plans for one signature of shapes each that a graph keeps; the least recently used is dropped."""
MAX_SEEN = 256
"""Signatures without a plan of their own whose runs are counted."""
OF_BODY = 128
"""``MAX_PLANS`` of a nested graph: what a loop carries may grow from trip to trip."""


class GraphRunner:
    """Runs one placed graph, main or nested; safe from several threads."""

    def __init__(self, placed: PlacedGraph, runtime: Runtime) -> None:
        self.placed, self._runtime = placed, runtime
        self._planners = Planners(placed, runtime)
        self._plans: dict[Signature | None, Planned] = {}
        self._seen: OrderedDict[Signature, int] = OrderedDict()
        self._specialised = self._clock = 0
        self._lock = threading.Lock()
        self._is_main = placed.graph.parent is None
        self._most = MAX_PLANS if self._is_main else OF_BODY
        dtypes = [planned_dtype(placed, located) for located in (*placed.inputs, *placed.captures)]
        self._dtypes = [(at, dtype) for at, dtype in enumerate(dtypes) if dtype is not None]
        """Of the inputs whose shapes are a plan's signature."""
        self._tensors = None if len(self._dtypes) == len(dtypes) else choice([at for at, _ in self._dtypes])
        self._inputs = len(dtypes)
        self._is_region = len(placed.units) == 1 and isinstance(placed.units[0], RegionUnit)
        self._strides: deque[Strides] = deque(maxlen=POOL)

    def run(self, inputs: Sequence[Any], options: Any = None) -> list[Any]:
        """Results for native inputs (graph inputs, then captures), each in its own memory space. Results are fresh."""
        if self._is_region and self._runtime.profile is None and (options is None or not options.terminate):
            strides = self.take_strides()
            made = strides(self, inputs, shapes_of(inputs))
            self.give_strides(strides)
            if made is not None:
                return made
        planned = self.planned(inputs)
        frame = self.frame(planned)
        frame.fill(inputs)
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

    def lane(self, shapes: tuple[Any, ...], course: Course) -> tuple[Lane, deque[Lane]] | None:
        """A way to run trip after trip on inputs of these shapes (see ``shapes_of``), ``course`` being always the same, and where it
        goes for another loop to use; None where a trip changes the shapes of what is carried, or the plan does not let the caller say
        where results go."""
        planned = self.planned_for(shapes if self._tensors is None else self._tensors(shapes))
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
        """Whether somebody wants to see each step."""
        return self._runtime.profile is not None

    @property
    def may_stride(self) -> bool:
        """Whether a trip is one region, and nobody wants to see it."""
        return self._is_region and not self.is_profiled

    def take_strides(self) -> Strides:
        """A way to run trips of a small body, that nobody else uses."""
        try:
            return self._strides.pop()
        except IndexError:
            return Strides(self._most)

    def give_strides(self, strides: Strides) -> None:
        """Let another loop use it."""
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
        """Fresh memory comes from the system page by page, so that a new frame lies in the slab of another plan's idle one."""
        pool = planned.pool
        for _ in range(len(pool)):
            try:
                frame = pool.pop()
            except IndexError:  # another thread has it
                break
            if frame.enter():
                return frame
            pool.appendleft(frame)
        return Frame(planned.plan, self._runtime, self._idle_slab(planned.plan.slabs.get(HOST, 0)))

    def _idle_slab(self, nbytes: int) -> Slab | None:
        """Memory of so many bytes and more that no run is in, now the caller's."""
        for planned in list(self._plans.values()):
            for frame in tuple(planned.pool):
                slab = frame.slab
                if slab is not None and slab.buffer.nbytes >= nbytes > 0 and slab.take():
                    return slab
        return None

    def give_back(self, planned: Planned, frame: Frame) -> None:
        """Let another run use the frame."""
        if not planned.is_small:
            frame.leave()
        if len(planned.pool) < POOL and (planned.is_small or len(self._plans) <= MAX_PLANS):
            planned.pool.append(frame)

    def record(self, inputs: Sequence[Any], options: Any = None) -> tuple[list[Any], Frame]:
        """As ``run``, in a frame of its own. As long as the caller holds frame and results, their memory is used by
        nothing else, so that recorded device work can be replayed on it."""
        frame = Frame(self.planned(inputs).plan, self._runtime)
        frame.fill(inputs)
        frame.options = options
        with Quiet():
            self.execute(frame)
        return frame.results(deep=self._is_main), frame

    def plan(self, inputs: Sequence[Any]) -> Plan:
        """The plan that ``run`` uses for these inputs."""
        return self.planned(inputs).plan

    def prime(self) -> None:
        """Make the plan of the declared shapes, where all of them are numbers, now rather than in the first run. What cannot be
        planned is left for the run to say, as is what may be too large for anybody to feed."""
        located = (*self.placed.inputs, *self.placed.captures)
        types = [located[at][0].type for at, _ in self._dtypes]
        shapes = [t.static_shape for t in types if isinstance(t, TensorType)]
        if all(shape is not None and math.prod(shape) < LARGE for shape in shapes):
            with contextlib.suppress(Exception):
                self._make(tuple(shapes))

    def release(self) -> None:
        """Drop idle frames and their slabs, those of nested graphs too (arena shrinkage)."""
        self._strides.clear()
        for planned in list(self._plans.values()):
            planned.pool.clear()
            planned.lanes.clear()
        for placed in self._planners.placed():
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
            if failure is error:
                raise
            raise failure from error

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

    def planned(self, inputs: Sequence[Any]) -> Planned:
        """The plan for these inputs, with its frames."""
        return self.planned_for(shapes_of(inputs if self._tensors is None else self._tensors(inputs)))

    def signed(self, inputs: range) -> Callable[[Sequence[Any]], Signature]:
        """What tells the shapes, as far as a plan goes by them, of the inputs and captures of these numbers, if it is given these."""
        places = [at - inputs.start for at, _ in self._dtypes if at in inputs]
        if len(places) == len(inputs):
            return shapes_of
        chosen = choice(places)
        return lambda values: shapes_of(chosen(values))

    def planned_for(self, key: Signature) -> Planned:
        """The plan for shapes of all inputs and captures that plans go by, with its frames."""
        planned = self._plans.get(key)
        if planned is None:
            planned = self._make(key)
        self._clock += 1
        planned.used = self._clock
        return planned

    def _make(self, key: Signature) -> Planned:
        with self._lock:
            found = self._plans.get(key)
            if found is not None:
                return found
            if not self._deserves_plan(key):
                return self._plans.setdefault(None, self._plans.get(None) or Planned(self._planners.plan(None)))
            specs: list[TensorSpec | None] = [None] * self._inputs
            for (at, dtype), shape in zip(self._dtypes, key, strict=True):
                specs[at] = None if shape is None else TensorSpec(dtype, tuple(shape))
            planned = self._plans[key] = Planned(self._planners.plan(specs))
            self._specialised += 1
            while len(self._plans) > self._most + (None in self._plans):
                oldest = min((k for k in self._plans if k is not None and k != key), key=lambda k: self._plans[k].used)
                del self._plans[oldest]
            return planned

    def _deserves_plan(self, key: Signature) -> bool:
        """Whether a signature gets a plan: the first ones do, later ones when they come for the third time. Those of a growing sequence
        never come again: they are run by the shape-generic plan."""
        if self._specialised < self._most:
            return True
        self._seen[key] = self._seen.pop(key, 0) + 1
        while len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        if self._seen[key] < 3:
            return False
        del self._seen[key]
        return True
