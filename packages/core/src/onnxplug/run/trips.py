"""A body run trip after trip where shapes may change: what a trip makes is shared with the next, and made the caller's own once,
when all trips are over."""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.run.frame import ALONE, Frame
from onnxplug.run.owned import are_alone, own
from onnxplug.run.quiet import Quiet
from onnxplug.run.rows import shapes_of

if TYPE_CHECKING:
    from onnxplug.run.executor import GraphRunner


class Trips:
    """For one loop: called with the inputs of each trip in turn, between ``with``; what is ``captured`` is the same in all. Its
    frame is another trip's for as long as shapes are the same."""

    def __init__(self, runner: GraphRunner, captured: Sequence[Any], options: Any) -> None:
        self._runner, self._captured, self._options = runner, captured, options
        self._execute = runner.execute
        self._errors: Any = None
        self._frame: Frame | None = None
        self._planned: Any = None
        self._shapes: tuple[Any, ...] | None = None
        self._cleared = False
        self._strides = runner.take_strides() if runner.may_stride else None
        self._tail = shapes_of(captured) if self._strides is not None else ()
        count = len(runner.placed.inputs)
        self._signed = runner.plans.signed(range(count))
        self._behind = runner.plans.signed(range(count, count + len(captured)))(captured)
        self._lasting: set[int] = set()

    def __enter__(self) -> Trips:
        return self

    def __exit__(self, kind: Any, *exception: Any) -> None:
        if self._errors is not None:
            self._errors.__exit__(kind, *exception)
        if kind is None:  # else the frame holds what a failed trip left
            self._give_back()
        if self._strides is not None:
            self._runner.give_strides(self._strides)

    def __call__(self, given: Sequence[Any]) -> list[Any]:
        """The body's results, which may share memory with the inputs."""
        if self._strides is not None:
            made = self._strides(self._runner, (*given, *self._captured), shapes_of(given) + self._tail)
            if made is not None:
                return made
        shapes = self._signed(given)
        frame = self._frame
        if frame is None or shapes != self._shapes:
            frame = self._frame_for(shapes + self._behind)
            self._shapes = shapes
            frame.fill([*given, *self._captured])
        elif self._cleared:
            frame.fill([*given, *self._captured])
        else:
            frame.refill(given)
        self._execute(frame)
        results = frame.handed_on()
        self._cleared = frame.holds
        if self._cleared:
            frame.clear()
            frame.options = self._options
        return results

    def _frame_for(self, shapes: tuple[Any, ...]) -> Frame:
        planned = self._runner.plans.of_signature(shapes)
        if planned is not self._planned or self._frame is None:
            self._give_back()
            self._planned, self._frame = planned, self._runner.frame(planned)
            self._frame.options = self._options
            self._lasting |= self._frame.lasting
        if planned.computes and self._errors is None:
            self._errors = Quiet()
            self._errors.__enter__()
        return self._frame

    def own(self, results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Results of the last trip that share no memory with the constants of the body or with what the loop was given."""
        self._give_back()  # which knows of the last trip's values
        if all(r.__class__ is list and getrefcount(r) <= ALONE and are_alone(r) for r in results):
            return list(results)
        given = [*inputs, *self._captured]
        taken = {*map(id, given), *[id(value.base) for value in given if isinstance(value, np.ndarray)]}
        return [own(result, self._lasting, taken) for result in results]

    def _give_back(self) -> None:
        if self._frame is not None:
            self._frame.clear()
            self._runner.give_back(self._planned, self._frame)
        self._planned = self._frame = None
