"""Operator Loop (ONNX operator spec): trips along what it carries, in the quickest of the ways its body allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice, repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from onnxplug.contract.kernels import TensorSpec
from onnxplug.place.units import ControlUnit
from onnxplug.run.control import Called, Control, native
from onnxplug.run.executor import GraphRunner
from onnxplug.run.lane import ROOM, Course, Lane, Stack
from onnxplug.run.memory import Memories
from onnxplug.run.rows import no_rows, shapes_of, stack_rows
from onnxplug.run.trips import Trips
from onnxplug.run.walks import Walk, steady, walk_of

_INT64 = np.dtype(np.int64)
_FIRST = np.arange(ROOM, dtype=_INT64)
_GOING = np.array(True)
_NUMBERS = [np.array(trip, _INT64) for trip in range(ROOM)]
_SHAPE = attrgetter("shape")


class Way(NamedTuple):
    """A runner of the body, or of the body without its condition, and how the loop uses its inputs and outputs."""

    runner: GraphRunner
    course: Course

    @property
    def decides(self) -> int:
        """How many outputs say whether there is another trip."""
        return self.course.made


class Loop(Control):
    """Operator Loop: trip count and condition, carried values, scan outputs stacked on the host."""

    def __init__(self, unit: ControlUnit, runners: dict[str, GraphRunner], memories: Memories) -> None:
        super().__init__(unit, runners, memories)
        self._nothing = [no_rows(value) for value, _ in runners["body"].placed.outputs[self.given - 1 :]]
        carried, kept = self.given - 2, steady(runners["body"].placed)
        self._deciding = Way(runners["body"], Course(carried, 2, 1, range(1)))
        self._way = self._deciding
        if kept is not None:
            runners["trip"] = runners["body"].part(kept)
            self._way = Way(runners["trip"], Course(carried, 2, 0, range(1)))
        self._walk = walk_of(unit, self.given - 2)
        if self._walk is not None:
            runners["walk"] = runners["body"].part(self._walk.placed)

    def bind(self, specs: Sequence[TensorSpec | None]) -> Called:
        shapes = [None if spec is None else spec.shape for spec in specs[2:]]
        return self if None in shapes or self._walk is not None else partial(self._run, ((), (), *shapes))

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
        return self._run(None, operands, options)

    def _run(self, key: Any, operands: Sequence[Any], options: Any) -> list[Any]:
        """``key``: shapes of the body's inputs and captures, where they are known."""
        body = self.runners["body"]
        limit = None if operands[0] is None else operands[0].item()
        going = operands[1] is None or operands[1].item()
        carried, captured = list(operands[2 : self.given]), operands[self.given :]
        if not going or (limit is not None and limit <= 0):
            return self._untouched(carried, body.placed.inputs[2:]) + stack_rows((), self._nothing)
        walk = self._walk
        if walk is not None and limit is not None and not body.is_profiled:
            made = self._striding(walk, limit, captured, options) if walk.maps else None
            if made is not None:
                for at in walk.collected:
                    if carried[at]:
                        made[at] = [*carried[at], *made[at]]
                return made[: len(carried)] + stack_rows(made[len(carried) :], self._nothing) if self._nothing else made
            if walk.reaches(limit, captured):
                return self._along(walk, limit, carried, captured, options)
        way = self._deciding if body.is_profiled else self._way
        found = way.runner.lane(key or ((), (), *shapes_of(operands[2:])), way.course)
        if found is not None:
            lane, idle = found
            try:
                return self._straight(way, lane, limit, carried, captured, options)
            finally:
                idle.append(lane)
        return self._one_by_one(way, limit, carried, captured, options)

    def _one_by_one(
        self, way: Way, limit: int | None, carried: list[Any], captured: Sequence[Any], options: Any
    ) -> list[Any]:
        """At least one trip."""
        scans: list[list[Any]] = [[] for _ in self._nothing]
        first, last = way.decides, way.decides + len(carried)
        trip, going = 0, True
        held: Sequence[Any] = carried
        with Trips(way.runner, captured, options) as trips:
            while going and (limit is None or trip < limit):
                if options is not None:
                    self._check(options)
                results = trips([np.array(trip, _INT64), _GOING, *(held if self.on_host else map(native, held))])
                if first:
                    going = results[0].item()
                if scans:
                    for scan, result in zip(scans, results[last:], strict=True):
                        scan.append(result)
                held = results[first:last]
                trip += 1
            kept = trips.own(held, carried)
        return kept + stack_rows(scans, self._nothing)

    def _striding(self, walk: Walk, limit: int, captured: Sequence[Any], options: Any) -> list[list[Any]] | None:
        """What the trips append, column by column, where the body is one small region and each has its items; else None."""
        runner, rest, trips = self.runners["walk"], walk.captured(captured), []
        strides = runner.take_strides()
        known = strides.known
        given: list[Iterable[Any]] = [captured[at] for at in walk.walked]
        if walk.numbered:
            given.insert(0, _NUMBERS if limit <= ROOM else map(np.array, range(limit), repeat(_INT64)))
        for inputs in islice(zip(*given, strict=False) if given else repeat(()), limit):
            if options is not None:
                self._check(options)
            if rest:
                inputs += rest
            key = tuple(map(_SHAPE, inputs))
            stride = known.get(key)
            made = strides.meet(runner, key, inputs)(inputs) if stride is None else stride(inputs)
            if made is None:
                break
            trips.append(made)
        runner.give_strides(strides)
        return None if len(trips) < limit else list(map(list, zip(*trips, strict=True)))

    def _along(self, walk: Walk, limit: int, carried: list[Any], captured: Sequence[Any], options: Any) -> list[Any]:
        """At least one trip, where each sequence walked along has an item for all of them."""
        held: Sequence[Any] = [carried[at] for at in walk.kept]
        sources, columns = [captured[at] for at in walk.walked], [list(carried[at]) for at in walk.collected]
        first, last = int(walk.decides), walk.decides + len(held)
        columns += [[] for _ in self._nothing]
        with Trips(self.runners["walk"], walk.captured(captured), options) as trips:
            for trip in range(limit):
                if options is not None:
                    self._check(options)
                given = [np.array(trip, _INT64)] if walk.numbered else []
                if walk.conditioned:
                    given.append(_GOING)
                results = walk.made(trips([*given, *held, *[source[trip] for source in sources]]))
                held = results[first:last]
                for column, result in zip(columns, results[last:], strict=True):
                    column.append(result)
                if first and not results[0].item():
                    break
            scans = stack_rows(columns[len(walk.collected) :], self._nothing)
            del columns[len(walk.collected) :]
            kept = trips.own([*held, *columns], carried)
        order = sorted(range(len(kept)), key=(*walk.kept, *walk.collected).__getitem__)
        return [kept[at] for at in order] + scans

    def _straight(
        self, way: Way, lane: Lane, limit: int | None, carried: Sequence[Any], captured: Sequence[Any], options: Any
    ) -> list[Any]:
        """At least one trip, where carried values keep their shapes."""
        stack = Stack(lane.rows, min(limit or ROOM, ROOM))
        after, before = lane.buffers(limit or 2)
        held, going = carried, lane.going
        if going is not None:
            going[...] = True
        goes = () if going is None else (going,)
        trip = 0
        while (going is None or going) and (limit is None or trip < limit):
            if options is not None:
                self._check(options)
            last = trip + ROOM if limit is None else min(trip + ROOM, limit)
            numbers = np.arange(trip, last, dtype=_INT64) if trip else _FIRST
            arrays = [numbers, _GOING, *held, *captured, *goes, *after, *stack.rows(trip, last), *before]
            trip += lane.run(way.runner, options, arrays, last - trip, going)
            held = before
        return lane.owned(after if trip & 1 else before) + stack.stacked(trip)
