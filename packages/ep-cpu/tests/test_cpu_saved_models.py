"""Models as onnxruntime saves them after its extended optimizations: they load, every shape is known, results agree."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.graph import Schemas, build_graph
from onnxplug.graph.infer import infer_graph
from onnxplug.load import load_model
from onnxplug_ep_cpu.schemas import op_schemas

ort = pytest.importorskip("onnxruntime")
F = np.float32
RNG = np.random.default_rng(11)


class Model:
    """A model under construction: ``m("Add", a, b)`` adds a node and names its output."""

    def __init__(self, opset: int, **inputs: tuple[np.ndarray, list[int | str]]) -> None:
        self.opset, self.feeds = opset, {name: array for name, (array, _) in inputs.items()}
        self._inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), dims)
            for n, (a, dims) in inputs.items()
        ]
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[TensorProto] = []

    def const(self, value: object, dtype: type = F) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int, scale: float = 0.3) -> str:
        return self.const(RNG.normal(0, scale, shape))

    def __call__(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [f"v{len(self._nodes)}{'abc'[i]}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op_type, inputs, names, **attributes))
        return names[0]

    def proto(self, *outputs: str) -> ModelProto:
        graph = helper.make_graph(
            self._nodes, "g", self._inputs, [onnx.ValueInfoProto(name=n) for n in outputs], self._constants
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def layer_norm(m: Model, x: str, size: int) -> str:
    """As exporters wrote it before opset 17."""
    centred = m("Sub", x, m("ReduceMean", x, axes=[-1]))
    variance = m("ReduceMean", m("Pow", centred, m.const(2.0)), axes=[-1])
    y = m("Div", centred, m("Sqrt", m("Add", variance, m.const(1e-5))))
    return m("Add", m("Mul", y, m.weight(size, scale=1.0)), m.weight(size))


def gelu(m: Model, x: str) -> str:
    share = m("Add", m("Erf", m("Div", x, m.const(2**0.5))), m.const(1.0))
    return m("Mul", m("Mul", x, share), m.const(0.5))


def linear(m: Model, x: str, rows: int, columns: int) -> str:
    return m("Add", m("MatMul", x, m.weight(rows, columns)), m.weight(columns))


def bert() -> tuple[Model, ModelProto, set[str]]:
    heads, size, hidden = 2, 4, 8
    m = Model(13, x=(RNG.normal(size=(2, 5, hidden)).astype(F), ["batch", 5, hidden]))
    y = layer_norm(m, "x", hidden)

    def split(t: str, perm: list[int]) -> str:
        return m("Transpose", m("Reshape", t, m.const([0, 0, heads, size], np.int64)), perm=perm)

    q, k, v = (split(linear(m, y, hidden, hidden), p) for p in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    scores = m("Softmax", m("Div", m("MatMul", q, k), m.const(2.0)), axis=-1)
    merged = m("Transpose", m("MatMul", scores, v), perm=[0, 2, 1, 3])
    merged = m("Reshape", merged, m.const([0, 0, hidden], np.int64))
    y = layer_norm(m, m("Add", linear(m, merged, hidden, hidden), y), hidden)
    z = linear(m, gelu(m, linear(m, y, hidden, 16)), 16, hidden)
    y = layer_norm(m, m("Add", z, y), hidden)
    return m, m.proto(y), {"LayerNormalization", "SkipLayerNormalization", "BiasGelu", "FusedMatMul"}


def llama() -> tuple[Model, ModelProto, set[str]]:
    m = Model(17, x=(RNG.normal(size=(2, 3, 8)).astype(F), [2, 3, 8]))

    def rms_norm(x: str) -> str:
        root = m("Sqrt", m("Add", m("ReduceMean", m("Pow", x, m.const(2.0)), axes=[-1]), m.const(1e-5)))
        return m("Mul", m("Div", x, root), m.weight(8, scale=1.0))

    y = rms_norm("x")
    gate = m("MatMul", y, m.weight(8, 12))
    gate = m("Mul", gate, m("Sigmoid", gate))
    y = m("MatMul", m("Mul", gate, m("MatMul", y, m.weight(8, 12))), m.weight(12, 8))
    y = rms_norm(m("Add", y, "x"))
    return m, m.proto(y), {"SimplifiedLayerNormalization", "QuickGelu"}


def cnn() -> tuple[Model, ModelProto, set[str]]:
    m = Model(14, x=(RNG.normal(size=(2, 3, 9, 7)).astype(F), ["batch", 3, 9, 7]))
    a = m("Relu", m("Conv", "x", m.weight(4, 3, 3, 3), m.weight(4), pads=[1, 1, 1, 1], strides=[2, 1]))
    b = m("Conv", a, m.weight(4, 1, 3, 3), m.weight(4), group=4, auto_pad="SAME_UPPER")
    a = m("LeakyRelu", m("Add", b, a), alpha=0.2)
    pooled = m("Flatten", m("GlobalAveragePool", m("MaxPool", a, kernel_shape=[2, 2])))
    y = m("Relu", m("Gemm", pooled, m.weight(5, 4), m.weight(5), transB=1))
    return m, m.proto(y), {"FusedConv", "FusedGemm"}


def quantized_cnn() -> tuple[Model, ModelProto, set[str]]:
    m = Model(14, x=(RNG.uniform(0, 1, (1, 3, 8, 8)).astype(F), [1, 3, 8, 8]))
    zero = m.const(0, np.uint8)

    def quantized(x: str, scale: float) -> str:
        return m("DequantizeLinear", m("QuantizeLinear", x, m.const(scale), zero), m.const(scale), zero)

    def weight(*shape: int) -> str:
        values = m.const(RNG.integers(-9, 9, shape), np.int8)
        return m("DequantizeLinear", values, m.const(0.05), m.const(0, np.int8))

    x = quantized("x", 1 / 255)
    a = quantized(m("Conv", x, weight(4, 3, 3, 3), pads=[1, 1, 1, 1]), 0.02)
    b = quantized(m("LeakyRelu", a, alpha=0.1), 0.02)
    c = quantized(m("Sigmoid", a), 1 / 255)
    d = quantized(m("Concat", quantized(m("Add", a, b), 0.03), quantized(m("Mul", b, c), 0.02), axis=1), 0.03)
    e = quantized(m("AveragePool", d, kernel_shape=[2, 2], strides=[2, 2]), 0.03)
    y = quantized(m("GlobalAveragePool", e), 0.03)
    wanted = {"QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearSigmoid", "QLinearLeakyRelu"}
    return m, m.proto(y), wanted | {"QLinearAveragePool", "QLinearGlobalAveragePool"}


def dynamic_matmul() -> tuple[Model, ModelProto, set[str]]:
    """What onnxruntime's dynamic quantization writes, for an input with one reader and for one with two."""
    m = Model(
        14, x=(RNG.normal(size=(2, 4, 8)).astype(F), ["batch", 4, 8]), z=(RNG.normal(size=(3, 8)).astype(F), [3, "n"])
    )

    def quantized(x: str) -> str:
        return m("DynamicQuantizeLinear", x, outputs=3)[:-1]

    def product(x: str, scale: float) -> str:
        b, b_scale = m.const(RNG.integers(-50, 50, (8, 6)), np.int8), m.const(scale)
        counts = m("MatMulInteger", x + "a", b, x + "c", m.const(0, np.int8))
        return m("Mul", m("Cast", counts, to=TensorProto.FLOAT), m("Mul", x + "b", b_scale))

    alone, shared = quantized("x"), quantized("z")
    sum_ = m("Add", product(shared, 0.02), product(shared, 0.03))
    return (
        m,
        m.proto(m("Add", product(alone, 0.02), m.weight(6)), sum_),
        {"DynamicQuantizeMatMul", "MatMulIntegerToFloat"},
    )


@pytest.mark.parametrize("build", [bert, llama, cnn, quantized_cnn, dynamic_matmul], ids=lambda b: b.__name__)
def test_saved_by_onnxruntime(build: Callable[[], tuple[Model, ModelProto, set[str]]], tmp_path: Path) -> None:
    m, proto, wanted = build()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.log_severity_level = 4
    expected = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, m.feeds
    )

    saved = (tmp_path / "saved.onnx").read_bytes()
    assert wanted <= {n.op_type for n in onnx.load_from_string(saved).graph.node}
    graph = build_graph(load_model(saved), Schemas(op_schemas))
    for value in graph.values():
        if value.producer is not None:
            value.type = None  # nothing of what the file declares
    infer_graph(graph)
    for value in graph.values():
        assert value.shape is not None and None not in value.shape, value
    session = onnxplug.InferenceSession(saved, providers=["CPUExecutionProvider"])
    for got, want in zip(session.run(None, m.feeds), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def contrib(op_type: str, domain: str, imports: list[tuple[str, int]], **attributes: object) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])
    node = helper.make_node(op_type, ["x", "s"], ["y"], domain=domain, name="n", **attributes)
    graph = helper.make_graph(
        [node], "g", [x], [onnx.ValueInfoProto(name="y")], [numpy_helper.from_array(np.ones(8, F), "s")]
    )
    opsets = [helper.make_opsetid(d, v) for d, v in imports]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_the_domain_need_not_be_imported(domain: str) -> None:
    session = onnxplug.InferenceSession(contrib("SimplifiedLayerNormalization", domain, [("", 13)]))
    x = RNG.normal(size=(2, 8)).astype(F)
    assert session.get_outputs()[0].shape == [2, 8]
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-5), rtol=1e-5)


def test_scale_may_have_a_type_of_its_own() -> None:
    x, scale = RNG.normal(size=(2, 8)).astype(F), RNG.normal(size=8)
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"])
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])
    graph = helper.make_graph(
        [node], "g", [value], [onnx.ValueInfoProto(name="y")], [numpy_helper.from_array(scale, "s")]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (y,) = onnxplug.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    assert y.dtype == np.float64
    np.testing.assert_allclose(
        y, centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * scale, rtol=1e-4, atol=1e-6
    )


def test_models_without_such_operators_need_no_schemas() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    code = (
        "import sys, onnxplug; onnxplug.InferenceSession(sys.stdin.buffer.read());"
        "print('onnxplug_ep_cpu.provider' in sys.modules, 'onnxplug_ep_cpu.schemas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=model, capture_output=True, check=True)
    assert done.stdout == b"True False\n"


def test_an_unknown_operator_is_named() -> None:
    from onnxplug.capi.onnxruntime_pybind11_state import Fail, InvalidGraph

    unknown = (
        r"Fatal error: com\.microsoft:Nothing\(-1\) is not a registered function/op \(node 'n'\)"  # as in onnxruntime
    )
    with pytest.raises(Fail, match=unknown):
        onnxplug.InferenceSession(contrib("Nothing", "com.microsoft", [("", 13), ("com.microsoft", 1)]))
    with pytest.raises(InvalidGraph, match=r"No opset import for domain 'of.nobody'"):
        onnxplug.InferenceSession(contrib("Nothing", "of.nobody", [("", 13)]))


def test_illegal_attributes_are_refused() -> None:
    from onnxplug.capi.onnxruntime_pybind11_state import InvalidGraph

    with pytest.raises(InvalidGraph, match="Unrecognized attribute: gamma"):
        onnxplug.InferenceSession(contrib("BiasGelu", "com.microsoft", [("", 13), ("com.microsoft", 1)], gamma=1.0))
