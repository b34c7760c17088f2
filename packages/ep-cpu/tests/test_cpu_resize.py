"""Resize of images whose sizes data decide: generated code that serves any size, against the NumPy kernel."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_models import session
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from onnxplug_ep_cpu.kernels.resize import resizing
from onnxplug_kernels.ops.resize import resize

MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


class Node:
    """What is looked at of a node."""

    op_type, since_version = "Resize", 19

    def __init__(self, **attributes: object) -> None:
        self.attributes = attributes
        self.inputs = [self]
        self.dtype = np.dtype(np.float32)


def _refused(*operands: object) -> np.ndarray:
    raise AssertionError("generated code does not take this image")


@given(
    seed=st.integers(0, 1 << 16),
    given_size=st.tuples(st.integers(1, 40), st.integers(1, 70)),
    made=st.tuples(st.integers(1, 40), st.integers(1, 70)),
    start=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    mode=st.sampled_from(("linear", "cubic")),
    where=st.sampled_from(MODES),
    excluded=st.booleans(),
)
def test_parts_of_an_image(
    seed: int, given_size: tuple[int, int], made: tuple[int, int], start: tuple[int, int], mode: str, where: str,
    excluded: bool,
) -> None:  # fmt: skip
    """Views with gaps between rows, of every size: two sums of at most four products, of numbers below eight and weights below two."""
    attributes = {"mode": mode, "coordinate_transformation_mode": where, "exclude_outside": int(excluded)}
    whole = np.random.default_rng(seed).uniform(-8, 8, (2, 3, 50, 80)).astype(np.float32)
    x = whole[:, :, start[0] : start[0] + given_size[0], start[1] : start[1] + given_size[1]]
    sizes = np.array([2, 3, *made])
    if made == x.shape[2:]:
        sizes[2] += 1
    ours = resizing(Node(**attributes), _refused)(x, None, None, sizes)  # type: ignore[arg-type]
    wanted = resize(np, x.astype(np.float64), None, None, sizes, **attributes)  # type: ignore[arg-type]
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, wanted, rtol=0, atol=float(16 * 8 * 4 * np.finfo(np.float32).eps))


CROPS = """<ir_version: 9, opset_import: ["" : 17]>
g (float[1, 3, H, W] image, int64[N, 4] boxes, bool go) => (float[N, 3, n, m] crops)
<int64 zero = {0}, int64[4] sizes = {1, 3, 9, 20}, int64[2] axes = {2, 3}, int64[1] i0 = {0}, int64[1] i2 = {2}, int64[1] i4 = {4}> {
    shape = Shape(boxes)
    count = Gather(shape, zero)
    crops = Loop(count, go) <body = b (int64 i, bool c) => (bool c2, float[3, n, m] crop) {
        c2 = Identity(c)
        box = Gather<axis = 0>(boxes, i)
        start = Slice(box, i0, i2)
        end = Slice(box, i2, i4)
        part = Slice(image, start, end, axes)
        sized = Resize<mode = "linear">(PART, , , sizes)
        crop = Squeeze(sized, i0)
    }>
}"""


@pytest.mark.parametrize(("part", "native"), [("part", False), ("image", True)])
def test_parts_that_a_loop_cuts_out(part: str, native: bool) -> None:
    """Their sizes are those of data, so no region is bound for each; an image that is the same in all trips is a region's."""
    proto = parser.parse_model(CROPS.replace("PART", part))
    made, plain = session(proto), session(proto, codegen=False)
    owners = {n["op_type"]: str(n["region"]) for graph in (made.explain(),) for n in graph.nodes}
    rng = np.random.default_rng(0)
    for height, width in ((60, 70), (33, 90)):
        begin = rng.integers(0, 12, (5, 2))
        boxes = np.hstack([begin, begin + rng.integers(1, 20, (5, 2))])
        image = rng.standard_normal((1, 3, height, width)).astype(np.float32)
        feeds = {"image": image, "boxes": boxes, "go": np.array(True)}
        (got,), (wanted,) = made.run(None, feeds), plain.run(None, feeds)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert owners["Resize"].startswith("native") == native, owners
