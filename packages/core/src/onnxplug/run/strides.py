"""Runs of a graph that is one small region: its function is called with operands of the trip and fresh results, and nothing else is
done between one trip and the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import is_not
from typing import TYPE_CHECKING, Any

from onnxplug.plan.failures import failures_of
from onnxplug.run.calls import choice
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
    plan, step, specs = frame.plan, frame.plan.steps[0], frame.results_made()
    places: list[int | None] = [*plan.inputs, *plan.outputs]
    operands = (step.workspace, *step.ins, *step.outs)
    fixed = [n for n in operands if n not in places]
    places += fixed
    get = choice([places.index(n) for n in operands])
    rest = tuple(None if n is None else frame.values[n] for n in fixed)
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
