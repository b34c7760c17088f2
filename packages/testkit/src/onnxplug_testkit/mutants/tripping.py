"""L3: mutants whose regions run trip after trip of a loop by themselves; the unchanged one of them is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import KernelLookup, NodeView, TripOperand
from onnxplug_testkit.models import BINARY, UNARY
from onnxplug_testkit.mutants import mutant
from onnxplug_testkit.mutants.base import HOST, subject
from onnxplug_testkit.mutants.compiling import Compiling, Walk
from onnxplug_testkit.mutants.writing import Written
from onnxplug_testkit.subject import Subject


class Tripped(Written):
    """A region that runs the trips of a loop."""

    def trips(self, inputs: Sequence[TripOperand], outputs: Sequence[TripOperand]) -> Callable[..., int]:
        def run(workspace: Any, count: int, condition: np.ndarray | None, *arrays: Any) -> int:
            for trip in range(count):
                results = self._results(*(self.operand(each, arrays, trip) for each in inputs))
                for each, result in zip(outputs, results, strict=True):
                    np.copyto(self.operand(each, arrays, trip), result)
                if self.ends(condition):
                    return trip + 1
            return count

        return run

    def operand(self, operand: TripOperand, arrays: Sequence[Any], trip: int) -> Any:
        """Where a trip has one of its operands."""
        return operand.of(arrays, trip)

    def ends(self, condition: np.ndarray | None) -> bool:
        """Whether the last trip was the last one."""
        return condition is not None and not condition.item()


class Tripping(Compiling):
    """Compiles element-wise nodes and comparisons."""

    compiled: type[Walk] = Tripped

    def takes(self, node: NodeView, kernels: KernelLookup) -> bool:
        return node.op_type in (*UNARY, *BINARY, "Less") and super().takes(node, kernels)


def _with_trips(walk: type[Walk]) -> Subject:
    class Changed(Tripping):
        compiled = walk

    return subject(Changed, HOST)


class _Endless(Tripped):
    def ends(self, condition: np.ndarray | None) -> bool:
        return False


@mutant("graph.loops")
def ignores_the_condition() -> Subject:
    """Runs as many trips as it may, whatever the condition is behind one of them."""
    return _with_trips(_Endless)


class _Unturned(Tripped):
    def operand(self, operand: TripOperand, arrays: Sequence[Any], trip: int) -> Any:
        return operand.of(arrays, trip if operand.rows else min(trip, 1))


@mutant("graph.loops")
def takes_no_turns() -> Subject:
    """Has the memory of the second trip in all later ones, in which every other one has another."""
    return _with_trips(_Unturned)


class _OneRow(Tripped):
    def operand(self, operand: TripOperand, arrays: Sequence[Any], trip: int) -> Any:
        return operand.of(arrays, 0 if operand.rows else trip)


@mutant("graph.loops")
def stays_in_the_first_row() -> Subject:
    """Reads and writes the first row in each trip."""
    return _with_trips(_OneRow)
