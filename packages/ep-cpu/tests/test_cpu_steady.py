"""What a steady state allocates: nothing of the size of a tensor."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from cpu_nodes import Case, poisoned


def tensor(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# A ufunc over strided operands has a buffer for each while it runs; views and scalars take the rest.
BUFFER = 3 * 4 * np.getbufsize() + 8192
IMAGE = tensor(1, 16, 64, 64)
CASES: dict[str, tuple[Any, ...]] = {
    "Add": ("Add", 14, IMAGE, IMAGE),
    "Relu": ("Relu", 14, IMAGE),
    "Sigmoid": ("Sigmoid", 13, IMAGE),
    "Gelu": ("Gelu", 20, IMAGE),
    "Erf": ("Erf", 13, IMAGE),
    "Clip": ("Clip", 13, IMAGE, np.float32(0), np.float32(6)),
    "Where": ("Where", 16, IMAGE > 0, IMAGE, IMAGE),
    "Cast": ("Cast", 19, IMAGE, {"to": 11}),
    "Conv 3x3": ("Conv", 22, IMAGE, tensor(16, 16, 3, 3), tensor(16), {"pads": [1, 1, 1, 1]}),
    "Conv 1x1": ("Conv", 22, IMAGE, tensor(32, 16, 1, 1), tensor(32)),
    "Conv depthwise": ("Conv", 22, IMAGE, tensor(16, 1, 3, 3), {"group": 16, "strides": [2, 2]}),
    "MaxPool": ("MaxPool", 22, IMAGE, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "AveragePool": ("AveragePool", 22, IMAGE, {"kernel_shape": [2, 2]}),
    "GlobalAveragePool": ("GlobalAveragePool", 22, IMAGE),
    "MatMul": ("MatMul", 13, tensor(2, 64, 96), tensor(96, 128)),
    "Gemm": ("Gemm", 13, tensor(64, 96), tensor(128, 96), tensor(128), {"transB": 1, "alpha": 0.5, "beta": 0.5}),
    "LayerNormalization": ("LayerNormalization", 17, tensor(64, 512), tensor(512), tensor(512)),
    "InstanceNormalization": ("InstanceNormalization", 22, IMAGE, tensor(16), tensor(16)),
    "LRN": ("LRN", 13, IMAGE, {"size": 5}),
    "Softmax": ("Softmax", 13, tensor(64, 512)),
    "LogSoftmax": ("LogSoftmax", 13, IMAGE, {"axis": 1}),
    "Transpose": ("Transpose", 21, IMAGE, {"perm": [0, 2, 3, 1]}),
    "Concat": ("Concat", 13, IMAGE, IMAGE, {"axis": 1}),
    "Gather": ("Gather", 13, tensor(512, 64), np.arange(400)),
    "ReduceMean": ("ReduceMean", 13, IMAGE, {"axes": [2, 3]}),
    "QuantizeLinear": ("QuantizeLinear", 21, IMAGE, np.float32(0.1), np.uint8(9), {"constant": [1, 2]}),
}


@pytest.mark.parametrize("name", CASES)
def test_writing_form_allocates_no_tensors(name: str) -> None:
    op_type, version, *rest = CASES[name]
    attributes = rest.pop() if isinstance(rest[-1], dict) else {}
    case = Case(op_type, version, *rest, **attributes)
    expected = case.returned()
    bound = case.bind(expected)
    assert bound is not None
    operands = [*case.inputs, *map(poisoned, expected)]
    if bound.workspace:
        operands.append(np.empty(bound.workspace, np.uint8))
    bound.call(*operands)
    peaks, kept = [], []
    for _ in range(3):  # other threads may be at work once
        tracemalloc.start()
        try:
            bound.call(*operands)
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for _ in range(3):
                bound.call(*operands)
            after, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        peaks.append(peak - before)
        kept.append(after - before)
    assert min(peaks) < BUFFER, f"{peaks} bytes at the peak of a call"
    assert min(kept) < 2048, f"{kept} bytes kept"
