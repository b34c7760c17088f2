"""Every way to run a model gives the same bits: small models of the kinds that whole ones are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import run_forms

import onnxplug

MODELS = {
    "convolution": (
        "g (float[N, 3, 8, 8] x) => (float[N, C] y) { c = Conv<pads = [1, 1, 1, 1]>(x, w) r = Relu(c) "
        "p = GlobalAveragePool(r) y = Flatten(p) }",
        {"x": ((2, 3, 8, 8), "float32")},
    ),
    "attention": (
        "g (float[N, 5, 8] x) => (float[N, 5, 8] y, float[N, 5, 5] a) { t = Transpose<perm = [0, 2, 1]>(x) s = MatMul(x, t) "
        "a = Softmax<axis = -1>(s) y = MatMul(a, x) }",
        {"x": ((3, 5, 8), "float32")},
    ),
    "branches and loops": (
        "g (float[N, 4] x, bool c, int64 n) => (float[N, 4] y, float[M, N, 4] z) { i = If(c)<then_branch = t () => (p) "
        "{ p = Neg(x) }, else_branch = e () => (q) { q = Abs(x) }> y, z = Loop(n, c, i)<body = b (int64 k, bool on, float[N, 4] v) "
        "=> (bool go, float[N, 4] u, float[N, 4] s) { go = Identity(on) u = Add(v, x) s = Sub(v, x) }> }",
        {"x": ((3, 4), "float32"), "c": ((), "bool"), "n": ((), "int64")},
    ),
    "shapes decided by data": (
        "g (float[N, 4] x) => (int64[2, M] i, float[N, 4] y) { i = NonZero(x) y = Identity(x) }", {"x": ((3, 4), "float32")}
    ),
    "sequences": (
        "g (float[6, 4] x) => (seq(float[M, 4]) s, float[4] y) { s = SplitToSequence<axis = 0>(x, sizes) z = Constant<value_int = 1>() "
        "f = SequenceAt(s, z) y = ReduceSum<keepdims = 0>(f, axes) }",
        {"x": ((6, 4), "float32")},
    ),
    "strings": (
        "g (string[N] x) => (string[N] y, bool[N] e) { y = StringNormalizer<case_change_action = \"UPPER\">(x) e = Equal(x, y) }",
        {"x": ((3,), "str")},
    ),
    "half precision": ("g (float16[N, 4] x) => (float16[N, 4] y) { y = Exp(x) }", {"x": ((3, 4), "float16")}),
    "inputs as outputs": ("g (int64[N] x) => (int64[N] y, int64[N] z) { y = Identity(x) z = Identity(y) }", {"x": ((3,), "int64")}),
}  # fmt: skip


def build(text: str) -> bytes:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 21]> {text}')
    draw = np.random.default_rng(0)
    constants = {
        "w": draw.standard_normal((4, 3, 3, 3)).astype(np.float32),
        "sizes": np.array([2, 1, 3]),
        "axes": np.array([0]),
    }
    used = {name for node in proto.graph.node for name in node.input}
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in constants.items() if n in used)
    return bytes(proto.SerializeToString())


def draw(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "str":
        return np.array(["ab", "CD", "eF"][: shape[0]])
    if dtype == "bool":
        return np.array(True)
    if dtype == "int64":
        return np.full(shape, 3, np.int64)
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("name", MODELS)
def test_every_way_gives_the_same(name: str) -> None:
    text, inputs = MODELS[name]
    session = onnxplug.InferenceSession(build(text), providers=["CPUExecutionProvider"])
    feed = {each: draw(*kind) for each, kind in inputs.items()}
    assert run_forms.differences(session, feed) == []


def test_a_folder_of_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.onnx").write_bytes(build(MODELS["attention"][0]))
    (tmp_path / "b.onnx").write_bytes(b"damaged")
    np.savez(tmp_path / "a.npz", **{"case0/in/x": np.ones((1, 5, 8), np.float32), "case0/out/y": np.ones(1)})
    assert run_forms.main([str(tmp_path)]) == 1 and run_forms.main([str(tmp_path), "a"]) == 0
    out = capsys.readouterr().out
    assert "a: same" in out and "b: InvalidProtobuf" in out and "2 models, 1 differ" in out and run_forms.main([]) == 2


def test_differences_are_seen() -> None:
    one, other = np.array([0.0], np.float32), np.array([-0.0], np.float32)
    assert run_forms.same([one, {"a": 1}], [one.copy(), {"a": 1}]) and not run_forms.same(one, other)
    assert (
        not run_forms.same([one], [one, one])
        and not run_forms.same(one, one.astype(float))
        and not run_forms.same({1: 1}, {2: 1})
    )
