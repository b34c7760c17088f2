"""Attention as MatMul, Softmax, MatMul: one region, whose results are those of the nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from opencl_models import PROVIDER, needs_device

import onnxplug as ort

pytestmark = needs_device
SIZES = {"B": 2, "S": 5, "T": 20}
EPS = float(np.finfo(np.float32).eps)
BODIES = {
    "plain": "s = MatMul(q, k) w = Softmax(s) z = MatMul(w, v)",
    "scaled and masked": "c = Constant<value_float = 0.25>() a = MatMul(q, k) b = Mul(a, c) s = Add(b, m) w = Softmax<axis = 3>(s) "
    "z = MatMul(w, v)",
    "turned": "t = Transpose<perm = [0, 1, 3, 2]>(u) s = MatMul(q, t) w = Softmax(s) y = MatMul(w, v) "
    "z = Transpose<perm = [0, 2, 1, 3]>(y)",
}
FORMS = ["register", "local"]


def model(body: str, element: str = "float", mask: np.ndarray | None = None) -> onnx.ModelProto:
    """``mask``: it is a constant."""
    shapes = {"q": "B, 3, S, 16", "k": "B, 3, 16, T", "u": "B, 3, T, 16", "v": "B, 3, T, 12", "m": "B, 1, S, T"}
    inputs = ", ".join(
        f"{element}[{dims}] {name}"
        for name, dims in shapes.items()
        if f"({name}," in body or f", {name})" in body or f"({name})" in body
    )
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => ({element} z) {{ {body} }}'
    made = onnx.parser.parse_model(text)
    if mask is not None:
        made.graph.initializer.append(onnx.numpy_helper.from_array(mask, "m"))
        (given,) = (value for value in made.graph.input if value.name == "m")
        made.graph.input.remove(given)
    return made


def feeds_of(made: onnx.ModelProto, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        value.name: rng.standard_normal([d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim])
        .clip(-3, 3)
        .astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        for value in made.graph.input
    }


def compare(made: onnx.ModelProto, atol: float, form: str, feeds: dict[str, np.ndarray] | None = None) -> np.ndarray:
    """One region on the device, against the nodes one by one on the host."""
    session = ort.InferenceSession(made.SerializeToString(), providers=[(PROVIDER, {"kernel_shape": form})])
    assert "region attention_" in str(session.explain())
    feeds = feeds or feeds_of(made)
    (got,) = session.run(None, feeds)
    wide = {n: x.astype(np.float32) for n, x in feeds.items()}
    (want,) = ort.InferenceSession(
        model_of_floats(made).SerializeToString(), providers=["ReferenceExecutionProvider"]
    ).run(None, wide)
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=0, atol=atol)
    return got


def model_of_floats(made: onnx.ModelProto) -> onnx.ModelProto:
    """The same in float32."""
    wide = onnx.ModelProto()
    wide.CopyFrom(made)
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for n, tensor in enumerate(wide.graph.initializer):
        array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        wide.graph.initializer[n].CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return wide


# Scores of 16 products below 9, their error that of weights; values below 3, 20 of them.
BOUND = 2 * 3 * EPS * (16 * 9 + 20)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", BODIES)
def test_results(name: str, form: str) -> None:
    compare(model(BODIES[name]), BOUND, form)


@pytest.mark.parametrize("form", FORMS)
def test_scores_of_halves_are_not_rounded(form: str) -> None:
    """The result is that of float32 arithmetic, rounded once: half a unit of numbers below 4."""
    compare(model(BODIES["plain"], "float16"), 2.0**-10 + BOUND, form)


@pytest.mark.parametrize("form", FORMS)
def test_a_constant_mask_that_hides_a_row(form: str) -> None:
    mask = np.where(np.tri(5, 20, 10, bool), np.float32(0), np.float32(-np.inf))
    mask[1] = -np.inf
    got = compare(model(BODIES["scaled and masked"], mask=mask), BOUND, form)
    assert np.isnan(got[:, :, 1]).all() and not np.isnan(got[:, :, 2:]).any()


def test_shapes_that_change_and_nothing_at_all() -> None:
    made = model(BODIES["turned"])
    session = ort.InferenceSession(made.SerializeToString(), providers=[PROVIDER])
    for sizes in (SIZES, {"B": 1, "S": 1, "T": 3}, {"B": 2, "S": 0, "T": 3}):
        (got,) = session.run(None, feeds_of(made, sizes))
        assert got.shape == (sizes["B"], sizes["S"], 3, 12)
