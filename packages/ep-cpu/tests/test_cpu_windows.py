"""Convolution and pooling: the writing form against the returning form."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from cpu_nodes import Case, arrays
from hypothesis import assume, given
from hypothesis import strategies as st

from onnxplug_ep_cpu.kernels import conv, pool


@st.composite
def windows(draw: st.DrawFn, pooling: bool = False) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """(spatial sizes, kernel, attributes) of a window that fits."""
    rank = draw(st.integers(1, 3))
    sizes = tuple(draw(st.integers(3, 9)) for _ in range(rank))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    attributes: dict[str, Any] = {"strides": [draw(st.integers(1, 3)) for _ in range(rank)]}
    mode = draw(st.sampled_from(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    attributes["dilations"] = [draw(st.integers(1, 2)) if mode == "NOTSET" else 1 for _ in range(rank)]
    if mode == "NOTSET":
        # A pooling window must see an element of the input.
        attributes["pads"] = [draw(st.integers(0, (k - 1) if pooling else 2)) for _ in range(2) for k in kernel]
        if pooling:
            attributes["ceil_mode"] = draw(st.integers(0, 1))
    else:
        attributes["auto_pad"] = mode
    padded = [n + sum(attributes.get("pads", [0] * 2 * rank)[i::rank]) for i, n in enumerate(sizes)]
    assume(all((k - 1) * d + 1 <= n for k, d, n in zip(kernel, attributes["dilations"], padded, strict=True)))
    return sizes, kernel, attributes


def test_conv_of_one_tap_whose_padding_makes_up_for_its_stride() -> None:
    x, w = np.arange(1.0, 5.0, dtype=np.float32).reshape(1, 1, 4), np.full((1, 1, 1), 2.0, np.float32)
    Case("Conv", 22, x, w, strides=[2], pads=[2, 2]).check()


@given(data=st.data(), window=windows(), dtype=st.sampled_from(["float32", "float64"]))
def test_conv(data: st.DataObject, window: Any, dtype: str) -> None:
    sizes, kernel, attributes = window
    group, depth, width = (data.draw(st.integers(1, 3)) for _ in range(3))
    x = data.draw(arrays((data.draw(st.integers(1, 2)), group * depth, *sizes), dtype))
    w = data.draw(arrays((group * width, depth, *kernel), dtype))
    bias = [data.draw(arrays((group * width,), dtype))] if data.draw(st.booleans()) else []
    Case("Conv", 22, x, w, *bias, group=group, **attributes).check(rtol=1e-4, atol=1e-4)


def test_conv_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv, "BAND_BYTES", 3000)
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, 11, 9), (6, 4, 3, 3), (6,)))
    Case("Conv", 22, x, w, b, pads=[1, 1, 1, 1]).check(rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ("float32", "float64", "float16", "int8", "uint8"))
@given(data=st.data(), window=windows(pooling=True))
def test_max_pool(dtype: str, data: st.DataObject, window: Any) -> None:
    sizes, kernel, attributes = window
    x = data.draw(arrays((2, 3, *sizes), dtype, special=True))
    Case("MaxPool", 22, x, kernel_shape=kernel, **attributes).check()


@given(data=st.data(), window=windows(pooling=True), include=st.integers(0, 1))
def test_average_pool(data: st.DataObject, window: Any, include: int) -> None:
    sizes, kernel, attributes = window
    x = data.draw(arrays((2, 3, *sizes)))
    Case("AveragePool", 22, x, kernel_shape=kernel, count_include_pad=include, **attributes).check()


def test_pool_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BLOCK", 32)
    x = np.random.default_rng(0).standard_normal((2, 5, 6, 7)).astype(np.float32)
    Case("MaxPool", 22, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]).check()


def test_indices_of_max_pool_are_left_to_the_returning_form() -> None:
    case = Case("MaxPool", 22, np.zeros((1, 1, 4, 4), np.float32), kernel_shape=[2, 2], outputs=2)
    assert case.bind(case.returned()) is None


@pytest.mark.parametrize("op_type", ("GlobalAveragePool", "GlobalMaxPool"))
@given(x=arrays(st.tuples(*[st.integers(1, 5)] * 4)))
def test_global_pool(op_type: str, x: np.ndarray) -> None:
    Case(op_type, 22, x).check()


@pytest.mark.parametrize("free", [True, False], ids=["open", "fixed"])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    "size, kernel, stride, dilation", [(1, 2, 2, 1), (1, 2, 3, 2), (2, 3, 3, 1), (2, 4, 2, 1), (1, 3, 1, 1)]
)
def test_windows_that_reach_beyond_the_input(
    op_type: str, size: int, kernel: int, stride: int, dilation: int, free: bool
) -> None:
    """One that lacks less than a stride sees what there is; none where a stride or more is missing; an error beyond that."""
    attributes = f"kernel_shape = [{kernel}], strides = [{stride}], dilations = [{dilation}]"
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 22]>
        g (float[1, 1, {"N" if free else size}] x) => (float[1, 1, M] y) {{ y = {op_type} <{attributes}> (x) }}""")
    x = np.arange(1, size + 1, dtype=np.float32).reshape(1, 1, size)

    def seen(package: str) -> Any:
        try:
            engine = pytest.importorskip(package)
            session = engine.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            return session.run(None, {"x": x})[0].tolist()
        except Exception as error:
            return type(error).__name__

    assert seen("onnxplug") == seen("onnxruntime")


@pytest.mark.parametrize("package", ["onnxplug", "onnxruntime"])
@pytest.mark.parametrize(
    ("pool", "want"),
    [
        ("LpPool <kernel_shape = [2], pads = [1, 1], p = 0>", [1, np.inf, np.inf, 1]),
        ("LpPool <kernel_shape = [1], p = 0>", [1, 1, 1]),
        ("GlobalLpPool <p = 0>", [np.inf]),
    ],
)
def test_a_norm_of_no_power_is_a_limit(package: str, pool: str, want: list[float]) -> None:
    """Elements are 1 each, and the root of as many as a window has is 1 of one, else without a bound."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1, 1, 3] x) => (y) {{ y = {pool} (x) }}'
    )
    engine = pytest.importorskip(package)
    session = engine.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.array([[[0, 0.5, -3]]], np.float32)})[0].ravel().tolist() == want
