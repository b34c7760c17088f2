"""Linear quantization: the writing form against the returning form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cpu_nodes import Case, arrays, shapes
from hypothesis import given
from hypothesis import strategies as st

from onnxplug_ep_cpu.kernels import quantize

SMALL = st.sampled_from(["int8", "uint8", "int16", "uint16"])


@pytest.fixture(autouse=True, params=(4, 1 << 16), ids=("small blocks", "whole"))
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize, "BLOCK", request.param)


@st.composite
def parameters(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Scale and perhaps zero point, per tensor or per axis."""
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    size = draw(st.sampled_from([(), (shape[axis],)]))
    scale = np.abs(draw(arrays(size))) + np.float32(0.05)
    zero = [draw(arrays(size, dtype))] if draw(st.booleans()) else []
    return [scale.astype(np.float32), *zero], {"axis": axis}


@given(data=st.data(), dtype=SMALL)
def test_quantize(data: st.DataObject, dtype: str) -> None:
    x = data.draw(arrays(shapes.filter(len)))
    given_, attributes = data.draw(parameters(x.shape, dtype))
    Case("QuantizeLinear", 21, 20 * x, *given_, constant=[1, 2], **attributes).check()


@given(data=st.data(), dtype=SMALL)
def test_dequantize(data: st.DataObject, dtype: str) -> None:
    x = data.draw(arrays(shapes.filter(len), dtype))
    given_, attributes = data.draw(parameters(x.shape, dtype))
    Case("DequantizeLinear", 21, x, *given_, constant=[1, 2], **attributes).check()


def test_scales_of_the_run_are_left_to_the_returning_form() -> None:
    case = Case("QuantizeLinear", 21, np.ones(3, np.float32), np.float32(0.1), np.uint8(3))
    assert case.bind(case.returned()) is None
