"""A body run trip after trip where shapes may change: what a trip makes is shared with the next, and made the caller's own once,
when all trips are over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.run.frame import Frame
from onnxplug.run.owned import own

if TYPE_CHECKING:
    from onnxplug.run.executor import GraphRunner


class Trips:
    """For one loop: called with the inputs of each trip in turn, between ``with``. Its frame is another trip's for as long as
    shapes are the same."""

    def __init__(self, runner: GraphRunner, options: Any) -> None:
        self._runner, self._options = runner, options
        self._errors = np.errstate(all="ignore")
        self._frame: Frame | None = None
        self._planned: Any = None
        self._lasting: set[int] = set()

    def __enter__(self) -> Trips:
        self._errors.__enter__()
        return self

    def __exit__(self, kind: Any, *exception: Any) -> None:
        self._errors.__exit__(kind, *exception)
        if kind is None:  # else the frame holds what a failed trip left
            self._give_back()

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The body's results, which may share memory with the inputs."""
        runner = self._runner
        planned = runner.planned(inputs)
        if planned is not self._planned:
            self._give_back()
            self._planned, self._frame = planned, runner.frame(planned)
            self._lasting |= self._frame.lasting
        frame = self._frame
        assert frame is not None
        frame.fill(inputs)
        frame.options = self._options
        runner.execute(frame)
        results = frame.handed_on()
        frame.clear()
        return results

    def own(self, results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Results of the last trip that share no memory with the constants of the body or with what the loop was given."""
        taken = {id(array) for value in inputs for array in (value, getattr(value, "base", None))}
        return [own(result, self._lasting, taken) for result in results]

    def _give_back(self) -> None:
        if self._frame is not None:
            self._runner.give_back(self._planned, self._frame)
        self._planned = self._frame = None
