"""If, Loop, Scan and loops that generate text: nested plans driven by the core. Conditions and trip counts are read on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from onnxplug.contract.errors import TERMINATED, Fail
from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.memory import HOST
from onnxplug.place.units import ControlUnit, Located
from onnxplug.run.executor import GraphRunner
from onnxplug.run.memory import DeviceArray, Memories
from onnxplug.run.owned import copy_host


def construct(unit: ControlUnit, runners: dict[str, GraphRunner], memories: Memories) -> Control:
    """What runs a control-flow node; ``runners`` are those of its bodies, by attribute."""
    if unit.node.op_type == "If":
        return If(unit, runners, memories)
    if unit.node.domain:
        from onnxplug.run.generation import GENERATION

        return GENERATION[unit.node.op_type](unit, runners, memories)
    if unit.node.op_type == "Loop":
        from onnxplug.run.loop import Loop  # few models have both

        return Loop(unit, runners, memories)
    from onnxplug.run.scan import Scan

    return Scan(unit, runners, memories)


Called = Callable[[Sequence[Any], Any], list[Any]]
"""What runs a control-flow node with its operands and the options of the run: see ``Control``."""


class Control:
    """A control-flow node. Called with the unit's operands and the run's options, it returns the node's outputs."""

    def __init__(self, unit: ControlUnit, runners: dict[str, GraphRunner], memories: Memories) -> None:
        self.node, self.runners, self.memories = unit.node, runners, memories
        self.given = len(unit.node.inputs)
        self.on_host = all(home == HOST for runner in runners.values() for _, home in runner.placed.inputs)

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
        raise NotImplementedError

    def bind(self, specs: Sequence[TensorSpec | None]) -> Called:
        """The same for operands with these specs, as far as they are known."""
        return self

    def _check(self, options: Any) -> None:
        if options is not None and options.terminate:
            raise Fail(TERMINATED)

    def _untouched(self, values: Sequence[Any], homes: Sequence[Located]) -> list[Any]:
        """What a body that never ran would have carried: copies, since results share no memory with operands."""
        return [
            copy_host(value) if value is None or device == HOST else self.memories.move(value, device, device)
            for value, (_, device) in zip(values, homes, strict=True)
        ]


class If(Control):
    """Operator If: one of two branches."""

    def __init__(self, unit: ControlUnit, runners: dict[str, GraphRunner], memories: Memories) -> None:
        super().__init__(unit, runners, memories)
        self._then, self._other = runners["then_branch"], runners["else_branch"]
        self._split = self.given + len(self._then.placed.captures)

    def __call__(self, operands: Sequence[Any], options: Any) -> list[Any]:
        return self._run(self._then.run, self._other.run, operands, options)

    def bind(self, specs: Sequence[TensorSpec | None]) -> Called:
        shapes = tuple(None if spec is None else spec.shape for spec in specs)
        if None in shapes[self.given :]:
            return self
        then, other = self._then.bound(shapes[self.given : self._split]), self._other.bound(shapes[self._split :])
        return partial(self._run, then, other)

    def _run(self, then: Called, other: Called, operands: Sequence[Any], options: Any) -> list[Any]:
        condition = operands[0]
        if condition.size != 1:
            where = f"Non-zero status code returned while running If node. Name:'{self.node.name}' Status Message: "
            raise Fail(f"{where}If nodes condition input must have exactly one element")
        if condition.item():
            return then(operands[self.given : self._split], options)
        return other(operands[self._split :], options)


def native(value: Any) -> Any:
    """A value as kernels take it."""
    return value.native if isinstance(value, DeviceArray) else value
