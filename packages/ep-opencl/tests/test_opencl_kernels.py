"""What kernels compute, in both forms, against NumPy in double precision."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, parser
from opencl_models import PROVIDER, needs_device, one_node, reference, run

import onnxplug as ort
from onnxplug.contract import TensorSpec
from onnxplug.contract.errors import InvalidArgument
from onnxplug_ep_opencl.shapes import output_specs

pytestmark = needs_device
FORMS = ("register", "local")
EPS = np.finfo(np.float32).eps
rng = np.random.default_rng(7)

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operator", REDUCTIONS)
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 2), (1, 2)])
def test_reductions(operator: str, axes: tuple[int, ...], form: str) -> None:
    x = rng.standard_normal((5, 3, 200)).astype(np.float32)
    feeds = {"x": x, "axes": np.array(axes, np.int64)}
    model = one_node(operator, feeds, opset=18)
    (got,) = run(model, feeds, kernel_shape=form)
    wide = x.astype(np.float64)
    # Partial sums of at most 64 elements are joined in a tree: far below 64 rounding errors of the sum of magnitudes.
    bound = 64 * EPS * (1 + np.sum(np.abs(wide), axis=axes, keepdims=True))
    assert np.all(np.abs(got - REDUCTIONS[operator](wide, axis=axes, keepdims=True)) <= bound)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(3, 70, 130), (1, 70, 3), (1, 3, 70)])
@pytest.mark.parametrize("axis", [1, 2])
def test_softmax_and_its_logarithm(axis: int, shape: tuple[int, ...], form: str) -> None:
    x = (rng.standard_normal(shape) * 5).astype(np.float32)
    wide = np.exp(x - x.max(axis, keepdims=True).astype(np.float64))
    want = wide / wide.sum(axis, keepdims=True)
    (got,) = run(one_node("Softmax", {"x": x}, axis=axis), {"x": x}, kernel_shape=form)
    np.testing.assert_allclose(got, want, rtol=64 * EPS)
    (logs,) = run(one_node("LogSoftmax", {"x": x}, axis=axis), {"x": x}, kernel_shape=form)
    np.testing.assert_allclose(logs, np.log(want), rtol=64 * EPS, atol=64 * EPS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("largest", "last"), [(True, 0), (True, 1), (False, 0), (False, 1)])
def test_positions_of_extremes_among_equals(largest: bool, last: int, form: str) -> None:
    x = rng.integers(0, 4, (6, 150, 3)).astype(np.float32)
    x[2, 40, 1] = x[2, 90, 1] = np.nan
    operator = "ArgMax" if largest else "ArgMin"
    model = one_node(operator, {"x": x}, axis=1, keepdims=0, select_last_index=last)
    (got,) = run(model, {"x": x}, kernel_shape=form)
    pick = np.argmax if largest else np.argmin
    want = x.shape[1] - 1 - pick(x[:, ::-1], axis=1) if last else pick(x, axis=1)
    clean = ~np.isnan(x).any(axis=1)
    np.testing.assert_array_equal(got[clean], want[clean])
    assert np.isnan(x[2, got[2, 1], 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(("shape", "size"), [((2, 7, 3, 5), 3), ((1, 4, 6), 4), ((2, 3, 2), 9)])
def test_responses_divided_by_those_of_neighbouring_channels(shape: tuple[int, ...], size: int, dtype: Any) -> None:
    feeds = {"x": rng.standard_normal(shape).astype(dtype)}
    attributes = {"size": size, "alpha": 0.5, "beta": 0.7, "bias": 1.5}
    (got,) = run(one_node("LRN", feeds, **attributes), feeds)
    want = reference("LRN", {"x": feeds["x"].astype(np.float64)}, **attributes)
    np.testing.assert_allclose(got, want, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("axis", "p"), [(0, 1), (1, 2), (-1, 2), (-1, 1)])
def test_lines_divided_by_their_norms(axis: int, p: int, form: str) -> None:
    x = rng.standard_normal((3, 5, 70)).astype(np.float32)
    x[:, 2], x[1], x[..., 7] = 0, 0, 0  # a line of zeros stays
    (got,) = run(one_node("LpNormalization", {"x": x}, 22, axis=axis, p=p), {"x": x}, kernel_shape=form)
    norm = np.linalg.norm(x.astype(np.float64), p, axis, keepdims=True)
    np.testing.assert_allclose(got, x / np.where(norm == 0, 1, norm), rtol=80 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("form", FORMS)
def test_layer_normalisation_with_statistics(form: str) -> None:
    x, scale, bias = (rng.standard_normal(s).astype(np.float32) for s in ((9, 300), 300, 300))
    feeds = {"x": x + 3, "scale": scale, "bias": bias}
    got, mean, spread = run(one_node("LayerNormalization", feeds, outputs=3), feeds, kernel_shape=form)
    alone = run(one_node("LayerNormalization", feeds, outputs=2), feeds, kernel_shape=form)[1]
    np.testing.assert_array_equal(alone, mean)
    wide = feeds["x"].astype(np.float64)
    want_mean, want_spread = wide.mean(1, keepdims=True), 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(mean, want_mean, rtol=64 * EPS)
    np.testing.assert_allclose(spread, want_spread, rtol=64 * EPS)
    np.testing.assert_allclose(got, (wide - want_mean) * want_spread * scale + bias, rtol=0, atol=256 * EPS)


def test_a_scalars_transpose_has_a_shape() -> None:
    """Which onnx does not tell, where a kernel makes its result itself."""
    node = SimpleNamespace(op_type="Transpose", domain="", since_version=1, attributes={}, name="t", outputs=[object()])
    scalar = TensorSpec(np.dtype(np.float32), ())
    assert output_specs(node, [scalar]) == [scalar]


@pytest.mark.parametrize(("operator", "version"), [("AveragePool", 19), ("MaxPool", 12), ("LpPool", 18)])
def test_no_window_begins_behind_an_image(operator: str, version: int) -> None:
    """Which onnx counts before version 22, and always in images a stride smaller than the window."""
    attributes = {"kernel_shape": [3, 5], "strides": [3, 3], "pads": [1, 0, 1, 0], "ceil_mode": 1}
    node = SimpleNamespace(
        op_type=operator, domain="", since_version=version, attributes=attributes, name="p", outputs=[object()]
    )
    image = TensorSpec(np.dtype(np.float32), (1, 3, 2, 2))
    (made,) = output_specs(node, [image])
    assert made is not None and made.shape == (1, 3, 1, 0)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_movements_give_the_elements_numpy_gives(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    order = data.draw(st.permutations(range(len(shape))))
    (moved,) = run(one_node("Transpose", {"x": x}, perm=order), {"x": x})
    np.testing.assert_array_equal(moved, x.transpose(order))
    pads = data.draw(st.lists(st.integers(0, 2), min_size=2 * len(shape), max_size=2 * len(shape)))
    mode = data.draw(st.sampled_from(["constant", "edge"]))
    feeds = {"x": x, "pads": np.array(pads, np.int64)}
    (padded,) = run(one_node("Pad", feeds, mode=mode), feeds)
    np.testing.assert_array_equal(padded, np.pad(x, list(zip(pads[: x.ndim], pads[x.ndim :], strict=True)), mode))
    repeats = np.array(data.draw(st.lists(st.integers(1, 3), min_size=x.ndim, max_size=x.ndim)), np.int64)
    (tiled,) = run(one_node("Tile", {"x": x, "r": repeats}), {"x": x, "r": repeats})
    np.testing.assert_array_equal(tiled, np.tile(x, repeats))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.int64])
def test_broadcast_arithmetic(dtype: type) -> None:
    a, b = (rng.integers(1, 9, s).astype(dtype) for s in ((4, 1, 40), (3, 1)))
    for operator, expected in (
        ("Add", a + b),
        ("Mul", a * b),
        ("Div", a / b if dtype(1) / 2 and a.dtype.kind == "f" else a // b),
    ):
        (got,) = run(one_node(operator, {"a": a, "b": b}), {"a": a, "b": b})
        np.testing.assert_array_equal(got, expected.astype(dtype))


def test_division_of_integers_by_zero_does_not_trap() -> None:
    a, b = np.array([7, -(2**31), 5], np.int32), np.array([0, -1, 0], np.int32)
    (got,) = run(one_node("Div", {"a": a, "b": b}), {"a": a, "b": b})
    assert got[1] == -(2**31)


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_modulo_has_the_divisors_sign(operator: str) -> None:
    a, b = np.array([-7, 7, -7, 7, 6], np.float32), np.array([3, -3, -3, 3, -3], np.float32)
    want = np.mod(a, b) if operator == "Mod" else a / b
    (got,) = run(one_node(operator, {"a": a, "b": b}, opset=28 if operator == "Mod" else 21), {"a": a, "b": b})
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(("opset", "kept"), [(7, 0), (10, 0), (13, 1)])
def test_the_mask_of_a_dropout_that_drops_nothing(opset: int, kept: int) -> None:
    """Zeros before version 12, as onnxruntime has it, ones since; in the data's type before version 10."""
    x = rng.standard_normal((3, 4)).astype(np.float32)
    got, mask = run(one_node("Dropout", {"x": x}, opset=opset, outputs=2), {"x": x})
    np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(mask, np.full(x.shape, kept, np.float32 if opset < 10 else np.bool_))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_pad_takes_axes_of_both_types(index: type) -> None:
    x = rng.standard_normal((2, 3)).astype(np.float32)
    feeds = {"x": x, "pads": np.array([1, 2]), "value": np.array(7, np.float32), "axes": np.array([1], index)}
    (got,) = run(one_node("Pad", feeds), feeds)  # int64 as an initializer, int32 fed
    np.testing.assert_array_equal(got, np.pad(x, [(0, 0), (1, 2)], constant_values=7))


@pytest.mark.parametrize(("operator", "default"), [("HardSigmoid", 0.2), ("LeakyRelu", 0.01)])
def test_defaults_are_those_that_float_attributes_hold(operator: str, default: float) -> None:
    """In double precision 0.2 is not the default; the nearest float is."""
    x = np.array([-1.0], np.float64)
    (got,) = run(one_node(operator, {"x": x}), {"x": x})
    held = float(np.float32(default))
    np.testing.assert_array_equal(got, [0.5 - held if operator == "HardSigmoid" else -held])


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64])
def test_ranges(dtype: type[np.number]) -> None:
    """onnx's inference reads no limits in int16."""
    feeds = {name: np.array(value, dtype) for name, value in (("start", 1), ("limit", 10), ("delta", 3))}
    (got,) = run(one_node("Range", feeds), feeds)
    assert got.dtype == dtype and got.tolist() == [1, 4, 7]


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_signed_numbers_are_shifted(dtype: Any, direction: str) -> None:
    """Counts below zero or beyond the width, too."""
    bits, limits = 8 * np.dtype(dtype).itemsize, np.iinfo(dtype)
    x = np.array([limits.min, limits.max, -5, -1, 0, 7], dtype)[:, None]
    counts = np.array([-1, 0, 1, 3, bits - 1, bits, limits.max], dtype)
    (got,) = run(one_node("BitShift", {"x": x, "y": counts}, opset=28, direction=direction), {"x": x, "y": counts})
    want = np.empty((len(x), len(counts)), dtype)
    for i, value in enumerate(x[:, 0].tolist()):
        for k, count in enumerate(counts.tolist()):
            beyond = not 0 <= count < bits
            if direction == "RIGHT":
                want[i, k] = value >> (bits - 1 if beyond else count)
            else:
                exact = 0 if beyond else value << count
                want[i, k] = (exact + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("operator", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_losses_are_computed_as_what_they_are_made_of(operator: str, reduction: str) -> None:
    scores = np.random.default_rng(5).standard_normal((3, 5, 4)).astype(np.float32)
    labels = np.array([[0, 4, 2, 1], [3, 3, 0, 1], [2, 1, 1, 4]], np.int32)
    feeds = {"x": scores, "t": labels, "w": np.float32([0.5, 1, 2, 0.25, 1])}
    model = one_node(operator, feeds, reduction=reduction, ignore_index=1)
    session = ort.InferenceSession(model, providers=[PROVIDER, "CPUExecutionProvider"])
    assert set(session.placement().values()) == {PROVIDER}
    (got,) = session.run(None, feeds)
    want = reference(operator, feeds, reduction=reduction, ignore_index=1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


_IMAGE = "float[1, 2, N, 4] x, float[2, 1, 3, 3] w"


@pytest.mark.parametrize(
    ("inputs", "node", "kind"),
    [
        ("float[4, 3] x, int64[L] l", "ReverseSequence<batch_axis = 1, time_axis = 0>(x, l)", InvalidArgument),
        ("float[3, N] x, int64[3, M] i, float[3, P] u", "ScatterElements<axis = 1>(x, i, u)", InvalidArgument),
        (_IMAGE, "ConvTranspose<pads = [5, 5, 5, 5]>(x, w)", InvalidArgument),
        (_IMAGE, "ConvTranspose<output_padding = [3, 3], strides = [2, 2]>(x, w)", InvalidArgument),
    ],
)
def test_shapes_that_only_a_run_knows_and_that_do_not_go_together(
    inputs: str, node: str, kind: type[Exception]
) -> None:
    """Refused as on the CPU, where a kernel would read and write beside its tensors."""
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (y) {{ y = {node} }}'
    model, open_sizes = parser.parse_model(text).SerializeToString(), {"L": 2, "M": 2, "N": 4, "P": 3}
    dtypes = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
    for provider in (PROVIDER, "CPUExecutionProvider"):
        session = ort.InferenceSession(model, providers=[provider])
        shapes = {x.name: [open_sizes.get(n, n) for n in x.shape] for x in session.get_inputs()}
        feeds = {x.name: np.ones(shapes[x.name], dtypes[x.type]) for x in session.get_inputs()}
        with pytest.raises(kind):
            session.run(None, feeds)


@pytest.mark.parametrize(
    ("starts", "ends", "axes"), [([1], [3], [-1]), ([5], [-7], [0]), ([5, 0], [2, 9], [0, -1]), ([0], [0], [-2])]
)
def test_slices_by_attributes(starts: list[int], ends: list[int], axes: list[int]) -> None:
    """Axes that count from the end, and results without elements, of which onnx infers no shape."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    model = one_node("Slice", {"x": x}, 9, starts=starts, ends=ends, axes=axes)
    (got,) = run(model, {"x": x})
    np.testing.assert_array_equal(got, reference("Slice", {"x": x}, 9, starts=starts, ends=ends, axes=axes))


@pytest.mark.parametrize("axes", [[0, 0], [1, -1], [2]])
def test_slices_by_attributes_of_axes_that_are_not_there(axes: list[int]) -> None:
    x = np.ones((3, 4), np.float32)
    model = onnx.load_from_string(
        one_node("Slice", {"x": x}, 9, starts=[2] * len(axes), ends=[3] * len(axes), axes=axes)
    )
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    with pytest.raises(InvalidArgument):
        run(model.SerializeToString(), {"x": x})


def test_a_cache_of_nothing_goes_with_any_batch() -> None:
    """onnxruntime takes what is empty along the axis for any other sizes; the first feed of a decoder is of batch 1."""
    cache, new = np.ones((1, 2, 0, 4), np.float32), np.random.default_rng(0).random((3, 2, 1, 4), np.float32)
    feeds = {"a": cache, "b": new, "c": cache}
    text = "g (float[n, 2, p, 4] a, float[m, 2, q, 4] b, float[n, 2, p, 4] c) => (float[r, 2, s, 4] y) { y = Concat <axis = -2> (a, b, c) }"
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> {text}')
    (got,) = run(model.SerializeToString(), feeds)
    np.testing.assert_array_equal(got, new)


@pytest.mark.parametrize(
    ("source", "to"), [(np.float32, np.int32), (np.int64, np.float64), (np.bool_, np.uint8), (np.float16, np.uint16)]
)
def test_bits_are_read_as_another_type(source: type[np.generic], to: type[np.generic]) -> None:
    x = np.array([[0, 1, 1], [1, 0, 1]], source)
    (got,) = run(one_node("BitCast", {"x": x}, 26, to=helper.np_dtype_to_tensor_dtype(np.dtype(to))), {"x": x})
    np.testing.assert_array_equal(got, x.view(to), strict=True)


OLD: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any]]] = {
    "Gemm": ({"a": (3, 4), "b": (4, 5), "c": (5,)}, {"broadcast": 1, "alpha": 0.5}),
    "PRelu": ({"x": (2, 3, 4, 3), "slope": (3,)}, {}),
    "BatchNormalization": ({"x": (2, 3, 4, 5), "s": (3,), "b": (3,), "m": (3,), "v": (3,)}, {"is_test": 1}),
}


@pytest.mark.parametrize("operator", OLD)
def test_old_versions_of_layers(operator: str) -> None:
    """Those of models from before 2018."""
    shapes, attributes = OLD[operator]
    feeds = {n: rng.uniform(0.1 if n == "v" else -1, 1, shape).astype(np.float32) for n, shape in shapes.items()}
    (got,) = run(one_node(operator, feeds, 6, **attributes), feeds)
    np.testing.assert_allclose(got, reference(operator, feeds, 6, **attributes), rtol=1e-5, atol=1e-5)
