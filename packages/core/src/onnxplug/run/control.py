"""If, Loop and Scan: nested plans driven by the core (ONNX operator spec). Conditions and trip counts are read on the
host."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import islice, repeat
from operator import attrgetter
from typing import Any

import numpy as np

from onnxplug.contract.claims import Rows
from onnxplug.contract.errors import TERMINATED, Fail
from onnxplug.contract.memory import HOST
from onnxplug.contract.types import TensorType, numpy_dtype
from onnxplug.graph.ir import Value
from onnxplug.place.units import ControlUnit, Located
from onnxplug.run.executor import GraphRunner
from onnxplug.run.lane import ROOM, Lane, Stack
from onnxplug.run.memory import DeviceArray, Memories
from onnxplug.run.owned import copy_host
from onnxplug.run.trips import Trips
from onnxplug.run.walks import Walk, walk_of

_INT64 = np.dtype(np.int64)
_TRUE, _FIRST = Rows(np.ones(1, bool)), Rows(np.arange(ROOM, dtype=_INT64))
_GOING = np.array(True)
_NUMBERS = [np.array(trip, _INT64) for trip in range(ROOM)]
_SHAPE = attrgetter("shape")


class _Control:
    """A construct's bodies. Called with the unit's operands and the run's options, it returns the node's outputs."""

    def __init__(self, unit: ControlUnit, runners: dict[str, GraphRunner], memories: Memories) -> None:
        self.node, self.runners, self.memories = unit.node, runners, memories
        self.given = len(unit.node.inputs)
        self.on_host = all(home == HOST for runner in runners.values() for _, home in runner.placed.inputs)

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
        raise NotImplementedError

    def _check(self, options: Any) -> None:
        if options is not None and options.terminate:
            raise Fail(TERMINATED)

    def _untouched(self, values: Sequence[Any], homes: Sequence[Located]) -> list[Any]:
        """What a body that never ran would have carried: copies, since results share no memory with operands."""
        return [
            copy_host(value) if value is None or device == HOST else self.memories.move(value, device, device)
            for value, (_, device) in zip(values, homes, strict=True)
        ]


class If(_Control):
    """Operator If: one of two branches."""

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
        then, other = self.runners["then_branch"], self.runners["else_branch"]
        captured = operands[self.given :]
        split = len(then.placed.captures)
        if operands[0].item():
            return then.run(captured[:split], options)
        return other.run(captured[split:], options)


class Loop(_Control):
    """Operator Loop: trip count and condition, carried values, scan outputs stacked on the host."""

    def __init__(self, unit: ControlUnit, runners: dict[str, GraphRunner], memories: Memories) -> None:
        super().__init__(unit, runners, memories)
        self._nothing = [_nothing(value) for value, _ in runners["body"].placed.outputs[self.given - 1 :]]
        self._walk = walk_of(unit, self.given - 2)
        if self._walk is not None:
            runners["walk"] = runners["body"].part(self._walk.placed)

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
        body = self.runners["body"]
        limit = None if operands[0] is None else operands[0].item()
        going = operands[1] is None or operands[1].item()
        carried, captured = list(operands[2 : self.given]), operands[self.given :]
        if not going or (limit is not None and limit <= 0):
            return self._untouched(carried, body.placed.inputs[2:]) + _stacked((), self._nothing)
        walk = self._walk
        if walk is not None and limit is not None and not body.is_profiled:
            made = self._striding(walk, limit, captured, options) if walk.maps else None
            if made is not None:
                for at in walk.collected:
                    if carried[at]:
                        made[at] = [*carried[at], *made[at]]
                return made[: len(carried)] + _stacked(made[len(carried) :], self._nothing) if self._nothing else made
            if walk.reaches(limit, captured):
                return self._along(walk, limit, carried, captured, options)
        lane = body.lane([_GOING, _GOING, *carried, *captured], options)
        if lane is not None:
            with lane:
                found = self._straight(lane, limit, carried, _dense(captured), options)
            if found is not None:
                return found
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
                results = trips([np.array(trip, _INT64), _GOING, *(held if self.on_host else map(_native, held))])
                going, held = results[0].item(), results[1 : 1 + count]
                if scans:
                    for scan, result in zip(scans, results[1 + count :], strict=True):
                        scan.append(result)
                trip += 1
            kept = trips.own(held, carried)
        return kept + _stacked(scans, self._nothing)

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
            scans = _stacked(columns[len(walk.collected) :], self._nothing)
            del columns[len(walk.collected) :]
            kept = trips.own([*held, *columns], carried)
        order = sorted(range(len(kept)), key=(*walk.kept, *walk.collected).__getitem__)
        return [kept[at] for at in order] + scans

    def _straight(
        self, lane: Lane, limit: int | None, carried: list[Any], captured: Sequence[Any], options: Any
    ) -> list[Any] | None:
        """At least one trip, where carried values keep their shapes; else None, and nothing has been run."""
        turns = lane.turns(1, carried)
        if turns is None:
            return None
        stack = Stack(lane.made[1 + len(carried) :], min(limit or ROOM, ROOM))
        trip, more = 0, True
        while more and (limit is None or trip < limit):
            self._check(options)
            last = trip + ROOM if limit is None else min(trip + ROOM, limit)
            numbers = Rows(np.arange(trip, last, dtype=np.int64)) if trip else _FIRST
            given = (numbers, _TRUE, *turns.before)
            made = (lane.goes, *turns.after, *stack.rows(trip, last))
            trip += lane.run(given, captured, made, last - trip, lane.going)
            more = bool(lane.going.item())
        return [*turns.last(trip), *stack.stacked(trip)]


class Scan(_Control):
    """Operator Scan: states carried over slices of the scan inputs; version 8 runs each batch apart and honours
    sequence lengths."""

    def __init__(self, unit: ControlUnit, runners: dict[str, GraphRunner], memories: Memories) -> None:
        super().__init__(unit, runners, memories)
        attributes = self.node.attributes
        self._scanned = scanned = int(attributes["num_scan_inputs"])
        made = len(runners["body"].placed.outputs) - (self.given - (self.node.since_version == 8) - scanned)
        self._in_axes = attributes.get("scan_input_axes") or [0] * scanned
        self._reverse = attributes.get("scan_input_directions", attributes.get("directions")) or [0] * scanned
        self._out_axes = attributes.get("scan_output_axes") or [0] * made
        self._out_reverse = attributes.get("scan_output_directions") or [0] * made
        body = runners["body"].placed
        assert all(home == HOST for _, home in body.inputs[len(body.inputs) - scanned :])
        self._nothing = [_nothing(value) for value, _ in body.outputs[len(body.outputs) - made :]]

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
        if self.node.since_version == 8:
            return self._batched(operands, options)
        return self._scan(operands[: self.given], operands[self.given :], options)

    def _scan(self, given: Sequence[Any], captured: Sequence[Any], options: Any) -> list[Any]:
        body, scanned = self.runners["body"], self._scanned
        states, moved = list(given[: len(given) - scanned]), list(given[len(given) - scanned :])
        if any(self._in_axes) or any(self._reverse):
            moved = [
                _moved(s, a, 0)[:: -1 if r else 1] for s, a, r in zip(moved, self._in_axes, self._reverse, strict=True)
            ]
        length = len(moved[0]) if moved else 0
        if len(moved) > 1 and any(len(m) != length for m in moved):
            raise Fail(f"Scan '{self.node.name}': scan inputs have different lengths {sorted({len(m) for m in moved})}")
        if length:
            lane = body.lane([*states, *[m[0, ...] for m in moved], *captured], options)
            found = None if lane is None else self._straight(lane, states, moved, length, captured, options)
            if found is not None:
                return found
        held, stacked = self._one_by_one(states, moved, length, captured, options)
        finished = [s[::-1] if r else s for s, r in zip(stacked, self._out_reverse, strict=True)]
        kept = held if length else self._untouched(held, body.placed.inputs[: len(states)])
        return kept + self._placed(finished)

    def _placed(self, stacked: list[np.ndarray]) -> list[np.ndarray]:
        """Scan outputs with the trips along the axes where they belong."""
        if not any(self._out_axes):
            return _dense(stacked)
        return _dense([_moved(s, 0, axis) for s, axis in zip(stacked, self._out_axes, strict=True)])

    def _straight(
        self, lane: Lane, states: list[Any], moved: list[np.ndarray], length: int, captured: Sequence[Any], options: Any
    ) -> list[Any] | None:
        """At least one trip, where states keep their shapes; else None, and nothing has been run."""
        with lane:
            turns = lane.turns(0, states)
            if turns is None:
                return None
            captured, scanned = _dense(captured), [_of_dense_rows(m) for m in moved]
            stacked = [np.empty((length, *spec.shape), spec.dtype) for spec in lane.made[len(states) :]]
            places = stacked
            if any(self._out_reverse):
                places = [s[::-1] if r else s for s, r in zip(stacked, self._out_reverse, strict=True)]
            for first in range(0, length, ROOM):
                self._check(options)
                given = (*turns.before, *[Rows(s, first) for s in scanned])
                made = (*turns.after, *[Rows(place, first) for place in places])
                lane.run(given, captured, made, min(ROOM, length - first))
            return turns.last(length) + self._placed(stacked)

    def _one_by_one(
        self, states: list[Any], moved: list[np.ndarray], length: int, captured: Sequence[Any], options: Any
    ) -> tuple[list[Any], list[np.ndarray]]:
        """States after all trips, and the scan outputs stacked."""
        body, held = self.runners["body"], states
        collected: list[list[Any]] = [[] for _ in body.placed.outputs[len(states) :]]
        with Trips(body, captured, options) as trips:
            for trip in range(length):
                self._check(options)
                rows = _dense([m[trip, ...] for m in moved])
                results = trips([*map(_native, held), *rows])
                held = results[: len(states)]
                for column, result in zip(collected, results[len(states) :], strict=True):
                    column.append(result)
            held = trips.own(held, [*states, *moved])
        return held, _stacked(collected, self._nothing)

    def _batched(self, operands: Sequence[Any], options: Any) -> list[Any]:
        lengths, given, captured = operands[0], operands[1 : self.given], operands[self.given :]
        states = len(given) - self._scanned
        batches = given[0].shape[0]
        rows = []
        for batch in range(batches):
            row = [np.ascontiguousarray(g[batch]).reshape(g.shape[1:]) for g in given]
            if lengths is not None:
                row[states:] = [r[: int(lengths[batch])] for r in row[states:]]
            rows.append(self._scan(row, captured, options))
        longest = given[states].shape[1]
        columns = []
        for index in range(len(rows[0])):
            parts = [np.asarray(r[index]) for r in rows]
            if index >= states:
                parts = [_lengthened(p, longest) for p in parts]
            columns.append(np.stack(parts))
        return columns


CONTROL = {"If": If, "Loop": Loop, "Scan": Scan}


def _lengthened(rows: np.ndarray, count: int) -> np.ndarray:
    """``rows`` with zeros, or empty strings, after them."""
    blank = np.full((count - rows.shape[0], *rows.shape[1:]), "" if rows.dtype.kind in "OU" else 0, rows.dtype)
    return np.concatenate([rows, blank])


def _moved(array: np.ndarray, source: int, target: int) -> np.ndarray:
    """The array with one axis elsewhere."""
    return array if source == target else array.transpose(_order(array.ndim, source, target))


@functools.lru_cache(maxsize=256)
def _order(rank: int, source: int, target: int) -> tuple[int, ...]:
    """Which axis is where then: the shape of an array whose axis ``n`` is of size ``n`` tells."""
    return np.moveaxis(np.empty(range(rank)), source, target).shape


def _dense(values: Sequence[Any]) -> list[Any]:
    """The values with arrays row-major and without gaps."""
    return [v if not isinstance(v, np.ndarray) or v.flags.c_contiguous else v.copy(order="C") for v in values]


def _of_dense_rows(array: np.ndarray) -> np.ndarray:
    """The array with each row row-major and without gaps."""
    return array if array.flags.c_contiguous or array[0, ...].flags.c_contiguous else array.copy(order="C")


def _native(value: Any) -> Any:
    return value.native if isinstance(value, DeviceArray) else value


Nothing = tuple[tuple[int, ...], np.dtype]
"""Shape and dtype of rows of which there are none."""


def _nothing(value: Value) -> Nothing:
    type_ = value.type
    element, shape = (type_.element, type_.shape) if isinstance(type_, TensorType) else ("float", None)
    return (0, *(d if isinstance(d, int) else 0 for d in shape or ())), numpy_dtype(element)


def _stacked(columns: Sequence[list[Any]], nothing: Sequence[Nothing]) -> list[np.ndarray]:
    """Rows as arrays; ``nothing`` says what each is without rows."""
    if not columns or not columns[0]:
        return [np.empty(shape, dtype) for shape, dtype in nothing]
    return [np.stack(rows) for rows in columns]
