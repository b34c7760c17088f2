"""Sizes of outputs that only the model says: results of other sizes are no error, but worth a warning, as in onnxruntime
(VerifyOutputSizes in its execution_frame.cc)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.contract.logs import WARNING
from onnxplug.contract.types import TensorType

if TYPE_CHECKING:
    from onnxplug.contract.logs import Logger
    from onnxplug.graph.value import Value
    from onnxplug.run import Places

Run = Callable[[Sequence[Any], Any, "Places | None"], list[Any]]


def watched(run: Run, outputs: Sequence[Value], log: Logger) -> Run:
    """``run``, which gives ``outputs``, with a warning for each whose sizes are not what the model says; itself where all sizes
    follow from the operators, as in most models."""
    noted = [
        (at, value.name, type_, type_.shape)
        for at, value in enumerate(outputs)
        if isinstance(type_ := value.told or value.type, TensorType) and type_.shape is not None
        if value.told is not None or value.is_noted
    ]
    if not noted:
        return run

    def checked(inputs: Sequence[Any], options: Any, places: Places | None) -> list[Any]:
        results = run(inputs, options, places)
        for at, name, type_, expected in noted:
            shape: Any = getattr(results[at], "shape", expected)
            if shape != expected and log.isEnabledFor(WARNING) and not _fits(shape, expected):
                from onnxplug.graph.type_rules import spelled

                actual = spelled(TensorType(type_.element, tuple(shape)))
                log.warning(
                    "Expected shape from model of %s does not match actual shape of %s for output %s",
                    spelled(type_),
                    actual,
                    name,
                )
        return results

    return checked


def _fits(shape: Sequence[int], expected: Sequence[Any]) -> bool:
    return len(shape) == len(expected) and all(
        size == told or not isinstance(told, int) for size, told in zip(shape, expected, strict=True)
    )
