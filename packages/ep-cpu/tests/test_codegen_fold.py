"""Windows added up in images by generated code, against the NumPy kernels."""

from __future__ import annotations

import math

import numpy as np
from codegen_models import check, model
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 3), st.sampled_from([(1, 1), (2, 3)]), st.sampled_from([1, 2, 4]), st.integers(1, 3), st.integers(1, 2),
    st.integers(0, 2), st.booleans(),
)  # fmt: skip
def test_windows_added_up(
    rank: int, lead: tuple[int, int], kernel: int, stride: int, dilation: int, pad: int, symbolic: bool
) -> None:
    """The last axis has no padding at its end; pixels that no window meets are zero."""
    sizes, blocks = [9, 8, 10][-rank:], [kernel, 3, 2][:rank]
    pads = [pad] * (2 * rank - 1) + [0]
    output = [
        (n + pads[i] + pads[i + rank] - dilation * (k - 1) - 1) // stride + 1
        for i, (n, k) in enumerate(zip(sizes, blocks, strict=True))
    ]
    x = np.random.default_rng(kernel).standard_normal((lead[0], lead[1] * math.prod(blocks), math.prod(output)))
    feeds = {"x": x.astype(np.float32)}
    attributes = {"strides": [stride] * rank, "dilations": [dilation] * rank, "pads": pads}
    shapes = {"image": np.array(sizes), "block": np.array(blocks)}
    folded = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **attributes)
    check(model([folded], feeds, ["y"], shapes, symbolic=symbolic), feeds, atol=1e-5)
