"""Generated transposed convolutions against the NumPy kernel in float64, and against onnxruntime where they are padded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native
from conv_models import check, close, floats, windows
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

import onnxplug
from onnxplug_kernels.ops.conv_transpose import conv_transpose


def test_infinite_taps_that_reach_no_pixel() -> None:
    """Where a transposed convolution has no input there is none, rather than 0."""
    x, w = np.ones((1, 1, 5, 7), np.float32), np.ones((1, 1, 2, 2), np.float32)
    w[0, 0, 1, 0] = np.inf
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"])
    made = onnxplug.InferenceSession(model([node], {"x": x}, ["y"], {"w": w}).SerializeToString())
    (y,) = made.run(None, {"x": x})
    assert np.isinf(y[0, 0, 1:, :7]).all() and np.isfinite(y[0, 0, 0]).all() and np.isfinite(y[0, 0, :, 7]).all()


@settings(max_examples=25)
@given(st.data(), windows(transposed=True))
def test_conv_transpose(data: st.DataObject, window: Any) -> None:
    sizes, kernel, attributes = window
    group, depth, width = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 20))
    extra = [data.draw(st.integers(0, s - 1)) for s in attributes["strides"]]
    if "pads" in attributes:
        attributes["output_padding"] = extra
        reach = [
            (n - 1) * s + (k - 1) * d + 1 + e - sum(attributes["pads"][i :: len(sizes)])
            for i, (n, s, k, d, e) in enumerate(
                zip(sizes, attributes["strides"], kernel, attributes["dilations"], extra, strict=True)
            )
        ]
        assume(min(reach) > 0)
    constants = {"w": floats(group * depth, width, *kernel), "b": floats(group * width)}
    check("ConvTranspose", conv_transpose, floats(2, group * depth, *sizes), constants, group=group, **attributes)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("outputs", [2, 20])
@pytest.mark.parametrize("symbolic", [False, True])
def test_conv_transpose_padded_to_its_size(auto_pad: str, outputs: int, symbolic: bool) -> None:
    """As onnxruntime pads: nothing is added behind windows smaller than strides, and what output_padding adds may be cut off again."""
    theirs = pytest.importorskip("onnxruntime")
    x = floats(1, 6, 5, 5)
    cases = (3, 1, 1, 0), (3, 2, 1, 1), (4, 2, 1, 1), (2, 3, 1, 0), (1, 2, 1, 1), (2, 4, 1, 1), (3, 2, 2, 1)
    for kernel, stride, dilation, extra in cases:
        given = {"strides": [stride] * 2, "dilations": [dilation, 1], "output_padding": [0, extra]}
        node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], auto_pad=auto_pad, **given)
        constants = {"w": floats(6, outputs, kernel, kernel)}
        made = model([node], {"x": x}, ["y"], constants, symbolic=symbolic)
        other = theirs.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        close(run_native(made, {"x": x})[0], other.run(None, {"x": x})[0])


@settings(max_examples=5)
@given(st.data(), st.sampled_from([1, 2, 3]), st.sampled_from([3, 16, 19]))
def test_conv_transpose_by_channel(data: st.DataObject, n: int, channels: int) -> None:
    """Every channel with a filter of its own: whatever is cut off or added at the ends, and before other readers."""
    sizes = [data.draw(st.sampled_from([1, 5])) for _ in range(n)]
    strides = [data.draw(st.integers(1, 2)) for _ in range(n)]
    kernel = [data.draw(st.integers(s, 3)) for s in strides]
    pads = [data.draw(st.integers(0, k - s)) for k, s in zip(kernel, strides, strict=True)]
    extra = [data.draw(st.integers(0, s - 1)) for s in strides]
    assume(all((i - 1) * s + k + e > 2 * p for i, s, k, e, p in zip(sizes, strides, kernel, extra, pads, strict=True)))
    given = {"strides": strides, "pads": pads * 2, "output_padding": extra, "group": channels}
    constants = {"w": floats(channels, 1, *kernel), "b": floats(channels)}
    check("ConvTranspose", conv_transpose, floats(2, channels, *sizes), constants, **given)


@settings(max_examples=25)
@given(st.data(), st.integers(1, 2), st.integers(1, 4), st.sampled_from([1, 3, 17]))
def test_conv_transpose_to_few_channels(data: st.DataObject, n: int, outputs: int, channels: int) -> None:
    """Columns by phases: any width, kernels shorter than a step, what is cut off or added at the ends."""
    sizes = [data.draw(st.integers(1, 4)), data.draw(st.sampled_from([4, 9, 16, 33, 70]))][-n:]
    strides = [data.draw(st.sampled_from([1, 3])), data.draw(st.sampled_from([1, 2, 4]))][-n:]
    kernel = [data.draw(st.integers(1, 5)) for _ in range(n)]
    dilations = [data.draw(st.integers(1, 2)) for _ in range(n)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [data.draw(st.integers(0, r - 1)) for r in (*reach, *reach)]
    extra = [data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(strides, dilations, strict=True)]
    cut = [a + b for a, b in zip(pads[:n], pads[n:], strict=True)]
    assume(all((i - 1) * s + r + e > c for i, s, r, e, c in zip(sizes, strides, reach, extra, cut, strict=True)))
    given = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": extra}
    constants = {"w": floats(channels, outputs, *kernel), "b": floats(outputs)}
    check("ConvTranspose", conv_transpose, floats(2, channels, *sizes), constants, **given)


def test_conv_transpose_to_a_given_size() -> None:
    constants = {"w": floats(4, 6, 3, 3)}
    check("ConvTranspose", conv_transpose, floats(1, 4, 5, 5), constants, strides=[2, 2], output_shape=[10, 9])


@pytest.mark.parametrize("stride", (1, 2, 5))
@pytest.mark.parametrize("kernel", ((4,), (4, 4), (3, 1, 2)))
def test_conv_transpose_of_one_pixel(kernel: tuple[int, ...], stride: int) -> None:
    n = len(kernel)
    given: dict[str, Any] = {"strides": [stride] * n, "dilations": [2] * n, "output_padding": [min(1, stride - 1)] * n}
    constants = {"w": floats(6, 9, *kernel), "b": floats(9)}
    for pads in ([0] * 2 * n, [1 if k > 1 else 0 for k in kernel] * 2):
        check("ConvTranspose", conv_transpose, floats(2, 6, *[1] * n), constants, pads=pads, **given)
