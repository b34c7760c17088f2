"""Operators of domain com.microsoft, TopK, and functions that are written out, against CPU in double precision or NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser
from opencl_models import PROVIDER, needs_device, one_node, run

import onnxplug as ort
from onnxplug.contract import element_of
from onnxplug.contract.errors import InvalidArgument
from onnxplug.contract.types import ELEMENT_CODES
from onnxplug_ep_opencl.device import listed
from onnxplug_ep_opencl.machine import machine

pytestmark = needs_device
FORMS = ("register", "local")
EPS = np.finfo(np.float32).eps
rng = np.random.default_rng(29)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def contrib(
    op_type: str, feeds: dict[str, np.ndarray], outputs: str = "y", constants: tuple[str, ...] = (), **attributes: Any
) -> bytes:
    """A model of one node, every dimension of its inputs a symbol; an output that is "" is not asked for."""
    names = outputs.split(",")
    node = helper.make_node(
        op_type, [n if not n.startswith("_") else "" for n in feeds], names, domain="com.microsoft", **attributes
    )
    info = [
        helper.make_tensor_value_info(n, ELEMENT_CODES[element_of(a.dtype)], [f"{n}{k}" for k in range(a.ndim)])
        for n, a in feeds.items()
        if n not in constants and not n.startswith("_")
    ]
    weights = [numpy_helper.from_array(feeds[n], n) for n in constants]
    made = [helper.make_value_info(n, onnx.TypeProto()) for n in names if n]
    graph = helper.make_graph([node], op_type, info, made, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def compare(
    op_type: str,
    feeds: dict[str, np.ndarray],
    atol: float,
    rtol: float = 0.0,
    outputs: str = "y",
    constants: tuple[str, ...] = (),
    form: str = "auto",
    reference: Any = np.float64,
    **attributes: Any,
) -> None:
    """Results of OpenCL alone against those of CPU in a type at least as wide."""
    given = {n: a for n, a in feeds.items() if not n.startswith("_")}
    data = contrib(op_type, feeds, outputs, constants, **attributes)
    got = run(data, given, kernel_shape=form)
    wide = {n: a.astype(reference) for n, a in feeds.items()}
    session = ort.InferenceSession(
        contrib(op_type, wide, outputs, constants, **attributes), providers=["CPUExecutionProvider"]
    )
    want = session.run(None, {n: a for n, a in wide.items() if n in given and n not in constants})
    for mine, theirs in zip(got, want, strict=True):
        half = np.finfo(mine.dtype).eps if mine.dtype != np.float32 else 0
        np.testing.assert_allclose(mine.astype(np.float64), theirs, rtol=rtol + half, atol=atol)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("op_type", "biases", "attributes"),
    [
        ("Gelu", (), {}), ("BiasGelu", (37,), {}), ("FastGelu", (), {}), ("FastGelu", (37,), {}),
        ("QuickGelu", (), {}), ("QuickGelu", (), {"alpha": 0.5}),
    ],
)  # fmt: skip
def test_variants_of_gelu(op_type: str, biases: tuple[int, ...], attributes: dict[str, Any], dtype: Any) -> None:
    x = np.concatenate([normal(3, 5, 37) * 4, np.full((1, 5, 37), -100), np.full((1, 5, 37), 100)]).astype(dtype)
    feeds = {"x": x} | ({"b": normal(*biases, dtype=dtype)} if biases else {})
    # Functions within 4 ulp of values up to |x|; below -4 the result is a difference of numbers near 1.
    compare(op_type, feeds, atol=16 * EPS * 8, rtol=16 * EPS, **attributes)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("outputs", ["y", "y,,,t", "y,m,s,t"])
@pytest.mark.parametrize("skip", [(3, 7, 75), (1, 7, 75), (7, 75)])
@pytest.mark.parametrize("simplified", [False, True])
def test_normalised_sums(simplified: bool, skip: tuple[int, ...], outputs: str, dtype: Any, form: str) -> None:
    names = ("gamma", "bias") if simplified else ("gamma", "beta", "bias")
    feeds = {"x": normal(3, 7, 75, dtype=dtype), "skip": normal(*skip, dtype=dtype)}
    feeds |= {n: normal(75, dtype=dtype) for n in names}
    op_type = "SkipSimplifiedLayerNormalization" if simplified else "SkipLayerNormalization"
    told = outputs.replace("m,", ",") if simplified else outputs
    # Means of 75 numbers below 8, divided by a deviation near 1, times a scale below 4, twice: CPU takes float32 here.
    compare(op_type, feeds, 2 * 75 * EPS * 8 * 4, outputs=told, form=form, reference=np.float32)


@pytest.mark.parametrize("axis", [1, -1])
def test_normalisation_by_the_root_of_the_mean_square(axis: int) -> None:
    feeds = {"x": normal(3, 7, 75), "scale": normal(*(7, 75)[axis % 3 - 1 :])}
    # Numbers below 8 divided by a deviation near 1, times a scale below 4; the inverse root is near 1.
    compare(
        "SimplifiedLayerNormalization",
        feeds,
        2 * 7 * 75 * EPS * 8 * 4,
        outputs="y,root",
        constants=("scale",),
        axis=axis,
    )


def test_a_sum_of_what_does_not_fit_is_refused() -> None:
    feeds = {"x": normal(2, 3, 8), "skip": normal(2, 8), "gamma": normal(8)}
    with pytest.raises(Exception, match="fit"):
        run(contrib("SkipLayerNormalization", feeds), feeds)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("constants", [(), ("b",)])
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("batch", [(), (2, 1)])
def test_scaled_products(
    batch: tuple[int, ...], turned: tuple[int, int], constants: tuple[str, ...], form: str
) -> None:
    a, b = normal(*batch, 9, 20), normal(*(1, 3)[: len(batch)], 20, 19)
    feeds = {
        "a": np.swapaxes(a, -1, -2).copy() if turned[0] else a,
        "b": np.swapaxes(b, -1, -2).copy() if turned[1] else b,
    }
    bound = 24 * EPS * 0.25 * float((np.abs(a) @ np.abs(b)).max())
    compare("FusedMatMul", feeds, bound, constants=constants, form=form, transA=turned[0], transB=turned[1], alpha=0.25)


ACTIVATIONS: list[tuple[str, tuple[float, ...]]] = [
    ("", ()), ("Relu", ()), ("LeakyRelu", (0.1,)), ("Clip", (-0.5, 0.75)), ("HardSigmoid", (0.3, 0.4)), ("Tanh", ()), ("Sigmoid", ()),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS)
def test_gemm_with_an_activation(activation: str, parameters: tuple[float, ...], form: str) -> None:
    if activation == "Clip":
        return  # whose bounds onnxruntime passes to FusedConv only
    given: dict[str, Any] = dict(zip(("activation_alpha", "activation_beta"), parameters, strict=False))
    feeds = {"a": normal(9, 20), "b": normal(20, 19), "c": normal(19)}
    compare("FusedGemm", feeds, 24 * EPS * 60, constants=("b",), form=form, activation=activation, beta=0.5, **given)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS)
@pytest.mark.parametrize(("group", "own", "made"), [(1, 4, 5), (4, 1, 4), (2, 2, 4)])
def test_convolutions_with_a_sum_and_an_activation(
    group: int, own: int, made: int, activation: str, parameters: tuple[float, ...], form: str
) -> None:
    feeds = {"x": normal(2, 4, 9, 10), "w": normal(made, own, 3, 3), "b": normal(made), "z": normal(2, made, 9, 10)}
    options = {"activation_params": list(parameters)} if parameters else {}
    compare(
        "FusedConv", feeds, 40 * EPS * 60, constants=("w", "b"), form=form, group=group, pads=[1, 1, 1, 1],
        activation=activation, **options,
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_first_in_order(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    axis, largest = data.draw(st.integers(-len(shape), len(shape) - 1)), data.draw(st.integers(0, 1))
    k = data.draw(st.integers(0, shape[axis]))
    dtype = data.draw(st.sampled_from([np.float32, np.float16, np.float64, np.int8, np.uint64, np.int64]))
    if np.issubdtype(dtype, np.floating):
        x = rng.choice(np.array([0.0, -0.0, 1, -1, 2.5, np.nan, np.inf, -np.inf], dtype), shape)
    else:
        info = np.iinfo(dtype)
        x = rng.choice(np.array([info.min, info.max, 0, 1, 100], dtype), shape)
    feeds = {"x": x, "k": np.array([k], np.int64)}
    model = one_node("TopK", feeds, outputs=2, constants=("k",), axis=axis, largest=largest)
    values, places = run(model, feeds)
    turned = np.flip(x, axis) if largest else x
    order = np.argsort(turned, axis=axis, kind="stable")
    order = x.shape[axis] - 1 - np.flip(order, axis) if largest else order
    want = np.take(order, range(k), axis)
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, axis))


def test_more_than_there_is() -> None:
    x = np.arange(6, dtype=np.float32)
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], "best")
    info = [
        helper.make_tensor_value_info(n, e, s)
        for n, e, s in (("x", 1, [6]), ("k", 7, [1]), ("y", 1, None), ("i", 7, None))
    ]
    model = helper.make_model(
        helper.make_graph([node], "g", info[:2], info[2:]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=[PROVIDER])
    np.testing.assert_array_equal(session.run(["i"], {"x": x, "k": np.array([2], np.int64)})[0], [5, 4])
    with pytest.raises(Exception, match=r"k is 7|requested k"):
        session.run(None, {"x": x, "k": np.array([7], np.int64)})


@pytest.mark.parametrize("wanted", [["y"], ["i"], ["y", "i"]])
@pytest.mark.parametrize("largest", [0, 1])
def test_more_than_is_inserted_is_sorted(largest: int, wanted: list[str]) -> None:
    """Many equal elements, whose order stays; a stride between the elements of a line."""
    x = rng.choice(np.array([0, 1, 2, np.nan, -np.inf], np.float32), (2, 1501, 3))
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=1, largest=largest)
    info = [helper.make_tensor_value_info(n, e, None) for n, e in (("y", 1), ("i", 7)) if n in wanted]
    given = [helper.make_tensor_value_info(n, e, s) for n, e, s in (("x", 1, [2, "n", 3]), ("k", 7, [1]))]
    graph = helper.make_graph([node], "g", given, info)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {"x": x, "k": np.array([1400], np.int64)}
    theirs = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(wanted, feeds)
    session = ort.InferenceSession(model.SerializeToString(), providers=[PROVIDER])
    for got, want in zip(session.run(wanted, feeds), theirs, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_in_double_precision_is_written_out(causal: int) -> None:
    if not machine(listed()[0]).has_double:
        pytest.skip("the device has no double precision")
    feeds = {n: normal(2, 3, length, 8, dtype=np.float64) for n, length in (("q", 5), ("k", 7), ("v", 7))}
    data = one_node("Attention", feeds, 23, is_causal=causal)
    session = ort.InferenceSession(data, providers=[PROVIDER, "CPUExecutionProvider"])
    placed = session.placement()
    assert len(placed) > 1
    heavy = [owner for name, owner in placed.items() if "MatMul" in name or "Softmax" in name]
    assert heavy and set(heavy) == {PROVIDER}
    (want,) = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    # Averages of values below 5 by weights whose exponents are sums of 8 products below 25, with a scale that the body rounds to float32.
    np.testing.assert_allclose(session.run(None, feeds)[0], want, rtol=0, atol=8 * 25 * EPS * 5)


@pytest.mark.parametrize(
    ("node", "operands"),
    [
        ("y = com.microsoft.MatMulNBits<K = 64, N = 16, bits = 4, block_size = 32>(x, a, b)",
         (normal(3, 64), np.arange(512, dtype=np.uint8).reshape(16, 2, 16), normal(32))),
        ("y, z = com.microsoft.Attention<num_heads = 2>(x, a, b)", (normal(3, 5, 16), normal(16, 24), normal(24))),
        ("y, z = com.microsoft.Attention<num_heads = 2>(x, a, b, , c)",
         (normal(2, 5, 16), normal(16, 24), normal(24), normal(2, 2, 2, 3, 4))),
        ("y, z, w = com.microsoft.MultiHeadAttention<num_heads = 2>(x, a, b)",
         (normal(2, 5, 16), normal(2, 4, 16), normal(2, 4, 32))),
        ("y, z = com.microsoft.EmbedLayerNormalization(x, , a, b, , c, d)",
         (np.ones((3, 6), np.int32), normal(9, 8), normal(7, 8), normal(8), normal(8))),
    ],
)  # fmt: skip
def test_results_that_are_not_shaped_like_the_operand_whose_shape_only_a_run_knows(node: str, operands: Any) -> None:
    kinds = {"float32": "float", "int32": "int32", "uint8": "uint8"}
    given = dict(zip("vabcd", operands, strict=False))
    sizes = {name: ", ".join(map(str, value.shape)) for name, value in given.items()}
    inputs = ", ".join(f"{kinds[value.dtype.name]}[{sizes[name]}] {name}" for name, value in given.items())
    made = node.partition(" =")[0]
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g ({inputs}, bool[K] kept) => ({made}) '
        f"{{ x = Compress<axis = 0>(v, kept) {node} }}"
    ).SerializeToString()
    feeds = {**given, "kept": np.ones(len(given["v"]), bool)}
    ours, theirs = (
        ort.InferenceSession(model, providers=p) for p in ([PROVIDER, "CPUExecutionProvider"], ["CPUExecutionProvider"])
    )
    assert PROVIDER in ours.placement().values()
    for got, want in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_weights_of_few_bits_that_are_too_few() -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[2, 64] x, uint8[N, B, C] w, float[S] s) => (y) '
        "{ y = com.microsoft.MatMulNBits<K = 64, N = 16, bits = 4, block_size = 32>(x, w, s) }"
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=[PROVIDER])
    for weights, scales in (((16, 2, 16), 8), ((16, 1, 16), 32)):
        with pytest.raises(InvalidArgument, match=r"MatMulNBits.*do not fit"):
            session.run(None, {"x": normal(2, 64), "w": np.ones(weights, np.uint8), "s": normal(scales)})


@pytest.mark.parametrize("upper", [0, 1])
def test_names_of_exporters_for_operators_of_onnx(upper: int) -> None:
    """Those that PyTorch writes for opsets without them, and that onnxruntime wrote before it renamed them."""
    rng = np.random.default_rng(upper)
    x = rng.uniform(-1, 1, (2, 3, 5, 4)).astype(np.float32)
    same = {"x": x.astype(np.float64)}  # moved, not computed
    model = contrib("Trilu", {**same, "k": np.array(1)}, upper=upper)
    np.testing.assert_array_equal(run(model, {**same, "k": np.array(1)})[0], (np.triu if upper else np.tril)(x, 1))
    turned = rng.uniform(-1, 1, (2, 3, 5, 6)).astype(np.float32)
    compare("TransposeMatMul", {"a": x, "b": turned}, 1e-5, transA=1, alpha=0.5)
    compare(
        "GridSample", {"x": x, "g": rng.uniform(-1.2, 1.2, (2, 7, 3, 2)).astype(np.float32)}, 1e-5, align_corners=upper
    )
