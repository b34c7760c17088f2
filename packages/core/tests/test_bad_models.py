"""Models with one thing wrong: the class that onnxruntime raises, and the words that programs look for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import core_graphs
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper, parser

import onnxplug
from onnxplug.contract.errors import STATUS_ERRORS

CPU = ["CPUExecutionProvider"]
PLAIN = "g (float[2] x) => (float[2] y) { h = Neg (x) y = Abs (h) }"
BRANCHES = """g (float[2] x, bool b) => (float[2] y) {
    y = If (b) <then_branch = t () => (float[2] p) { q = Neg (x) p = Abs (q) },
                else_branch = e () => (float[2] r) { r = Exp (x) }> }"""
SCAN = """g (float[2] h, float[T, 2] x) => (float[2] f) {
    f = Scan <num_scan_inputs = 1, body = b (float[2] a, float[2] e) => (float[2] c) { c = Add (a, e) }> (h, x) }"""
STRINGS = 'g (int64[1] i) => (string[1] y) <string[2] w = {"a", "b"}> { y = Gather (w, i) }'
QUANTIZED = "g (float[2] x) => (uint8[2] y) <float s = {0.5}, uint8 z = {1}> { y = QuantizeLinear (x, s, z) }"
FUNCTION = (
    PLAIN.replace("Neg", "f.twice") + ' <domain: "f", opset_import: ["": 21]> twice (p) => (q) { q = Add (p, p) }'
)


def body(model: ModelProto, name: str = "then_branch") -> Any:
    (found,) = (a.g for a in model.graph.node[0].attribute if a.name == name)
    return found


def untyped_output(model: ModelProto) -> None:
    model.graph.output[0].type.tensor_type.elem_type = 0


def untyped_value(model: ModelProto) -> None:
    model.graph.value_info.add(name="h").type.tensor_type.elem_type = 99


def untyped_body_input(model: ModelProto) -> None:
    body(model, "body").input[0].type.tensor_type.elem_type = 0


def other_body_input(model: ModelProto) -> None:
    body(model, "body").input[0].type.tensor_type.elem_type = TensorProto.INT64


def raw_strings(model: ModelProto) -> None:
    model.graph.initializer[0].ClearField("string_data")
    model.graph.initializer[0].raw_data = b"ab"


def other_elements(model: ModelProto) -> None:
    model.graph.initializer[0].data_type = TensorProto.STRING


def nobody_makes_the_output(model: ModelProto) -> None:
    del model.graph.node[1]
    model.graph.node[0].input[0] = "q"


def free_name_in_a_body(model: ModelProto) -> None:
    body(model).node[0].input[0] = "nope"


def unsorted_body(model: ModelProto) -> None:
    first, second = body(model).node
    first, second = (type(first).FromString(n.SerializeToString()) for n in (first, second))
    del body(model).node[:]
    body(model).node.extend([second, first])


def not_in_the_functions_domain(model: ModelProto) -> None:
    model.graph.node[0].op_type = "Relu"


def output_of_another_kind(model: ModelProto) -> None:
    model.graph.output[0].type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT


def omitted_state(model: ModelProto) -> None:
    next(n for n in model.graph.node if n.op_type == "Scan").input[0] = ""


CASES: list[tuple[str, Callable[[ModelProto], None], str]] = [
    (PLAIN, untyped_output, r"Failed to load model with error: Invalid tensor data type 0\."),
    (PLAIN, untyped_value, r"Failed to load model with error: Invalid tensor data type 99\."),
    (SCAN, untyped_body_input, r"Failed to load model with error: Invalid tensor data type 0\."),
    (SCAN, other_body_input, r"Op \(Scan\) \[TypeInferenceError\] .*Tensor element type mismatch"),
    (SCAN, omitted_state, r"Op \(Scan\) \[TypeInferenceError\] Scan input 0 was not a tensor"),
    (STRINGS, raw_strings, "Deserialize tensor w failed.string tensor can not have raw data"),
    (QUANTIZED, other_elements, r"Type 'tensor\(string\)' of input parameter \(s\) of operator \(QuantizeLinear\)"),
    (PLAIN, nobody_makes_the_output, r"Graph output \(y\) does not exist in the graph"),
    (BRANCHES, free_name_in_a_body, "must be topologically sorted, however input 'nope' of node"),
    (BRANCHES, unsorted_body, "must be topologically sorted, however input 'q' of node"),
    (FUNCTION, not_in_the_functions_domain, r"Fatal error: f:Relu\(-1\) is not a registered function/op"),
    (PLAIN, output_of_another_kind, r"Type \(seq\(tensor\(float\)\)\) of output arg \(y\) of node"),
]


def refusal(runtime: Any, model: ModelProto) -> BaseException:
    with pytest.raises(Exception) as raised:
        runtime.InferenceSession(model.SerializeToString(), providers=CPU)
    return raised.value


@pytest.mark.parametrize(("text", "damage", "words"), [pytest.param(*case, id=case[1].__name__) for case in CASES])
def test_what_is_wrong_is_said_as_onnxruntime_says_it(
    text: str, damage: Callable[[ModelProto], None], words: str
) -> None:
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21, "f": 1]> {text}')
    damage(model)
    ours = refusal(onnxplug, model)
    assert isinstance(ours, STATUS_ERRORS)
    theirs = pytest.importorskip("onnxruntime")
    theirs.set_default_logger_severity(4)
    assert type(refusal(theirs, model)).__name__ == type(ours).__name__
    with pytest.raises(type(ours), match=words):
        raise ours


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ('y = LSTM <hidden_size = 2, direction = ""> (x, x, x)', "direction '' is none of forward, reverse"),
        ('y = DepthToSpace <blocksize = 1, mode = "nope"> (x)', "mode 'nope' is none of DCR, CRD"),
        ('y = Gelu <approximate = "nope"> (x)', "approximate 'nope' is none of none, tanh"),
        ('y = Resize <mode = "nope"> (x, , s)', "mode 'nope' is none of nearest, linear, cubic"),
        ('y = GridSample <padding_mode = "nope"> (x, x)', "padding_mode 'nope' is none of zeros, border, reflection"),
        ("y = RoiAlign <sampling_ratio = -1> (x, x, i)", "sampling_ratio is -1, it must not be negative"),
        ('y = ScatterND <reduction = "nope"> (x, i, x)', "reduction 'nope' is none of none, add, mul, max, min"),
        ('y = NegativeLogLikelihoodLoss <reduction = "nope"> (x, i)', "reduction 'nope' is none of mean, sum, none"),
        ('y = Einsum <equation = "ij.,jk->ik"> (x, x)', "equation 'ij.,jk->ik' has dots that are no ellipsis"),
        ('y = Einsum <equation = "i_j->ij"> (x)', "equation 'i_j->ij' has '_', which is no letter"),
        ('y = Einsum <equation = "i-j"> (x)', "equation 'i-j' has '-', which is no letter"),
        ("y = ReduceMax <keepdims = 2> (x)", "keepdims is 2, it must be 0 or 1"),
        ("y = Reshape <allowzero = -1> (x, i)", "allowzero is -1, it must be 0 or 1"),
        ("y = Softmax <axis = 1099511627776> (x)", "axis 1099511627776 is not in any tensor's range"),
        (
            'y = com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 1, v_quant_type = "nope"> (x, , , , , i, i)',
            "invalid KV quantization type 'NOPE'",
        ),
        (
            "y = com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 0> (x, , , , , i, i)",
            "kv_num_heads is 0, it must be positive",
        ),
        (
            "y = com.microsoft.GroupQueryAttention <num_heads = 1, kv_num_heads = 1, kv_cache_bit_width = 8> (x, , , , , i, i)",
            "kv_cache_bit_width must be 0 when quantization is disabled, got 8",
        ),
        (
            'y = com.microsoft.Tokenizer <mark = 0, mincharnum = 0, pad_value = "", separators = [" "]> (x)',
            "mincharnum is 0, it must be positive",
        ),
        (
            "y = com.microsoft.QMoE <block_size = 20> (x, x, x, , , x)",
            "block_size is 20, it must be a power of two from 16 on",
        ),
    ],
)
def test_attributes_that_mean_nothing(node: str, words: str) -> None:
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 21, "com.microsoft": 1]> g (float[A, B, C] x, float[D] s, int64[E, F] i) => (y) {{ {node} }}'
    )
    assert words in str(refusal(onnxplug, model))


def test_modes_of_upsample_are_those_of_resize() -> None:
    """It left the standard in version 10."""
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 9]> g (float[A, B] x, float[2] s) => (y) { y = Upsample <mode = "nope"> (x, s) }'
    )
    assert "mode 'nope' is none of nearest, linear, cubic" in str(refusal(onnxplug, model))


@pytest.mark.parametrize("equation", ["ij - > ji", ". . . ij->...ji", " i j -> j i ", "iJ->Ji"])
def test_blanks_in_an_equation_mean_nothing(ort: Any, equation: str) -> None:
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 21]> g (float[A, B] x) => (float[B, A] y) {{ y = Einsum <equation = "{equation}"> (x) }}'
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = ort.InferenceSession(model.SerializeToString(), providers=CPU).run(None, {"x": x})
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("declared", ["value_info", "output"])
def test_of_two_declarations_the_first_counts(declared: str) -> None:
    """As in onnxruntime; and what is said of no value does not count at all."""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> {PLAIN}')
    model.graph.value_info.add(name="nobody's").type.tensor_type.elem_type = 0
    if declared == "output":
        model.graph.output.add().CopyFrom(model.graph.output[0])
        model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    for runtime in (onnxplug, pytest.importorskip("onnxruntime")):
        outputs = runtime.InferenceSession(model.SerializeToString(), providers=CPU).get_outputs()
        assert {o.type for o in outputs} == {"tensor(float)"}


def test_what_stands_beside_a_constants_value_is_ignored() -> None:
    """As in onnxruntime: onnxsim marks constants while it works."""
    model = parser.parse_model(
        """<ir_version: 9, opset_import: ["": 21]>
        g (float[2] x) => (float[2] y) { c = Constant <value_float = 2.0, mark = 1> () y = Mul (x, c) }"""
    )
    for runtime in (onnxplug, pytest.importorskip("onnxruntime")):
        session = runtime.InferenceSession(model.SerializeToString(), providers=CPU)
        assert session.run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [2, 2]


def test_of_constants_with_one_name_the_last_counts(ort: Any) -> None:
    """onnxruntime's own optimizer of transformers wrote such models."""
    made = core_graphs.model(
        """g (float[2] x) => (float[2] y) {
            c = Constant <value_float = 1.0>() t = Add(x, c) c = Constant <value_float = 5.0>() u = Add(t, c)
            c = Constant <value_float = 7.0>() y = Add(u, c)
        }"""
    )
    session = ort.InferenceSession(made, providers=CPU)
    assert session.run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [21, 21]


def test_constants_with_one_name_are_an_output_of_that_name(ort: Any) -> None:
    made = core_graphs.model(
        "g () => (float y) { y = Constant <value_float = 1.0>() y = Constant <value_float = 5.0>() }"
    )
    session = ort.InferenceSession(made, providers=CPU)
    assert [output.name for output in session.get_outputs()] == ["y"]
    assert session.run(["y"], {})[0] == 5


def test_only_constants_may_share_a_name(ort: Any) -> None:
    made = core_graphs.model(
        "g (float[2] x) => (float[2] y) { c = Constant <value_float = 1.0>() c = Relu(x) y = Add(x, c) }"
    )
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match=r"Duplicate definition of name \(c\)"):
        ort.InferenceSession(made, providers=CPU)


@pytest.mark.parametrize("before", ["y = Add(x, c)", ""])
def test_a_constant_wins_over_an_initializer(ort: Any, before: str) -> None:
    after = "" if before else "y = Add(x, c)"
    made = core_graphs.model(
        f"g (float[2] x) => (float[2] y) <float[2] c = {{1, 2}}> {{ {before} c = Constant <value_floats = [5.0, 6.0]>() {after} }}"
    )
    session = ort.InferenceSession(made, providers=CPU)
    assert session.run(None, {"x": np.zeros(2, np.float32)})[0].tolist() == [5, 6]


@pytest.mark.parametrize("initializer", ["", "<float[2] c = {1, 2}>"])
def test_a_constant_is_the_default_of_an_input(ort: Any, initializer: str) -> None:
    text = f"g (float[2] x, float[2] c) => (float[2] y) {initializer} {{ c = Constant <value_floats = [5.0, 6.0]>() y = Add(x, c) }}"
    session, x = ort.InferenceSession(core_graphs.model(text), providers=CPU), np.zeros(2, np.float32)
    assert [v.name for v in session.get_inputs()] == ["x"]
    assert [v.name for v in session.get_overridable_initializers()] == ["c"]
    assert session.run(None, {"x": x})[0].tolist() == [5, 6]
    assert session.run(None, {"x": x, "c": x + 1})[0].tolist() == [1, 1]
    old = parser.parse_model(f'<ir_version: 3, opset_import: ["": 17]> {text}')
    session = ort.InferenceSession(old.SerializeToString(), providers=CPU)
    assert not session.get_overridable_initializers()
    assert session.run(None, {"x": x})[0].tolist() == [5, 6]


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("float[2] c = {1, 2}", "value_floats = [1.0, 2.0, 3.0]"), ("float c = {1}", "value_floats = [1.0, 2.0]"),
        ("float[2] c = {1, 2}", "value_ints = [1, 2]"), ("float[2] c = {1, 2}", 'value_strings = ["a", "b"]'),
    ],
)  # fmt: skip
def test_a_constant_is_of_the_type_of_what_it_replaces(ort: Any, first: str, last: str) -> None:
    for place in (f"(float[2] x) => (y) <{first}>", f"(float[2] x, {first.split('=')[0]}) => (y)"):
        made = core_graphs.model(f"g {place} {{ c = Constant <{last}>() y = Identity(c) }}")
        with pytest.raises(
            ort.capi.onnxruntime_pybind11_state.Fail, match=r"Type Error: (Shape|Data) .*initializer '?c"
        ):
            ort.InferenceSession(made, providers=CPU)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ((2,), (3,)),
        ((3,), (2,)),
        ((1, 2), (2,)),
        ((2,), (1, 2)),
        ((2,), ()),
        ("int64", "float32"),
        ("float32", "int64"),
    ],
)
def test_initializers_with_one_name_are_of_one_type(ort: Any, first: Any, last: Any) -> None:
    model = ModelProto.FromString(core_graphs.model("g (float[2] x) => (y) { y = Identity(c) }"))
    for each in (first, last):
        array = np.ones(2, each) if isinstance(each, str) else np.ones(each, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, "c"))
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match=r"Type Error: (Shape|Data) .*initializer '?c"):
        ort.InferenceSession(model.SerializeToString(), providers=CPU)


@pytest.mark.parametrize(
    "given",
    [
        {"block_size": 0}, {"block_size": 17}, {"block_size": 8}, {"bits": 0}, {"bits": 3}, {"b": (4, 2, 7)}, {"b": (5, 2, 8)},
        {"b": (4, 16)}, {"s": (4, 3)}, {"s": (9,)}, {"s": (2, 4)}, {"z": (5,)}, {"z": (4, 2)},
    ],
)  # fmt: skip
def test_weights_of_few_bits_that_do_not_fit(ort: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail):
        ort.InferenceSession(few_bits(**given), providers=CPU)


@pytest.mark.parametrize("given", [{}, {"s": (8,)}, {"z": (4, 1)}, {"z": (4,)}, {"points": "float32", "z": (4, 2)}])
def test_weights_of_few_bits_that_fit(ort: Any, given: dict[str, Any]) -> None:
    session = ort.InferenceSession(few_bits(**given), providers=CPU)
    assert session.run(None, {"x": np.ones((2, 32), np.float32)})[0].shape == (2, 4)


def few_bits(points: str = "uint8", **given: Any) -> bytes:
    """A MatMulNBits of weights (4, 32) and blocks of 16, but for the attributes and operands' shapes given."""
    attributes = {"bits": 4, "block_size": 16} | {k: v for k, v in given.items() if k not in "bsz"}
    shapes = {"b": (4, 2, 8), "s": (4, 2)} | {k: v for k, v in given.items() if k in "bsz"}
    text = ", ".join(f"{name} = {number}" for name, number in attributes.items())
    model = parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 21, "com.microsoft": 1]> g (float[2, 32] x) => (y) {{
            y = com.microsoft.MatMulNBits <K = 32, N = 4, {text}> (x, {", ".join(shapes)}) }}"""
    )
    for (name, shape), dtype in zip(shapes.items(), ("uint8", "float32", points), strict=False):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, dtype), name))
    return model.SerializeToString()


@pytest.mark.parametrize("operands", ["x, s", "x, s, s"])
def test_attributes_that_layer_normalization_before_17_does_not_know_are_ignored(ort: Any, operands: str) -> None:
    made = core_graphs.model(
        f"g (float[2, 3] x) => (float[2, 3] y) <float[3] s = {{1, 2, 3}}> {{ y = LayerNormalization <epsion = 0.5> ({operands}) }}",
        11,
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3) ** 2
    (y,) = ort.InferenceSession(made, providers=CPU).run(None, {"x": x})
    scale, wide = np.array([1, 2, 3]), x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + scale * operands.count(", s, s")
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


def test_domains_of_onnx_need_not_be_imported() -> None:
    """Nodes are then of the newest version."""
    text = "g (float[2] x) => (float[2] y) { y = Neg (x) }"
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["ai.onnx.ml": 3]> {text}')
    for runtime in (onnxplug, pytest.importorskip("onnxruntime")):
        (input_,) = runtime.InferenceSession(model.SerializeToString(), providers=CPU).get_inputs()
        assert input_.shape == [2]


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (float[2] y) { y, q = Nope (x, , x) }",
        "g (float[2] x) => (float[2] y) { y = f.Neg (x) }",
        "g (float[2] x) => (float[2] y) { y = Neg <foo = 3> (x) }",
        'g (float[2] x) => (float[2] y) { y = Softmax <axis = "a"> (x) }',
        "g (float[2] x, seq(int64[2]) s) => (float[2] y) { y = Neg (x, s) }",
        "g (float[2] x) => (float[2] y) { y = Cast (x) }",
        "g (float[2] x, int64[2] z) => (float[2] y) { y = Add (x, z) }",
        "g (float[2] x, float[3] z) => (float[2] y) { y = Add (x, z) }",
    ],
)
def test_what_is_wrong_is_told_with_the_model_s_file_and_the_node_s_values(text: str, tmp_path: Path) -> None:
    """In onnxruntime's words, to the letter, of a file; of bytes without the file."""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> {text}')
    model.graph.node[0].name = "n"
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    theirs = pytest.importorskip("onnxruntime")
    for source in (str(path), model.SerializeToString()):
        told = []
        for runtime in (onnxplug, theirs):
            with pytest.raises(Exception) as raised:
                runtime.InferenceSession(source, providers=CPU)
            told.append(str(raised.value))
        assert told[0] == told[1]
