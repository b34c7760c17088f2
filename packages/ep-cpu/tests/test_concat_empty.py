"""Concat of operands that have no length along its axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.contract.errors import Fail

TEXT = """<ir_version: 9, opset_import: ["" : 21]>
g (float[A, B] past, float[C, D] new, float[E, F] w) => (float[G, H] present, float[I, J] y, float[K, L] s) {
    present = Concat<axis = 1>(past, new) r = Relu(present) y = MatMul(r, w)
    q = SequenceConstruct(past, new) s = ConcatFromSequence<axis = 1>(q) }"""


@pytest.mark.parametrize("turned", [False, True])
def test_a_cache_of_nothing_may_be_of_another_batch(turned: bool) -> None:
    """As onnxruntime takes it; what has elements has to fit."""
    session = onnxplug.InferenceSession(
        onnx.parser.parse_model(TEXT).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    new, w = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((3, 2), np.float32)

    def run(past: np.ndarray, w: np.ndarray) -> list[Any]:
        one, other = (new, past) if turned else (past, new)
        return session.run(None, {"past": one, "new": other, "w": w})

    for _ in range(2):
        for rows in (1, 2, 5):
            present, y, joined = run(np.zeros((rows, 0), np.float32), w)
            np.testing.assert_array_equal(present, new, strict=True)
            np.testing.assert_array_equal(joined, new, strict=True)
            np.testing.assert_array_equal(y, new @ w, strict=True)
        with pytest.raises(Fail, match="Non concat axis dimensions must match"):
            run(np.zeros((1, 1), np.float32), np.ones((4, 2), np.float32))
        assert run(np.zeros((2, 1), np.float32), np.ones((4, 2), np.float32))[0].shape == (2, 4)
