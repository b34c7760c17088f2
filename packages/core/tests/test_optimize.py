"""Passes before placement: no-ops, dead ends, duplicates, constant branches; levels, names, files; all passes on anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from core_graphs import Drawn, drawn_models, expected, model, row, same
from core_passes import BRANCHING, LEVELS, OFF, QDQ, check, feeds_of, ops, session
from hypothesis import HealthCheck, given, settings
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

import onnxplug as ort
from onnxplug.contract.errors import InvalidArgument
from onnxplug.graph import export

# ---- no-ops

NO_OPS = [
    ("Identity", "y = Identity(h)", True),
    ("Cast to its own type", "y = Cast<to = 1>(h)", True),
    ("Cast to another", "d = Cast<to = 11>(h) y = Cast<to = 1>(d)", False),
    ("CastLike", "y = CastLike(h, x)", True),
    ("Dropout", "y = Dropout(h)", True),
    ("Dropout at a ratio", "r = Constant<value_float = 0.5>() y = Dropout(h, r)", True),
    ("Transpose in place", "y = Transpose<perm = [0, 1]>(h)", True),
    ("Transpose", "y = Transpose<perm = [1, 0]>(h)", False),
    ("Transpose by default", "y = Transpose(h)", False),
    ("Pad by nothing", "p = Constant<value_ints = [0, 0, 0, 0]>() y = Pad(h, p)", True),
    ("Pad", "p = Constant<value_ints = [0, 0, 0, 1]>() y = Pad(h, p)", False),
    ("Reshape to its own shape", "s = Constant<value_ints = [2, -1]>() y = Reshape(h, s)", True),
    ("Reshape", "s = Constant<value_ints = [3, 2]>() y = Reshape(h, s)", False),
    ("Reshape to a shape that is fed", "y = Reshape(h, s)", False),
    ("Expand to its own shape", "s = Constant<value_ints = [1, 3]>() y = Expand(h, s)", True),
    ("Flatten", "y = Flatten(h)", True),
    ("Concat of one", "y = Concat<axis = 0>(h)", True),
    ("Sum of one", "y = Sum(h)", True),
    ("Max of one", "y = Max(h)", True),
    ("Max of two", "y = Max(h, x)", False),
    (
        "Where of none",
        "c = Constant<value = bool[2, 1] {0, 0}>() o = Constant<value = float {7.0}>() y = Where(c, o, h)",
        True,
    ),
    (
        "Where of all",
        "c = Constant<value = bool {1}>() o = Constant<value = float[3] {7.0, 7.0, 7.0}>() y = Where(c, h, o)",
        True,
    ),
    (
        "Where of some",
        "c = Constant<value = bool[2, 1] {0, 1}>() o = Constant<value = float {7.0}>() y = Where(c, o, h)",
        False,
    ),
    (
        "Where that stretches",
        "c = Constant<value = bool[2, 1, 1] {0, 0}>() o = Constant<value = float {7.0}>() y = Where(c, o, h)",
        False,
    ),
]


PADDINGS = [
    ("around the image", "p = Constant<value_ints = [0, 0, 1, 2, 0, 0, 0, 1]>() h = Pad(x, p) y = Conv(h, w)", True),
    ("with the convolution's own", "p = Constant<value_ints = [0, 0, 1, 2, 0, 0, 0, 1]>() "
        "h = Pad(x, p) y = Conv<pads = [1, 0, 2, 0]>(h, w)", True),
    ("where it had none", "p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>() "
        "h = Pad(x, p) y = Conv<auto_pad = \"VALID\">(h, w)", True),
    ("zeros that are said", "z = Constant<value = float {0.0}>() p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>() "
        "h = Pad(x, p, z) y = Conv(h, w)", True),
    ("ones", "z = Constant<value = float {1.0}>() p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>() "
        "h = Pad(x, p, z) y = Conv(h, w)", False),
    ("edges", "p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>() h = Pad<mode = \"edge\">(x, p) y = Conv(h, w)", False),
    ("cut off", "p = Constant<value_ints = [0, 0, -1, 0, 0, 0, 0, 0]>() h = Pad(x, p) y = Conv(h, w)", False),
    ("of some dimensions", "a = Constant<value_ints = [2]>() p = Constant<value_ints = [1, 1]>() "
        "h = Pad(x, p, , a) y = Conv(h, w)", False),
    ("found by the convolution", "p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>() "
        "h = Pad(x, p) y = Conv<auto_pad = \"SAME_UPPER\">(h, w)", False),
    ("read twice", "p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>() "
        "h = Pad(x, p) a = Conv(h, w) b = Conv(h, w) y = Add(a, b)", True),
    ("read otherwise", "p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>() "
        "h = Pad(x, p) a = Conv(h, w) b = ReduceSum<keepdims = 1>(h) y = Add(a, b)", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "goes"), [pytest.param(*case[1:], id=case[0]) for case in PADDINGS])
def test_padding_before_a_convolution(text: str, goes: bool) -> None:
    left = check(
        model(f"g (float[1, 1, 5, 6] x) => (float y) <float[1, 1, 3, 2] w = {{1, 2, 3, 4, 5, 6}}> {{ {text} }}")
    )
    assert ("Pad" in ops(left)) != goes


@pytest.mark.parametrize(("text", "goes"), [pytest.param(*case[1:], id=case[0]) for case in NO_OPS])
@pytest.mark.parametrize("behind", ["", "z = Neg(y)"], ids=["is the output", "is read"])
def test_no_ops(text: str, goes: bool, behind: str) -> None:
    out = "z" if behind else "y"
    inputs = (
        "float[2, 3] x, int64[2] s" if "is fed" in text or ("(h, s)" in text and "s =" not in text) else "float[2, 3] x"
    )
    source = model(f"g ({inputs}) => (float {out}) {{ h = Abs(x) {text} {behind} }}")
    if "s" in feeds_of(source):
        made = session(source)
        assert made.run(None, {"x": np.ones((2, 3), np.float32), "s": np.array([3, 2])})[0].shape == (3, 2)
    else:
        made = check(source)
    left = [op for op in ops(made) if op != "Constant"]
    assert (left == ["Abs", "Neg"][: 2 if behind else 1]) == goes


def test_an_output_keeps_its_name_whatever_goes() -> None:
    check(model("g (float[2] x) => (float[2] y) { a = Identity(x) b = Identity(a) y = Identity(b) }"), ["Identity"])
    check(
        model("g (float[2] x) => (float[2] y, float[2] z) { y = Identity(x) z = Identity(x) }"),
        ["Identity", "Identity"],
    )
    check(
        model("g (float[2] x) => (float[2] y, float[2] z) { h = Neg(x) y = Identity(h) z = Identity(h) }"),
        ["Neg", "Identity"],
    )
    check(model("g (float[2] x) => (float[2] y, float[2] h) { h = Neg(x) y = Identity(h) }"), ["Neg", "Identity"])
    check(model("g (float[2] x) => (float[2] z) { h = Neg(x) y = Identity(h) z = Add(y, h) }"), ["Neg", "Add"])
    check(model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Identity(w) }"))
    check(
        model("g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Identity(y) w = Identity(z) }"),
        ["Neg", "Identity"],
    )


def test_outputs_behind_no_ops_keep_what_the_model_declares() -> None:
    text = "g (float[N, 8] x) => (float[1, 8] y) { h = Relu(x) a = Identity(h) y = Cast<to = 1>(a) }"
    made = check(model(text), ["Relu"])
    assert made.get_outputs()[0].shape == [1, 8]
    assert made.run(None, {"x": np.ones((3, 8), np.float32)})[0].shape == (3, 8), "what is declared is no promise"


def test_an_output_renamed_under_a_nested_graph_that_reads_it() -> None:
    source = model("""g (float[2] x, bool b) => (float[2] y, float[2] z) { h = Neg(x) y = Identity(h)
        z = If (b) <then_branch = t () => (a) { a = Add(h, y) }, else_branch = e () => (a) { a = Identity(y) }> }""")
    check(source, ["Neg"], **BRANCHING)


def test_identities_in_nested_graphs() -> None:
    source = model("""g (float[2] x, bool b) => (float[2] z) { h = Neg(x)
        z = If (b) <then_branch = t () => (a) { a = Identity(h) }, else_branch = e () => (a) { c = Identity(h) d =
            Abs(c) a = Identity(d) }> }""")
    made = check(source, **BRANCHING)
    assert sorted(made.placement()) == ["If_0/Abs_0", "If_0/Identity_0", "Neg_0"]


def test_many_identities_are_no_burden() -> None:
    made = Drawn()
    name = "x"
    for _ in range(3000):
        name = made.add("Identity", [name], ("N", 4))
    made.outputs = [made.add("Neg", [name], ("N", 4))]
    built = session(made.bytes())
    assert ops(built) == ["Neg"] and len(built.explain().removed) == 3000


@pytest.mark.parametrize("version", [6, 7, 10, 12, 13, 22])
@pytest.mark.parametrize("mask", ["unused", "read", "output"])
def test_dropout_whose_mask_is_wanted_stays(version: int, mask: str) -> None:
    text = {
        "unused": "y, m = Dropout(x)",
        "read": "h, m = Dropout(x) c = Cast<to = 1>(m) y = Add(h, c)",
        "output": "y, m = Dropout(x)",
    }[mask]
    if version == 6:
        text = text.replace("Dropout(", "Dropout<is_test = 1>(")
    kind = "bool" if version >= 10 else "float"
    more = f", {kind}[2] m" if mask == "output" else ""
    source = model(f"g (float[2] x) => (float[2] y{more}) {{ n = Neg(x) {text.replace('(x)', '(n)')} }}", version)
    made = check(source)
    assert ("Dropout" in ops(made)) == (mask != "unused")


@pytest.mark.parametrize("training", ["Constant<value = bool {1}>()", "Identity(t)"])
def test_dropout_in_training_stays(training: str) -> None:
    source = model(f"""g (float[200] x, bool t) => (float[200] y, float[200] z) {{
        r = Constant<value_float = 0.5>() m = {training} y = Dropout(x, r, m) z = Dropout(x, r, m) }}""")
    made = session(source)
    assert ops(made).count("Dropout") == 2
    y, z = made.run(None, {"x": np.ones(200, np.float32), "t": np.array(True)})
    assert not np.array_equal(y, z), "two random nodes are two"


# ---- dead ends, duplicates


def test_dead_nodes_go() -> None:
    made = check(model("g (float[2] x) => (float[2] y) { a = Neg(x) b = Abs(a) y = Relu(x) }"), ["Relu"])
    assert made.explain().removed == {"Neg_0": "EliminateDeadEnds", "Abs_0": "EliminateDeadEnds"}
    source = model("""g (float[2] x, bool b) => (float[2] y) { h = Neg(x) unread = Abs(h)
        y = If (b) <then_branch = t () => (a) { d = Relu(h) a = Abs(h) }, else_branch = e () => (a) { a = Neg(h) }> }""")
    assert sorted(check(source, **BRANCHING).placement()) == ["If_0/Abs_0", "If_0/Neg_0", "Neg_0"]


def test_a_node_with_one_dead_output_stays() -> None:
    check(
        model("g (float[2, 4] x) => (float y) { a, b = Split<axis = 1, num_outputs = 2>(x) y = Neg(b) }"),
        ["Split", "Neg"],
    )


def test_duplicates_become_one() -> None:
    check(
        model("g (float[2] x) => (float[2] y) { a = Neg(x) b = Neg(x) c = Abs(a) d = Abs(b) y = Add(c, d) }"),
        ["Neg", "Abs", "Add"],
    )
    check(
        model("g (float[2, 2] x) => (float y) { a = Softmax<axis = 0>(x) b = Softmax<axis = 1>(x) y = Add(a, b) }"),
        ["Softmax", "Softmax", "Add"],
    )
    check(
        model("g (float[2, 2] x) => (float y) { a = Softmax<axis = 0>(x) b = Softmax<axis = 0>(x) y = Add(a, b) }"),
        ["Softmax", "Add"],
    )
    check(model("g (float[2] x) => (float[2] y, float[2] z) { y = Neg(x) z = Neg(x) }"), ["Neg", "Neg"])
    check(model("g (float[2] x) => (float[2] y, float[2] z) { h = Neg(x) y = Neg(x) z = Abs(h) }"))
    check(
        model("g (float[2] x, float[2] w) => (float[2] y) { a = Sub(x, w) b = Sub(w, x) y = Mul(a, b) }"),
        ["Sub", "Sub", "Mul"],
    )


def test_duplicates_that_nested_graphs_read() -> None:
    source = model("""g (float[2] x, bool b) => (float[2] y) { h = Neg(x) k = Neg(x)
        y = If (b) <then_branch = t () => (a) { a = Add(h, k) }, else_branch = e () => (a) { a = Abs(k) }> }""")
    assert sorted(check(source, **BRANCHING).placement()) == ["If_0/Abs_0", "If_0/Add_0", "Neg_0"]


def test_constructs_of_the_same_look_are_not_merged() -> None:
    """Their bodies may draw random numbers."""
    body = """If (b) <then_branch = t () => (a) { a = RandomNormal<shape = [9]>() },
        else_branch = e () => (a) { a = RandomUniform<shape = [9]>() }>"""
    made = session(model(f"g (bool b) => (float y, float z) {{ y = {body} z = {body} }}"))
    y, z = made.run(None, {"b": np.array(True)})
    assert not np.array_equal(y, z)


# ---- constant branches


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    "condition", ["Constant<value = bool {%d}>()", "Constant<value = bool[1] {%d}>()", "Not(Constant)"]
)
def test_a_constant_branch_is_inlined(which: int, condition: str) -> None:
    text = (
        f"c = {condition % which}" if "%" in condition else f"d = Constant<value = bool {{{1 - which}}}>() c = Not(d)"
    )
    source = model(f"""g (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ {text}
        h = If (c) <then_branch = t () => (a) {{ k = Add(x, w) a = Neg(k) }}, else_branch = e () => (a) {{ a = Abs(x) }}> y = Relu(h) }}""")
    made = check(source, ["Add", "Neg", "Relu"] if which else ["Abs", "Relu"])
    assert ("If_0" in made.explain().removed) and "If_0/Neg_0" in {*made.placement(), *made.explain().removed}


BRANCHES = {
    "made inside": ("a = Neg(x)", ["Neg"]),
    "an outer value": ("a = Identity(h)", None),
    "an outer input": ("a = Identity(x)", None),
    "a constant": ("a = Constant<value_floats = [1.0, 2.0]>()", None),
    "a nested branch": ("a = If (c) <then_branch = p () => (q) { q = Neg(h) }, else_branch = r () => (q) { q = Abs(h) }>", ["Abs", "Neg"]),
    "a loop": ("""a = Loop (n, "", h) <body = l (int64 i, bool g, float[2] v) => (bool g2, float[2] w2) {
        g2 = Identity(g) w2 = Add(v, x) }>""", None),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("behind", ["", "z = Relu(y)"])
def test_what_a_constant_branch_gives(name: str, behind: str) -> None:
    inside, left = BRANCHES[name]
    out = "z" if behind else "y"
    source = model(f"""g (float[2] x) => (float[2] {out}) <int64 n = {{2}}> {{ c = Constant<value = bool[1] {{1}}>() h = Abs(x)
        y = If (c) <then_branch = t () => (a) {{ {inside} }}, else_branch = e () => (a) {{ a = Neg(x) }}> {behind} }}""")
    made = check(source)
    if left is not None:
        assert ops(made) == left + (["Relu"] if behind else [])


def test_a_branch_that_gives_one_value_twice() -> None:
    source = model("""g (float[2] x) => (float[2] y, float[2] z) { c = Constant<value = bool[1] {1}>()
        y, z = If (c) <then_branch = t () => (a, a) { a = Abs(x) }, else_branch = e () => (a, a) { a = Neg(x) }> }""")
    check(source)


def test_a_constant_condition_inside_a_nested_graph() -> None:
    """Also one that only the outer graph's folding makes constant."""
    source = model("""g (float[2] x, bool b) => (float[2] y) { d = Constant<value = bool {0}>() c = Not(d)
        y = If (b) <then_branch = t () => (a) {
            h = If (c) <then_branch = p () => (q) { q = Neg(x) }, else_branch = r () => (q) { q = Abs(x) }> a = Relu(h) },
        else_branch = e () => (a) { a = Identity(x) }> }""")
    made = check(source, **BRANCHING)
    assert sorted(made.placement()) == ["If_0/If_0/Neg_0", "If_0/Relu_0", "If_0/Identity_0"] or sorted(made.placement()) == [
        "If_0/Identity_0", "If_0/If_0/Neg_0", "If_0/Relu_0"]  # fmt: skip


def test_names_of_an_inlined_branch_do_not_meet_others() -> None:
    source = model("""g (float[2] x) => (float[2] y) { c = Constant<value = bool[1] {1}>() k = Abs(x)
        h = If (c) <then_branch = t () => (a) { k = Neg(x) a = Neg(k) }, else_branch = e () => (a) { a = Abs(x) }>
        j = If (c) <then_branch = t () => (a) { k = Relu(x) a = Neg(k) }, else_branch = e () => (a) { a = Abs(x) }>
        s = Add(h, j) y = Add(s, k) }""")
    check(source)


# ---- levels, names, files


LEVELLED = model("""g (float[1, 1, 2, 2] x) => (float y) <float[1, 1, 1, 1] w = {2}, float[1, 1, 1] m = {3}> {
    i = Identity(x) k = Neg(m) a = Conv(i, w) b = Mul(a, k) d = Neg(b) e = Neg(b) f = Abs(x) y = Add(d, e) }""")


@pytest.mark.parametrize(
    ("level", "left"),
    [
        ("ORT_DISABLE_ALL", ["Identity", "Neg", "Conv", "Mul", "Neg", "Neg", "Abs", "Add"]),
        ("ORT_ENABLE_BASIC", ["Conv", "Neg", "Add"]), ("ORT_ENABLE_EXTENDED", ["Conv", "Neg", "Add"]),
        ("ORT_ENABLE_LAYOUT", ["Conv", "Neg", "Add"]), ("ORT_ENABLE_ALL", ["Conv", "Neg", "Add"]),
    ],
)  # fmt: skip
def test_levels(level: str, left: list[str]) -> None:
    made = session(LEVELLED, getattr(LEVELS, level))
    assert ops(made) == left
    same(made.run(None, feeds_of(LEVELLED)), expected(LEVELLED, feeds_of(LEVELLED)))


@pytest.mark.parametrize(
    ("name", "kept"),
    [("ConstantFolding", "Mul"), ("EliminateIdentity", "Identity"), ("ConvAffineFusion", "Mul"), ("EliminateDeadEnds", "Abs"),
     ("CommonSubexpressionElimination", "Neg")],
)  # fmt: skip
def test_passes_can_be_switched_off(name: str, kept: str) -> None:
    made = session(LEVELLED, disabled_optimizers=[name])
    assert kept in ops(made) and name not in made.explain().removed.values()
    if name == "CommonSubexpressionElimination":
        assert ops(made).count("Neg") == 2
    options = ort.SessionOptions()
    options.add_session_config_entry("optimization.disable_specified_optimizers", f"{name};Another")
    assert ops(ort.InferenceSession(LEVELLED, options, ["CPUExecutionProvider"])) == ops(made)


SAVED = {
    "passes": LEVELLED,
    "quantized": model(QDQ),
    "nested": model("""g (float[2] x, bool b) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { h = Neg(x) y = Identity(h)
        z = If (b) <then_branch = t () => (a) { k = Add(h, w) a = Neg(k) }, else_branch = e () => (a) { k = Abs(y) a = Identity(k) }> }"""),
    "loop": model("""g (float[2] x) => (float[2] y, float[2, 2] s) <int64 n = {2}, bool b = {1}> { y, s = Loop (n, b, x) <body =
        l (int64 i, bool c, float[2] v) => (bool d, float[2] o, float[2] p) {
            d = Identity(c) t = Identity(x) o = Add(v, t) p = Neg(v) }> }"""),
    "function": model("""g (float[2] x) => (float[2] y) { y = local.twice(x) }
        <domain: "local", opset_import: ["": 21]> twice (p) => (q) { q = Add(p, p) }"""),
    "constants": model("g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { y = Neg(w) a = Add(w, y) z = Add(x, a) }"),
    "branch": model("""g (float[2] x) => (float[2] y) { c = Constant<value = bool[1] {1}>() k = Abs(x)
        h = If (c) <then_branch = t () => (a) { k = Neg(x) a = Neg(k) }, else_branch = e () => (a) { a = Abs(x) }> y = Add(h, k) }"""),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["onnxplug", "onnxruntime"])
@pytest.mark.parametrize(
    ("name", "old"), [*((name, False) for name in SAVED), *((name, True) for name in SAVED if name != "function")]
)
def test_the_optimized_model_is_a_model(tmp_path: Path, name: str, engine: str, old: bool) -> None:
    runtime, source, path = pytest.importorskip(engine), SAVED[name], str(tmp_path / "optimized.onnx")
    if old:
        proto = ModelProto.FromString(source)
        proto.ir_version = 3
        for tensor in proto.graph.initializer:
            proto.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        source = proto.SerializeToString()
    plain = session(source, path=path)
    proto = ModelProto.FromString(Path(path).read_bytes())
    checker.check_model(proto, full_check=True)
    feeds = {n: a for n, a in feeds_of(SAVED[name]).items()}
    results = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    for got, want in zip(results, plain.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_optimized_model_keeps_what_the_model_says_of_itself(tmp_path: Path) -> None:
    proto = ModelProto.FromString(LEVELLED)
    proto.producer_name, proto.doc_string, proto.model_version, proto.graph.doc_string = "me", "a model", 7, "a graph"
    helper.set_model_props(proto, {"key": "value"})
    path = str(tmp_path / "optimized.onnx")
    session(proto.SerializeToString(), path=path)
    meta = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).get_modelmeta()
    assert (meta.producer_name, meta.description, meta.version, meta.graph_description, meta.custom_metadata_map) == (
        "me", "a model", 7, "a graph", {"key": "value"})  # fmt: skip


def test_a_large_model_keeps_its_weights_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_INLINE_LIMIT", 1000)
    weight = np.arange(600, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [600])],
        [helper.make_tensor_value_info("y", 1, [600])], [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9).SerializeToString()
    path = tmp_path / "optimized.onnx"
    for _ in range(2):
        session(source, path=str(path))
        assert (tmp_path / "optimized.onnx.data").stat().st_size == 2400, "saving again replaces the weights"
    made = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert made.run(None, {"x": np.zeros(600, np.float32)})[0].tolist() == weight.tolist()


@pytest.mark.parametrize("where", ["nowhere/optimized.onnx", "."])
def test_an_optimized_model_that_cannot_be_written(tmp_path: Path, where: str) -> None:
    with pytest.raises(InvalidArgument, match="Cannot write the optimized model to"):
        session(LEVELLED, path=str(tmp_path / where))


# ---- all passes on anything


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(drawn_models(nodes=18))
def test_random_graphs_give_the_same_with_and_without(drawn: Drawn) -> None:
    source = drawn.bytes()
    plain, optimized = session(source, OFF), session(source)
    for n in (1, 3):
        feeds = {"x": row(n), "y": row(n, 1)}
        same(optimized.run(None, feeds), plain.run(None, feeds))
        same(optimized.run(None, feeds), expected(source, feeds))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    drawn_models(kinds=("Add", "Neg", "Identity", "Relu", "Reshape", "Transpose", "MatMul"), nodes=10),
    drawn_models(nodes=6),
)
def test_random_branches_give_the_same_with_and_without(outer: Drawn, inner: Drawn) -> None:
    source = branching(outer, inner)
    plain, optimized = session(source, OFF), session(source)
    for b in (True, False):
        feeds = {"x": row(2), "y": row(2, 1), "b": np.array(b)}
        same(optimized.run(None, feeds), plain.run(None, feeds))


def branching(outer: Drawn, inner: Drawn) -> bytes:
    """``inner``'s first output in one branch, an outer value in the other; names of both graphs are the same."""
    proto = ModelProto.FromString(outer.bytes())
    body = ModelProto.FromString(inner.bytes()).graph
    for node in body.node:
        node.name = ""
    out = body.output[0]
    then = helper.make_graph(list(body.node), "then", [], [out], list(body.initializer))
    other = helper.make_graph([helper.make_node("Identity", [proto.graph.output[0].name], ["o"])], "else", [],
                              [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)])  # fmt: skip
    proto.graph.node.append(helper.make_node("If", ["b"], ["branched"], then_branch=then, else_branch=other))
    proto.graph.input.append(helper.make_tensor_value_info("b", TensorProto.BOOL, []))
    proto.graph.output.append(helper.make_tensor_value_info("branched", TensorProto.FLOAT, None))
    return proto.SerializeToString()


def test_one_branch_says_more_than_both() -> None:
    """As torch writes scatter_reduce: branches of different ranks, and the rank of what comes out of one decides the next If."""
    source = model("""g (float[N] x) => (float[M] y) {
        one = Constant<value_ints = [0]>() two = Constant<value = int64 {2}>()
        s = Shape(x) r = Shape(s) n = Squeeze(r) c = Equal(n, two)
        h = If (c) <then_branch = t () => (a) { a = Unsqueeze(x, one) }, else_branch = e () => (a) { a = Neg(x) }>
        t = Shape(h) q = Size(t) d = Equal(q, two)
        y = If (d) <then_branch = t2 () => (a) { a = Squeeze(h, one) }, else_branch = e2 () => (a) { a = Abs(h) }> }""")
    made = session(source)
    assert {node["op_type"] for node in made.explain().nodes} == {"Neg", "Abs"}
    x = np.array([1.0, -2.0], np.float32)
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], np.abs(x))
