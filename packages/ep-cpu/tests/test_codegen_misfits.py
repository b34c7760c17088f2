"""Shapes that do not go together, and nothing to work on: refused or answered as the NumPy kernels do it, not by reading elsewhere."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from onnx import parser

import onnxplug
from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug_ep_cpu.codegen import capability

ONES = ", ".join(["1"] * 9)
IMAGE = "g (float[N, C, H, W] x) => (y)"
SMALL = (1, 1, 2, 2)
REFUSED: list[tuple[str, dict[str, tuple[int, ...]]]] = [
    *(
        (f"{IMAGE} <float[1, 1, 3, 3] w = {{{ONES}}}> {{ y = Conv <strides: ints = [{n}, {n}]> (x, w) }}", {"x": shape})
        for n in (1, 2, 3)
        for shape in (SMALL, (1, 1, 0, 5), (1, 1, 5, 0), (1, 1, 1, 5))
    ),
    (f"{IMAGE} <float[2, 1, 1, 1] w = {{1, 1}}> {{ y = Conv (x, w) }}", {"x": (1, 1, 0, 5)}),
    (
        f"{IMAGE} <float s = {{1}}, uint8 z = {{0}}, uint8[1, 1, 3, 3] w = {{{ONES}}}> {{ q = QuantizeLinear (x, s, z)"
        " y = QLinearConv <strides: ints = [2, 2]> (q, s, z, w, s, z, s, z) }",
        {"x": SMALL},
    ),
    (f"{IMAGE} {{ y = DepthToSpace <blocksize: int = 2> (x) }}", {"x": (1, 3, 2, 2)}),
    (f"{IMAGE} {{ y = SpaceToDepth <blocksize: int = 2> (x) }}", {"x": (1, 1, 3, 2)}),
    (f"{IMAGE} {{ y, z, u = Split <axis: int = 2, num_outputs: int = 3> (x) }}", {"x": (1, 1, 1, 2)}),
    (f"{IMAGE} {{ y = ArgMax <axis: int = 2> (x) }}", {"x": (1, 1, 0, 2)}),
    (f"{IMAGE} {{ y = GlobalMaxPool (x) }}", {"x": (1, 2, 0, 3)}),
    *((f"g (float[N, C] x) => (y) {{ y = Global{kind}Pool (x) }}", {"x": (2, 3)}) for kind in ("Max", "Average", "Lp")),
    (
        "g (float[N, C, H, W] x, int64[A, B, D, E] i) => (y) {"
        " y = MaxUnpool <kernel_shape: ints = [2, 2], strides: ints = [2, 2]> (x, i) }",
        {"x": SMALL, "i": (3, 1, 33, 1)},
    ),
    *(
        (f"g (float[{n}] x) => (y) <int64[2] s = {{4, 5}}> {{ a = Neg (x) y = Reshape (a, s) }}", {"x": (10,)})
        for n in ("10", "N")
    ),
    *(
        (f"g (float[N, C] x, float[K] b) => (y) {{ y = {op} (x, b) }}", {"x": (2, 8), "b": (1,)})
        for op in ("com.microsoft.BiasGelu", "com.microsoft.FastGelu")
    ),
    (
        "g (float[N, C] x) => (y) <float s = {1}, uint8[3] z = {0, 1, 2}> { y = QuantizeLinear (x, s, z) }",
        {"x": (2, 3)},
    ),
    (
        "g (float[N, C] x) => (y) <float s = {1}, uint8[3] z = {0, 1, 2}> { q = QuantizeLinear (x, s) y = DequantizeLinear (q, s, z) }",
        {"x": (2, 3)},
    ),
    (
        "g (float[N, C] x, float[M, C] w, float[C] g) => (y) { y = com.microsoft.SkipLayerNormalization (x, w, g) }",
        {"x": (1, 8), "w": (2, 8), "g": (8,)},
    ),
    ("g (float[N] x) => (y) <int64[0] s = {}> { a = Neg (x) y = Reshape <allowzero: int = 1> (a, s) }", {"x": (2,)}),
    *(
        (f"g (float[N, C] x, int64[A, B] i) => (y) {{ y = {node} }}", {"x": (2, 3), "i": (2, 3)})
        for axis in (2, -3)
        for node in (
            f"LpNormalization <axis: int = {axis}> (x)",
            f"GatherElements <axis: int = {axis}> (x, i)",
            f"ScatterElements <axis: int = {axis}> (x, i, x)",
            f"LayerNormalization <axis: int = {axis}> (x, x)",
        )
    ),
    ("g (float[N, C] x) => (y) <int64 a = {2}> { y = CumSum (x, a) }", {"x": (2, 3)}),
    ("g (float[N, C, H, W] x) => (y) { y = LRN <size: int = 0> (x) }", {"x": SMALL}),
    ("g (float[N, C, H, W] x) => (y) <float[4] s = {1, 1, -1, 1}> { y = Resize (x, , s) }", {"x": SMALL}),
    ("g (float[N, C, H, W] x) => (y) <int64[4] s = {1, 1, 0, 2}> { y = Resize (x, , , s) }", {"x": SMALL}),
    ("g (float[N, C, H] x) => (y) { y = DFT <axis: int = 1> (x) }", {"x": (2, 3, 4)}),
    ("g (float[N, C, H] x) => (y) { y = DFT <axis: int = 7> (x) }", {"x": (2, 3, 2)}),
    *(
        (
            "g (float[N, C] x, int64[A] i) => (y) {"
            " v = Neg (x) y = ReverseSequence <batch_axis: int = 0, time_axis: int = 1> (v, i) }",
            {"x": (2, 3), "i": (count,)},
        )
        for count in (1, 3)
    ),
    *(
        (
            "g (float[B, H, L, D] x, float[P, Q, R] c) => (y) { n = Neg (x) y = RotaryEmbedding (n, c, c) }",
            {"x": (2, 3, 4, 8), "c": shape},
        )
        for shape in ((1, 4, 4), (3, 4, 4))
    ),
    (
        "g (float[N, C] x, float[D, E] u, int64[A, B] i) => (y) { y = ScatterElements (x, i, u) }",
        {"x": (2, 3), "u": (1, 3), "i": (2, 3)},
    ),
    *(
        (
            f"g (float[3, 2, 1] x, float[1, {gates}, 1] w, float[2, {gates}, 1] r) => (y) <float[1, {2 * gates}] b = {{{ones}}}> {{"
            f" n = Neg (x) v = Neg (w) s = Neg (r) , h = {op} <hidden_size: int = 1> (n, v, s, b) y = Neg (h) }}",
            {"x": (3, 2, 1), "w": (1, gates, 1), "r": (2, gates, 1)},
        )
        for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
        for ones in [", ".join(["1"] * 2 * gates)]
    ),
    (
        f"g () => (float[3, 1] y) <float[4, 9] x = {{{', '.join(['1'] * 36)}}}, int64[1] n = {{3}}, int64[2] u = {{3, 1}}> {{"
        " s = Shape (x) d = Div (s, n) a = Reshape (x, d) b = Transpose (a) y = Reshape (b, u) }",
        {},
    ),
    *(
        (
            f"g (float[N, C, H] x, float[P, Q, R, U] p) => (y) <int32[1] s = {{4}}, int32[{count}] t = {{{totals}}}> {{"
            " n = Neg (x) y = com.microsoft.GroupQueryAttention <num_heads: int = 2, kv_num_heads: int = 2> (n, x, x, p, p, s, t) }",
            {"x": (1, 1, 16), "p": (1, 2, 4, 8)},
        )
        for count, totals in ((1, "9"), (2, "5, 5"))
    ),
    *(
        (
            f"g (float[{dims}] x, float[R, E] r, float[E, F, C] w, float[E, C, F] v) => (y) {{"
            " n = Neg (x) y = com.microsoft.MoE <k: int = 1> (n, r, w, , v) }",
            {"x": shape, "r": (1, 2), "w": (2, 4, 8), "v": (2, 8, 4)},
        )
        for dims, shape in (("C", (8,)), ("A, B, D, C", (1, 1, 1, 8)))
    ),
]


def run(text: str, feeds: dict[str, tuple[int, ...]], codegen: int) -> Any:
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": {23 if "Rotary" in text else 18}, "com.microsoft": 1]> {text}'
    )
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", str(codegen))
    arrays = {name: np.ones(shape, np.int64 if name == "i" else np.float32) for name, shape in feeds.items()}
    with mock.patch.object(capability, "SMALLEST", 1):
        session = onnxplug.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, arrays)


@pytest.mark.parametrize("codegen", (0, 1))
@pytest.mark.parametrize(("text", "feeds"), REFUSED)
def test_refused(text: str, feeds: dict[str, tuple[int, ...]], codegen: int, caplog: pytest.LogCaptureFixture) -> None:
    """By the kernels, whom the generator leaves them to: what does not fit is no fault of its own."""
    with pytest.raises((Fail, InvalidArgument)):
        run(text, feeds, codegen)
    assert "please report it" not in caplog.text


@pytest.mark.parametrize("codegen", (0, 1))
def test_the_mean_of_nothing(codegen: int) -> None:
    """0, as onnxruntime has it."""
    (y,) = run("g (float[N, C] x) => (y) <int64[1] a = {1}> { y = ReduceMean (x, a) }", {"x": (2, 0)}, codegen)
    assert y.tolist() == [[0.0], [0.0]]
