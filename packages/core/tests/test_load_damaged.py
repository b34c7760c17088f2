"""Damaged models: refused, run or their runs refused, each with an error of the surface, in bounded time and memory."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from core_files import bounded, made, small
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, parser

import onnxplug as ort
from onnxplug.contract.errors import (
    STATUS_ERRORS,
    Fail,
    InvalidArgument,
    InvalidProtobuf,
)


def feeds_for(session: Any) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    for each in session.get_inputs():
        if not each.type.startswith("tensor("):
            continue
        dtype = each.value_type.dtype
        shape = [min(d, 5) if isinstance(d, int) else 2 for d in each.shape]
        feeds[each.name] = np.full(shape, "a", object) if dtype.hasobject else np.ones(shape, dtype)
    return feeds


def survives(source: bytes, seconds: float = 2) -> str:
    """What became of a damaged model: refused, run, or its run refused, each with an error of the surface. A run is ended after
    ``seconds``: a damaged Loop may have no end."""
    with bounded():
        try:
            session = made(source)
        except (*STATUS_ERRORS, ValueError, RuntimeError) as error:
            assert isinstance(error, STATUS_ERRORS), f"{type(error).__name__}: {error}"
            return "refused"
        options = ort.RunOptions()
        timer = threading.Timer(seconds, setattr, (options, "terminate", True))
        timer.start()
        try:
            session.run(None, feeds_for(session), options)
        except (*STATUS_ERRORS, ValueError):  # ValueError: a feed that this test could not make
            return "run refused"
        finally:
            timer.cancel()
            session.close()
        return "run"


BASES = {
    "arithmetic": """<ir_version: 9, opset_import: ["": 21]> g (float["N", 3] x) => (float["N", 2] y)
        <float[3, 2] w = {1, 2, 3, 4, 5, 6}, int64[2] s = {-1, 2}> {
            h = MatMul(x, w) r = Relu(h) t = Reshape(r, s) z = Shape <start: int = 0> (t) c = Cast <to: int = 1> (z)
            u = ReduceSum <keepdims: int = 0> (c) y = Add(t, u) }""",
    "control": """<ir_version: 9, opset_import: ["": 21]> g (float[2] x, bool b) => (float[2] y, float["K", 2] s)
        <int64 n = {3}> {
            i = If (b) <then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (c) { c = Abs(x) }>
            y, s = Loop (n, b, i) <body = l (int64 k, bool g0, float[2] v) => (bool g1, float[2] v1, float[2] o) {
                g1 = Identity(g0) v1 = Add(v, x) o = Mul(v1, v) }> }""",
    "function": """<ir_version: 9, opset_import: ["": 21, "f": 1]> g (float[2, 2] x) => (float[2, 2] y) {
            a = f.soft <axis: int = 0> (x) y = f.twice (a) }
        <domain: "f", opset_import: ["": 21]> soft <axis> (p) => (q) { q = Softmax <axis: int = @axis> (p) }
        <domain: "f", opset_import: ["": 21, "f": 1]> twice (p) => (q) { r = f.soft <axis: int = 1> (p) q = Add(r, r) }""",
    "constants": """<ir_version: 9, opset_import: ["": 21]> g (int64[1] i) => (float[2] y, string[1] t)
        <float[2, 2] w = {1, 2, 3, 4}, string[2] n = {"a", "b"}> {
            h = Gather <axis: int = 0> (w, i) k = Constant <value_floats: floats = [1.0, 2.0]> () r = Mul(h, k)
            a = Constant <value: tensor = int64[1] {0}> () y = Squeeze(r, a) t = Gather(n, i)
            e = ConstantOfShape <value: tensor = float[1] {2}> (i) }""",
    "images": """<ir_version: 9, opset_import: ["": 21]> g (float[1, 2, 4, 4] x) => (float[1, 2, 2, 2] y)
        <float[2, 2, 1, 1] w = {1, 0, 0, 1}, float[2] s = {1, 2}> {
            c = Conv <kernel_shape: ints = [1, 1]> (x, w) b = BatchNormalization (c, s, s, s, s)
            y = MaxPool <kernel_shape: ints = [2, 2], strides: ints = [2, 2]> (b) }""",
    "forest": """<ir_version: 9, opset_import: ["": 21, "ai.onnx.ml": 5]> g (float[N, 3] x) => (float[N, 2] y) {
            y = ai.onnx.ml.TreeEnsemble <n_targets: int = 2, tree_roots: ints = [0], nodes_featureids: ints = [0, 2],
                nodes_truenodeids: ints = [1, 0], nodes_trueleafs: ints = [0, 1], nodes_falsenodeids: ints = [2, 1],
                nodes_falseleafs: ints = [1, 1], leaf_targetids: ints = [0, 1, 0], nodes_modes: tensor = uint8[2] {0, 1},
                nodes_splits: tensor = float[2] {0.5, 1}, leaf_weights: tensor = float[3] {1, 2, 3}> (x) }""",
    "indices": """<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x, int64[2, 1] i) => (float[2] y, float[2, 3] z)
        <float[3] w = {1, 2, 3}> {
            z = LayerNormalization <axis: int = -1> (x, w) y = GatherND <batch_dims: int = 1> (z, i) }""",
}
PROTOS = {name: parser.parse_model(text) for name, text in BASES.items()}
BYTES = {name: proto.SerializeToString() for name, proto in PROTOS.items()}


@pytest.mark.parametrize("name", BASES)
def test_the_undamaged_models_run(name: str) -> None:
    assert survives(BYTES[name], 60) == "run"


@st.composite
def damaged_bytes(draw: st.DrawFn) -> bytes:
    data = bytearray(BYTES[draw(st.sampled_from(sorted(BASES)))])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        span = draw(st.integers(0, 8))
        match draw(st.sampled_from(["replace", "cut", "insert", "end", "repeat"])):
            case "replace":
                data[at : at + span] = draw(st.binary(min_size=span, max_size=span))
            case "cut":
                del data[at : at + span]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "end":
                del data[at:]
            case "repeat":
                data[at:at] = data[at : at + span * 8]
    return bytes(data)


ANY = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@settings(ANY, max_examples=400)
@given(damaged_bytes())
def test_damaged_bytes(source: bytes) -> None:
    survives(source)


@settings(ANY, max_examples=100)
@given(st.binary(max_size=200))
def test_random_bytes(source: bytes) -> None:
    with pytest.raises((InvalidProtobuf, InvalidArgument, Fail)):
        made(source)


NUMBERS = st.sampled_from([-(2**63), -(2**31), -3, -1, 0, 1, 2, 3, 7, 2**31, 2**40, 2**63 - 1])
TEXTS = st.sampled_from(["", "x", "y", "w", "nope", "Add", "If", "Loop", "Scan", "f", "soft", "\0", "a/b", "é"])


def places(message: Any) -> list[tuple[Any, Any, int | None]]:
    """(message, field, index or None) of every scalar and every list item in a message, all the way down."""
    found: list[tuple[Any, Any, int | None]] = []
    for field, value in message.ListFields():
        repeated = not isinstance(value, int | float | str | bytes) and not hasattr(value, "ListFields")
        items = list(enumerate(value)) if repeated else [(None, value)]
        for index, item in items:
            found.append((message, field, index))
            if hasattr(item, "ListFields"):
                found += places(item)
    return found


@st.composite
def damaged_protos(draw: st.DrawFn) -> bytes:
    """A model in which a few fields were cleared, changed or repeated; it always parses."""
    proto = ModelProto()
    proto.CopyFrom(PROTOS[draw(st.sampled_from(sorted(BASES)))])
    for _ in range(draw(st.integers(1, 3))):
        message, field, index = draw(st.sampled_from(places(proto)))
        items = getattr(message, field.name)
        old = items if index is None else items[index]
        if hasattr(old, "ListFields"):
            if index is None or draw(st.booleans()):
                message.ClearField(field.name) if index is None else items.__delitem__(index)
            else:
                items.append(old)
            continue
        kinds = {bool: NUMBERS, int: NUMBERS, float: st.floats(width=32), str: TEXTS, bytes: st.binary(max_size=20)}
        new = draw(kinds[type(old)])
        try:
            if index is None:
                setattr(message, field.name, new)
            else:
                items[index] = new
        except (ValueError, TypeError):  # out of the field's range
            message.ClearField(field.name)
    return proto.SerializeToString()


@settings(ANY, max_examples=600)
@given(damaged_protos())
def test_damaged_fields(source: bytes) -> None:
    survives(source)


def test_names_that_are_no_text() -> None:
    for name in (b"x", b"y", b"w", b"Add"):
        source = small().SerializeToString()
        with pytest.raises(STATUS_ERRORS):
            made(source.replace(bytes([len(name)]) + name, bytes([len(name)]) + b"\xff" * len(name)))


def test_a_dimension_whose_name_is_no_text() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[NN, 3] x) => (float[M, N] y) { y = Relu (x) }'
    source = parser.parse_model(text).SerializeToString().replace(b"NN", b"\xff\xff")
    with pytest.raises(InvalidProtobuf, match="is not UTF-8 text"):
        made(source)


@pytest.mark.parametrize(
    ("node", "number"),
    [
        ("y = LayerNormalization <axis: int = 9223372036854775807> (x, x)", 2**63 - 1),
        ("y = LayerNormalization <axis: int = 2147483648> (x, x)", 2**31),
        ("y = GatherND <batch_dims: int = -9> (x, i)", -9),
    ],
)
def test_numbers_that_end_onnx_inference(node: str, number: int) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[2, 3] x, int64[1, 1] i) => (float[M, N] y) {{ {node} }}'
    with pytest.raises(Fail, match=f"ShapeInferenceError.* {number} is not in any tensor's range"):
        made(parser.parse_model(text))
