"""Type and shape inference: at least what onnx's own knows of whole models, never something else, and true to the run."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from core_graphs import model
from onnx import ModelProto, shape_inference
from onnx.backend.test.case.node import collect_testcases

import onnxplug as ort
from onnxplug.contract.errors import Fail
from onnxplug.contract.types import TensorType
from onnxplug.graph import CONTROL_FLOW, Graph, Schemas, build_graph
from onnxplug.graph.infer import infer_graph
from onnxplug.graph.protos import type_from_proto
from onnxplug.graph.type_rules import common, merge
from onnxplug.load import load_model

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def graph(source: bytes | Path) -> Graph:
    built = build_graph(load_model(source), Schemas())
    infer_graph(built)
    return built


def undeclared(proto: ModelProto) -> ModelProto:
    """The model without the types it declares of anything but its inputs."""
    bare = ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.ClearField("type")
    return bare


def types(built: Graph) -> dict[str, Any]:
    return {v.name: v.type for v in built.values()}


def theirs(proto: ModelProto) -> dict[str, Any]:
    """Types of all values by onnx.shape_inference."""
    found = shape_inference.infer_shapes(undeclared(proto)).graph
    return {v.name: type_from_proto(v.type) for v in (*found.value_info, *found.output)}


def differences(mine: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Values of which onnx knows more than we do, or something else."""
    return [f"{name}: {mine.get(name)!r}, onnx says {want!r}" for name, want in wanted.items()
            if want is not None and not covers(mine.get(name), want)]  # fmt: skip


def covers(mine: Any, want: Any) -> bool:
    if not isinstance(want, TensorType) or not isinstance(mine, TensorType):
        return str(mine) == str(want)
    if mine.element != want.element or want.shape is None:
        return mine.element == want.element
    return (
        mine.shape is not None
        and len(mine.shape) == len(want.shape)
        and all(not isinstance(w, int) or m == w for m, w in zip(mine.shape, want.shape, strict=True))
    )


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_light_models(path: Path) -> None:
    proto = onnx.load(path)
    built = graph(undeclared(proto).SerializeToString())
    assert differences(types(built), theirs(proto)) == []
    assert all(isinstance(v.type, TensorType) and v.type.static_shape for v in built.outputs)


@functools.cache
def backend_cases() -> list[Any]:
    return [case for case in collect_testcases() if case.model is not None]


def in_chunks(cases: list[Any], number: int, of: int) -> Iterator[Any]:
    yield from cases[number::of]


@pytest.mark.parametrize("chunk", range(4))
def test_backend_models(chunk: int) -> None:
    """Every operator in every version the backend tests have, with and without declared types, against onnx's inference and
    against the results that come with the tests."""
    wrong = []
    for case in in_chunks(backend_cases(), chunk, 4):
        proto = case.model
        if len(proto.graph.node) == 1 and proto.graph.node[0].domain == "ai.onnx.preview.training":
            continue
        mine = types(graph(undeclared(proto).SerializeToString()))
        if not any(n.op_type in CONTROL_FLOW for n in proto.graph.node):
            wrong += [f"{case.name}: {text}" for text in differences(mine, theirs(proto))]
        for _, results in case.data_sets or ():
            for output, result in zip(proto.graph.output, results, strict=False):
                if isinstance(result, np.ndarray) and not fits(mine[output.name], result):
                    wrong.append(
                        f"{case.name}: {output.name} is {mine[output.name]!r}, the result {result.dtype}{result.shape}"
                    )
    assert wrong == []


def fits(type_: Any, array: np.ndarray) -> bool:
    if not isinstance(type_, TensorType) or type_.shape is None:
        return True
    return len(type_.shape) == array.ndim and all(
        not isinstance(d, int) or d == size for d, size in zip(type_.shape, array.shape, strict=True)
    )


# ---- control flow


def outputs(text: str) -> list[Any]:
    return [v.type for v in graph(model(text)).outputs]


def test_if() -> None:
    both = """g (float[2, 3] x, float[4, 3] z, bool b) => (y) {
        y = If (b) <then_branch = t () => (a) { a = Neg(%s) }, else_branch = e () => (a) { a = %s }> }"""
    assert outputs(both % ("x", "Abs(x)")) == [TensorType("float", (2, 3))]
    assert outputs(both % ("x", "Abs(z)")) == [TensorType("float", (None, 3))]
    assert outputs(both % ("x", "Flatten<axis = 0>(x)")) == [TensorType("float", (None, None))]
    assert outputs(both % ("x", "ReduceSum<keepdims = 0>(x)")) == [TensorType("float")]
    with pytest.raises(Fail, match=r"the branches give tensor\(float\) and tensor\(int64\)"):
        outputs(both % ("x", "Shape(x)"))


@pytest.mark.parametrize("opset", [12, 21])
def test_a_reshape_has_as_many_dimensions_as_its_target_has_elements(opset: int) -> None:
    text = """g (float[a, b, c] x, int64[2] t) => (y) { y = Reshape (x, t) }"""
    assert types(graph(model(text, opset)))["y"] == TensorType("float", (None, None))


def test_a_target_longer_than_arrays_have_dimensions_tells_nothing() -> None:
    """A model may declare any length; as many dimensions as this once filled the memory."""
    text = "g (float[a] x, int64[4611686018427387904] t) => (y) { y = Reshape (x, t) }"
    assert types(graph(model(text, 12)))["y"] == TensorType("float")


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_axes_of_a_pad_are_of_either_integer(kind: str) -> None:
    """onnx's inference reads int64 alone."""
    text = (
        f'g (float[2, a, 3] x) => (y) <int64[2] p = {{1, 2}}, {kind}[1] axes = {{-1}}> {{ y = Pad (x, p, "", axes) }}'
    )
    assert types(graph(model(text)))["y"] == TensorType("float", (2, None, 6))


def test_sizes_beyond_any_tensors_are_left_open() -> None:
    """They come of sizes that a model declares; onnx, which is asked about what reads them, once could not be told."""
    text = "g (int64[9] x, int64[4611686018427387904, 5] k) => (y) { h = ai.onnx.ml.ArrayFeatureExtractor (x, k) y = Abs (h) }"
    assert types(graph(model(text, 21)))["y"] == TensorType("int64", (1, None))


@pytest.mark.parametrize(
    ("opset", "text", "wanted"),
    [
        (14, "g (float[1, 1, n, 1] x) => (y) { zero = Constant<value = float {0}>() y = %s(x, zero) }", ("n",)),
        (12, "g (float[a, n] x, float[a, 1] z) => (y) { y = %s(x, z) }", ("a", "n")),
    ],
)
@pytest.mark.parametrize("op_type", ["GreaterOrEqual", "LessOrEqual"])
def test_comparisons_that_onnx_infers_nothing_of(opset: int, text: str, wanted: tuple[str, ...], op_type: str) -> None:
    made = types(graph(model(text % op_type, opset)))["y"]
    assert made.element == "bool" and tuple(n for n in made.shape if n != 1) == wanted


@pytest.mark.parametrize("opset", [10, 11])
def test_what_is_selected_has_a_rank_in_each_version(opset: int) -> None:
    selected = "g (float[1, n, 4] b, float[1, 2, n] s) => (y) { y = NonMaxSuppression(b, s) }"
    assert types(graph(model(selected, opset)))["y"] == TensorType("int64", (None, 3))
    compressed = "g (float[n, 4] x, bool[n] c) => (y) { y = Compress<axis = 0>(x, c) }"
    assert types(graph(model(compressed, opset)))["y"].shape[1] == 4


LOOP = """g (float[2] x, bool b, int64 n) => (y, s) { y, s = Loop (n, b, x) <body =
    l (int64 i, bool c, float[2] v) => (bool d, o, p) { d = Identity(c) %s }> }"""


def test_loop() -> None:
    kept, scanned = outputs(LOOP % "o = Neg(v) p = Abs(x)")
    assert kept == TensorType("float", kept.shape) and covers(TensorType("float", (2,)), TensorType("float", None))
    assert scanned == TensorType("float", (None, 2))
    grown, _ = outputs(LOOP % "o = Concat<axis = 0>(v, x) p = Abs(x)")
    assert grown.element == "float" and not (grown.shape and isinstance(grown.shape[0], int)), (
        "a carried value may grow"
    )
    _, sizes = outputs(LOOP % "o = Neg(v) p = Shape(x)")
    assert sizes == TensorType("int64", (None, 1))


def test_the_body_of_a_loop_does_not_trust_the_first_trip() -> None:
    source = model(LOOP % "o = Concat<axis = 0>(v, x) p = Shape(v)")
    built = graph(source)
    body = built.nodes[0].subgraphs["body"]
    assert body.inputs[2].shape == (None,), "each trip gives a longer vector, but always a vector"
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    y, s = session.run(None, {"x": np.ones(2, np.float32), "b": np.array(True), "n": np.array(3)})
    assert y.shape == (8,) and s.tolist() == [[2], [4], [6]]


def test_the_body_of_a_loop_does_not_trust_the_first_rank() -> None:
    """Unsqueeze adds a dimension in each trip, so nothing that followed from the first rank may stay."""
    source = model(LOOP % "z = Constant<value_ints = [0]>() w = Neg(v) o = Unsqueeze(w, z) p = Shape(v)")
    body = graph(source).nodes[0].subgraphs["body"]
    assert body.inputs[2].shape is None
    assert all(
        v.shape is None for n in body.nodes if n.op_type in ("Neg", "Unsqueeze") for v in n.outputs if v is not None
    )
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    y, _ = session.run(None, {"x": np.ones(2, np.float32), "b": np.array(True), "n": np.array(1)})
    assert y.shape == (1, 2)


def test_scan() -> None:
    scan = """g (float[2] h, float[5, 3] x) => (y, s) { y, s = Scan <num_scan_inputs = 1, body =
        b (float[2] st, float[3] e) => (so, eo) { so = Neg(st) eo = ReduceSum(e) }> (h, x) }"""
    state, scanned = outputs(scan)
    assert state == TensorType("float", (2,)) and scanned.element == "float"
    body = graph(model(scan)).nodes[0].subgraphs["body"]
    assert body.inputs[1].type == TensorType("float", (3,))
    axis = scan.replace("num_scan_inputs = 1", "num_scan_inputs = 1, scan_input_axes = [1]").replace("float[3] e", "e")
    assert graph(model(axis)).nodes[0].subgraphs["body"].inputs[1].type == TensorType("float", (5,))
    assert outputs(axis)[1].shape == (3, 1)
    across = axis.replace("scan_input_axes", "scan_output_axes = [1], scan_input_axes")
    assert outputs(across)[1].shape == (1, 3)


def test_states_of_a_scan_keep_what_every_trip_gives_back() -> None:
    """A state of a batch that nobody named is as good as one that was: a network of two such layers has ranks throughout."""
    scan = """g (float[2, 3] x, float[2, 3] u, float[5, 3] v) => (y, z, s, o) { y, z, s, o = Scan <num_scan_inputs = 1, body =
        b (float[N, 3] a, float[K, M] b, float[3] e) => (p, q, r, t) { p = Add(a, e) q = Concat<axis = 0>(b, a) r = Neg(p) t = Abs(q) }>
        (x, u, v) }"""
    y, z, s, o = outputs(scan)
    assert y.shape == (2, 3) and z.shape == (None, 3) and s.shape == (5, 2, 3) and o.shape == (5, None, 3)
    nameless = scan.replace("float[2, 3] x,", "float[L, 3] w, int64[1] n,").replace(
        "{ y, z", "{ d = Constant<value_ints = [3]>() f = Concat<axis = 0>(n, d) x = Expand(w, f) y, z", 1
    )
    y, _, s, _ = outputs(nameless)
    assert y.shape == (None, 3) and s.shape in ((5, None, 3), (5, "N", 3))


def test_what_a_loop_carries_keeps_what_every_trip_gives_back() -> None:
    loop = """g (float[2, 3] x, float[N, 3] u, int64 n) => (y, z, w, s) { t = Constant<value = bool {1}>() y, z, w, s = Loop (n, t, x, u, x)
        <body = l (int64 i, bool c, a, b, d) => (bool e, o, p, q, r) { e = Identity(c) o = Neg(a) p = Concat<axis = 0>(b, a) k = Size(d)
            q = ReduceSum<keepdims = 0>(d) r = Abs(a) }> }"""
    y, z, w, s = outputs(loop)
    assert y.shape == (2, 3) and z.shape == (None, 3) and w.shape is None and s.shape == (None, 2, 3)


def test_types_of_nested_bodies_follow_the_outer_ones() -> None:
    built = graph(
        model("""g (float[2, 3] x, bool b) => (y) { t = Transpose(x) y = If (b) <
        then_branch = t () => (a) { a = If (b) <then_branch = u () => (q) { q = Neg(t) }, else_branch = v () => (q) { q = Abs(t) }> },
        else_branch = e () => (a) { a = Identity(t) }> }""")
    )
    assert built.outputs[0].type == TensorType("float", (3, 2))
    assert all(v.shape == (3, 2) for n in built.walk() for v in n.outputs if v is not None)


# ---- merging


F = functools.partial(TensorType, "float")


@pytest.mark.parametrize(
    ("declared", "inferred", "result"),
    [
        (None, F((2,)), F((2,))), (F((2,)), None, F((2,))), (F(("N",)), F((2,)), F((2,))), (F((2,)), F(("N",)), F((2,))),
        (F(("N",)), F((None,)), F(("N",))), (F((3,)), F((2,)), F((2,))), (F((3, 1)), F((2,)), F((2,))),
        (F(None), F((2,)), F((2,))), (F((2,)), F(None), F((2,))),
    ],
)  # fmt: skip
def test_merge(declared: Any, inferred: Any, result: Any) -> None:
    assert merge(declared, inferred) == result


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [(F((2,)), F((2,)), F((2,))), (F((2,)), F((3,)), F((None,))), (F((2,)), F((2, 1)), F()), (F(), F((2,)), F()),
     (None, F((2,)), F((2,)))],
)  # fmt: skip
def test_common(a: Any, b: Any, result: Any) -> None:
    assert common(a, b) == result


@pytest.mark.parametrize("declared", ["float[64, 48]", "float[60, 60]", "float[10, 10]"])
@pytest.mark.parametrize(
    "text", ["y = Relu(x)", "y = Reshape(x, r)", "h = Reshape(x, r) y = Identity(h)", "h = Reshape(x, r) y = Neg(h)",
    "a = Neg(x) h = Reshape(a, r) b = Exp(h) y = Neg(b)", "a = Neg(x) h = Reshape(a, r) b = Softmax(h) y = Neg(b)"],
)  # fmt: skip
def test_a_declared_shape_that_is_wrong_does_not_rule(text: str, declared: str) -> None:
    """The result is what the model computes, whatever it says of it and of what is in between."""
    between = f"<{declared} h>" if "h =" in text else ""
    source = model(f"g (float[48, 64] x, int64[2] r) => ({declared} y) {between} {{ {text} }}")
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    x = np.linspace(-1, 1, 48 * 64, dtype=np.float32).reshape(48, 64)
    (y,) = session.run(None, {"x": x, "r": np.array([32, 96])})
    assert y.shape == ((48, 64) if "Relu" in text else (32, 96))
    want = x if "Relu" in text else x.reshape(32, 96)
    for op_type in re.findall(r"= (\w+)\(", text):
        want = {
            "Relu": lambda v: np.maximum(v, 0), "Neg": np.negative, "Exp": np.exp,
            "Softmax": lambda v: np.exp(v) / np.exp(v).sum(-1, keepdims=True),
        }.get(op_type, lambda v: v)(want)  # fmt: skip
    np.testing.assert_allclose(y, want, rtol=1e-5)


def test_values_of_a_type_nobody_knows() -> None:
    """What follows an operator without a schema has no types, which is no error."""
    source = model("g (float[2] x) => (float[2] y) { h = local.thing(x) s = Add(h, x) z = Cast<to = 7>(s) y = Neg(s) }")
    built = graph(source)
    known = types(built)
    assert known["z"].element == "int64" and known["y"].element == "float"


@pytest.mark.parametrize("declared", [6, 7, None])
@pytest.mark.parametrize(("size", "scale", "made"), [(5, 1.4, 7), (10, 2.3, 23), (3, 1.6666666, 5), (5, 0.5, 2)])
def test_a_constant_scale_is_multiplied_in_float32(size: int, scale: float, made: int, declared: int | None) -> None:
    """As kernels do it that are fed the scale, and onnxruntime; the float 1.4 is less than 1.4, which onnx's inference minds."""
    dims = "" if declared is None else f"[1, {declared}]"
    node = 's = Constant <value = float[2] {1.0, SCALE}> () y = Resize <mode = "linear"> (x, , s)'
    source = model(f"g (float[1, {size}] x) => (float{dims} y) {{ {node.replace('SCALE', str(scale))} }}")
    feeds = {"x": np.ones((1, size), np.float32)}
    for runtime in (ort, pytest.importorskip("onnxruntime")):
        session = runtime.InferenceSession(source, providers=["CPUExecutionProvider"])
        assert session.run(None, feeds)[0].shape == (1, made)


def test_a_transposed_convolution_gives_less_than_it_is_given() -> None:
    """Of which onnx's inference writes down no more than the first dimensions."""
    node = "y = ConvTranspose <output_shape = [1, 2], strides = [2, 2]> (x, w)"
    source = model(f"g (float[1, 2, 4, 4] x, float[2, 1, 3, 3] w) => (y) {{ {node} }}")
    feeds = {"x": np.ones((1, 2, 4, 4), np.float32), "w": np.ones((2, 1, 3, 3), np.float32)}
    runtimes = (ort, pytest.importorskip("onnxruntime"))
    mine, theirs = (
        m.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feeds)[0] for m in runtimes
    )
    assert np.array_equal(mine, theirs) and mine.shape == (1, 1, 1, 2)


@pytest.mark.parametrize("signal", ["N", "N, 1", "40", "40, 1"])
@pytest.mark.parametrize(("others", "onesided", "bins"), [("w", 1, 5), ("w", 0, 8), (", f", 1, 4), ("w, f", 1, 4)])
def test_frames_of_a_signal_whose_length_is_not_known(signal: str, others: str, onesided: int, bins: int) -> None:
    """Which onnx says nothing of, so that nothing behind it would be compiled; told is what onnxruntime tells."""
    node = f"f = Constant <value = int64 {{6}}> () s = Constant <value = int64 {{4}}> () y = STFT <onesided = {onesided}> (x, s, {others})"
    source = model(f"g (float[B, {signal}] x, float[{6 if 'f' in others else 8}] w) => (y) {{ {node} }}", 17)
    made = types(graph(source))["y"]
    assert made.shape is not None and made.shape[2:] == (bins, 2)
    shapes = {"x": (3, 40, *[1] * signal.count(",")), "w": 6 if "f" in others else 8}
    feeds = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    sessions = [
        m.InferenceSession(source, providers=["CPUExecutionProvider"])
        for m in (ort, pytest.importorskip("onnxruntime"))
    ]
    assert len({str(session.get_outputs()[0]) for session in sessions}) == 1
    mine, theirs = (session.run(None, feeds)[0] for session in sessions)
    assert mine.shape == theirs.shape and mine.shape[::2] == (3, bins)
    np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("signal", ["N", "40"])
def test_a_frame_that_is_the_whole_signal(signal: str) -> None:
    node = "s = Constant <value = int64 {4}> () y = STFT (x, s)"
    source = model(f"g (float[B, {signal}] x) => (y) {{ {node} }}", 17)
    made = types(graph(source))["y"]
    assert made.shape is not None and made.shape[1:] == (1, 21 if signal == "40" else None, 2)
    (y,) = ort.InferenceSession(source, providers=["CPUExecutionProvider"]).run(
        None, {"x": np.ones((3, 40), np.float32)}
    )
    assert y.shape == (3, 1, 21, 2)
