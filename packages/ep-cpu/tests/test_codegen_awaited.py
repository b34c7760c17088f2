"""Sizes that come with a run: regions of generated code that are bound when they are known, against the NumPy kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from codegen_models import session
from onnx import ModelProto, parser

import onnxplug
from onnxplug.contract.errors import InvalidArgument

IMAGE = np.random.default_rng(0).standard_normal((1, 3, 6, 7)).astype(np.float32)
HEAD = '<ir_version: 10, opset_import: ["": 21]> g '


def _native(made: onnxplug.InferenceSession) -> set[str]:
    return {str(node["op_type"]) for node in made.explain().nodes if str(node["region"]).startswith("native")}


def _check(text: str, feeds: Sequence[dict[str, np.ndarray]], native: set[str]) -> onnxplug.InferenceSession:
    """Each run's results are those of NumPy; nodes of these operators are in native regions."""
    proto: ModelProto = parser.parse_model(HEAD + text)
    made, plain = session(proto), session(proto, codegen=False)
    assert native <= _native(made), made.explain()
    for given in feeds:
        for got, wanted in zip(made.run(None, given), plain.run(None, given), strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    return made


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes_of_every_run(mode: str) -> None:
    """More sizes than are kept, and those of an early run once more at the end."""
    sizes = [[1, 3, n, 9] for n in (6, 12, 3, 8, 9, 12)]
    text = f'(float[1, 3, 6, 7] x, int64[4] n) => (y) {{ a = Abs(x) b = Resize<mode = "{mode}">(a, , , n) y = Exp(b) }}'
    _check(text, [{"x": IMAGE, "n": np.array(n)} for n in sizes], {"Abs", "Resize", "Exp"})


def test_scales_of_every_run_and_images_of_any_size() -> None:
    """One of them makes a result without elements."""
    text = '(float[N, 3, H, W] x, float[4] s) => (y) { y = Resize<mode = "linear">(x, , s) }'
    scales = [np.array([1, 1, a, b], np.float32) for a, b in ((2, 1.5), (0.5, 1), (0.1, 1), (2, 1.5))]
    feeds = [{"x": x, "s": s} for s in scales for x in (IMAGE, IMAGE[:, :, :5])]
    _check(text, feeds, {"Resize"})


@pytest.mark.parametrize("declared", ["a, b, c", "4, 6, 12", "N, 6, M"])
def test_repeats_of_every_run(declared: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also where the model declares a shape that holds for some runs only, of every size of elements."""
    repeats = [np.array(r) for r in ([2, 2, 3], [1, 1, 1], [3, 1, 2], [0, 1, 1], [1, 5, 1], [2, 2, 3])]
    for kind, dtype in (("float", np.float32), ("int64", np.int64), ("uint8", np.uint8), ("float16", np.float16)):
        text = f"""({kind}[2, 3, 4] x, int64[3] r) => ({kind}[{declared}] y, {kind}[a, b, c] z) <{kind}[{declared}] t> {{
            t = Tile(x, r) y = Identity(t) z = Transpose(t)
        }}"""
        x = np.arange(24).reshape(2, 3, 4).astype(dtype)
        _check(text, [{"x": x, "r": r} for r in repeats], {"Tile", "Transpose"})
    assert "node by node" not in caplog.text


def test_negative_repeats_are_refused_and_the_next_run_is_answered() -> None:
    made = session(parser.parse_model(HEAD + "(float[N, 3] x, int64[2] r) => (y) { t = Tile(x, r) y = Exp(t) }"))
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(InvalidArgument, match="Tile repeat value must be non-negative, got: -1"):
        made.run(None, {"x": x, "r": np.array([1, -1])})
    assert made.run(None, {"x": x, "r": np.array([2, 5])})[0].shape == (4, 15)


def test_sizes_made_of_data_in_the_graph() -> None:
    """What makes them is no part of the region that they decide, though code could be generated for it."""
    text = """(float[1, 3, 6, 7] x, float[2] wanted) => (y, whole) <int64[2] lead = {1, 3}> {
        doubled = Add(wanted, wanted)
        whole = Cast<to = 7>(doubled)
        n = Concat<axis = 0>(lead, whole)
        t = Sigmoid(x)
        u = Mul(t, x)
        r = Resize<mode = "linear">(u, , , n)
        y = Exp(r)
    }"""
    feeds = [{"x": IMAGE, "wanted": np.array(n, np.float32)} for n in ([4, 5], [6, 7], [4, 5])]
    _check(text, feeds, {"Sigmoid", "Mul", "Resize", "Exp"})


def test_sizes_of_what_data_decides() -> None:
    """The image's shape is known to the plan, how many places of the mask are true is not."""
    text = """(float[1, 3, 6, 7] x, bool[20] mask) => (y) <int64[3] lead = {1, 3, 6}, int64 one = {1}> {
        places = NonZero(mask)
        shape = Shape<start = 1>(places)
        n = Concat<axis = 0>(lead, shape)
        r = Resize<mode = "linear">(x, , , n)
        y = Exp(r)
    }"""
    feeds = [{"x": IMAGE, "mask": np.arange(20) < count} for count in (5, 9, 20, 5)]
    _check(text, feeds, {"Resize", "Exp"})


def test_sizes_in_a_branch() -> None:
    text = """(float[1, 3, 6, 7] x, int64[4] n, bool c) => (y) {
        y = If(c) <
            then_branch = t () => (float[a, b, c, d] u) { r = Resize<mode = "linear">(x, , , n) u = Exp(r) },
            else_branch = e () => (float[a, b, c, d] v) { v = Neg(x) }
        >
    }"""
    sizes = [np.array([1, 3, *n]) for n in ([4, 5], [9, 9], [4, 5])]
    _check(text, [{"x": IMAGE, "n": n, "c": np.array(c)} for n in sizes for c in (True, False)], set())


@pytest.mark.parametrize(
    ("operand", "n"),
    [("int64[4] n) => (y) { y = Resize(x, , , n) }", [1, 3, height, 4]) for height in (-1, 0)]
    + [("float[4] n) => (y) { y = Resize(x, , n) }", [1, 1, scale, 2]) for scale in (-1, 0, np.nan, np.inf)],
)
def test_sizes_that_cannot_be(operand: str, n: list[float]) -> None:
    """They are refused as by the NumPy kernels, and the next run is answered."""
    proto = parser.parse_model(HEAD + "(float[1, 3, 6, 7] x, " + operand)
    dtype = np.int64 if operand.startswith("int64") else np.float32
    good = np.array(IMAGE.shape if dtype is np.int64 else [1, 1, 1, 1], dtype)
    for codegen in (True, False):
        made = session(proto, codegen=codegen)
        with pytest.raises(onnxplug.contract.Fail, match=r"Resize_0"):
            made.run(None, {"x": IMAGE, "n": np.array(n, dtype)})
        np.testing.assert_array_equal(made.run(None, {"x": IMAGE, "n": good})[0], IMAGE)
