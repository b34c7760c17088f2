"""Models that onnxruntime saved for one processor, with channels in blocks: they run on any."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from onnxplug.capi.onnxruntime_pybind11_state import NotImplemented as OrtNotImplemented

F = np.float32
NCHWC = "com.microsoft.nchwc"
CPU = ["CPUExecutionProvider"]


class Model:
    """A model under construction: ``m("Relu", a)`` adds a node and names its output, ``m.blocked("Conv", a)`` one on blocks."""

    def __init__(self, opset: int, *dims: int | str, seed: int = 3) -> None:
        self.opset, self.rng, self.dims = opset, np.random.default_rng(seed), list(dims)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[TensorProto] = []

    def const(self, value: Any, dtype: type = F) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.const(self.rng.normal(0, 1 / np.sqrt(max(1, np.prod(shape[1:]))), shape))

    def conv(self, x: str, o: int, i: int, k: int = 3, bias: bool = True, **attributes: Any) -> str:
        operands = [x, self.weight(o, i, k, k), *([self.weight(o)] if bias else [])]
        return self("Conv", *operands, **{"pads": [k // 2] * 4, "kernel_shape": [k, k], **attributes})

    def __call__(self, op_type: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(op_type, inputs, [name], f"n{len(self._nodes)}", domain=domain, **attributes)
        )
        return name

    def blocked(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        return self(op_type, *inputs, domain=NCHWC, **attributes)

    def bytes(self, *outputs: str) -> bytes:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.dims)
        graph = helper.make_graph(
            self._nodes, "g", [x], [onnx.ValueInfoProto(name=n) for n in outputs], self._constants
        )
        domains = [("", self.opset), (NCHWC, 1), ("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid(*d) for d in domains], ir_version=8)
        return bytes(made.SerializeToString())


def residual() -> bytes:
    """Channel counts that fill no block, additions of known and of unknown shape, activations behind them."""
    m = Model(17, "n", 3, "h", "w")
    a = m("Clip", m.conv("x", 24, 3, strides=[2, 2]), m.const(0.0), m.const(6.0))
    b = m("Relu", m("Add", m.conv(m("LeakyRelu", m.conv(a, 32, 24, 1), alpha=0.2), 24, 32, bias=False), a))
    c = m("HardSigmoid", m.conv(b, 40, 24), alpha=0.3, beta=0.4)
    d = m(
        "Add",
        m.conv(c, 16, 40, strides=[2, 2]),
        m("AveragePool", m.conv(a, 16, 24), kernel_shape=[2, 2], strides=[2, 2]),
    )
    e = m("Sigmoid", m("Tanh", d))
    return m.bytes(m("Flatten", m("GlobalMaxPool", e)), m("Transpose", m.conv(d, 20, 16, 1), perm=[0, 2, 3, 1]), b)


def branches() -> bytes:
    """Channels joined, depthwise and grouped convolutions, normalisation, pooling of what is ordinary before."""
    m = Model(14, 2, 16, 9, 10)
    a = m("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    b = m("Concat", m.conv(a, 16, 16), m.conv(a, 48, 16, 1), a, axis=1)
    b = m("Relu", m("BatchNormalization", b, *(m.const(m.rng.uniform(0.5, 2, 80)) for _ in range(4)), epsilon=1e-5))
    c = m.conv(b, 80, 1, 5, group=80)
    d = m("Mul", m.conv(c, 64, 80, 1), m("Sigmoid", m.conv(c, 64, 80)))
    e = m("AveragePool", m.conv(d, 32, 32, group=2), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    return m.bytes(m("Relu", m.conv(e, 10, 32, 1)), c)


def upsampled(opset: int, mode: str, place: str = "asymmetric") -> Callable[[], bytes]:
    def build() -> bytes:
        m = Model(opset, 1, 3, 6, 5)
        a, scales = m("Relu", m.conv("x", 32, 3)), [1.0, 1.0, 2.0, 3.0]
        if opset < 9:
            up = m("Upsample", a, scales=scales, mode=mode)
        elif opset < 11:
            up = m("Upsample" if opset < 10 else "Resize", a, m.const(scales), mode=mode)
        else:
            rounding = {"nearest_mode": "floor"} if mode == "nearest" else {}
            region = m.const([]) if opset < 13 else ""
            up = m("Resize", a, region, m.const(scales), mode=mode, coordinate_transformation_mode=place, **rounding)
        return m.bytes(m.conv(up, 6, 32))

    build.__name__ = f"upsampled-{opset}-{mode}-{place}"
    return build


def channels_last() -> bytes:
    m = Model(13, 1, 6, 7, 16)
    y = m.conv(m("Transpose", "x", perm=[0, 3, 1, 2]), 16, 16)
    return m.bytes(m("Transpose", m("Relu", y), perm=[0, 2, 3, 1]))


def feeds_for(source: bytes) -> dict[str, np.ndarray]:
    (x,) = onnx.load_from_string(source).graph.input
    known = {"n": 2, "h": 16, "w": 12}
    dims = [d.dim_value or known[d.dim_param] for d in x.type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(0).normal(size=dims).astype(F)}


BUILDERS = [
    residual, branches, channels_last, upsampled(9, "nearest"), upsampled(10, "nearest"), upsampled(11, "nearest"), upsampled(10, "linear"),
    upsampled(13, "linear", "half_pixel"), upsampled(18, "linear", "align_corners"),
]  # fmt: skip


@pytest.mark.parametrize("level", ["ORT_ENABLE_ALL", "ORT_ENABLE_LAYOUT"])
@pytest.mark.parametrize("build", BUILDERS, ids=lambda b: b.__name__)
def test_saved_by_onnxruntime(build: Callable[[], bytes], level: str, tmp_path: Path) -> None:
    theirs = pytest.importorskip("onnxruntime")
    source, options, plain = build(), theirs.SessionOptions(), theirs.SessionOptions()
    plain.graph_optimization_level = theirs.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.graph_optimization_level = getattr(theirs.GraphOptimizationLevel, level)
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "saved.onnx"), 4
    theirs.InferenceSession(source, options, CPU)
    saved = onnx.load(tmp_path / "saved.onnx")
    if not any(n.domain == NCHWC for n in saved.graph.node):
        pytest.skip("onnxruntime has no blocked layout on this processor")
    feeds = feeds_for(source)
    expected = theirs.InferenceSession(source, plain, CPU).run(None, feeds)
    for ours in (onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL, onnxplug.GraphOptimizationLevel.ORT_ENABLE_ALL):
        wanted = onnxplug.SessionOptions()
        wanted.graph_optimization_level = ours
        session = onnxplug.InferenceSession(saved.SerializeToString(), wanted, CPU, enable_fallback=0)
        for got, want in zip(session.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert not {"Slice", "Pad"} & {n["op_type"] for n in session.explain().nodes}  # padding is not carried along


def laid(weight: np.ndarray, block: int, reads_blocks: bool) -> np.ndarray:
    """A filter (O, I, H, W) as onnxruntime's optimizer lays it, padded to whole blocks."""
    o, i, h, w = weight.shape
    padded_i = -(-i // block) * block if reads_blocks else i
    whole = np.zeros((-(-o // block) * block, padded_i, h, w), F)
    whole[:o, :i] = weight
    inner = block if reads_blocks else 1
    parts = whole.reshape(whole.shape[0] // block, block, padded_i // inner, inner, h, w)
    return np.ascontiguousarray(parts.transpose(0, 2, 4, 5, 3, 1)).reshape(whole.shape)


def aligned(bias: np.ndarray, block: int) -> np.ndarray:
    return np.pad(bias, (0, -len(bias) % block))


def network(block: int | None, sizes: tuple[int, int, int], taken: int | None = None) -> bytes:
    """Two convolutions and a depthwise one added up, in blocks or, for None, as it is written for any processor."""
    first, second, last = sizes
    m = Model(17, 1, 3, 5, 6, seed=5)
    arrays = [
        m.rng.normal(size=s).astype(F)
        for s in ((first, 3, 3, 3), (second, first, 3, 3), (second, 1, 3, 3), (last, second, 1, 1))
    ]
    biases = [m.rng.normal(size=len(a)).astype(F) for a in arrays]
    around: Any = {"pads": [1] * 4}
    if block is None:
        w, b = map(m.const, arrays), map(m.const, biases)
        x = m("Relu", m("Conv", "x", next(w), next(b), **around))
        y = m("Conv", x, next(w), next(b), **around)
        z = m("Relu", m("Add", m("Conv", y, next(w), next(b), group=second, **around), y))
        return m.bytes(m("Conv", z, next(w), next(b)))
    w = iter([m.const(laid(a, block, n in (1, 3))) for n, a in enumerate(arrays)])
    b = iter([m.const(aligned(a, block)) for a in biases])
    x = m.blocked("Conv", "x", next(w), next(b), activation="Relu", **around)
    y = m.blocked("Conv", x, next(w), next(b), **around)
    z = m.blocked("Conv", y, next(w), next(b), y, group=second, activation="Relu", **around)
    return m.bytes(m.blocked("ReorderOutput", m.blocked("Conv", z, next(w), next(b)), channels=taken or last))


SIZES = {
    "eight channels": (8, 16, 16), "aligned to eight": (24, 16, 32), "padded at the end": (16, 32, 20), "padding of eight": (16, 16, 5),
    "padded inside": (12, 32, 16), "padded to eight": (13, 32, 48),
}  # fmt: skip


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_model_shows_how_long_a_block_is(
    block: int, sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "of nobody")
    source = network(None, sizes)
    feeds = feeds_for(source)
    (want,) = onnxplug.InferenceSession(source, providers=CPU).run(None, feeds)
    session = onnxplug.InferenceSession(network(block, sizes), providers=CPU, enable_fallback=0)
    (got,) = session.run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_where_nothing_shows_it_the_processor_decides(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from onnxplug.graph import blocked

    sizes = (16, 32, 16)
    feeds = feeds_for(network(None, sizes))
    (want,) = onnxplug.InferenceSession(network(None, sizes), providers=CPU).run(None, feeds)
    for machine, features, block in (("x86_64", ["AVX512F"], 16), ("AMD64", ["AVX2"], 8), ("aarch64", [], 16)):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        monkeypatch.setattr(blocked, "features", lambda features=features: features)
        (got,) = onnxplug.InferenceSession(network(block, sizes), providers=CPU).run(None, feeds)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        assert f"depending on the machine that saved it: taken to be {block}" in caplog.text
        caplog.clear()
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(OrtNotImplemented, match="nothing in the model tells"):
        onnxplug.InferenceSession(network(16, sizes), providers=CPU)


def test_channels_that_fit_no_block_are_refused() -> None:
    with pytest.raises(InvalidGraph, match=r"fit neither blocks of 8 nor of 16 channels \(node 'n4'\)"):
        onnxplug.InferenceSession(network(16, (16, 32, 48), taken=31), providers=CPU)
    m = Model(17, 1, 3, 5, 6)
    x = m.blocked("Conv", "x", m.weight(20, 3, 3, 3))
    with pytest.raises(InvalidGraph, match=r"neither blocks of 8 nor of 16 channels \(node 'n0'\)"):
        onnxplug.InferenceSession(m.bytes(m.blocked("ReorderOutput", x, channels=20)), providers=CPU)
    m = Model(17, 1, 3, 5, 6)
    x = m.blocked("Conv", m.blocked("Conv", "x", m.weight(24, 3, 3, 3)), m.weight(32, 16, 1, 1))
    with pytest.raises(InvalidGraph, match=r"Conv \(node 'n1'\) does not fit the tensors with blocked channels"):
        onnxplug.InferenceSession(m.bytes(m.blocked("ReorderOutput", x, channels=32)), providers=CPU)


@pytest.mark.parametrize("opset", [9, 14, 17])
@pytest.mark.parametrize("added", [False, True])
def test_hard_swish(opset: int, added: bool) -> None:
    """Which ONNX has as an operator from opset 14 on, while onnxruntime ends convolutions with it in any."""

    def run(**activation: str) -> np.ndarray:
        m = Model(opset, 1, 16, 5, 6)
        x = m.blocked("ReorderInput", "x")
        further = ["", x] if added else [m.const(np.linspace(-4, 4, 16))]
        y = m.blocked("Conv", x, m.weight(16, 16, 1, 1), *further, **activation)
        source = m.bytes(m.blocked("ReorderOutput", y, channels=16))
        return onnxplug.InferenceSession(source, providers=CPU).run(None, feeds_for(source))[0]

    x = run()
    np.testing.assert_allclose(run(activation="HardSwish"), x * np.clip(x / 6 + 0.5, 0, 1), rtol=1e-5, atol=1e-6)


def test_what_is_not_known_on_blocks_is_named() -> None:
    m = Model(17, 1, 3, 5, 6)
    x = m.blocked("Conv", "x", m.weight(16, 3, 3, 3))
    with pytest.raises(OrtNotImplemented, match=r"Softmax \(node 'n1'\) reads a tensor with blocked channels"):
        onnxplug.InferenceSession(m.bytes(m("Softmax", x)), providers=CPU)
    m = Model(17, 1, 3, 5, 6)
    x = m.blocked("Conv", "x", m.weight(16, 3, 3, 3), activation="Gelu")
    with pytest.raises(OrtNotImplemented, match="Activation 'Gelu'"):
        onnxplug.InferenceSession(m.bytes(m.blocked("ReorderOutput", x, channels=16)), providers=CPU)
    m = Model(17, 1, 3, 5, 6)
    with pytest.raises(OrtNotImplemented, match=r"com.microsoft.nchwc.LRN \(node 'n0'\) is not an operator"):
        onnxplug.InferenceSession(m.bytes(m.blocked("LRN", "x")), providers=CPU)
    m = Model(17, 1, 3, 5, 6)
    x = m.blocked("Conv", "x", m.weight(16, 3, 3, 3))
    with pytest.raises(InvalidGraph, match="gives a tensor with blocked channels as its output"):
        onnxplug.InferenceSession(m.bytes(x), providers=CPU)


MISSHAPEN: dict[str, tuple[str, dict[str, Any]]] = {
    "channels in a list": ("ReorderOutput", {"channels": [16]}),
    "no number of channels": ("ReorderOutput", {}),
    "a group in words": ("Conv", {"group": "one"}),
    "an activation of numbers": ("Conv", {"activation": [1, 2]}),
    "one parameter of an activation": ("Conv", {"activation": "LeakyRelu", "activation_params": 1}),
    "what the operator does not have": ("GlobalMaxPool", {"channels": 16}),
    "a mode that is no text": ("Upsample", {"scales": [1, 1, 2, 2], "mode": b"\xff"}),
}


@pytest.mark.parametrize(("op_type", "attributes"), MISSHAPEN.values(), ids=MISSHAPEN)
def test_nodes_with_other_attributes_are_refused(op_type: str, attributes: dict[str, Any]) -> None:
    m = Model(17, 1, 3, 5, 6)
    operands = [m.blocked("Conv", "x", m.weight(16, 3, 3, 3)), *([m.weight(16, 16, 1, 1)] if op_type == "Conv" else [])]
    y = m.blocked(op_type, *operands, **attributes)
    with pytest.raises((InvalidGraph, Fail), match="n1"):
        onnxplug.InferenceSession(
            m.bytes(y if op_type == "ReorderOutput" else m.blocked("ReorderOutput", y, channels=16)), providers=CPU
        )


@pytest.mark.parametrize("operands", [(), ("x", "x"), ("",)], ids=["none", "two", "omitted"])
def test_nodes_with_other_operands_are_refused(operands: tuple[str, ...]) -> None:
    m = Model(17, 1, 3, 5, 6)
    with pytest.raises(InvalidGraph, match="n0"):
        onnxplug.InferenceSession(m.bytes(m.blocked("ReorderOutput", *operands, channels=16)), providers=CPU)
