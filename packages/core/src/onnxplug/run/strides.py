"""Trips of a body that is one small region: its function is called with operands of the trip and fresh results, and nothing else is
done between one trip and the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.run.calls import choice
from onnxplug.run.frame import Frame

if TYPE_CHECKING:
    from onnxplug.run.executor import GraphRunner, Planned

MOST = 128
"""Shapes whose frames are kept ready: as many as a body has plans."""


Stride = Callable[[tuple[Any, ...]], "list[Any] | None"]
"""The inputs of a trip, then captures -> its results, or None where it did not run."""


def _nothing(inputs: tuple[Any, ...]) -> None:
    """The stride of a plan that has no function."""


def _stride(frame: Frame) -> Stride:
    """The function of a frame."""
    function = frame.only_function()
    if function is None:
        return _nothing
    plan, step, empty = frame.plan, frame.plan.steps[0], np.empty
    places: list[int | None] = [*plan.inputs, *plan.outputs]
    operands = (step.workspace, *step.ins, *step.outs)
    fixed = [n for n in operands if n not in places]
    places += fixed
    get = choice([places.index(n) for n in operands])
    specs = [(spec.shape, spec.dtype) for n in plan.outputs if (spec := plan.slots[n].spec) is not None]
    rest = tuple(None if n is None else frame.values[n] for n in fixed)

    if len(specs) == 1:
        ((shape, dtype),) = specs

        def only(inputs: tuple[Any, ...]) -> list[Any] | None:
            made = empty(shape, dtype)
            return [made] if function(*get((*inputs, made, *rest))) else None

        return only

    def run(inputs: tuple[Any, ...]) -> list[Any] | None:
        made = [empty(shape, dtype) for shape, dtype in specs]
        return made if function(*get((*inputs, *made, *rest))) else None

    return run


class Strides:
    """What a thread needs to run trips, for the shapes that came lately."""

    def __init__(self, runner: GraphRunner) -> None:
        self._runner = runner
        self.known: dict[Any, Stride] = {}
        """By the shapes of inputs and captures."""
        self._frames: deque[tuple[Any, Planned, Frame | None]] = deque()

    def meet(self, key: Any, inputs: tuple[Any, ...]) -> Stride:
        """The function for shapes that are not known yet."""
        if len(self._frames) == MOST:
            oldest, planned, frame = self._frames.popleft()
            del self.known[oldest]
            if frame is not None:
                self._runner.give_back(planned, frame)
        planned = self._runner.planned(inputs)
        frame = self._runner.frame(planned)
        self.known[key] = found = _stride(frame) if planned.is_small else _nothing
        if found is _nothing:
            self._runner.give_back(planned, frame)
            self._frames.append((key, planned, None))
        else:
            self._frames.append((key, planned, frame))
        return found
