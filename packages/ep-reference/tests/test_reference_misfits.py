"""Operands of which onnx.reference makes something though they do not go together."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from onnxplug_ep_reference.kernels.misfits import Inference

X = np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    ("op_type", "version", "operands", "attributes"),
    [
        ("Split", 18, [X, np.array([1, 1])], {"axis": 0}),
        ("Tile", 13, [X, np.array([1, 2, 3])], {}),
        ("GatherElements", 13, [X, np.array([[0, 9]])], {"axis": 1}),
        ("ScatterElements", 18, [X, np.array([[0, 1]]), X[:1]], {"axis": 1}),
        ("TopK", 11, [X, np.array([9])], {}),
    ],
)
def test_misfits_are_refused(
    op_type: str, version: int, operands: list[np.ndarray], attributes: dict[str, int]
) -> None:
    outputs = ["y0", "y1"] if op_type in ("Split", "TopK") else ["y0"]
    node = helper.make_node(op_type, [f"x{i}" for i in range(len(operands))], outputs, **attributes)
    assert Inference(node, version).refusal(operands)


def test_what_is_not_known_is_not_refused() -> None:
    node = helper.make_node("TopK", ["x0"], ["y0", "y1"], k=2)
    assert Inference(node, 1).refusal([X]) is None
    assert Inference(helper.make_node("Tile", ["x0", "x1"], ["y0"]), 13).refusal([X]) is None
