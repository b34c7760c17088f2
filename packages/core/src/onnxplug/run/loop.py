"""Operator Loop (ONNX operator spec): trips along what it carries, in the quickest of the ways its body allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, repeat
from operator import attrgetter
from typing import Any

import numpy as np

from onnxplug.place.units import ControlUnit
from onnxplug.run.control import Control, native
from onnxplug.run.executor import GraphRunner
from onnxplug.run.lane import ROOM, Course, Lane, Stack
from onnxplug.run.memory import Memories
from onnxplug.run.rows import no_rows, shapes_of, stack_rows
from onnxplug.run.trips import Trips
from onnxplug.run.walks import Walk, walk_of

_INT64 = np.dtype(np.int64)
_FIRST = np.arange(ROOM, dtype=_INT64)
_GOING = np.array(True)
_NUMBERS = [np.array(trip, _INT64) for trip in range(ROOM)]
_SHAPE = attrgetter("shape")


class Loop(Control):
    """Operator Loop: trip count and condition, carried values, scan outputs stacked on the host."""

    def __init__(self, unit: ControlUnit, runners: dict[str, GraphRunner], memories: Memories) -> None:
        super().__init__(unit, runners, memories)
        self._nothing = [no_rows(value) for value, _ in runners["body"].placed.outputs[self.given - 1 :]]
        self._course = Course(self.given - 2, 2, 1, range(1))
        self._walk = walk_of(unit, self.given - 2)
        if self._walk is not None:
            runners["walk"] = runners["body"].part(self._walk.placed)

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
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
        found = body.lane(((), (), *shapes_of(carried), *shapes_of(captured)), self._course)
        if found is not None:
            lane, idle = found
            try:
                return self._straight(lane, limit, carried, captured, options)
            finally:
                idle.append(lane)
        return self._one_by_one(limit, carried, captured, options)

    def _one_by_one(self, limit: int | None, carried: list[Any], captured: Sequence[Any], options: Any) -> list[Any]:
        """At least one trip."""
        count = len(carried)
        scans: list[list[Any]] = [[] for _ in self._nothing]
        trip, going = 0, True
        held: list[Any] = carried
        with Trips(self.runners["body"], captured, options) as trips:
            while going and (limit is None or trip < limit):
                if options is not None:
                    self._check(options)
                results = trips([np.array(trip, _INT64), _GOING, *(held if self.on_host else map(native, held))])
                going, held = results[0].item(), results[1 : 1 + count]
                if scans:
                    for scan, result in zip(scans, results[1 + count :], strict=True):
                        scan.append(result)
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
            made = strides.meet(key, inputs)(inputs) if stride is None else stride(inputs)
            if made is None:
                break
            trips.append(made)
        runner.give_strides(strides)
        return None if len(trips) < limit else list(map(list, zip(*trips, strict=True)))

    def _along(self, walk: Walk, limit: int, carried: list[Any], captured: Sequence[Any], options: Any) -> list[Any]:
        """At least one trip, where each sequence walked along has an item for all of them."""
        held, sources = [carried[at] for at in walk.kept], [captured[at] for at in walk.walked]
        first, columns = len(held), [list(carried[at]) for at in walk.collected]
        columns += [[] for _ in self._nothing]
        with Trips(self.runners["walk"], walk.captured(captured), options) as trips:
            for trip in range(limit):
                if options is not None:
                    self._check(options)
                given = [np.array(trip, _INT64)] if walk.numbered else []
                if walk.conditioned:
                    given.append(_GOING)
                results = trips([*given, *held, *[source[trip] for source in sources]])
                goes = not walk.decides or results.pop(0).item()
                held = results[:first]
                for column, result in zip(columns, results[first:], strict=True):
                    column.append(result)
                if not goes:
                    break
            scans = stack_rows(columns[len(walk.collected) :], self._nothing)
            del columns[len(walk.collected) :]
            kept = trips.own([*held, *columns], carried)
        order = sorted(range(len(kept)), key=(*walk.kept, *walk.collected).__getitem__)
        return [kept[at] for at in order] + scans

    def _straight(
        self, lane: Lane, limit: int | None, carried: Sequence[Any], captured: Sequence[Any], options: Any
    ) -> list[Any]:
        """At least one trip, where carried values keep their shapes."""
        stack = Stack(lane.rows, min(limit or ROOM, ROOM))
        after, before = lane.buffers(limit or 2)
        held, going, runner = carried, lane.going, self.runners["body"]
        assert going is not None
        going[...] = True
        trip = 0
        while going and (limit is None or trip < limit):
            if options is not None:
                self._check(options)
            last = trip + ROOM if limit is None else min(trip + ROOM, limit)
            numbers = np.arange(trip, last, dtype=_INT64) if trip else _FIRST
            arrays = [numbers, _GOING, *held, *captured, going, *after, *stack.rows(trip, last), *before]
            trip += lane.run(runner, options, arrays, last - trip, going)
            held = before
        return lane.owned(after if trip & 1 else before) + stack.stacked(trip)
