"""Generated pooling, resampling and channel-wise normalisation against the NumPy kernels in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native, session
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnxplug
from onnxplug.contract.errors import InvalidArgument
from onnxplug_ep_cpu.codegen.lower.taps import blind, seeing
from onnxplug_kernels.ops import pool
from onnxplug_kernels.ops.batch_norm import batch_normalization
from onnxplug_kernels.ops.norm import lrn
from onnxplug_kernels.ops.resize import resize, resize_10, upsample, upsample_7
from onnxplug_kernels.windows import Windows
from onnxplug_kernels.windows import windows as windows_of

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(
    op: str, reference: Callable[..., Any], x: np.ndarray, constants: dict[str, np.ndarray],
    opset: int = 19, **attributes: Any
) -> None:  # fmt: skip
    """A node whose result leaves the graph, and one of what another made for another, against the NumPy kernel."""
    names = [name if a.size else "" for name, a in constants.items()]
    held = {name: a for name, a in constants.items() if a.size}
    wide = [
        a.astype(np.float64) if a.dtype == np.float32 and a.size else a if a.size else None for a in constants.values()
    ]
    want = reference(np, x.astype(np.float64), *wide, **attributes)
    alone = [helper.make_node(op, ["x", *names], ["y"], **attributes)]
    turned = [0, *range(2, x.ndim), 1]
    among = [
        helper.make_node("Transpose", ["t"], ["n"], perm=[0, x.ndim - 1, *range(1, x.ndim - 1)]),
        helper.make_node(op, ["n", *names], ["p"], **attributes),
        helper.make_node("Neg", ["p"], ["y"]),
    ]
    for nodes, feeds, sign in ((alone, {"x": x}, 1), (among, {"t": np.ascontiguousarray(x.transpose(turned))}, -1)):
        (ours,) = run_native(model(nodes, feeds, ["y"], held, opset=opset), feeds)
        assert ours.shape == want.shape
        np.testing.assert_allclose(ours, sign * want, rtol=1e-4, atol=2e-6)


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """(shape, attributes) of a pooling window that sees the input everywhere."""
    rank = draw(st.integers(1, 3))
    sizes = (*(draw(st.integers(3, 9)) for _ in range(rank - 1)), draw(st.integers(3, 40)))
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    mode = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [draw(st.integers(1, 5)) for _ in range(rank)]}
    attributes["dilations"] = [draw(st.integers(1, 2)) if mode == "NOTSET" else 1 for _ in range(rank)]
    if mode == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, k - 1)) for _ in range(2) for k in kernel]
        attributes["ceil_mode"] = draw(st.integers(0, 1))
    else:
        attributes["auto_pad"] = mode
    padded = [n + sum(attributes.get("pads", [0] * 2 * rank)[i::rank]) for i, n in enumerate(sizes)]
    assume(all((k - 1) * d + 1 <= n for k, d, n in zip(kernel, attributes["dilations"], padded, strict=True)))
    return (draw(st.integers(1, 2)), draw(st.integers(1, 70)), *sizes), attributes


@settings(max_examples=25)
@given(windows())
def test_max_pool(window: Any) -> None:
    shape, attributes = window
    check("MaxPool", pool.max_pool, floats(*shape), {}, **attributes)


@settings(max_examples=20)
@given(windows(), st.integers(0, 1))
def test_max_pool_tells_places(window: Any, storage_order: int) -> None:
    """The first of equal elements, NaN before all, and never the padding, whatever else there is."""
    shape, attributes = window
    attributes["storage_order"] = storage_order
    x = np.random.default_rng(0).choice(np.array([-np.inf, np.nan, *range(9)], np.float32), shape)
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], **attributes)
    ours = run_native(model([node], {"x": x}, ["y", "i"], opset=19, types={"i": TensorProto.INT64}), {"x": x})
    for mine, want in zip(ours, pool.max_pool(np, x, n_outputs=2, **attributes), strict=True):
        np.testing.assert_array_equal(mine, want)


def test_max_unpool() -> None:
    """What MaxPool found goes back, also from channels-last memory; an index beyond the end is refused."""
    x, window = floats(2, 9, 6, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "i"], **window),
        helper.make_node("MaxUnpool", ["p", "i"], ["y"], **window),
    ]
    (ours,) = run_native(model(nodes, {"x": x}, ["y"], opset=19), {"x": x})
    best, places = pool.max_pool(np, x, n_outputs=2, **window)
    np.testing.assert_array_equal(ours, pool.max_unpool(np, best, places, **window))
    made = session(model(nodes[1:], {"p": best, "i": places}, ["y"], opset=19))
    with pytest.raises(InvalidArgument, match="MaxUnpool"):
        made.run(None, {"p": best, "i": places + x.size})


@settings(max_examples=25)
@given(windows(), st.integers(0, 1))
def test_average_pool(window: Any, count_include_pad: int) -> None:
    shape, attributes = window
    check("AveragePool", pool.average_pool, floats(*shape), {}, count_include_pad=count_include_pad, **attributes)


@pytest.mark.parametrize("channels", (2, 3, 6))
@pytest.mark.parametrize("stride", (1, 2))
def test_pools_of_few_channels_that_lie_last(channels: int, stride: int) -> None:
    window: dict[str, Any] = {"kernel_shape": [5, 3], "strides": [stride] * 2, "pads": [2, 1, 2, 1]}
    x = floats(2, channels, 19, 35)
    check("AveragePool", pool.average_pool, x, {}, **window)
    check("MaxPool", pool.max_pool, x, {}, **window)


def test_windows_far_larger_than_the_image_cost_what_they_see() -> None:
    x = floats(1, 5, 4, 6)
    for size in (100, 1 << 40):
        node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[size, 3], auto_pad="SAME_UPPER")
        (ours,) = run_native(model([node], {"x": x}, ["y"], opset=19), {"x": x})
        wanted = pool.average_pool(np, x, kernel_shape=[100, 3], auto_pad="SAME_UPPER")
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(4, 12), st.data()), min_size=1, max_size=2), st.integers(0, 1))
def test_windows_larger_than_the_image(axes: list[Any], count_include_pad: int) -> None:
    pads = []
    for size, kernel, data in axes:
        before = data.draw(st.integers(0, kernel - 1))
        pads.append((before, data.draw(st.integers(min(max(0, kernel - size - before), kernel - 1), kernel - 1))))
    attributes = {
        "kernel_shape": [k for _, k, _ in axes],
        "pads": [p for side in zip(*pads, strict=True) for p in side],
    }
    x = floats(1, 20, *(size for size, _, _ in axes))
    check("MaxPool", pool.max_pool, x, {}, **attributes)
    check("AveragePool", pool.average_pool, x, {}, count_include_pad=count_include_pad, **attributes)


def test_a_window_far_larger_than_what_is_left_of_the_image() -> None:
    """As transformers' EfficientNet ends; the time of the taps that see only padding would be a thousand times the others'."""
    attributes = {"kernel_shape": [1280] * 2, "strides": [1280] * 2, "ceil_mode": 1}
    check("AveragePool", pool.average_pool, floats(1, 40, 7, 6), {}, **attributes)
    moves = seeing(windows_of((7, 6), (1280, 1280), strides=(1280, 1280), ceil_mode=1), (7, 6))
    assert moves.kernel == (7, 6)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_whether_a_window_sees_nothing_but_padding(data: st.DataObject) -> None:
    several = st.lists(
        st.tuples(*(st.integers(*a) for a in ((1, 9), (1, 5), (1, 4), (1, 4), (0, 7), (0, 9)))), min_size=1, max_size=2
    )
    size, kernel, strides, dilations, begins, output = zip(*data.draw(several), strict=True)
    moves = Windows(kernel, strides, dilations, begins, begins, (0,) * len(size), output)
    assert blind(moves, size) == any(0 in moves.seen(axis, 0, n) for axis, n in enumerate(size))


@pytest.mark.parametrize("shape", ((1, 3, 5), (2, 40, 7, 7), (1, 17, 40, 31), (1, 2, 3, 30, 11)))
def test_global_pools(shape: tuple[int, ...]) -> None:
    check("GlobalAveragePool", pool.global_average_pool, floats(*shape), {})
    check("GlobalMaxPool", pool.global_max_pool, floats(*shape), {})


def test_max_pool_keeps_nan() -> None:
    x = floats(1, 20, 6, 6)
    x[0, 3, 2, 2], x[0, 4], x[0, 5, 1, 1] = np.nan, -np.inf, np.inf
    check("MaxPool", pool.max_pool, x, {}, kernel_shape=[3, 3], pads=[1] * 4)


@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
@pytest.mark.parametrize("how", ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
@pytest.mark.parametrize("scales", ((2.0, 2.0), (0.6, 1.5)))
def test_resize(mode: str, how: str, scales: tuple[float, float]) -> None:
    constants = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, *scales], np.float32)}
    attributes = {"mode": mode, "coordinate_transformation_mode": how}
    check("Resize", resize, floats(2, 11, 5, 8), constants, **attributes)


@pytest.mark.parametrize("scales", ((2.0, 2.0), (3.0, 1.0), (1.0, 4.0), (0.5, 0.5), (0.25, 2.0), (0.5, 0.2)))
@pytest.mark.parametrize("shape", ((2, 3, 8, 20), (1, 2, 4, 5), (1, 40, 13, 13)))
def test_nearest_of_whole_steps(scales: tuple[float, float], shape: tuple[int, ...]) -> None:
    """Copies of views."""
    constants = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, *scales], np.float32)}
    check(
        "Resize", resize, floats(*shape), constants, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    check("Resize", resize, floats(*shape), constants)


@pytest.mark.parametrize("mode", ("nearest", "linear"))
@pytest.mark.parametrize("scales", ((2.0, 2.0), (1.5, 0.5), (0.5, 1.0)))
def test_resize_of_an_image_whose_channels_are_declared_last(mode: str, scales: tuple[float, float]) -> None:
    x = floats(2, 6, 7, 20)
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Resize", ["n", "", "scales"], ["y"], mode=mode)]
    (got,) = run_native(model(nodes, {"x": x}, ["y"], {"scales": np.array([1, *scales, 1], np.float32)}), {"x": x})
    turned = resize(np, -x.transpose(0, 3, 1, 2), np.zeros(0), np.array([1, 1, *scales], np.float32), mode=mode)
    np.testing.assert_allclose(got, turned.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
@pytest.mark.parametrize("shape", ((1, 1, 1, 8), (1, 2, 0, 8), (0, 3, 4, 4), (2, 0, 4, 4), (2, 17, 1, 1)))
def test_resize_to_nothing(mode: str, shape: tuple[int, ...]) -> None:
    constants = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 0.5, 2.0], np.float32)}
    check("Resize", resize, floats(*shape), constants, mode=mode)


@pytest.mark.parametrize("codegen", (True, False))
def test_the_nearest_element_is_onnxruntimes(codegen: bool) -> None:
    """In float32 1.5 / 0.6 is 2.5; in double the float 0.6 is a little more than 0.6, and element 1 would lie below 2."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest", nearest_mode="floor")
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 1, 10)
    data = model([node], {"x": x}, ["y"], {"scales": np.array([1, 1, 1, 0.6], np.float32)})
    (y,) = session(data, codegen=codegen).run(None, {"x": x})
    np.testing.assert_array_equal(y.ravel(), [0, 2, 3, 5, 6, 8])


@settings(max_examples=25)
@given(st.data(), st.sampled_from(("nearest", "linear", "cubic")), st.integers(0, 1))
def test_resize_of_planes(data: st.DataObject, mode: str, antialias: int) -> None:
    sizes, made = (data.draw(st.lists(st.integers(2, 40), min_size=2, max_size=2)) for _ in range(2))
    none = np.zeros(0, np.float32)
    constants = {"roi": none, "scales": none, "sizes": np.array([1, 3, *made])}
    antialias *= mode != "nearest"
    check("Resize", resize, floats(1, 3, *sizes), constants, mode=mode, antialias=antialias)


@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
@pytest.mark.parametrize(
    "scales", ((1.5,), (2.0, 0.6), (2.0, 1.0, 1.5), (2.0, 1.0, 1.5, 0.5), (1.0, 2.0, 2.0, 2.0, 1.5))
)
def test_resize_of_every_dimension(mode: str, scales: tuple[float, ...]) -> None:
    """Tables, volumes, and images whose channels or number change."""
    x = floats(2, 3, 4, 5, 6)[(0,) * (5 - len(scales))]
    constants = {"roi": np.zeros(0, np.float32), "scales": np.array(scales, np.float32)}
    given = {"x": np.ascontiguousarray(x)}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    (got,) = run_native(model([node], given, ["y"], {"scales": constants["scales"]}), given)
    want = resize(np, x.astype(np.float64), np.zeros(0), constants["scales"], mode=mode)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
@pytest.mark.parametrize("scales", ((2.0, 2.0), (1.5, 0.5)))
def test_upsample_and_the_first_resize(mode: str, scales: tuple[float, float]) -> None:
    given = np.array([1, 1, *scales], np.float32)
    check("Resize", resize_10, floats(1, 3, 9, 10), {"scales": given}, opset=10, mode=mode)
    if min(scales) >= 1:
        check("Upsample", upsample, floats(1, 3, 9, 10), {"scales": given}, opset=9, mode=mode)
        check("Upsample", upsample_7, floats(1, 3, 9, 10), {}, opset=8, mode=mode, scales=given.tolist())


def test_linear_interpolation_between_layers_rounds_as_onnxruntime_does() -> None:
    """The four products of upsample.cc's ``UpsampleBilinear`` in their order: behind it, quantized networks round to integers."""
    x = floats(2, 19, 5, 7)
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="linear"),
        helper.make_node("Conv", ["r", "ones"], ["y"], group=19),
    ]
    held = {"scales": np.array([1, 1, 2, 2], np.float32), "ones": np.ones((19, 1, 1, 1), np.float32)}
    (got,) = run_native(model(nodes, {"x": x}, ["y"], held), {"x": x})
    (top, bottom, up, down), (left, right, before, behind) = (_neighbours(n) for n in x.shape[2:])
    up, down = up[:, None], down[:, None]
    want = before * up * x[:, :, top][..., left] + behind * up * x[:, :, top][..., right]
    want = want + before * down * x[:, :, bottom][..., left]
    want = want + behind * down * x[:, :, bottom][..., right]
    assert want.dtype == np.float32
    np.testing.assert_array_equal(got, want)


def _neighbours(size: int) -> tuple[np.ndarray, ...]:
    """Of each of twice as many elements: the two next to it, and their factors."""
    at = np.clip((np.arange(2 * size, dtype=np.float32) + np.float32(0.5)) / 2 - np.float32(0.5), 0, size - 1)
    first = at.astype(np.int64)
    second = np.minimum(first + 1, size - 1)
    alone = first == second
    return (
        first,
        second,
        np.where(alone, 0.5, second - at).astype(np.float32),
        np.where(alone, 0.5, at - first).astype(np.float32),
    )


@pytest.mark.parametrize("how", ["half_pixel", "asymmetric", "pytorch_half_pixel"])
def test_scales_that_no_pass_has_made_a_constant(how: str) -> None:
    """The sizes alone do not say them: 7 is 1.5 times 5, rounded down."""
    nodes = [
        helper.make_node("Constant", [], ["s"], value_floats=[1.0, 1.0, 1.5, 1.0]),
        helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest", coordinate_transformation_mode=how),
    ]
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 5, 2)
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, x.shape)], [helper.make_tensor_value_info("y", 1, None)]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = onnxplug.SessionOptions()
    levels = onnxplug.GraphOptimizationLevel
    made = []
    for options.graph_optimization_level in (levels.ORT_ENABLE_ALL, levels.ORT_DISABLE_ALL):
        (y,) = onnxplug.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
        made.append(y)
    np.testing.assert_array_equal(*made)


def test_resize_to_sizes() -> None:
    none = np.zeros(0, np.float32)
    constants = {"roi": none, "scales": none, "sizes": np.array([1, 24, 9, 4])}
    check("Resize", resize, floats(1, 24, 6, 6), constants, mode="linear", antialias=1)
    constants = {"roi": none, "scales": none, "sizes": np.array([3, 13])}
    check("Resize", resize, floats(1, 4, 6, 6), constants, mode="nearest", nearest_mode="floor", axes=[2, 3])


@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(1, 7), st.sampled_from((0.75, 0.5, 1.1)), st.integers(1, 2))
def test_lrn(channels: int, size: int, beta: float, images: int) -> None:
    check("LRN", lrn, floats(images, channels, 4, 3), {}, size=size, alpha=0.3, beta=beta, bias=1.5)


@pytest.mark.parametrize("shape", ((2, 5), (1, 24, 7), (2, 24, 5, 6)))
def test_batch_normalization(shape: tuple[int, ...]) -> None:
    c = shape[1]
    constants = {"s": floats(c), "b": floats(c), "m": floats(c), "v": np.abs(floats(c)) + 0.1}

    def reference(*operands: Any, **attributes: Any) -> Any:
        y = batch_normalization(*operands, **attributes)
        return y[0] if isinstance(y, tuple) else y

    check("BatchNormalization", reference, floats(*shape), constants, epsilon=1e-3)


def test_a_window_without_bound_is_left_to_numpy() -> None:
    """Its code would have an instruction for each channel of the window."""
    x = np.random.default_rng(0).standard_normal((1, 4, 3, 3)).astype(np.float32)
    node = helper.make_node("LRN", ["x"], ["y"], size=2**31 - 1, alpha=0.3)
    (y,) = session(model([node], {"x": x}, ["y"], {})).run(None, {"x": x})
    np.testing.assert_allclose(y, x, rtol=1e-6)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("operator", "opset"),
    [*itertools.product(("MaxPool", "AveragePool"), (12, 19, 22)), ("LpPool", 18), ("LpPool", 22)],
)
def test_no_window_begins_behind_the_image(operator: str, symbolic: bool, opset: int) -> None:
    """onnx's inference counts such windows before version 22."""
    x = np.arange(1, 26, dtype=np.float32).reshape(1, 1, 5, 5)
    node = helper.make_node(operator, ["x"], ["y"], kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 0, 0], ceil_mode=1)
    made = session(
        model([node, helper.make_node("Neg", ["y"], ["z"])], {"x": x}, ["z"], opset=opset, symbolic=symbolic)
    )
    windows = [[x[0, 0, :1, :1], x[0, 0, :1, 2:4]], [x[0, 0, 2:4, :1], x[0, 0, 2:4, 2:4]]]
    fold = {"MaxPool": np.max, "AveragePool": np.mean, "LpPool": np.linalg.norm}[operator]
    wanted = [[-fold(window.reshape(-1)) for window in row] for row in windows]
    np.testing.assert_allclose(made.run(None, {"x": x})[0], [[wanted]], rtol=1e-6)


@pytest.mark.parametrize("codegen", [False, True])
@pytest.mark.parametrize("include_pad", [0, 1])
def test_no_padding_and_a_last_window_that_is_cut(include_pad: int, codegen: bool) -> None:
    """onnxruntime and onnx's inference round the number of windows up with auto_pad VALID as well."""
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 9)
    given = {"kernel_shape": [3], "strides": [4], "auto_pad": "VALID", "ceil_mode": 1}
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y"], **given),
        helper.make_node("AveragePool", ["x"], ["z"], count_include_pad=include_pad, **given),
    ]
    made = session(model(nodes, {"x": x}, ["y", "z"], opset=19), codegen=codegen).run(None, {"x": x})
    np.testing.assert_array_equal(made, [[[[3, 7, 9]]], [[[2, 6, 9]]]])


@pytest.mark.parametrize("codegen", [True, False])
@pytest.mark.parametrize("symbolic", [True, False])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("size", "count"), [(3, 0), (4, 1), (5, 1), (6, 2)])
def test_ceil_mode_counts_no_window_that_lacks_a_stride(
    operator: str, symbolic: bool, codegen: bool, size: int, count: int
) -> None:
    pool = helper.make_node(operator, ["x"], ["y"], kernel_shape=[5], strides=[2], ceil_mode=1)
    x = np.ones((1, 2, size), np.float32)
    proto = model([pool], {"x": x}, ["y"], opset=22, symbolic=symbolic)
    assert session(proto, codegen=codegen).run(None, {"x": x})[0].shape == (1, 2, count)
