"""Operator Gradient: derivatives against finite differences, values put in for the tensors it names, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_providers import offered
from onnx import ModelProto, helper, numpy_helper, parser

import onnxplug
from onnxplug.contract import ExecutionProvider, KernelDef, KernelRegistry, NodeView
from onnxplug.contract.errors import InvalidGraph, NotImplemented

RNG = np.random.default_rng(3)
A, B = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4))
POSITIVE, UNIT = RNG.uniform(0.5, 2, (3, 4)), RNG.uniform(-0.8, 0.8, (3, 4))
IMAGE = RNG.normal(size=(2, 4, 6, 7))
OPSETS = '<ir_version: 9, opset_import: ["": {}, "ai.onnx.preview.training": 1, "local": 1]> '


def model(
    nodes: str,
    inputs: dict[str, np.ndarray],
    outputs: list[str],
    version: int = 21,
    shapes: bool = True,
    **constants: Any,
) -> ModelProto:
    """``nodes`` in ONNX's text form; inputs and results are doubles, of unknown dimensions unless ``shapes``."""
    proto = parser.parse_model(OPSETS.format(version) + "g () => () {\n" + nodes + "\n}")
    for name, array in inputs.items():
        dims = array.shape if shapes else [None] * array.ndim
        proto.graph.input.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)
        )
    for name in outputs:
        proto.graph.output.add().name = name
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items())
    return proto


def session(proto: ModelProto, level: int = 99) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    options.graph_optimization_level = onnxplug.GraphOptimizationLevel(level)
    return onnxplug.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(proto: ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return session(proto).run(None, feeds)


def gradient(xs: list[str], zs: tuple[str, ...] = (), y: str = "y", result: str = "d_") -> str:
    def quote(names: Any) -> str:
        return "[" + ", ".join(f'"{n}"' for n in names) + "]"

    rest = f", zs: strings = {quote(zs)}" if zs else ""
    made = ", ".join(f"{result}{x}" for x in xs)
    return f'{made} = ai.onnx.preview.training.Gradient <xs: strings = {quote(xs)}{rest}, y = "{y}"> ({", ".join([*xs, *zs])})'


def differences(nodes: str, feeds: dict[str, np.ndarray], by: str, step: float = 1e-6, **rest: Any) -> np.ndarray:
    """The derivative of the sum of y by central differences."""
    forward = session(model(nodes, feeds, ["y"], **rest))
    slopes = np.zeros(feeds[by].size)
    for place in range(feeds[by].size):
        sums = []
        for sign in (1, -1):
            moved = feeds[by].copy()
            moved.flat[place] += sign * step
            sums.append(forward.run(["y"], {**feeds, by: moved})[0].sum())
        slopes[place] = (sums[0] - sums[1]) / (2 * step)
    return slopes.reshape(feeds[by].shape)


BINARY = [*((op, A, POSITIVE) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")), ("Pow", POSITIVE, UNIT)]
SHAPES = [((3, 4), (3, 4)), ((3, 4), (4,)), ((1,), (3, 4)), ((3, 1), (2, 1, 4)), ((), (3, 4))]


def check(nodes: str, feeds: dict[str, np.ndarray], xs: list[str] | None = None, **rest: Any) -> None:
    """``nodes`` make u; the derivatives of the sum of y = u * u agree with differences, with shapes known and unknown."""
    xs = xs or [name for name, array in feeds.items() if array.dtype == np.float64]
    others = tuple(name for name in feeds if name not in xs)
    nodes = nodes + "\ny = Mul (u, u)"
    for shapes in (True, False) if rest.pop("unknown", True) else (True,):
        got = run(
            model(nodes + "\n" + gradient(xs, others), feeds, [f"d_{x}" for x in xs], shapes=shapes, **rest), feeds
        )
        for name, slope in zip(xs, got, strict=True):
            assert slope.shape == feeds[name].shape
            np.testing.assert_allclose(
                slope, differences(nodes, feeds, name, **rest), rtol=1e-5, atol=1e-6, err_msg=name
            )


@pytest.mark.parametrize(("op", "a", "b"), BINARY, ids=[op for op, _, _ in BINARY])
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=str)
def test_broadcasting(op: str, a: np.ndarray, b: np.ndarray, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check(f"u = {op} (a, b)", {"a": np.resize(a, left), "b": np.resize(b, right)})


@pytest.mark.parametrize(
    ("op", "x"),
    [
        *((op, A) for op in ("Neg", "Abs", "Exp", "Sin", "Cos", "Sinh", "Cosh", "Tanh", "Sigmoid", "Relu", "Erf", "Identity")),
        *((op, A) for op in ("LeakyRelu", "Asinh", "Atan", "Softplus", "Softsign", "Elu", "Selu", "Gelu", "Mish", "HardSwish")),
        *((op, POSITIVE) for op in ("Log", "Sqrt", "Reciprocal")),
        *((op, UNIT) for op in ("Tan", "Asin", "Acos", "Atanh")),
        ("Acosh", POSITIVE + 1),
    ],
)  # fmt: skip
def test_elementwise(op: str, x: np.ndarray) -> None:
    check(f"u = {op} (x)", {"x": x})


@pytest.mark.parametrize(
    "nodes",
    [
        "u = LeakyRelu <alpha = 0.3> (x)",
        "u = Clip (x, low, high)",
        "c = Greater (x, low)\nu = Where (c, x, high)",
        "u = CastLike (x, low)",
        "u = Sum (x, row, x)",
        "u = Mean (x, row)",
        "u = Max (x, row, low)",
        "u = Mod <fmod = 1> (x, high)",
        "two = Constant <value_int = 2> ()\nu = Pow (x, two)",
        "u = Reshape (x, shape)",
        "u = Flatten <axis = 0> (x)",
        "v = Unsqueeze (x, last)\nu = Squeeze (v, last)",
        "u = Transpose (x)",
        "v = Unsqueeze (x, first)\nu = Transpose <perm = [1, 2, 0]> (v)",
        "u = Expand (x, wide)",
        "u = Tile (x, twice)",
        "u = Concat <axis = 1> (x, x, row2)",
        "p, q = Split <axis = 1, num_outputs = 2> (x)\nu = Mul (p, p)",
        "p, q = Split <axis = 1, num_outputs = 2> (x)\nu = Mul (q, p)",
        "starts = Constant <value_ints = [2, 3]> ()\nends = Constant <value_ints = [-4, -9]> ()\n"
        "axes = Constant <value_ints = [0, 1]> ()\nsteps = Constant <value_ints = [-1, -2]> ()\nu = Slice (x, starts, ends, axes, steps)",
        "u = Gather <axis = 1> (x, rows)",
        "u = GatherElements <axis = 0> (x, places)",
        "u = ScatterElements <axis = 0> (x, places, some)",
        'u = ScatterElements <axis = 0, reduction = "add"> (x, places, some)',
        "u = Trilu <upper = 0> (x)",
        "u = Pad (x, pads)",
        "zero = Constant <value_int = 0> ()\nu = CumSum <exclusive = 1> (x, zero)",
        *(f"u = {op} <keepdims = {keep}> (x, {axes})"
          for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
          for keep in (0, 1) for axes in ("", "last", "first")),
        "u = ReduceSum <noop_with_empty_axes = 1, keepdims = 0> (x, none)",
        *(f"u = {op} (x, last)" for op in ("ReduceL2", "ReduceLogSumExp", "ReduceSumSquare")),
        *(f"u = {op} <axis = {axis}> (x)" for op in ("Softmax", "LogSoftmax") for axis in (0, -1)),
        "u = LayerNormalization (x, row)",
    ],
)  # fmt: skip
def test_one_operand(nodes: str) -> None:
    constants = {
        "low": np.array(-0.5), "high": np.array(0.7), "row": RNG.normal(size=4), "row2": RNG.normal(size=(3, 2)),
        "shape": np.array([2, -1]), "first": np.array([0]), "last": np.array([-1]), "wide": np.array([2, 3, 4]),
        "twice": np.array([2, 1]), "rows": np.array([[3, 0], [0, -1]]), "places": np.array([[2, 0, 1, 0]]),
        "pads": np.array([1, 0, -1, 2]), "some": np.ones((1, 4)), "none": np.zeros(0, np.int64),
    }  # fmt: skip
    used = {name: value for name, value in constants.items() if name in nodes}
    check(nodes, {"x": A}, **used)


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 2)), ((2, 1, 3, 4), (5, 4, 2))],
    ids=str,
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check("u = MatMul (a, b)", {"a": RNG.normal(size=left), "b": RNG.normal(size=right)})


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm(trans_a: int, trans_b: int) -> None:
    a, b = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 2))
    feeds = {"a": a.T.copy() if trans_a else a, "b": b.T.copy() if trans_b else b, "c": RNG.normal(size=2)}
    check(f"u = Gemm <transA = {trans_a}, transB = {trans_b}, alpha = 0.5, beta = 2.0> (a, b, c)", feeds)


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "pads = [1, 2, 0, 1], strides = [2, 3]",
        "dilations = [2, 1], strides = [1, 2], pads = [1, 0, 1, 0]",
        "group = 2, strides = [2, 2]",
        'auto_pad = "SAME_LOWER", strides = [2, 2]',
    ],
)
def test_conv(attributes: str) -> None:
    weights = RNG.normal(size=(6, 2 if "group" in attributes else 4, 3, 2))
    feeds = {"x": IMAGE, "w": weights, "b": RNG.normal(size=6)}
    check(
        f"u = Conv <{attributes}> (x, w, b)" if attributes else "u = Conv (x, w, b)", feeds, ["w", "b"], unknown=False
    )
    check(f"u = Conv <{attributes}> (x, w, b)" if attributes else "u = Conv (x, w, b)", feeds, ["x"], unknown=False)


@pytest.mark.parametrize(
    "nodes",
    [
        "u = MaxPool <kernel_shape = [2, 3], strides = [2, 2], pads = [1, 1, 0, 1]> (x)",
        "u = AveragePool <kernel_shape = [2, 3], strides = [2, 2], pads = [1, 1, 0, 1]> (x)",
        "u = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 1, 1], count_include_pad = 1> (x)",
        "u = GlobalAveragePool (x)",
        "u = DepthToSpace <blocksize = 2> (x)",
    ],
)
def test_pools(nodes: str) -> None:
    check(nodes, {"x": IMAGE}, unknown=False)


def test_batch_normalization() -> None:
    feeds = {"x": IMAGE, "s": POSITIVE[0], "b": A[0]}
    constants = {"m": A[1], "v": POSITIVE[1]}
    check("u = BatchNormalization (x, s, b, m, v)", feeds, ["s", "b"], unknown=False, **constants)
    check("u = BatchNormalization (x, s, b, m, v)", feeds, ["x"], unknown=False, **constants)


@pytest.mark.parametrize("version", [9, 12])
def test_older_operator_sets(version: int) -> None:
    nodes = "s = Softmax <axis = 1> (x)\nr = ReduceSum <axes = [1], keepdims = 0> (s)\nq = Unsqueeze <axes = [1]> (r)\nu = Mul (q, s)"
    check(nodes, {"x": RNG.normal(size=(2, 3, 4))}, version=version, unknown=False)


def test_a_value_used_twice_and_a_value_not_used() -> None:
    nodes = "a = Mul (x, x)\nb = Sin (a)\nu = Add (a, b)"
    check(nodes, {"x": A})
    proto = model("y = Mul (a, a)\n" + gradient(["a", "b"]), {"a": A, "b": B}, ["d_a", "d_b"])
    np.testing.assert_allclose(run(proto, {"a": A, "b": B})[0], 2 * A)
    np.testing.assert_array_equal(run(proto, {"a": A, "b": B})[1], np.zeros_like(B))


def test_other_values_are_put_in() -> None:
    """The inputs need not be the tensors named: h1 and z1 take the places of h and z."""
    nodes = (
        'h = Sin (w)\ny = Mul (h, z)\nd = ai.onnx.preview.training.Gradient <xs = ["h"], zs = ["z"], y = "y"> (h1, z1)'
    )
    feeds = {"w": A, "z": B, "h1": POSITIVE, "z1": UNIT}
    got = run(model(nodes, feeds, ["y", "d"]), feeds)
    np.testing.assert_allclose(got[0], np.sin(A) * B)
    np.testing.assert_array_equal(got[1], UNIT)


def test_by_an_intermediate_tensor_and_an_output_left_out() -> None:
    nodes = 'h = Sin (w)\ny = Mul (h, z)\n"", d = ai.onnx.preview.training.Gradient <xs = ["z", "h"], y = "y"> (z, h)'
    (got,) = run(model(nodes.replace('""', ""), {"w": A, "z": B}, ["d"]), {"w": A, "z": B})
    np.testing.assert_array_equal(got, B)


def test_one_of_two_results_of_a_node() -> None:
    nodes = "p, q = Split <axis = 1, num_outputs = 2> (x)\ny = Mul (p, q)\n" + gradient(["p"], ("q",))
    (got,) = run(model(nodes, {"x": A}, ["d_p"]), {"x": A})
    np.testing.assert_array_equal(got, A[:, 2:])


def test_second_derivative() -> None:
    """Of sum(x^3 * sin(x)) twice by x."""
    inner = "three = Constant <value = double {3.0}> ()\nc = Pow (x, three)\ns = Sin (x)\no = Mul (c, s)\n" + gradient(
        ["x"], y="o", result="e_"
    )
    proto = model(inner + "\n" + gradient(["x"], y="e_x"), {"x": POSITIVE}, ["d_x"])
    x = POSITIVE
    np.testing.assert_allclose(run(proto, {"x": x})[0], 6 * x * np.sin(x) + 6 * x**2 * np.cos(x) - x**3 * np.sin(x))


def test_inside_a_function_and_inside_a_branch() -> None:
    text = (
        OPSETS.format(18)
        + """
        g (double[3, 4] x, bool c) => (r) {
            r = If (c) <then_branch = t () => (a) {
                y = Sin (x)
                a = ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x)
            }, else_branch = e () => (b) { b = local.slope (x) }>
        }
        <domain: "local", opset_import: ["": 18, "ai.onnx.preview.training": 1]>
        slope (v) => (d) {
            w = Mul (v, v)
            d = ai.onnx.preview.training.Gradient <xs = ["v"], y = "w"> (v)
        }"""
    )
    chosen = session(parser.parse_model(text))
    np.testing.assert_allclose(chosen.run(None, {"x": A, "c": np.array(True)})[0], np.cos(A))
    np.testing.assert_allclose(chosen.run(None, {"x": A, "c": np.array(False)})[0], 2 * A)


@pytest.mark.parametrize("level", [0, 99])
def test_forward_values_are_shared_when_optimized(level: int) -> None:
    """Sin runs once for y and its derivative by Tanh needs no second Tanh."""
    proto = model("s = Sin (x)\ny = Tanh (s)\n" + gradient(["x"]), {"x": A}, ["y", "d_x"])
    built = session(proto, level)
    y, slope = built.run(None, {"x": A})
    np.testing.assert_allclose(slope, (1 - y**2) * np.cos(A))
    ran = [name.rsplit("/", 1)[-1] for name in built.placement()]
    assert sum(name.startswith("Tanh") for name in ran) == (1 if level else 2)


def test_a_saved_model_has_the_same_derivatives(tmp_path: Path) -> None:
    proto = model("i = Identity (x)\ns = Sin (i)\ny = Mul (s, k)\n" + gradient(["x"]), {"x": A}, ["d_x"], k=B)
    options = onnxplug.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    wanted = onnxplug.InferenceSession(proto.SerializeToString(), options).run(None, {"x": A})
    np.testing.assert_array_equal(onnxplug.InferenceSession(tmp_path / "saved.onnx").run(None, {"x": A})[0], wanted[0])


class Differentiating(ExecutionProvider):
    """Takes Gradient whole; knows derivatives of one Sin."""

    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry([KernelDef("ai.onnx.preview.training", "Gradient", 1, self.create)])

    def create(self, node: NodeView) -> Any:
        body = node.subgraphs["body"]
        assert [n.op_type for n in body.nodes] == ["Sin"]
        assert (body.inputs[0].dtype, body.inputs[0].shape) == (np.float64, (3, 4))
        return np.cos


def test_a_provider_may_take_it_whole() -> None:
    proto = model("y = Sin (x)\n" + gradient(["x"]), {"x": A}, ["d_x"])
    with offered(DifferentiatingProvider=Differentiating):
        built = onnxplug.InferenceSession(
            proto.SerializeToString(), providers=["DifferentiatingProvider", "CPUExecutionProvider"]
        )
    assert set(built.placement().values()) == {"DifferentiatingProvider"}
    np.testing.assert_array_equal(built.run(None, {"x": A})[0], np.cos(A))


@pytest.mark.parametrize(
    ("nodes", "error", "text"),
    [
        ("y = Det (x)\n" + gradient(["x"]), NotImplemented, r"operator Det \(node .*\) has no derivative rule"),
        ("y = AveragePool <kernel_shape = [2], ceil_mode = 1> (x)\n" + gradient(["x"]), NotImplemented, "AveragePool.*rounded up"),
        ("y = Sin (x)\n" + gradient(["x"], y="nothing"), InvalidGraph, "no node beside it makes y 'nothing'"),
        ("y = Sin (d_x)\n" + gradient(["x"]), InvalidGraph, "y 'y' depends on the node itself"),
        ('y = Sin (x)\nd_x = ai.onnx.preview.training.Gradient <xs = ["x"], y = "y"> (x, x)', InvalidGraph, "name 1 tensors.*2 inputs"),
    ],
)  # fmt: skip
def test_refusals(nodes: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        session(model(nodes, {"x": RNG.normal(size=(2, 3, 3))}, ["d_x"]))


def test_whole_numbers_have_no_derivative() -> None:
    """What depends on x only through whole numbers does not change with x."""
    nodes = "r = Round (x)\ns = Shape (x)\nf = Cast <to = 11> (s)\nt = ReduceSum (f)\ny = Mul (r, t)\n" + gradient(
        ["x"]
    )
    np.testing.assert_array_equal(run(model(nodes, {"x": A}, ["d_x"]), {"x": A})[0], np.zeros_like(A))
