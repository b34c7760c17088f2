"""Runs of a graph that is one small region: its function is called with operands of the trip and fresh results, and nothing else is
done between one trip and the next. A caller whose runs all have the same inputs does still less (``Repeat``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import is_not
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.plan.failures import failures_of
from onnxplug.run.calls import Get, choice
from onnxplug.run.frame import Frame
from onnxplug.run.rows import dense

if TYPE_CHECKING:
    from onnxplug.run.executor import GraphRunner
    from onnxplug.run.planned import Planned

Stride = Callable[[Sequence[Any]], "list[Any] | None"]
"""The inputs of a trip, then captures -> its results, or None where it did not run."""


def _nothing(inputs: Sequence[Any]) -> None:
    """The stride of a plan that has no function."""


def _stride(frame: Frame) -> Stride:
    """The function of a frame, and what is asked where it declines."""
    function, found = frame.only_function(), frame.only_region()
    if function is None or found is None:
        return _nothing
    region, context = found
    step, specs = frame.plan.steps[0], frame.results_made()
    get, rest = _operands(frame)
    last = 1 + len(step.ins)

    def otherwise(made: list[Any], given: Sequence[Any]) -> list[Any] | None:
        closed = dense(given[1:last])  # parts of a sequence have gaps
        if any(map(is_not, closed, given[1:last])) and function(given[0], *closed, *given[last:]):
            return made
        with failures_of(step.unit):
            return made if region.run_into(context, given[1:last], given[last:]) else None

    if len(specs) == 1:
        ((_, empty, shape, dtype),) = specs

        def only(inputs: Sequence[Any]) -> list[Any] | None:
            made = empty(shape, dtype)
            given = get((*inputs, made, *rest))
            return [made] if function(*given) else otherwise([made], given)

        return only

    def run(inputs: Sequence[Any]) -> list[Any] | None:
        made = [empty(shape, dtype) for _, empty, shape, dtype in specs]
        given = get((*inputs, *made, *rest))
        return made if function(*given) else otherwise(made, given)

    return run


def _operands(frame: Frame) -> tuple[Get, tuple[Any, ...]]:
    """How the operands of a frame's function are taken from the inputs of a run, its results and what is the same in each; and the last."""
    plan, step = frame.plan, frame.plan.steps[0]
    places: list[int | None] = [*plan.inputs, *plan.outputs]
    operands = (step.workspace, *step.ins, *step.outs)
    fixed = [n for n in operands if n not in places]
    places += fixed
    rest = tuple(None if n is None else frame.values[n] for n in fixed)
    return choice([places.index(n) for n in operands]), rest


class Repeat:
    """The function of a frame for always the same inputs; for one thread at a time. ``given``: the memory for each result, which has no
    byte in common with anything else, None for one that is fresh in each run."""

    def __init__(self, frame: Frame, inputs: Sequence[Any], given: Sequence[np.ndarray | None]) -> None:
        function = frame.only_function()
        assert function is not None
        self._frame, self._function = frame, function
        self._get, self._rest = _operands(frame)
        self._inputs, self._given = tuple(inputs), given
        self._fresh = [
            (empty, shape, dtype)
            for x, (_, empty, shape, dtype) in zip(given, frame.results_made(), strict=True)
            if x is None
        ]
        self._operands = None if self._fresh else self._get((*inputs, *given, *self._rest))

    @staticmethod
    def fits(frame: Frame, given: Sequence[np.ndarray | None]) -> bool:
        """Whether the frame has a function, and results are as large and of the type as the memory given for them."""
        if frame.only_function() is None:
            return False
        made = frame.results_made()
        return all(x is None or (x.shape, x.dtype) == each[2:] for x, each in zip(given, made, strict=True))

    def __call__(self) -> Sequence[Any] | None:
        """The fresh results, or None where the function declined."""
        if self._operands is not None:
            return () if self._function(*self._operands) else None
        fresh = [empty(shape, dtype) for empty, shape, dtype in self._fresh]
        made = fresh
        if len(fresh) < len(self._given):
            following = iter(fresh)
            made = [next(following) if x is None else x for x in self._given]
        return fresh if self._function(*self._get((*self._inputs, *made, *self._rest))) else None


class Strides:
    """The functions that run a trip, for the ``most`` shapes that came last. Used by one thread at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.known: dict[Any, Stride] = {}
        """By the shapes of inputs and captures."""
        self._frames: deque[tuple[Any, Planned, Frame | None]] = deque()

    def __call__(self, runner: GraphRunner, inputs: Sequence[Any], shapes: tuple[Any, ...]) -> list[Any] | None:
        """The results of a trip of the runner's graph, or None where it did not run."""
        return (self.known.get(shapes) or self.meet(runner, shapes, inputs))(inputs)

    def meet(self, runner: GraphRunner, key: Any, inputs: Sequence[Any]) -> Stride:
        """The function for shapes that have not come before, or not lately."""
        if len(self._frames) == self._most:
            oldest, planned, frame = self._frames.popleft()
            del self.known[oldest]
            if frame is not None:
                runner.give_back(planned, frame)
        planned = runner.plans.of(inputs)
        frame = runner.frame(planned)
        self.known[key] = found = _stride(frame) if planned.is_small else _nothing
        if found is _nothing:
            runner.give_back(planned, frame)
            self._frames.append((key, planned, None))
        else:
            self._frames.append((key, planned, frame))
        return found
