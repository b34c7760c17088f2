"""RNN, GRU and LSTM as cuBLAS's product, here NumPy's, and a generated kernel, here in its OpenCL dialect on PoCL."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from job_models import NARROW, Node, close, draw, on_opencl

from onnxplug.contract import TensorSpec
from onnxplug_ep_cuda.codegen.launch import Job
from onnxplug_ep_cuda.kernels.recurrent import OPERATORS, SHARED, form, lowered
from onnxplug_kernel_text.recurrent import GATES

RNG = np.random.default_rng
FACTOR = 64
"""Sums of up to 70 numbers, seven times: both sides round."""
SINCE = {"RNN": 22, "GRU": 22, "LSTM": 22}


class Layer(Node):
    """A recurrent node: its job follows the product."""

    def job(self) -> Job | None:
        found = lowered(self.call())
        return None if found is None else found[0]

    def results(self) -> list[np.ndarray | None]:
        found = lowered(self.call())
        assert found is not None
        x, w = self.inputs[:2]
        assert x is not None and w is not None
        projected = x.reshape(-1, x.shape[-1]) @ w.reshape(-1, w.shape[-1]).T
        assert projected.size == found[1]
        return on_opencl(found[0], self.inputs, self.call().outputs, projected)


def layer(
    op: str,
    size: int,
    dtype: str = "float32",
    *,
    optional: bool = True,
    directions: int = 1,
    outputs: Any = None,
    **given: Any,
) -> Layer:
    """A node over 7 steps of 3 sequences; with the optional inputs: biases, lengths, initial states."""
    rng, type_, gates = RNG(size), NARROW[dtype], GATES[op]
    batch, steps, width = 3, 7, 5
    first = (batch, steps) if given.get("layout") else (steps, batch)
    state = (batch, directions) if given.get("layout") else (directions, batch)
    shapes = [(*first, width), (directions, gates * size, width), (directions, gates * size, size)]
    inputs: list[Any] = [(draw(rng, shape, type_) * 0.3).astype(type_) for shape in shapes]
    inputs[2] = (inputs[2] / np.sqrt(size)).astype(type_)  # or errors grow from step to step
    if optional:
        inputs += [draw(rng, (directions, 2 * gates * size), type_), np.array([7, 0, 4], np.int32)]
        inputs += [draw(rng, (*state, size), type_) for _ in range(2 if op == "LSTM" else 1)]
        inputs += [draw(rng, (directions, 3 * size), type_)] if op == "LSTM" else []
    count = 3 if op == "LSTM" else 2
    attributes = {"hidden_size": size, **given}
    return Layer(op, SINCE[op], inputs, attributes, outputs or (True,) * count)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("op", sorted(GATES))
def test_steps(op: str, optional: bool, dtype: str) -> None:
    close(layer(op, 6, dtype, optional=optional), FACTOR)
    close(layer(op, 70, dtype, optional=optional, direction="reverse"), FACTOR)
    close(layer(op, 6, dtype, optional=optional, directions=2, direction="bidirectional", layout=1), FACTOR)


def test_what_makes_other_texts() -> None:
    close(layer("GRU", 6, linear_before_reset=1), FACTOR)
    close(layer("LSTM", 6, input_forget=1, clip=0.5), FACTOR)
    close(layer("LSTM", 6, outputs=(False, True, False)), FACTOR)
    functions = ["HardSigmoid", "Softsign", "Affine", "Sigmoid", "ScaledTanh", "Tanh"]
    close(layer("LSTM", 6, directions=2, direction="bidirectional", activations=functions), FACTOR)


@pytest.mark.parametrize("op", sorted(GATES))
def test_operands_that_do_not_go_together_are_left_to_the_portable_kernel_which_refuses_them(op: str) -> None:
    found = layer(op, 6)
    call, node = found.call(), SimpleNamespace(op_type=op, since_version=22, attributes=found.attributes)
    for n, spec in enumerate(call.inputs):
        assert spec is not None
        others = [
            *call.inputs[:n],
            TensorSpec(spec.dtype, (*spec.shape[:-1], spec.shape[-1] + 1)),
            *call.inputs[n + 1 :],
        ]
        assert form(node, others, call.outputs) is None  # type: ignore[arg-type]


def test_what_is_left_to_the_portable_kernel() -> None:
    assert {("", op) for op in GATES} == OPERATORS
    assert layer("GRU", 6, "float16").job() is None  # sums in float32 that cuBLAS would have to leave
    assert layer("GRU", SHARED // 16, optional=False).job() is not None
    assert layer("GRU", SHARED // 16 + 1, optional=False).job() is None  # more than a block shares


def every_layer() -> list[Node]:
    """A node for each text."""
    nodes: list[Node] = []
    for op in GATES:
        for dtype in ("float32", "float64"):
            nodes += [layer(op, size, dtype, optional=optional) for size in (6, 512) for optional in (False, True)]
    return [*nodes, layer("GRU", 96, linear_before_reset=1), layer("LSTM", 96, input_forget=1, clip=0.5)]
