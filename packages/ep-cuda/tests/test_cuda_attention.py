"""The generated attention kernel, in its OpenCL dialect on PoCL, against the portable kernel in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_models import NARROW, Node, close, draw, on_opencl
from onnx.reference import ReferenceEvaluator

from onnxplug.contract import EPFail, TensorSpec
from onnxplug_kernel_text.nodes import pattern
from onnxplug_kernel_text.nodes.attention import job

RNG = np.random.default_rng


def node(
    shape: tuple[int, int, int, int, int, int, int],
    *,
    dtype: str = "float32",
    mask: np.ndarray | None = None,
    past: int = 0,
    lengths: np.ndarray | None = None,
    packed: bool = False,
    seed: int = 0,
    **attributes: Any,
) -> Node:
    """Attention of (batch, query heads, key heads, queries, new keys, elements of a key, of a value)."""
    batch, heads, kv_heads, queries, keys, size, value_size = shape
    rng, kind = RNG(seed), NARROW[dtype]
    q, k, v = (
        draw(rng, s, kind) for s in ((batch, heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, value_size))
    )  # fmt: skip
    before = [draw(rng, (batch, kv_heads, past, n), kind) for n in (size, value_size)] if past else [None, None]
    if packed:
        q, k, v = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    outputs = (True, True, True) if past else (True,)
    return Node("Attention", 24, [q, k, v, mask, *before, lengths], attributes, outputs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 2, 2, 70, 90, 64, 64), (2, 4, 2, 9, 40, 20, 36), (1, 2, 1, 40, 33, 100, 128), (1, 1, 1, 20, 50, 200, 256),
        (1, 2, 2, 1, 1, 1, 1),
    ],
)  # fmt: skip
def test_shapes(shape: tuple[int, ...], dtype: str) -> None:
    close(node(shape, dtype=dtype), 32)  # type: ignore[arg-type]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # kernels are compiled
@given(st.data())
def test_masks_windows_and_caches(data: st.DataObject) -> None:
    draw_one = data.draw
    batch, kv_heads, shared = draw_one(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 3)))
    queries, keys = draw_one(st.tuples(st.integers(1, 40), st.integers(1, 70)))
    past = draw_one(st.sampled_from([0, 0, 13]))
    rng = RNG(draw_one(st.integers(0, 99)))
    kind = draw_one(st.sampled_from([None, "bool", "float32"]))
    mask = None
    if kind:
        shape = [draw_one(st.sampled_from([1, n])) for n in (batch, kv_heads * shared, queries)] + [past + keys]
        first = draw_one(st.integers(0, 3))
        mask = (rng.random(shape[first:]) > 0.3) if kind == "bool" else draw(rng, shape[first:])
    lengths = None
    if not past and draw_one(st.booleans()):
        lengths = rng.integers(1, keys + 1, batch)
    attributes: dict[str, Any] = {}
    if draw_one(st.booleans()):
        attributes["is_causal"] = 1
    if draw_one(st.booleans()):
        attributes["softcap"] = 3.0
    if draw_one(st.booleans()):
        attributes["scale"] = 0.3
    shape = (batch, kv_heads * shared, kv_heads, queries, keys, 12, 20)
    close(node(shape, mask=mask, past=past, lengths=lengths, packed=draw_one(st.booleans()), **attributes), 64)


@pytest.mark.parametrize(("left", "right"), [(5, 0), (3, 4), (-1, 7), (2, -1)])
def test_sliding_windows(left: int, right: int) -> None:
    found = node((1, 4, 2, 50, 60, 16, 16), left_window_size=left, right_window_size=right)
    close(Node("Attention", 25, found.inputs, found.attributes), 32)


@pytest.mark.parametrize("causal", [0, 1])
def test_keys_are_divided_where_there_are_few_queries(causal: int) -> None:
    found = node((1, 4, 2, 1, 1, 64, 64), past=999, is_causal=causal)
    job = found.job()
    assert job is not None and job.workspace > 0 and job.launches[-2].grid == 2 * 3  # key heads by parts
    close(found, 32)


def test_queries_that_see_nothing_give_zeros() -> None:
    mask = np.ones((6, 40), np.bool_)
    mask[2] = False
    found = node((1, 1, 1, 6, 40, 8, 8), mask=mask)
    (y,) = found.results()
    assert y is not None and np.isfinite(y).all() and not y[0, 0, 2].any()
    close(found, 32)


def test_what_is_left_to_the_portable_kernel() -> None:
    assert node((1, 1, 1, 4, 4, 300, 8)).job() is None  # does not fit local memory
    assert node((1, 1, 1, 4, 4, 8, 8), dtype="float64").job() is None
    assert node((1, 1, 1, 4, 4, 8, 8), softmax_precision=10).job() is None
    found = node((1, 1, 1, 4, 4, 8, 8))
    assert Node("Attention", 24, found.inputs, {}, (True, True, True, True)).job() is None  # asks for scores


WRITTEN_OUT = {
    "bert": "(float[B, S, 3, 16] q, float[B, S, 3, 16] k, float[B, S, 3, 16] v, float[B, 1, 1, S] mask) => (float[B, S, 3, 16] z)"
    "<float eight = {4}> { a = Transpose<perm = [0, 2, 1, 3]>(q) b = Transpose<perm = [0, 2, 3, 1]>(k)"
    " c = Transpose<perm = [0, 2, 1, 3]>(v) s = MatMul(a, b) t = Div(s, eight) u = Add(t, mask) w = Softmax<axis = 3>(u)"
    " o = MatMul(w, c) z = Transpose<perm = [0, 2, 1, 3]>(o) }",
    "plain": "(float[B, 2, S, 20] q, float[B, 2, 20, T] k, float[B, 2, T, 8] v) => (float[B, 2, S, 8] z)"
    "{ s = MatMul(q, k) w = Softmax<axis = -1>(s) z = MatMul(w, v) }",
    "bias": "(float[B, 2, S, 20] q, float[B, 2, T, 20] k, float[B, 2, T, 8] v, float[S, T] bias) => (float[B, 2, S, 8] z)"
    "<float[1] scale = {0.3}> { b = Transpose<perm = [0, 1, 3, 2]>(k) s = MatMul(q, b) t = Mul(s, scale) u = Add(bias, t)"
    " w = Softmax(u) z = MatMul(w, v) }",
    "decoding": "(float[B, 2, 1, 64] q, float[B, 2, 64, 900] k, float[B, 2, 900, 64] v) => (float[B, 2, 1, 64] z)"
    "<float scale = {0.1}> { s = MatMul(q, k) t = Mul(s, scale) w = Softmax(t) z = MatMul(w, v) }",
}
SIZES = {"B": 2, "S": 40, "T": 70}


def parsed(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {body}')


def inputs(made: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Inputs of such a model."""
    rng, given = RNG(0), {}
    for value in made.graph.input:
        dims = value.type.tensor_type.shape.dim
        given[value.name] = draw(rng, [d.dim_value or SIZES[d.dim_param] for d in dims])
    return given


def found_in(made: onnx.ModelProto) -> tuple[Any, list[pattern.Pattern]]:
    models = pytest.importorskip("onnxplug_testkit.models", reason="capability: onnxplug-testkit")
    graph = models.graph_of(made)
    return graph, list(pattern.patterns(graph, lambda node: False))


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_attention_that_is_written_out(name: str) -> None:
    made = parsed(WRITTEN_OUT[name])
    graph, (found,) = found_in(made)
    assert len(found.nodes) == len(graph.nodes)
    given = inputs(made)
    (wanted,) = ReferenceEvaluator(made).run(None, given)
    specs = {n: TensorSpec(x.dtype, x.shape) for n, x in given.items()} | {"z": TensorSpec(wanted.dtype, wanted.shape)}
    problem = pattern.described(found, specs, {n: at for at, n in enumerate([*given, "z"])})
    lowered = job(problem, len(given) + 1)
    (got,) = on_opencl(lowered, list(given.values()), [specs["z"]])
    assert got is not None
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-6 * np.abs(wanted).max())


def test_rows_that_see_nothing_are_nan_where_attention_is_written_out() -> None:
    _, (found,) = found_in(parsed(WRITTEN_OUT["bias"]))
    given = [np.ones(s, np.float32) for s in ((1, 2, 3, 20), (1, 2, 5, 20), (1, 2, 5, 8))]
    bias = np.zeros((3, 5), np.float32)
    bias[1] = -np.inf
    names = ["q", "k", "v", "bias", "z"]
    shapes = [x.shape for x in given] + [bias.shape, (1, 2, 3, 8)]
    specs = {n: TensorSpec(bias.dtype, s) for n, s in zip(names, shapes, strict=True)}
    lowered = job(pattern.described(found, specs, {n: at for at, n in enumerate(names)}), 5)
    (got,) = on_opencl(lowered, [*given, bias], [specs["z"]])
    assert got is not None and np.isnan(got[:, :, 1]).all() and (got[:, :, [0, 2]] == 1).all()


@pytest.mark.parametrize(
    "body",
    [
        "(float[B, 2, S, 20] q, float[B, 2, 20, T] k, float[B, 2, T, 8] v) => (float[B, 2, S, 8] z, float[B, 2, S, T] w)"
        "{ s = MatMul(q, k) w = Softmax(s) z = MatMul(w, v) }",  # the weights are asked for
        "(float[B, 2, S, 20] q, float[B, 2, 20, T] k, float[B, 2, T, 300] v) => (float[B, 2, S, 300] z)"
        "{ s = MatMul(q, k) w = Softmax(s) z = MatMul(w, v) }",  # too wide
        "(float[B, 2, S, 20] q, float[B, 2, 20, T] k, float[B, 2, S, 8] v) => (float[B, 2, T, 8] z)"
        "{ s = MatMul(q, k) w = Softmax<axis = 2>(s) x = Transpose<perm = [0, 1, 3, 2]>(w) z = MatMul(x, v) }",  # another axis
        "(double[B, 2, S, 20] q, double[B, 2, 20, T] k, double[B, 2, T, 8] v) => (double[B, 2, S, 8] z)"
        "{ s = MatMul(q, k) w = Softmax(s) z = MatMul(w, v) }",
    ],
)
def test_what_is_no_attention(body: str) -> None:
    assert found_in(parsed(body))[1] == []


def test_operands_that_are_broadcast_are_refused_when_shapes_are_known() -> None:
    _, (found,) = found_in(parsed(WRITTEN_OUT["plain"]))
    shapes = {"q": (2, 2, 3, 20), "k": (1, 2, 20, 5), "v": (2, 2, 5, 8), "z": (2, 2, 3, 8)}
    specs = {n: TensorSpec(np.dtype(np.float32), s) for n, s in shapes.items()}
    with pytest.raises(EPFail, match="broadcast"):
        pattern.described(found, specs, {n: at for at, n in enumerate(shapes)})
