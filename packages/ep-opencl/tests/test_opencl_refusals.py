"""Nodes of operators that have kernels, and are left to the CPU provider with the reason."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser
from opencl_models import PROVIDER, needs_device

import onnxplug as ort

CPU = "CPUExecutionProvider"
_NAMES = ", ".join(f"a{n}" for n in range(17))
_MANY = ", ".join(f"float[N] a{n}" for n in range(17))
REFUSED = {
    "17 operands; a kernel takes 16": (17, f"g ({_MANY}) => (float[N] y) {{ y = Sum({_NAMES}) }}"),
    "tensors of four dimensions": (17, "g (float x) => (y) { y = DepthToSpace<blocksize = 2>(x) }"),
    "batch statistics are for training": (
        15, "g (float[N, 3] x, float[3] s) => (y, p, q) { y, p, q = BatchNormalization<training_mode = 1>(x, s, s, s, s) }",
    ),
    "spatial=0": (7, "g (float[2, 3] x, float[3] s) => (y) { y = BatchNormalization<spatial = 0>(x, s, s, s, s) }"),
    "dropping at random": (13, "g (float[N] x, float r, bool t) => (y) { y = Dropout(x, r, t) }"),
    "is_test=0": (6, "g (float[2, 3, 4] x, float[3] s) => (y) { y = BatchNormalization(x, s, s, s, s) }"),
    "stash_type=1": (17, "g (float[2, 8] x, float[8] s) => (y) { y = LayerNormalization<stash_type = 11>(x, s) }"),
    "ranks of input and scale": (17, "g (float x, float[8] s) => (y) { y = LayerNormalization(x, s) }"),
    "shape that is normalised": (17, "g (float[2, 8] x, float[1] s) => (y) { y = LayerNormalization(x, s) }"),
    "the norm of p=3": (17, "g (float[1, 2, 3] x) => (y) { y = GlobalLpPool<p = 3>(x) }"),
    "rank of the input must be known": (17, "g (float x) => (y) { y = MaxPool<kernel_shape = [2]>(x) }"),
    "ranks of the operands": (17, 'g (float x, float[2] z) => (y) { y = Einsum<equation = "i,i->i">(x, z) }'),
    "3 operands": (17, 'g (float[2] x) => (y) { y = Einsum<equation = "i,i,i->i">(x, x, x) }'),
    "j of one operand is summed up": (17, 'g (float[2, 3] x, float[2] z) => (y) { y = Einsum<equation = "ij,i->i">(x, z) }'),
    "tf_crop_and_resize": (
        17, 'g (float[1, 1, 4, 4] x, float[8] r, float[4] s) => (y) '
        '{ y = Resize<coordinate_transformation_mode = "tf_crop_and_resize">(x, r, s) }',
    ),
    "window is not constant": (
        17, "g (float[1, 16, 1] x, float[4] w, int64 n) => (y) { y = STFT(x, n, w) }",
    ),
    "an inverse transform": (17, "g (float[1, 4, 2] x) => (y) { y = DFT<inverse = 1>(x) }"),
    "shape computation stays on the host": (17, "g (float[N, 3] x) => (y) { s = Shape(x) [last] y = Neg(s) }"),
    "a batch that may be one": (20, "g (float[N, 2, 3] x, int64[4] s) => (y) { y = AffineGrid(x, s) }"),
}  # fmt: skip
"""By what the reason says: opset, and a graph. Values written as scalars with no shape given below are of unknown rank."""


def _session(opset: int, text: str, unranked: bool) -> ort.InferenceSession:
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    if unranked:
        made.graph.input[0].type.tensor_type.ClearField("shape")
    for output in made.graph.output:
        output.ClearField("type")
    made = onnx.shape_inference.infer_shapes(made)
    return ort.InferenceSession(made.SerializeToString(), providers=[PROVIDER, CPU])


@needs_device
@pytest.mark.parametrize("why", REFUSED)
def test_it_says_why(why: str) -> None:
    opset, text = REFUSED[why]
    with _session(opset, text, unranked=text.startswith("g (float x")) as session:
        (node,) = [n for n in session.explain().nodes if why in n["reasons"].get(PROVIDER, "")]
        assert node["provider"] == CPU


@needs_device
def test_what_is_refused_runs_beside_the_others() -> None:
    text = "g (float[N, 8] x, float[1] s) => (y) { a = Relu(x) b = LayerNormalization(a, s) y = Neg(b) }"
    with _session(17, text, unranked=False) as session:
        assert sorted(session.placement().values()) == [CPU, PROVIDER, PROVIDER]
        x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
        a = np.maximum(x, 0).astype(np.float64)
        want = -(a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)
        (got,) = session.run(None, {"x": x, "s": np.ones(1, np.float32)})
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
