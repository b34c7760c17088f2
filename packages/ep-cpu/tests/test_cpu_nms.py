"""NonMaxSuppression by generated code against the NumPy kernel: the same boxes in the same order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onnxplug_ep_cpu.kernels.nms import suppression
from onnxplug_kernels.ops.vision import non_max_suppression


@given(
    seed=st.integers(0, 1 << 16),
    boxes=st.integers(0, 70),
    most=st.integers(0, 80),
    overlap=st.sampled_from((0.0, 0.3, 0.5, 1.0)),
    least=st.sampled_from((-1.0, 0.0, 0.4, None)),
    center=st.integers(0, 1),
)
def test_suppression(seed: int, boxes: int, most: int, overlap: float, least: float | None, center: int) -> None:
    rng = np.random.default_rng(seed)
    places = rng.random((2, boxes, 4)).astype(np.float32)
    scores = np.round(rng.random((2, 3, boxes)), 1).astype(np.float32)  # many are equal
    threshold = None if least is None else np.array([least], np.float32)
    operands = (places, scores, np.array([most]), np.array([overlap], np.float32), threshold)
    ours = suppression(center_point_box=center)(*operands)
    theirs = non_max_suppression(np, *operands, center_point_box=center)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def test_scores_that_are_no_numbers() -> None:
    """Without a threshold all boxes are in the running, the worst too."""
    places = np.arange(40, dtype=np.float32).reshape(1, 10, 4)
    for strange in (np.nan, -np.inf, np.inf):
        scores = np.linspace(0, 1, 10, dtype=np.float32).reshape(1, 1, 10)
        scores[0, 0, 3] = strange
        operands = (places, scores, np.array([20]), np.array([0.5], np.float32))
        np.testing.assert_array_equal(suppression()(*operands), non_max_suppression(np, *operands))
