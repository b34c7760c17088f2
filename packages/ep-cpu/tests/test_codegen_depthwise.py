"""Generated convolutions of each channel by filters of its own, against the NumPy kernel in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native
from conv_models import check, close, floats, windows
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from onnxplug_kernels.ops.conv import conv


def check_channels_last(x: np.ndarray, constants: dict[str, np.ndarray], **attributes: Any) -> None:
    """A convolution of images whose channels lie last before it and behind it, and of planes."""
    planes = check("Conv", conv, x, constants, **attributes)
    order = [0, *range(2, x.ndim), 1]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, x.ndim - 1, *range(1, x.ndim - 1)]),
        helper.make_node("Conv", ["t", *constants], ["c"], **attributes),
        helper.make_node("Transpose", ["c"], ["y"], perm=order),
    ]
    last = np.ascontiguousarray(x.transpose(order))
    (ours,) = run_native(model(nodes, {"x": last}, ["y"], constants, opset=22), {"x": last}, native=1)
    close(ours, planes.transpose(order))


@settings(max_examples=25)
@given(st.data(), windows())
def test_depthwise(data: st.DataObject, window: Any) -> None:
    sizes, kernel, attributes = window
    channels, times = (
        data.draw(st.one_of(st.integers(2, 15), st.integers(16, 45))),
        data.draw(st.sampled_from([1, 1, 2, 3, 4, 5])),
    )
    constants = {"w": floats(times * channels, 1, *kernel), "b": floats(times * channels)}
    check_channels_last(floats(data.draw(st.integers(1, 2)), channels, *sizes), constants, group=channels, **attributes)


@pytest.mark.parametrize(("taps", "dilation", "stride"), [(51, 1, 1), (63, 1, 2), (128, 1, 1), (87, 2, 1), (129, 1, 1)])
def test_long_depthwise_lines(taps: int, dilation: int, stride: int) -> None:
    """Filters of speech, longer than the line too."""
    reach = dilation * (taps - 1)
    for size in (2 * reach, taps // 2):
        pads = [reach // 2, reach - reach // 2]
        moves = {"dilations": [dilation], "strides": [stride], "pads": pads, "group": 33}
        check_channels_last(floats(2, 33, size), {"w": floats(33, 1, taps), "b": floats(33)}, **moves)


@pytest.mark.parametrize(("side", "stride"), [(13, 1), (31, 1), (21, 2), (65, 1)])
def test_large_depthwise_windows(side: int, stride: int) -> None:
    moves = {"strides": [stride, stride], "pads": [side // 2] * 4, "group": 32}
    check_channels_last(floats(1, 32, 20, 37), {"w": floats(32, 1, side, side), "b": floats(32)}, **moves)


@pytest.mark.parametrize("target", ["", "generic"], ids=["widest", "generic"])
@pytest.mark.parametrize(
    ("kernel", "given_"),
    [
        ((3, 3), {"pads": [1] * 4}), ((3, 3), {"pads": [0, 1, 1, 2], "strides": [2, 2]}), ((5, 5), {"pads": [2] * 4}),
        ((7, 7), {"pads": [9] * 4, "dilations": [3, 3]}), ((21, 1), {"pads": [10, 0, 10, 0]}), ((1, 21), {"pads": [0, 10, 0, 10]}),
        ((9, 9), {"pads": [4] * 4}), ((9, 9), {"pads": [9, 4, 7, 0], "strides": [3, 2], "dilations": [2, 1]}),
        ((31, 3), {"pads": [40, 1, 40, 1]}),
    ],
)  # fmt: skip
def test_blocks_of_depthwise_results(
    kernel: tuple[int, int], given_: dict[str, Any], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images whose sides no block divides, with channels beyond whole vectors; filters whose rows a loop goes over."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    for channels, sides in ((41, (25, 29)), (6, (5, 33))):
        constants = {"w": floats(channels, 1, *kernel), "b": floats(channels)}
        check_channels_last(floats(2, channels, *sides), constants, group=channels, **given_)


@pytest.mark.parametrize("target", ["", "avx2", "generic"], ids=["widest", "avx2", "generic"])
@pytest.mark.parametrize(
    ("sizes", "kernel", "given_"),
    [
        ((9, 40), (3, 3), {"pads": [1] * 4}), ((2, 2100), (3, 5), {"pads": [1, 2, 1, 2]}),
        ((3, 1400), (2, 3), {"pads": [0, 3, 0, 4], "strides": [1, 3], "dilations": [1, 2]}),
        ((30, 33), (5, 4), {"pads": [4, 5, 0, 2], "strides": [2, 2]}), ((4, 61), (1, 9), {"pads": [0, 70, 0, 1], "strides": [1, 4]}),
        ((90, 20), (7, 7), {"pads": [3] * 4, "dilations": [3, 1]}), ((2051,), (9,), {"pads": [4, 4], "strides": [2]}),
        ((1031,), (63,), {"pads": [0, 9]}), ((9, 40), (11, 11), {"pads": [5] * 4}),
    ],
)  # fmt: skip
def test_planes_by_filters_of_one_channel(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    given_: dict[str, Any],
    target: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts of long rows, blocks of many, columns apart; one filter or several for each of one channel or some."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    for channels, times in ((1, 3), (5, 1), (2, 2)):
        constants = {"w": floats(times * channels, 1, *kernel), "b": floats(times * channels)}
        check("Conv", conv, floats(2, channels, *sizes), constants, group=channels, **given_)


def test_planes_by_filters_whose_taps_lie_further_apart_than_a_stack_holds() -> None:
    constants = {"w": floats(1, 1, 3, 2)}
    check("Conv", conv, floats(1, 1, 905, 4100), constants, strides=[1, 4], dilations=[450, 1])


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_over_bodies_with_flat_windows(stride: int) -> None:
    moves = {"strides": [stride, 1, 1], "pads": [1, 1, 0, 1, 1, 0]}
    check("Conv", conv, floats(2, 16, 3, 4, 5), {"w": floats(16, 1, 1, 3, 3)}, group=16, **moves)


def test_depthwise_over_bodies_with_what_lies_unevenly() -> None:
    """A residual that is a part of another, and a result that becomes a part."""
    x, r, w = floats(2, 20, 5, 6, 7), floats(2, 20, 5, 9, 7), floats(20, 1, 3, 3, 3)
    nodes = [
        helper.make_node("Slice", ["r", "from", "to", "axis"], ["part"]),
        helper.make_node("Conv", ["x", "w"], ["c"], group=20, pads=[1] * 6),
        helper.make_node("Add", ["c", "part"], ["a"]),
        helper.make_node("Concat", ["a", "x"], ["y"], axis=3),
    ]
    held = {"w": w, "from": np.array([2]), "to": np.array([8]), "axis": np.array([3])}
    (ours,) = run_native(model(nodes, {"x": x, "r": r}, ["y"], held), {"x": x, "r": r})
    sums = conv(np, x.astype(np.float64), w.astype(np.float64), group=20, pads=[1] * 6) + r[:, :, :, 2:8]
    np.testing.assert_allclose(ours, np.concatenate([sums, x], 3), rtol=1e-4, atol=2e-6)
