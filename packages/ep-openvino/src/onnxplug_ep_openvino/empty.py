"""Regions some of whose tensors have no elements: OpenVINO's kernels divide by sizes, which ends the process, or refuse them.

Such runs are computed by onnx's reference implementation, which has next to nothing to do.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug.contract import CompiledRegion, EPFail, Region, RunContext
from onnxplug.contract.model import onnx_model


class EmptyRegion(CompiledRegion):
    """The region for tensors without elements. It is read when it is first run. EPFail where only its compiled form is known."""

    def __init__(self, region: Region | None) -> None:
        self._region, self._lock = region, threading.Lock()
        self._evaluator: Any = None

    def __call__(self, context: RunContext, *inputs: Any) -> Sequence[Any]:
        region = self._region
        if region is None:
            raise EPFail("OpenVINO takes no tensors without elements")
        with self._lock:
            if self._evaluator is None:
                self._evaluator = _evaluator(region)
        feeds = {value.name: array for value, array in zip(region.inputs, inputs, strict=True)}
        results = self._evaluator.run(None, feeds)
        return [np.asarray(made, value.dtype) for made, value in zip(results, region.outputs, strict=True)]


def _evaluator(region: Region) -> Any:
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    model, apart = onnx_model(region.graph, region.graph.nodes, region.inputs, region.outputs)
    for tensor in model.graph.initializer:
        if (value := apart.get(tensor.name)) is not None and value.constant is not None:
            tensor.CopyFrom(numpy_helper.from_array(value.constant, tensor.name))
    return ReferenceEvaluator(model)
