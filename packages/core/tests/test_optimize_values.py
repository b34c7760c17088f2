"""Passes that compute: folding constants, and what is folded into convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from core_graphs import expected, model, same
from core_passes import OFF, ON, QDQ, check, ops, session
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug.optimize import fold

# ---- folding


def test_constants_are_folded() -> None:
    made = check(
        model("""g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
        a = Constant<value_floats = [3.0, 4.0]>() b = Mul(a, w) c = Neg(b) y = Add(x, c) }"""),
        ["Add"],
    )
    assert made.explain().removed == {n: "ConstantFolding" for n in ("Constant_0", "Mul_0", "Neg_0")}


def test_a_folded_output() -> None:
    made = check(
        model("g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { y = Neg(w) z = Neg(x) }"), ["Neg"]
    )
    assert made.run(["y"], {"x": np.ones(2, np.float32)})[0].tolist() == [-1, -2]


def test_shapes_that_are_known_are_folded() -> None:
    check(model("g (float[2, 3] x) => (int64[2] y, int64 n) { y = Shape(x) n = Size(x) }"), [])
    check(model("g (float[2, 3] x) => (int64[1] y) { y = Shape<start = -1>(x) }"), [])
    check(model("g (float[2, 3] x) => (int64[m] y) { y = Shape<start = 1, end = -9>(x) }"), [])
    check(model("g (float[N, 3] x) => (int64[1] y) { y = Shape<start = 1>(x) }"), [])
    check(model("g (float[N, 3] x) => (int64[1] y) { y = Shape<end = 1>(x) }"), ["Shape"])


def test_a_size_beyond_an_integer_is_left_to_the_run() -> None:
    assert ops(session(model(f"g (float[{1 << 40}, {1 << 40}, 0] x) => (int64 n) {{ n = Size(x) }}"))) == []
    assert ops(session(model(f"g (float[{1 << 40}, {1 << 40}] x) => (int64 n) {{ n = Size(x) }}"))) == ["Size"]


def test_a_shape_computed_from_a_known_one_gives_known_shapes() -> None:
    """What is folded decides types of what comes after, which folds in turn."""
    source = model("""g (float[2, 6] x) => (float y, int64 n) { s = Shape(x) i = Constant<value_ints = [1]>() k = Gather(s, i)
        m = Constant<value_ints = [-1]>() t = Concat<axis = 0>(k, m) r = Reshape(x, t) n = Shape(r) y = Neg(r) }""")
    made = check(source, ["Reshape", "Neg"])
    assert made.get_outputs()[0].shape == [6, 2]


def test_a_cast_to_the_type_of_something_computed_is_folded() -> None:
    """It asks for no more of that than its type, which is known."""
    source = model("""g (float16[N] x) => (float16[N] y) <float z = {2}> { c = CastLike(z, x) y = Mul(x, c) }""")
    made = session(source)
    assert ops(made) == ["Mul"]
    assert made.run(None, {"x": np.ones(3, np.float16)})[0].tolist() == [2, 2, 2]


def test_strings_are_folded() -> None:
    source = model("""g (float[1] x) => (string[2] y, float[1] z) <string[2] w = {"a", "b"}> {
        c = Constant<value_strings = ["x", "y"]>() y = StringConcat(w, c) z = Neg(x) }""")
    made = session(source)
    assert made.run(["y"], {"x": np.ones(1, np.float32)})[0].tolist() == ["ax", "by"]
    same(made.run(None, {"x": np.ones(1, np.float32)}), session(source, OFF).run(None, {"x": np.ones(1, np.float32)}))


@pytest.mark.parametrize(
    "constant",
    ["value_string = \"ab\"", "value_strings = [\"a\", \"b\"]", "value_int = 3", "value_ints = [1, 2]", "value_float = 1.5",
     "value_floats = [1.5]", "value = string[2] {\"a\", \"b\"}", "value = double[1] {2}", "value = bool {1}"],
)  # fmt: skip
def test_constants_of_every_kind(constant: str) -> None:
    source = model(f"g (float[1] x) => (y) {{ c = Constant<{constant}>() y = Identity(c) }}")
    for level in (OFF, ON):
        (got,) = session(source, level).run(None, {"x": np.ones(1, np.float32)})
        (want,) = expected(source, {"x": np.ones(1, np.float32)})
        assert got.tolist() == np.asarray(want).tolist() and got.shape == np.asarray(want).shape


def test_what_would_be_huge_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    source = model("""g (float[1] x) => (float y) { s = Constant<value_ints = [1000, 1000]>() c = ConstantOfShape(s)
        m = ReduceSum<keepdims = 0>(c) y = Add(x, m) }""")
    check(source, ["Add"])
    monkeypatch.setattr(fold, "MAX_BYTES", 1 << 20)
    check(source, ["ConstantOfShape", "ReduceSum", "Add"])
    giant = model("""g (float[1] x) => (float y) { s = Constant<value_ints = [4000000000, 4000000000]>()
        c = ConstantOfShape(s) m = ReduceSum<keepdims = 0>(c) y = Add(x, m) }""")
    made = session(giant)
    assert "ConstantOfShape" in ops(made)
    with pytest.raises(STATUS_ERRORS):
        made.run(None, {"x": np.ones(1, np.float32)})


def test_a_result_whose_size_shows_only_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "MAX_BYTES", 64)
    source = model("""g (int64[1] x) => (int64 y) <int64[2, 7] s = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}> {
        c = NonZero(s) n = ReduceSum<keepdims = 0>(c) y = Mul(x, n) }""")
    assert "NonZero" in ops(check(source))


def test_a_fold_that_fails_is_left_to_the_run() -> None:
    source = model(
        "g (int64[1] x) => (int64[1] y) { a = Constant<value_ints = [1]>() "
        "i = Constant<value_ints = [7]>() c = Gather(a, i) y = Add(x, c) }"
    )
    made = session(source)
    assert ops(made) == ["Gather", "Add"]
    with pytest.raises(STATUS_ERRORS, match="Gather_0"):
        made.run(None, {"x": np.array([1])})


def test_overridable_initializers_are_not_folded() -> None:
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    nodes = [helper.make_node("Neg", ["w"], ["h"]), helper.make_node("Add", ["x", "h"], ["y"])]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x, w], [y], [numpy_helper.from_array(np.ones(2, np.float32), "w")]),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=9,
    )  # fmt: skip
    built = session(made.SerializeToString())
    assert ops(built) == ["Neg", "Add"]
    assert built.run(None, {"x": np.ones(2, np.float32), "w": np.zeros(2, np.float32)})[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    "random", ["RandomNormal<shape = [9]>()", "RandomUniform<shape = [9]>()", "RandomNormalLike(w)", "RandomUniformLike(w)", "Bernoulli(w)",
               "Cast<to = 1>(Multinomial<sample_size = 9>(v))"]
)  # fmt: skip
def test_random_nodes_are_neither_folded_nor_merged(random: str) -> None:
    def made(name: str) -> str:
        if random.startswith("Cast"):
            return f"i{name} = Multinomial<sample_size = 9>(v) {name} = Cast<to = 1>(i{name})"
        return f"{name} = {random}"

    half, ones = ", ".join(["0.5"] * 9), ", ".join(["1"] * 9)
    source = model(f"""g (float[1] x) => (float a, float b) <float[9] w = {{{half}}}, float[1, 9] v = {{{ones}}}> {{
        {made("a")} {made("b")} z = Neg(x) }}""")
    built = session(source)
    pairs = [built.run(None, {"x": np.ones(1, np.float32)}) for _ in range(4)]
    assert any(not np.array_equal(a, b) for a, b in pairs)
    assert any(not np.array_equal(pairs[0][0], a) for a, _ in pairs[1:])


def test_quantization_is_left_whole() -> None:
    """Pairs, the DequantizeLinear of a weight, and one DequantizeLinear for each reader."""
    left = ops(check(model(QDQ)))
    assert left.count("QuantizeLinear") == 2 and left.count("DequantizeLinear") == 5


@pytest.mark.parametrize("domain", ["", "com.microsoft."])
def test_weights_that_a_model_quantizes_itself_are_bytes(domain: str) -> None:
    """Floats with a pair of their own, as tools for training with quantization write them."""
    source = model(f"""g (uint8[1, 1, 4, 4] q) => (float y) <float s = {{0.5}}, int8 z = {{0}}, uint8 o = {{1}},
        float[1, 1, 2, 2] w = {{1, 2, 3, 400}}> {{
        x = DequantizeLinear(q, s, o) wq = {domain}QuantizeLinear(w, s, z) wd = {domain}DequantizeLinear(wq, s, z) y = Conv(x, wd) }}""")
    assert sorted(ops(check(source))) == ["Conv", "DequantizeLinear", "DequantizeLinear"]


def test_weights_wanted_as_floats_are_dequantized_once() -> None:
    """Those of a ConvTranspose, of a convolution of floats or 16 bits, and a number to pad with; not those of one of bytes."""
    held = (
        "float s = {0.5}, int8 z = {0}, int8[1, 1, 2, 2] w = {1, 2, 3, 4}, int8 n = {3}, int64[8] p = {0,0,0,0,0,0,1,1}"
    )
    for body, left in (
        ("wd = DequantizeLinear(w, s, z) y = ConvTranspose(x, wd)", ["ConvTranspose"]),
        ("nd = DequantizeLinear(n, s, z) y = Pad(x, p, nd)", ["Pad"]),
        ("wd = DequantizeLinear(w, s, z) y = Conv(x, wd)", ["Conv"]),
    ):
        source = model(f"g (float[1, 1, 4, 4] x) => (float y) <{held}> {{ {body} }}")
        assert ops(check(source)) == left
        assert "DequantizeLinear" in ops(session(source, disabled_optimizers=["ConstantDequantization"]))
    recurrent = model("""g (float[2, 1, 1] x) => (float y) <float s = {0.5}, int8[1, 1, 1] w = {1}, float[1, 1, 1] r = {2}> {
        wd = DequantizeLinear(w, s) y = RNN<hidden_size = 1>(x, wd, r) }""")
    assert ops(check(recurrent)) == ["RNN"]
    for element, left in (("uint16", ["DequantizeLinear", "Conv"]), ("uint8", ["DequantizeLinear"] * 2 + ["Conv"])):
        source = f"""g ({element}[1, 1, 4, 4] q) => (float y) <{held}, {element} o = {{1}}> {{
            x = DequantizeLinear(q, s, o) wd = DequantizeLinear(w, s, z) y = Conv(x, wd) }}"""
        assert sorted(ops(check(model(source)))) == sorted(left)


def test_what_quantized_constants_make_is_a_constant() -> None:
    """The filters of a network that standardizes its weights, whose nodes were quantized with all others."""
    source = model("""g (float[1, 1, 4, 4] x) => (float y) <float s = {0.5}, int8 z = {0}, int8[1, 4] w = {1, 2, 3, 4},
        int64[4] f = {1, 1, 2, 2}, int64[1] k = {1}> {
        q = com.microsoft.QLinearMul(w, s, z, w, s, z, s, z) a = DequantizeLinear(q, s, z) m = ReduceMean(a, k)
        b = DequantizeLinear(w, s, z) d = Sub(b, m) e = QuantizeLinear(d, s, z) h = DequantizeLinear(e, s, z)
        v = Reshape(h, f) y = Conv(x, v) }""")
    assert ops(check(source)) == ["DequantizeLinear", "Reshape", "Conv"]


@pytest.mark.parametrize("element", [TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2])
def test_weights_that_are_floats_of_eight_bits_are_dequantized_once(element: int) -> None:
    """Products of them are none of integers."""
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["f"]), helper.make_node("MatMul", ["x", "f"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [
            helper.make_tensor("w", element, [2, 2], [1.0, 2.0, -0.5, 8.0]),
            helper.make_tensor("s", TensorProto.FLOAT, [], [0.5]),
        ],
    )
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    assert ops(check(built.SerializeToString())) == ["MatMul"]


@pytest.mark.parametrize("kind", ["tensor", "rows", "blocks"])
def test_constants_are_transposed_before_they_are_dequantized(kind: str) -> None:
    """As torch's layers with quantized weights are exported; what others read stays."""
    rng = np.random.default_rng(0)
    shape, given = {"tensor": ((), {}), "rows": ((3,), {"axis": 0}), "blocks": ((3, 2), {"axis": -1, "block_size": 2})}[
        kind
    ]
    held = {
        "w": rng.integers(-9, 9, (3, 4)).astype(np.int8),
        "s": rng.uniform(1, 2, shape).astype(np.float32),
        "z": rng.integers(-9, 9, shape).astype(np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **given),
        helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    for more, left in (([], 2), ([helper.make_node("Relu", ["d"], ["r"])], 4)):
        graph = helper.make_graph(
            [*nodes, *more],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", *(["r"] if more else []))],
            [numpy_helper.from_array(a, n) for n, a in held.items()],
        )
        built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        assert len(ops(check(built.SerializeToString()))) == left


@pytest.mark.parametrize(("result", "left"), [("Sum(c, m, x)", 3), ("Add(c, m)", 2), ("Relu(c)", 1)])
def test_products_have_a_dequantization_each(result: str, left: int) -> None:
    """Of data; nodes that are no products share one."""
    source = model(f"""g (uint8[1, 1, 4, 4] q) => (float y) <float s = {{0.5}}, uint8 o = {{1}},
        float[1, 1, 1, 1] w = {{2}}, float[4, 4] v = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}}> {{
        x = DequantizeLinear(q, s, o) c = Conv(x, w) m = MatMul(x, v) y = {result} }}""")
    assert ops(check(source)).count("DequantizeLinear") == left


def test_affine_operators_are_not_put_into_a_quantized_convolution() -> None:
    source = model("""g (int8[1, 2, 4, 4] q) => (float y) <int8[2, 2, 1, 1] w = {1, 2, 3, 4}, float s = {0.5}, int8
        z = {0}, float[2, 1, 1] m = {2, 3}> {
        x = DequantizeLinear(q, s, z) wd = DequantizeLinear(w, s, z) c = Conv(x, wd) y = Mul(c, m) }""")
    assert ops(check(source)) == ["DequantizeLinear", "DequantizeLinear", "Conv", "Mul"]


# ---- convolutions


def conv(
    op: str, weight: Sequence[int], behind: str, channels: int, bias: bool, dtype: str = "float", **attributes: Any
) -> bytes:
    generator = np.random.default_rng(7)
    wide = {"float": np.float32, "double": np.float64, "float16": np.float16}[dtype]
    code = helper.np_dtype_to_tensor_dtype(np.dtype(wide))
    arrays = {"w": generator.normal(size=weight), "cb": generator.normal(size=channels), "m": generator.normal(size=(channels, 1, 1)),
              "g": generator.normal(size=channels), "bb": generator.normal(size=channels), "mu": generator.normal(size=channels),
              "v": generator.uniform(0.5, 2, channels), "k": np.array(3.0), "row": generator.normal(size=(1, channels, 1, 1)),
              "wide": generator.normal(size=(2, 1, 1, 1)), "last": generator.normal(size=5),
              "image": generator.normal(size=(1, 1, 5, 5))}  # fmt: skip
    inside = weight[1] * attributes.get("group", 1) if op == "Conv" else weight[0]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w", "cb"] if bias else ["x", "w"], ["c"], **attributes), *helper_nodes(behind)],
        "g",
        [helper.make_tensor_value_info("x", code, [2, inside, 5, 5])],
        [helper.make_tensor_value_info("y", code, None)],
        [numpy_helper.from_array(a.astype(wide), n) for n, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9).SerializeToString()


def helper_nodes(text: str) -> list[Any]:
    return list(ModelProto.FromString(model(f"g (float x) => (float y) {{ {text} }}")).graph.node)


SHAPES = [
    ("Conv", (4, 3, 2, 2), 4, {}), ("Conv", (4, 2, 3, 3), 4, {"group": 2, "pads": [1, 1, 1, 1]}),
    ("Conv", (6, 1, 1, 1), 6, {"group": 6}), ("ConvTranspose", (3, 4, 2, 2), 4, {}), ("ConvTranspose", (4, 3, 2, 2), 6, {"group": 2}),
    ("ConvTranspose", (4, 1, 3, 3), 4, {"group": 4, "strides": [2, 2]}),
]  # fmt: skip
AFFINE = {
    "BatchNormalization": "y = BatchNormalization(c, g, bb, mu, v)",
    "epsilon": "y = BatchNormalization<epsilon = 0.1>(c, g, bb, mu, v)",
    "Mul": "y = Mul(c, m)", "Mul from the left": "y = Mul(row, c)", "by a scalar": "y = Mul(c, k)", "Add": "y = Add(c, m)",
    "several": "a = Mul(c, m) b = Add(a, row) y = BatchNormalization(b, g, bb, mu, v)",
}  # fmt: skip


@pytest.mark.parametrize("affine", AFFINE)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("op", "weight", "channels", "attributes"), SHAPES)
def test_affine_operators_go_into_the_convolution(
    affine: str, bias: bool, op: str, weight: Any, channels: int, attributes: dict[str, Any]
) -> None:
    check(conv(op, weight, AFFINE[affine], channels, bias, **attributes), [op], rtol=2e-5)


NOT_AFFINE = {
    "the output is a result": ("y = Mul(c, m)", {"outputs": "c"}),
    "read twice": ("a = Mul(c, m) y = Add(a, c)", {}),
    "along another axis": ("y = Mul(c, last)", {}),
    "for each image": ("y = Mul(c, wide)", {}),
    "for each pixel": ("y = Add(c, image)", {}),
    "squared": ("y = Mul(c, c)", {}),
    "training": ("y, ra, rb = BatchNormalization<training_mode = 1>(c, g, bb, mu, v)", {}),
    "half precision": ("y = Mul(c, m)", {"dtype": "float16"}),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_AFFINE)
def test_what_does_not_go_into_the_convolution(name: str) -> None:
    behind, more = NOT_AFFINE[name]
    outputs = more.pop("outputs", None) if isinstance(more, dict) else None
    source = conv("Conv", (5, 3, 1, 1), behind, 5, True, **more)
    if outputs:
        proto = ModelProto.FromString(source)
        proto.graph.output.append(helper.make_tensor_value_info(outputs, TensorProto.FLOAT, None))
        source = proto.SerializeToString()
    made = check(source, rtol=1e-4)
    assert len(ops(made)) > 1


def test_a_fold_out_of_range_is_not_made() -> None:
    source = model("""g (float[1, 1, 2, 2] x) => (float y) <float[1, 1, 1, 1] w = {1e30}, float[1, 1, 1] m = {1e30},
        float[1, 1, 1] s = {1e-30}> {
        a = Mul(x, s) c = Conv(a, w) y = Mul(c, m) }""")
    made = check(source)
    assert ops(made) == ["Mul", "Conv", "Mul"]


def test_a_weight_shared_by_two_convolutions() -> None:
    source = model("""g (float[1, 1, 2, 2] x) => (float y) <float[1, 1, 1, 1] w = {2}, float[1, 1, 1] m = {3}> {
        a = Conv(x, w) b = Mul(a, m) z = Abs(x) c = Conv(z, w) y = Add(b, c) }""")
    check(source, ["Conv", "Abs", "Conv", "Add"])


def test_a_convolution_in_a_branch_whose_weight_is_outside() -> None:
    source = model("""g (float[1, 1, 2, 2] x, bool b) => (float y, float z) <float[1, 1, 1, 1] w = {2}, float[1, 1, 1] m = {3}> {
        y = If (b) <then_branch = t () => (a) { c = Conv(x, w) d = Mul(c, m) a = Mul(d, w) },
                    else_branch = e () => (a) { a = Conv(x, w) }> z = Conv(x, w) }""")
    check(source)
