"""What the bridge takes of a model, and what it says of the rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from bridge_models import CPU, OWN, PROVIDERS, model, one_node, open_session, owners, reasons, same
from onnx import helper

import onnxplug as ort
from onnxplug.contract import Claim
from onnxplug_ep_onnxruntime.deviations import deviation
from onnxplug_ep_onnxruntime.sessions import Maker

rng = np.random.default_rng(3)
WEIGHTS = rng.standard_normal((64, 64)).astype(np.float32)
LAYERS = """agraph (float[N, 64] x) => (float[N, 64] y) {
    a = MatMul(x, w)
    b = Relu(a)
    c = MatMul(b, w)
    y = Add(c, x)
}"""


def test_a_model_becomes_one_session_which_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = Maker._made
    monkeypatch.setattr(Maker, "_made", lambda *given: made.append(1) or original(*given))
    source = model(LAYERS, w=WEIGHTS)
    with open_session(source) as session:
        assert owners(session) == {OWN} and len(made) == 1
        regions = session.explain().to_dict()["regions"]
        assert len(regions) == 1 and regions[0]["name"].startswith("onnxruntime_")
        for rows in (3, 1, 3, 0):
            x = rng.standard_normal((rows, 64)).astype(np.float32)
            with open_session(source, [CPU]) as ours:
                same(session.run(None, {"x": x}), ours.run(None, {"x": x}))


def test_weights_are_not_in_the_model_that_onnxruntime_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    original = Maker.session
    monkeypatch.setattr(
        Maker, "session", lambda self, m, c, **k: sizes.append((len(m), list(c))) or original(self, m, c, **k)
    )
    with open_session(model(LAYERS, w=WEIGHTS)):
        ((size, constants),) = sizes
        assert constants == ["w"] and size < 1000


def test_asked_twice_it_answers_the_same_and_onnxruntime_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    from onnxplug.contract import SessionContext
    from onnxplug.graph import Schemas, build_graph
    from onnxplug.graph.infer import infer_graph
    from onnxplug.load import load_model
    from onnxplug.place.partition import _Lookup
    from onnxplug.plugins import create_instance, registry
    from onnxplug.session.selection import session_provider

    graph = build_graph(load_model(model(LAYERS, w=WEIGHTS)), Schemas())
    infer_graph(graph)
    instance = create_instance(registry.spec(OWN), {}, SessionContext(1, {}, logging.getLogger("test")))
    lookup = _Lookup(session_provider(instance), {id(graph.nodes[1]): "AnotherExecutionProvider"})
    made = []
    original = Maker._made
    monkeypatch.setattr(Maker, "_made", lambda *given: made.append(1) or original(*given))
    answers: list[Any] = [list(instance.call("get_capability", graph=graph, kernels=lookup)) for _ in range(2)]
    first, again = ([(type(a), [n.name for n in a.nodes]) for a in each] for each in answers)
    assert first == again == [(Claim, ["MatMul_0"]), (Claim, ["MatMul_1", "Add_0"])] and len(made) == 2


def test_what_it_does_not_take_is_told_with_the_reason() -> None:
    feeds = {"x": np.array([0, 9], np.uint8), "s": np.array(0.1, np.float32), "t": np.array(0.01, np.float32)}
    node = helper.make_node("QLinearSigmoid", ["x", "s", "", "t"], ["y"], name="q", domain="com.microsoft")
    ends = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    graph = helper.make_graph([node], "g", ends, [helper.make_empty_tensor_value_info("y")])
    source = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("com.microsoft", 1)], ir_version=8
    ).SerializeToString()
    with open_session(source) as session:
        assert reasons(session) == {"q": "onnxruntime ends the process where a zero point is left out"}
        assert session.run(None, feeds)[0].tolist() == [50, 71]


def test_groups_around_what_it_does_not_take_are_convex() -> None:
    source = model("""agraph (float[4, 4] x) => (float[4, 4] y) {
        a = Exp(x)
        b = Det(a)
        c = com.microsoft.Inverse(a)
        d = Add(c, b)
        y = Mul(d, a)
    }""")
    providers = [("ReferenceExecutionProvider", {"memory": "host"}), OWN, CPU]
    with open_session(source, providers) as session:
        x = rng.standard_normal((4, 4)).astype(np.float32)
        with open_session(source, [CPU]) as ours:
            same(session.run(None, {"x": x}), ours.run(None, {"x": x}), rtol=1e-3)


def test_constructs_are_taken_whole() -> None:
    source = model(
        """agraph (float[N] x, int64 trips, bool c) => (float[N] y, float[M, N] rows) {
        keep = Constant<value = bool {1}>()
        half = If(c) <
            then_branch = yes () => (float[N] a) { a = Mul(x, factor) },
            else_branch = no () => (float[N] b) { b = Identity(x) }
        >
        y, rows = Loop(trips, keep, half) <body = step (int64 i, bool go, float[N] v) => (bool go_on, float[N] next, float[N] row) {
            go_on = Identity(go)
            next = Add(v, x)
            row = Exp(v)
        }>
    }""",
        factor=np.array(0.5, np.float32),
    )
    with open_session(source) as session:
        assert owners(session) == {OWN} and len(session.explain().to_dict()["regions"]) == 1
        x = np.array([1, -2, 0], np.float32)
        for condition, start in ((True, x / 2), (False, x)):
            feeds = {"x": x, "trips": np.array(3), "c": np.array(condition)}
            rows = np.exp(np.stack([start, start + x, start + 2 * x]))
            same(session.run(None, feeds), [start + 3 * x, rows])


def test_bodies_are_placed_where_a_construct_cannot_be_taken() -> None:
    source = model("""agraph (uint8[N] x, float s, bool c) => (uint8[N] y) {
        y = If(c) <
            then_branch = yes () => (uint8[N] a) { a = Max(x, x) },
            else_branch = no () => (uint8[N] b) { b = com.microsoft.QLinearSigmoid(x, s, , s) }
        >
    }""")
    with open_session(source) as session:
        assert sorted(session.placement().values()) == [CPU, OWN]
        feeds = {"x": np.array([0, 20], np.uint8), "s": np.array(0.5, np.float32)}
        assert session.run(None, {**feeds, "c": np.array(True)})[0].tolist() == [0, 20]
        assert session.run(None, {**feeds, "c": np.array(False)})[0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "code", "wide"),
    [
        ("float16", 10, "float"),
        ("bfloat16", 16, "float"),
        ("float8_e4m3fn", 17, "float"),
        ("uint4", 21, "int32"),
        ("int4", 22, "int32"),
    ],
)
def test_elements_that_numpy_lacks_cross_as_bits(data: str, code: int, wide: str) -> None:
    dtype = np.dtype(data) if data == "float16" else np.dtype(getattr(ml_dtypes, data))
    given, onnx_name = np.float32 if wide == "float" else np.int32, data.replace("_e4m3fn", "e4m3fn")
    x = np.array([[3, 5, 1], [0, 15, 8]] if data == "uint4" else [[-3, 5, 1], [0, 7, -8]], given)
    source = model(
        f"""agraph ({wide}[A, B] x) => ({wide}[A, B] y, {onnx_name}[A, B] z) {{
            z = Cast<to = {code}>(x)
            y = Cast<to = {1 if wide == "float" else 6}>(z)
        }}""",
        21,
    )
    with open_session(source, graph_optimization_level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL) as session:
        y, z = session.run(None, {"x": x})
        assert z.dtype == dtype and owners(session) == {OWN}
        same([y, z], [x, x.astype(dtype)])
    with open_session(one_node("Cast", {"z": z}, 21, to=1)) as session:
        assert owners(session) == {OWN}
        same(session.run(None, {"z": z}), [z.astype(np.float32)])


def test_strings_and_sequences() -> None:
    source = model(
        """agraph (string[N] s, float[M] x) => (string[N] t, int64 n, seq(float[K]) parts) {
        t = StringConcat(s, s)
        parts = SplitToSequence<axis = 0>(x, two)
        n = SequenceLength(parts)
    }""",
        20,
        two=np.array(2),
    )
    with open_session(source) as session:
        assert owners(session) == {OWN}
        s, x = np.array(["a", "\u00e9\u4e2d", ""], object), np.arange(5, dtype=np.float32)
        t, n, parts = session.run(None, {"s": s, "x": x})
        assert t.tolist() == [a + a for a in s] and n == 3
        same(parts, [x[:2], x[2:4], x[4:]])


def test_results_of_open_length() -> None:
    source = model("agraph (float[N] x) => (int64[1, M] y) { a = Relu(x) y = NonZero(a) }")
    with open_session(source) as session:
        assert owners(session) == {OWN}
        for x in ([1, -1, 2], [-1, -1], [], [0, 3]):
            array = np.array(x, np.float32)
            same(session.run(None, {"x": array}), [np.flatnonzero(array > 0)[None]])


def test_shared_with_a_provider_of_higher_priority_and_one_behind() -> None:
    source = model(LAYERS, w=WEIGHTS)
    x = rng.standard_normal((2, 64)).astype(np.float32)
    with open_session(source, [CPU]) as ours:
        want = ours.run(None, {"x": x})
    with open_session(source, [CPU, OWN]) as session:
        assert owners(session) == {CPU}
        same(session.run(None, {"x": x}), want)
    with open_session(source, PROVIDERS) as session:
        same(session.run(None, {"x": x}), want)


def test_what_onnxruntime_computes_wrongly_is_left_to_others() -> None:
    feeds = {"x": np.array(["a", "b"], object), "i": np.array([1, 0, 1])}
    gather = helper.make_node("Gather", ["x", "i"], ["y"], name="g")
    ends = [
        helper.make_tensor_value_info("x", onnx.TensorProto.STRING, ["N"]),
        helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ["M"]),
    ]
    graph = helper.make_graph([gather], "g", ends, [helper.make_empty_tensor_value_info("y")])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    with open_session(source) as session:
        assert reasons(session) == {"g": "it gives empty strings"}
        assert session.run(None, feeds)[0].tolist() == ["b", "a", "b"]


_S = np.ones(3, np.float32)
WRONG = {
    "in training": model(
        "agraph (float[N, 3] x) => (float[N, 3] y, float[3] p, float[3] q) "
        "{ y, p, q = BatchNormalization<training_mode = 1>(x, s, s, s, s) }", 15, s=_S,
    ),
    "not by its scale": model(
        'agraph (float[1, 1, 2, 4] x) => (float[1, 1, H, W] y) '
        '{ y = Resize<coordinate_transformation_mode = "align_corners", mode = "linear">(x, , k) }',
        19, k=np.array([1, 1, 0.6, 0.6], np.float32),
    ),
    "without rows": model("agraph (float[N, 3] x, float[3] z) => (float[N] y) { y = MatMul(x, z) }"),
    "in double": model("agraph (int64[N] x) => (int64[N] y) { y = Mod<fmod = 1>(x, x) }"),
}  # fmt: skip
INEXACT = {
    "rounded twice": model("agraph (double[N] x) => (float16[N] y) { y = Cast<to = 10>(x) }"),
    "by its bits": model("agraph (float8e5m2[N] x) => (bool[N] y) { y = Cast<to = 9>(x) }", 19),
    "counted in double": model("agraph (int64 a, int64 b) => (int64[N] y) { y = Range(a, b, a) }"),
    "overflow": model("agraph (float16[N] x) => (float16[1] y) { y = ReduceLogSumExp(x) }"),
    "a step off": model(
        "agraph (uint8[N, 4] x, float s, uint8 z) => (uint8[N, 4] y) { y = com.microsoft.QLinearSoftmax<opset = 13>(x, s, z, s, z) }"
    ),
    "2**53": model("agraph (int64[N] x) => (int64[1] y) { y = ReduceSumSquare(x) }"),
    "minus infinity": model(
        "agraph (float[1, 2, 3, 4] x) => (float[1, 2, 3, 4] y, float[1, 2, 3, 3] z) { y, , , z = Attention(x, x, x) }", 23
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", [*WRONG, *INEXACT])
def test_nodes_that_are_left_to_others(why: str) -> None:
    for exact in (False, True):
        with open_session((WRONG | INEXACT)[why], [(OWN, {"exact": str(exact)}), CPU]) as session:
            refused = exact or why in WRONG
            assert owners(session) == ({CPU} if refused else {OWN})
            assert not refused or all(why in reason for reason in reasons(session).values())


@pytest.mark.parametrize("length", ["N", 3])
def test_a_scan_that_may_be_over_nothing_is_left_to_others(length: Any) -> None:
    source = model(
        f"""agraph (float[2] h, float[{length}, 2] x) => (float[2] y, float[M, 2] rows) {{
            y, rows = Scan<num_scan_inputs = 1, body = step (float[2] s, float[2] r) => (float[2] t, float[2] o) {{
                t = Add(s, r)
                o = Neg(t)
            }}>(h, x)
        }}"""
    )
    with open_session(source) as session:
        (scan,) = [n for n in session.explain().nodes if n["op_type"] == "Scan"] or [None]
        assert (scan is None) is (length == "N") and owners(session) == {OWN}
        for rows in (3, 0) if length == "N" else (3,):
            x = rng.standard_normal((rows, 2)).astype(np.float32)
            same(session.run(None, {"h": np.zeros(2, np.float32), "x": x}), [x.sum(0), -np.cumsum(x, 0)])


@pytest.mark.parametrize(
    ("op_type", "types", "shared", "why"),
    [
        ("GroupQueryAttention", {"T": "float16", "T_CACHE": "uint8"}, False, "uint8"),
        ("GroupQueryAttention", {"T": "float", "T_CACHE": "uint8"}, False, None),
        ("LinearAttention", {"T": "float", "S": "float16"}, False, "another type"),
        ("LinearAttention", {"T": "float", "S": "float"}, False, None),
        ("MoE", {"T": "float"}, True, "constants too"),
        ("MoE", {"T": "float"}, False, None),
    ],
)
def test_nodes_of_its_own_that_are_left_to_others(op_type: str, types: Any, shared: bool, why: str | None) -> None:
    value = SimpleNamespace(is_constant=True, consumers=[None, None] if shared else [None])
    given = {name: f"tensor({element})" for name, element in types.items()}
    node: Any = SimpleNamespace(
        domain="com.microsoft", op_type=op_type, constraint_types=given, inputs=[value], outputs=[], attributes={}
    )
    found = deviation(node, exact=False)
    assert found is None if why is None else why in (found or "")


def test_strings_are_apart_from_what_crosses_as_bits() -> None:
    source = model(
        "agraph (string[N] s) => (bfloat16[N] y) { [read] x = Cast<to = 1>(s) [round] y = Cast<to = 16>(x) }"
    )
    with open_session(source) as session:
        assert session.placement() == {"read": CPU, "round": OWN} and "beside" in reasons(session)["read"]
        assert session.run(None, {"s": np.array(["1.5", "-2"], object)})[0].tolist() == [1.5, -2]


@pytest.mark.parametrize("exact", [False, True])
def test_what_is_less_exact_is_left_to_others_on_demand(exact: bool) -> None:
    source = model("agraph (float[N] x) => (float[N] y) { a = Sigmoid(x) y = Exp(a) }")
    with open_session(source, [(OWN, {"exact": str(exact)}), CPU]) as session:
        assert owners(session) == ({OWN, CPU} if exact else {OWN})
        x = rng.standard_normal(9).astype(np.float32)
        same(session.run(None, {"x": x}), [np.exp(1 / (1 + np.exp(-x)))])


def test_weights_of_few_bits() -> None:
    weights = rng.integers(0, 16, (128, 96)).astype(ml_dtypes.uint4)
    source = model(
        """agraph (float[N, 128] x) => (float[N, 96] y) {
            d = DequantizeLinear(w, s)
            y = MatMul(x, d)
        }""",
        21,
        w=weights,
        s=np.array(0.25, np.float32),
    )
    with open_session(source, [(OWN, {"exact": "1"}), CPU]) as session:
        assert owners(session) == {OWN}
        x = rng.standard_normal((2, 128)).astype(np.float32)
        same(session.run(None, {"x": x}), [x @ (weights.astype(np.float32) / 4)], rtol=1e-4)
