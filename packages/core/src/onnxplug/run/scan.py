"""Operator Scan (ONNX operator spec)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxplug.contract.errors import Fail
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.memory import HOST
from onnxplug.place.units import ControlUnit
from onnxplug.run.control import Called, Control, native
from onnxplug.run.executor import GraphRunner
from onnxplug.run.lane import ROOM, Course, Lane
from onnxplug.run.memory import Memories
from onnxplug.run.rows import axis_moved, dense, lengthened, no_rows, shapes_of, stack_rows
from onnxplug.run.trips import Trips


class Scan(Control):
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
        self._turns_inputs = any(self._in_axes) or any(self._reverse)
        self._turns_outputs, self._moves_outputs = any(self._out_reverse), any(self._out_axes)
        body = runners["body"].placed
        assert all(home == HOST for _, home in body.inputs[len(body.inputs) - scanned :])
        self._nothing = [no_rows(value) for value, _ in body.outputs[len(body.outputs) - made :]]
        states = len(body.inputs) - scanned
        self._course = Course(states, 0, 0, range(states, states + scanned))

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
        if self.node.since_version == 8:
            return self._batched(operands, options)
        return self._scan(operands[: self.given], operands[self.given :], options)

    def bind(self, specs: Sequence[TensorSpec | None]) -> Called:
        shapes = [spec.shape for spec in specs if spec is not None]
        if self.node.since_version == 8 or len(shapes) < len(specs):
            return self
        states, behind = self._course.carried, self._course.along.stop
        scanned = list(zip(map(list, shapes[states:behind]), self._in_axes, strict=True))
        if not all(-len(shape) <= axis < len(shape) for shape, axis in scanned):
            return self
        lengths = {shape.pop(axis) for shape, axis in scanned}
        if len(lengths) != 1 or not all(lengths):
            return self
        key = (*shapes[:states], *[tuple(shape) for shape, _ in scanned], *shapes[behind:])
        return partial(self._planned, key, lengths.pop())

    def _planned(self, key: tuple[Any, ...], length: int, operands: Sequence[Any], options: Any) -> list[Any]:
        """For operands of known shapes: those of the body's inputs and captures, and how many trips."""
        found = self.runners["body"].lane(key, self._course)
        if found is None:
            return self._scan(operands[: self.given], operands[self.given :], options)
        if self._turns_inputs:
            states, behind = self._course.carried, self._course.along.stop
            operands = (*operands[:states], *self._turned(operands[states:behind]), *operands[behind:])
        return self._straight(found, operands, length, options)

    def _turned(self, scanned: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Scan inputs with the trips along the first axis, in the order in which they come."""
        if not self._turns_inputs:
            return list(scanned)
        turned = (axis_moved(s, a, 0) for s, a in zip(scanned, self._in_axes, strict=True))
        return [s[::-1] if r else s for s, r in zip(turned, self._reverse, strict=True)]

    def _scan(self, given: Sequence[Any], captured: Sequence[Any], options: Any) -> list[Any]:
        body, split = self.runners["body"], len(given) - self._scanned
        states, moved = given[:split], self._turned(given[split:])
        length = len(moved[0]) if moved else 0
        if len(moved) > 1 and any(len(m) != length for m in moved):
            raise Fail(f"Scan '{self.node.name}': scan inputs have different lengths {sorted({len(m) for m in moved})}")
        if length:
            found = body.lane((*shapes_of(states), *[m.shape[1:] for m in moved], *shapes_of(captured)), self._course)
            if found is not None:
                return self._straight(found, (*states, *moved, *captured), length, options)
        held, stacked = self._one_by_one(states, moved, length, captured, options)
        finished = [s[::-1] if r else s for s, r in zip(stacked, self._out_reverse, strict=True)]
        kept = list(held) if length else self._untouched(held, body.placed.inputs[: len(states)])
        return kept + self._placed(finished)

    def _placed(self, stacked: list[np.ndarray]) -> list[np.ndarray]:
        """Scan outputs with the trips along the axes where they belong."""
        if not self._moves_outputs:
            return dense(stacked)
        return dense([axis_moved(s, 0, axis) for s, axis in zip(stacked, self._out_axes, strict=True)])

    def _straight(self, found: tuple[Lane, deque[Lane]], inputs: Sequence[Any], length: int, options: Any) -> list[Any]:
        """At least one trip, where states keep their shapes. ``inputs``: states, scan inputs by trips, captures."""
        lane, idle = found
        stacked = [np.empty((length, *spec.shape), spec.dtype) for spec in lane.rows]
        places = stacked
        if self._turns_outputs:
            places = [s[::-1] if r else s for s, r in zip(stacked, self._out_reverse, strict=True)]
        after, before = lane.buffers(length)
        arrays, runner = [*inputs, *after, *places, *before], self.runners["body"]
        try:
            for first in range(0, length, ROOM):
                if options is not None:
                    self._check(options)
                if first:
                    arrays = lane.behind(arrays, ROOM)
                lane.run(runner, options, arrays, min(ROOM, length - first))
        finally:
            idle.append(lane)
        return [*(after if length & 1 else before), *(self._placed(stacked) if self._moves_outputs else stacked)]

    def _one_by_one(
        self, states: Sequence[Any], moved: Sequence[np.ndarray], length: int, captured: Sequence[Any], options: Any
    ) -> tuple[Sequence[Any], list[np.ndarray]]:
        """States after all trips, and the scan outputs stacked."""
        body, held = self.runners["body"], states
        collected: list[list[Any]] = [[] for _ in body.placed.outputs[len(states) :]]
        with Trips(body, captured, options) as trips:
            for trip in range(length):
                self._check(options)
                rows = dense([m[trip, ...] for m in moved])
                results = trips([*map(native, held), *rows])
                held = results[: len(states)]
                for column, result in zip(collected, results[len(states) :], strict=True):
                    column.append(result)
            held = trips.own(held, [*states, *moved])
        return held, stack_rows(collected, self._nothing)

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
                parts = [lengthened(p, longest) for p in parts]
            columns.append(np.stack(parts))
        return columns
