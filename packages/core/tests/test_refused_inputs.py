"""Inputs that a specification forbids: the class and words of onnxruntime's errors when a kernel refuses them, Fail for its faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_files import bounded
from core_graphs import model
from core_providers import offered

import onnxplug
from onnxplug.contract import ExecutionProvider, KernelDef, KernelRegistry, NodeView
from onnxplug.contract.errors import Fail, InvalidArgument, RuntimeException

X = np.ones((3, 4), np.float32)
SPOKEN = {
    "Add", "Clip", "Concat", "Conv", "ConvTranspose", "CumSum", "Div", "Expand", "Gather", "GatherElements", "GatherND", "Gemm", "LSTM",
    "MatMul", "MatMulInteger", "MaxPool", "MaxUnpool", "OneHot", "Reshape", "Resize", "RoiAlign", "Slice", "Split", "Squeeze", "Tile",
    "TopK", "Unsqueeze", "Where",
}  # fmt: skip
"""Operators of which the texts are onnxruntime's."""


@pytest.mark.parametrize(
    ("node", "feeds"),
    [
        ("float[P, Q] y) => (z) { z = MatMul (x, y) }", {"y": X}),
        ("float[P, Q] y) => (z) { z = Add (x, y) }", {"y": X[:2]}),
        ("int64[P] y) => (z) { z = Reshape (x, y) }", {"y": np.array([5])}),
        ("int64[P] y) => (z) { z = Gather (x, y) }", {"y": np.array([3])}),
        ("int64[P] y) => (z) { z = ReduceSum (x, y) }", {"y": np.array([2])}),
        ("float[P, Q] y) => (z) { z = Gemm (x, y) }", {"y": X}),
        ("int64[P] y) => (z) { z = Squeeze (x, y) }", {"y": np.array([0])}),
        ("int64[P] y) => (z) { z = Squeeze (x, y) }", {"y": np.array([5])}),
        ("int64[P] y) => (z) { z = Unsqueeze (x, y) }", {"y": np.array([5])}),
        ("int64[P] y) => (z) { z = Unsqueeze (x, y) }", {"y": np.array([0, 0])}),
        ("int64[P] y) => (z) { w, z = TopK (x, y) }", {"y": np.array([9])}),
        ("int64[P] y) => (z) { w, z = TopK (x, y) }", {"y": np.array([-1])}),
        ("int64[P] y) => (z) { w, z = Split (x, y) }", {"y": np.array([1, 1])}),
        ("int64[P] y) => (z) { w, z = Split <axis = 1> (x, y) }", {"y": np.array([-1, 5])}),
        ("int64[P] y) => (z) { z = Div (y, y) }", {"y": np.array([0])}),
        ("float[P, Q] y) => (z) { z = Gemm (x, y) }", {"y": np.ones((2, 5), np.float32)}),
        ("float[P, Q] y) => (z) { z = Gemm <transB = 1> (x, y) }", {"y": np.ones((2, 5), np.float32)}),
        ("float[P] y) => (z) { z = Gemm <transB = 1> (x, x, y) }", {"y": np.ones(7, np.float32)}),
        ("float[P] y) => (z) { z = Resize (x, , y) }", {"y": np.array([1, -1], np.float32)}),
        ("int64[P] y) => (z) { z = Pad (x, y) }", {"y": np.array([0, 1])}),
        ("int64[P] y) => (z) { z = Tile (x, y) }", {"y": np.array([-1, 1])}),
        ("float[P, Q, R, S] y) => (z) { w = Reshape (x, s) z = Conv <group = 2> (y, w) }", {"y": np.ones((1, 4, 3, 3), np.float32)}),
        ("float[P, Q, R, S] y) => (z) { z = MaxPool <kernel_shape = [9, 9]> (y) }", {"y": np.ones((1, 1, 3, 3), np.float32)}),
        (
            "float[P, Q, R] y) => (z) { f = ConstantOfShape (k) g = ConstantOfShape (l) "
            "w, z = LSTM <hidden_size = 1> (y, f, g, , , , , x) }",
            {"y": np.ones((1, 1, 2), np.float32)},
        ),
        ("float[P, Q, R] y) => (z) { z = LayerNormalization (x, y) }", {"y": np.ones((2, 1, 4), np.float32)}),
        ("float[P, Q, R] y) => (z) { z = SimplifiedLayerNormalization (x, y) }", {"y": np.ones((2, 1, 4), np.float32)}),
        ("float[P, Q] y) => (z) { z = Concat <axis = 0> (x, y) }", {"y": X[:, :2]}),
        ("float[P, Q] y) => (z) { z = Transpose <perm = [0]> (y) }", {"y": X}),
        ("int64[P] y) => (z) { z = Tile (x, y) }", {"y": np.array([2])}),
        ("float[P, Q] y) => (z) { z = ScatterND (x, i, y) }", {"y": X[:1]}),
        ("float[P, Q, R] y) => (z) { w = Unsqueeze (x, t) z = Conv <kernel_shape = [2]> (y, w) }", {"y": np.ones((1, 1, 9), np.float32)}),
        ("string[P] y) => (z) { z = Cast <to = 1> (y) }", {"y": np.array(["no"], object)}),
        ("string[P] y) => (z) { z = Cast <to = 7> (y) }", {"y": np.array(["99999999999999999999"], object)}),
        ("string[P] y) => (z) { z = Cast <to = 6> (y) }", {"y": np.array(["inf"], object)}),
        ("int64[P] y) => (z) { z = ReverseSequence (x, y) }", {"y": np.array([1, -1, 0, 2])}),
        ("int64[P] y) => (z) { z = Pad (x, y) }", {"y": np.array([-3, 0, -3, 0])}),
        ("float[P, Q] y) => (z) { v = Squeeze (y) z = Trilu (v) }", {"y": X[:1]}),
        ("int64[P] y) => (z) { z = Trilu (x, y) }", {"y": np.array([1, 2])}),
        ("int64[P] y) => (z) { z = CumSum (x, y) }", {"y": np.array([0, 1])}),
        ("float[P] y) => (z) { z = Clip (x, y) }", {"y": X[0]}),
        ("int64[P] y) => (z) { z = Split (x, y) }", {"y": np.array([1, 2])}),
        ("int64[P] y) => (z) { z = Expand (x, y) }", {"y": np.array([2, 4])}),
        ("float[P, Q] y) => (z) { c = Greater (x, x) z = Where (c, x, y) }", {"y": X[:2]}),
        ("int64[P] y) => (z) { z = Reshape (x, y) }", {"y": np.array([-1, -1])}),
        ("int64[P] y) => (z) { z = Reshape (x, y) }", {"y": np.array([3, 4, 0])}),
        ("int64[P] y) => (z) { z = GatherElements (x, y) }", {"y": np.array([0])}),
        ("int64[P, Q] y) => (z) { z = GatherElements (x, y) }", {"y": np.zeros((1, 5), np.int64)}),
        ("int64[P, Q] y) => (z) { z = GatherND (x, y) }", {"y": np.array([[1, 5]])}),
        ("int64[P] y) => (z) { z = Slice (x, y, o) }", {"y": np.array([1, 2])}),
        ("int64[P] y) => (z) { z = Slice (x, t, t, y) }", {"y": np.array([1])}),
        ("int64[P] y) => (z) { z = Slice (x, t, t, y) }", {"y": np.array([1, -1])}),
        ("int64[P] y) => (z) { z = Slice (x, t, t, y) }", {"y": np.array([1, 2])}),
        ("int64[P] y) => (z) { z = Slice (x, t, t, t, y) }", {"y": np.array([1, 0])}),
        ("uint8[P, Q] y) => (z) { z = MatMulInteger (y, y) }", {"y": np.ones((2, 3), np.uint8)}),
        ("float[P, Q, R, S] y) => (z) { z = Conv <pads = [1, 1]> (y, y) }", {"y": np.ones((1, 1, 3, 3), np.float32)}),
        ("float[P, Q, R, S] y) => (z) { z = Conv <kernel_shape = [2, 2]> (y, y) }", {"y": np.ones((1, 1, 3, 3), np.float32)}),
        ("float[P, Q, R, S] y) => (z) { z = ConvTranspose <kernel_shape = [2, 2]> (y, y) }", {"y": np.ones((1, 1, 3, 3), np.float32)}),
        ("float[P, Q, R] y) => (z) { w = Unsqueeze (x, o) z = Conv (y, w) }", {"y": np.ones((1, 3, 2), np.float32)}),
        ("int64[P] y) => (z) { b = Unsqueeze (x, t) z = RoiAlign (b, x, y) }", {"y": np.array([0, -1, 0])}),
        (
            "int64[P, Q, R, S] y) => (z) { b = Unsqueeze (x, t) z = MaxUnpool <kernel_shape = [1, 1]> (b, y) }",
            {"y": np.full((1, 1, 3, 4), -1)},
        ),
        ("int64 y) => (z) { v = Constant <value_floats = [0.0, 1.0]> () m = ArgMax (x) z = OneHot (m, y, v) }", {"y": np.array(-2)}),
        ("float[P, Q, R] y) => (z) { b = Unsqueeze (x, o) z = NonMaxSuppression (b, y) }", {"y": X[None, :2]}),
        ("float[P, Q, R, S] y) => (z) { b = Unsqueeze (x, t) z = GridSample (b, y) }", {"y": np.ones((2, 2, 2, 2), np.float32)}),
    ],
)  # fmt: skip
def test_kernels_refuse(node: str, feeds: dict[str, np.ndarray]) -> None:
    op_type = node.split("z = ")[1].split()[0]
    node = node.replace(
        "(z)",
        "(z) <int64[1] o = {0}, int64[2] t = {0, 1}, int64[2, 1] i = {0, 1}, "
        "int64[4] s = {3, 2, 1, 2}, int64[3] k = {1, 4, 2}, int64[3] l = {1, 4, 1}>",
    )
    source, feeds = model(f"g (float[N, M] x, {node}"), {"x": X, **feeds}
    onnxruntime = pytest.importorskip("onnxruntime")
    with pytest.raises(Exception) as theirs:
        onnxruntime.InferenceSession(source).run(None, feeds)
    session = onnxplug.InferenceSession(source, providers=["CPUExecutionProvider"])
    words = rf"Non-zero status code returned while running {op_type} node\. Name:'{op_type}_0' Status Message: "
    with pytest.raises(
        (Fail, InvalidArgument, RuntimeException), match=r"^\[ONNXRuntimeError\] : \d : [A-Z_]+ : " + words
    ) as ours:
        session.run(None, feeds)
    assert type(ours.value).__name__ == type(theirs.value).__name__
    if op_type in SPOKEN:
        said = str(ours.value).split("Status Message: ")[1].removesuffix(" (provider CPUExecutionProvider)")
        assert str(theirs.value).strip().endswith(said.strip())


def worded(text: str) -> Any:
    raise ValueError(text)


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (lambda a, b: a + b, "its inputs and attributes do not go together: input 0 has shape {3,4}, input 1 has shape {2}"),
        (lambda a, b: a[7], "its inputs and attributes do not go together, 7 is no place on an axis of 3: input 0 has shape {3,4}"),
        (lambda a, b: (a, b)[2], "its inputs and attributes do not go together: input 0 has shape {3,4}, input 1 has shape {2}"),
        (lambda a, b: worded("row 4: input index out of range"), "ValueError: row 4: input index out of range (provider"),
        (lambda a, b: np.sum(None, axis=a.gone), "AttributeError: 'numpy.ndarray' object has no attribute 'gone'"),
    ],
)  # fmt: skip
def test_what_numpy_says_of_arrays_becomes_what_is_true_of_operands(raised: Any, words: str) -> None:
    """The exception stays the cause; what a provider says, and does wrong itself, is told as it is."""

    class Careless(ExecutionProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            return KernelRegistry([KernelDef("", "GatherND", 13, lambda node: raised)])

    source = model("g (float[N, M] x, int64[K] y) => (z) { z = GatherND (x, y) }")
    with offered(CarelessProvider=Careless):
        session = onnxplug.InferenceSession(source, providers=["CarelessProvider"])
    with pytest.raises((Fail, InvalidArgument)) as told:
        session.run(None, {"x": X, "y": np.array([0, 1])})
    assert words in str(told.value)
    assert told.value.__cause__ is not None


def test_of_sequences_the_items_are_told() -> None:
    source = model("g (seq(float[A, B]) x) => (z) { z = ConcatFromSequence <axis = 1> (x) }")
    session = onnxplug.InferenceSession(source, providers=["CPUExecutionProvider"])
    for items, words in (
        ([X[:1], X[:2]], "input 0 is a sequence of 2 (item 0 has shape {1,4}, item 1 has shape {2,4})"),
        ([], "input 0 is a sequence of 0 "),
    ):
        with pytest.raises(InvalidArgument) as told:
            session.run(None, {"x": items})
        assert words in str(told.value)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("If (c) <then_branch = t () => (float[A] p) { p = Neg (x) }, else_branch = e () => (float[A] q) { q = Abs (x) }>",
         "If nodes condition input must have exactly one element"),
        ("Loop (n, , x) <body = b (int64 i, bool d, float[A] v) => (bool e, float[A] w) { e = Identity (d) w = Where (c, v, v) }>",
         "input 0 has shape {2}|'Loop' input 'M' should be a scalar tensor. Got shape of {2}"),
    ],
)  # fmt: skip
def test_conditions_and_counts_are_one_number(ort: Any, node: str, words: str) -> None:
    source = model(f"g (bool[N] c, int64[N] n, float[A] x) => (float[B] y) {{ y = {node} }}")
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail) as told:
        session.run(None, {"c": np.array([True, False]), "n": np.array([1, 2]), "x": np.ones(2, np.float32)})
    assert any(each in str(told.value) for each in words.split("|")) and "input 3" not in str(told.value)


@pytest.mark.parametrize("node", ["Div (a, b)", "Mod (a, b)", "Mod <fmod = 1> (a, b)"])
@pytest.mark.parametrize("kind", ["int32", "int64", "uint8", "int16"])
@pytest.mark.parametrize("divisor", [[1, 0, 2], [0], [2]])
def test_integers_are_not_divided_by_zero(ort: Any, node: str, kind: str, divisor: list[int]) -> None:
    session = ort.InferenceSession(
        model(f"g ({kind}[N] a, {kind}[M] b) => ({kind}[K] y) {{ y = {node} }}"), providers=["CPUExecutionProvider"]
    )
    feeds = {"a": np.array([7, 8, 9], kind), "b": np.array(divisor, kind)}
    if 0 not in divisor:
        wanted = [3, 4, 4] if node.startswith("Div") else [1, 0, 1]
        assert session.run(None, feeds)[0].tolist() == wanted
        return
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match=r"Integer (division|modulo) by zero"):
        session.run(None, feeds)


@pytest.mark.parametrize("axis", ["<axis = 0> ", ""])
@pytest.mark.parametrize("condition", [[1, 0, 1, 1, 1], [0, 1], [1] * 20])
def test_a_condition_of_another_length(ort: Any, axis: str, condition: list[int]) -> None:
    source = model(f"g (float[N, M] x, bool[K] c) => (y) {{ y = Compress {axis}(x, c) }}")
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    flat = x if axis else x.ravel()
    wanted = flat[np.nonzero(condition[: len(flat)])[0]]
    np.testing.assert_array_equal(session.run(None, {"x": x, "c": np.array(condition, bool)})[0], wanted)


class Raising(ExecutionProvider):
    """Its Relu raises what the input says."""

    kinds = (ValueError, TypeError, IndexError, RuntimeError, KeyError, ZeroDivisionError)

    def get_kernel_registry(self) -> KernelRegistry:
        return KernelRegistry([KernelDef("", "Relu", 14, self.create)])

    def create(self, node: NodeView) -> Any:
        def relu(x: np.ndarray) -> np.ndarray:
            raise self.kinds[int(x[0])]("no")

        return relu


@pytest.mark.parametrize("kind", Raising.kinds)
def test_which_errors_are_refusals(kind: type[Exception]) -> None:
    with offered(RaisingProvider=Raising):
        session = onnxplug.InferenceSession(
            model("g (float[1] x) => (y) { y = Relu (x) }"), providers=["RaisingProvider"]
        )
    wanted = InvalidArgument if kind in (ValueError, TypeError, IndexError) else Fail
    with pytest.raises(
        wanted, match=rf"running Relu node.*{kind.__name__}: '?no'? \(provider RaisingProvider\)"
    ) as raised:
        session.run(None, {"x": np.array([Raising.kinds.index(kind)], np.float32)})
    assert isinstance(raised.value.__cause__, kind)


@pytest.mark.parametrize("pad", [1 << 33, 1 << 40, 1 << 61])
@pytest.mark.parametrize("codegen", ["0", "1"])
def test_results_that_no_memory_holds(pad: int, codegen: str) -> None:
    """Refused before anything is made that is as long."""
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", codegen)
    node = f"z = AveragePool <kernel_shape = [2, 2], pads = [{pad}, 0, 0, 0]> (x)"
    with bounded():
        session = onnxplug.InferenceSession(model(f"g (float[1, 1, 4, 4] x) => (z) {{ {node} }}"), options)
        with pytest.raises(
            RuntimeException, match=r"running AveragePool node.*Unable to allocate [0-9]+ bytes for 'z' of shape"
        ):
            session.run(None, {"x": np.ones((1, 1, 4, 4), np.float32)})


@pytest.mark.parametrize("size", [1 << 40, 1 << 62])
def test_declared_sizes_that_no_memory_holds(size: int) -> None:
    """Nobody can feed them, so that nothing is made for them."""
    node = "a = Relu (x) z = AveragePool <kernel_shape = [2, 2]> (a)"
    with bounded():
        session = onnxplug.InferenceSession(model(f"g (float[1, 1, {size}, 4] x) => (z) {{ {node} }}"))
        with pytest.raises(InvalidArgument, match="Got: 4 Expected"):
            session.run(None, {"x": np.ones((1, 1, 4, 4), np.float32)})


def test_an_empty_result_of_endless_rows() -> None:
    node = "z = DepthToSpace <blocksize = 2147483648> (x)"
    session = onnxplug.InferenceSession(model(f"g (float[1, 4, 2, 2] x) => (z) {{ {node} }}"))
    with pytest.raises((Fail, InvalidArgument, RuntimeException)):
        session.run(None, {"x": np.ones((1, 4, 2, 2), np.float32)})


def test_a_diagonal_beyond_any_matrix(ort: Any) -> None:
    source = model("g (float[N, M] x, int64 k) => (z) { z = Trilu <upper = 0> (x, k) }")
    session = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    for k, kept in ((-(1 << 63), 0), ((1 << 62), 1)):
        assert (session.run(None, {"x": X, "k": np.array(k)})[0] == X * kept).all()


def test_a_general_product_is_of_matrices() -> None:
    session = onnxplug.InferenceSession(
        model("g (float[N, M] x, float[P, Q, R] y) => (z) { v = Squeeze (y) z = Gemm (x, v) }")
    )
    with pytest.raises(Fail, match="must be matrices"):
        session.run(None, {"x": X, "y": np.ones((2, 4, 4), np.float32)})


def test_a_recurrent_operator_names_the_operand_that_does_not_fit() -> None:
    source = model(
        "g (float[S, N, 2] x, float[1, 4, 2] w, float[1, 4, 4] r, float[D, M, 4] h) => (y) { y = RNN (x, w, r, , , h) }"
    )
    session = onnxplug.InferenceSession(source, providers=["CPUExecutionProvider"])
    feeds = {"x": X[:, None, :2], "w": np.ones((1, 4, 2), np.float32), "r": np.ones((1, 4, 4), np.float32)}
    with pytest.raises(Fail, match=r"Message: Input initial_h must have shape \{1,1,4\}\. Actual:\{1,3,4\}"):
        session.run(None, {**feeds, "h": X[None]})
