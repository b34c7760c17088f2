"""Generated convolutions against the NumPy kernels in float64: direct, padded, fused, with few results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native, session
from conv_models import check, close, floats, windows
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from onnxplug_ep_cpu.codegen.lower.spread import _down
from onnxplug_kernels.ops.conv import conv
from onnxplug_kernels.ops.conv_transpose import conv_transpose


@pytest.mark.parametrize("channels", [1, 3, 17])
@pytest.mark.parametrize(
    "given_", [{}, {"pads": [7, 9]}, {"strides": [5]}, {"pads": [0, 20], "strides": [4]}, {"dilations": [2]}]
)
def test_long_filters_over_signals(channels: int, given_: dict[str, Any]) -> None:
    """Their taps lie behind each other, and are one row of a product."""
    x, w = floats(2, channels, 90), floats(11, channels, 25)
    check("Conv", conv, x, {"w": w, "b": floats(11)}, **given_)


@pytest.mark.parametrize("pads", [[1, 0, 1, 0], [0, 2, 0, 1], [3, 3, 3, 3]])
def test_rows_of_taps_of_images(pads: list[int]) -> None:
    check("Conv", conv, floats(2, 3, 13, 14), {"w": floats(5, 3, 7, 7)}, pads=pads, strides=[2, 2])


@settings(max_examples=25)
@given(st.data(), windows())
def test_conv(data: st.DataObject, window: Any) -> None:
    sizes, kernel, attributes = window
    group, depth, width = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 9)), data.draw(st.integers(1, 20))
    constants = {"w": floats(group * width, depth, *kernel)}
    if data.draw(st.booleans()):
        constants["b"] = floats(group * width)
    check(
        "Conv", conv, floats(data.draw(st.integers(1, 2)), group * depth, *sizes), constants, group=group, **attributes
    )


@pytest.mark.parametrize("dilations", [[5, 5], [12, 3], [1, 9]])
@pytest.mark.parametrize("group", [1, 3])
def test_taps_that_see_nothing_but_padding(dilations: list[int], group: int) -> None:
    """Wide dilations over an image smaller than they are: the middle, or a part of the taps, is left."""
    pads = [2 * d for d in dilations] * 2
    check(
        "Conv",
        conv,
        floats(2, 6, 5, 8),
        {"w": floats(24, 6 // group, 5, 5)},
        dilations=dilations,
        pads=pads,
        group=group,
    )
    check("Conv", conv, floats(1, 6, 5, 8), {"w": floats(24, 6 // group, 5, 5)}, dilations=dilations, pads=[*pads[:2], 50, 30],
        strides=[2, 3], group=group)  # fmt: skip


def test_windows_of_nothing_but_padding_are_exactly_zero() -> None:
    x, w = np.float32(1e12) * floats(1, 64, 28, 28), floats(64, 64, 3, 3)
    made = check("Conv", conv, x, {"w": w}, pads=[3, 1, 1, 4])
    assert not made[:, :, 0].any()
    assert not made[..., -2:].any()


@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("kernel", [1, 3])
def test_planes_join_what_is_concatenated(kernel: int, group: int) -> None:
    """A result whose rows have gaps, after operands for each channel and for all."""
    x, w, s = floats(2, 8, 13, 21), floats(8, 8 // group, kernel, kernel), floats(8, 1, 1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[kernel // 2] * 4, group=group),
        helper.make_node("Mul", ["c", "s"], ["m"]),
        helper.make_node("Sigmoid", ["m"], ["a"]),
        helper.make_node("Concat", ["a", "x"], ["y"], axis=3),
    ]
    proto = model(
        [*nodes[:3], helper.make_node("Identity", ["a"], ["z"]), nodes[3]], {"x": x}, ["y", "z"], {"w": w, "s": s}
    )
    ours, alone = run_native(proto, {"x": x})
    sums = conv(np, x.astype(np.float64), w.astype(np.float64), pads=[kernel // 2] * 4, group=group) * s
    close(alone, 1 / (1 + np.exp(-sums)))
    close(ours, np.concatenate([1 / (1 + np.exp(-sums)), x], 3))


@pytest.mark.parametrize("target", ["", "generic"], ids=["widest", "generic"])
@pytest.mark.parametrize("outputs", [5, 18, 24, 40, 57, 66, 72, 80, 112, 184])
def test_last_panel_of_products(outputs: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of channels that panels of one width do not divide, with an end that is light, then heavy."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", target)
    for kernel, images, end in ((1, 1, "Relu"), (3, 2, "Tanh")):
        x, w, b = floats(images, 9, 13, 11), floats(outputs, 9, kernel, kernel) / 9, floats(outputs)
        z = floats(images, outputs, 13, 11)
        nodes = [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[kernel // 2] * 4),
            helper.make_node("Add", ["c", "z"], ["a"]),
            helper.make_node(end, ["a"], ["y"]),
        ]
        (ours,) = run_native(model(nodes, {"x": x, "z": z}, ["y"], {"w": w, "b": b}), {"x": x, "z": z})
        sums = conv(np, *(each.astype(np.float64) for each in (x, w, b)), pads=[kernel // 2] * 4) + z
        np.testing.assert_allclose(ours, np.tanh(sums) if end == "Tanh" else np.maximum(sums, 0), rtol=1e-4, atol=5e-5)


@settings(max_examples=30)
@given(st.data(), st.booleans())
def test_few_results_of_many_channels(data: st.DataObject, transposed: bool) -> None:
    sizes, kernel, attributes = data.draw(windows(transposed=transposed))
    channels, outputs = data.draw(st.sampled_from([8, 16, 37, 64])), data.draw(st.integers(1, 5))
    x = floats(data.draw(st.integers(1, 2)), channels, *sizes)
    if transposed:
        attributes = {name: attributes[name] for name in ("strides", "dilations")}
        constants = {"w": floats(channels, outputs, *kernel), "b": floats(outputs)}
        check("ConvTranspose", conv_transpose, x, constants, **attributes)
    else:
        check("Conv", conv, x, {"w": floats(outputs, channels, *kernel), "b": floats(outputs)}, **attributes)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_few_results_with_what_follows(op: str, outputs: int) -> None:
    """A scale by channel, an activation, a residual, a part of a concatenation, and readers of channels-last data. The data is the
    same in each run: scales that happen to be large multiply errors, too."""
    rng = np.random.default_rng(outputs)
    shape = (outputs, 32) if op == "Conv" else (32, outputs)
    sizes = [(2, 32, 9, 21), (2, outputs, 9, 21), (*shape, 3, 3), (outputs, 1, 1), (16, 2 * outputs, 1, 1)]
    x, r, w, s, v = (rng.standard_normal(size).astype(np.float32) for size in sizes)
    held = {"w": w, "s": s, "v": v}
    nodes = [
        helper.make_node(op, ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Mul", ["c", "s"], ["m"]),
        helper.make_node("Tanh", ["m"], ["t"]),
        helper.make_node("Add", ["t", "r"], ["a"]),
        helper.make_node("Concat", ["a", "r"], ["j"], axis=1),
        helper.make_node("Conv", ["j", "v"], ["y"]),
    ]
    (ours,) = run_native(model(nodes, {"x": x, "r": r}, ["y"], held), {"x": x, "r": r})
    kernel = conv if op == "Conv" else conv_transpose
    sums = kernel(np, x.astype(np.float64), held["w"].astype(np.float64), pads=[1] * 4)
    joined = np.concatenate([np.tanh(sums * held["s"]) + r, r], 1)
    np.testing.assert_allclose(ours, conv(np, joined, held["v"].astype(np.float64)), rtol=1e-4, atol=1e-5)


def test_places_in_planes_of_gigabytes() -> None:
    """In bytes, rows of a plane lie beyond what 32 bits count."""
    table = _down(rows=4, height=4, kernel=1, stride=1, dilation=1, begin=0, steps=(1 << 30, 4))
    assert table.tolist() == [[1, row << 30, 0] for row in range(4)]


@settings(max_examples=25)
@given(st.data(), windows(), st.sampled_from(["Conv", "ConvTranspose"]))
def test_computed_filters(data: st.DataObject, window: Any, op: str) -> None:
    """Whatever the algorithm, they are packed in each run: those of one run are not the next one's."""
    sizes, kernel, attributes = window
    group = data.draw(st.sampled_from([1, 2, 16]))
    depth, width = data.draw(st.integers(1, 9 if group < 3 else 1)), data.draw(st.integers(1, 20 if group < 3 else 1))
    if op == "ConvTranspose":
        attributes = {name: attributes[name] for name in ("strides", "dilations")}
    shape = (group * width, depth) if op == "Conv" else (group * depth, width)
    feeds = {
        "x": floats(2, group * depth, *sizes),
        "u": floats(*shape, *kernel),
        "s": floats(shape[0], *[1] * (1 + len(sizes))),
    }
    nodes = [
        helper.make_node("Mul", ["u", "s"], ["w"]),
        helper.make_node(op, ["x", "w"], ["y"], group=group, **attributes),
    ]
    made = session(model(nodes, feeds, ["y"], opset=22))
    assert all(str(each["region"]).startswith("native") for each in made.explain().nodes)
    reference = conv if op == "Conv" else conv_transpose
    for scale in (1.0, -2.0):
        wide = {name: array.astype(np.float64) for name, array in feeds.items()}
        (ours,) = made.run(None, {**feeds, "s": feeds["s"] * np.float32(scale)})
        close(ours, reference(np, wide["x"], wide["u"] * wide["s"] * scale, group=group, **attributes))


@pytest.mark.parametrize("side", (3, 13, 40))
def test_residual_and_activation_join_the_convolution(side: int) -> None:
    """Every way of computing one takes operands of each kind into its end."""
    for channels, group, kernel in ((24, 1, 1), (24, 1, 3), (24, 1, 5), (24, 24, 3), (6, 6, 3)):
        x = floats(2, channels, side, side)
        w, b, z = floats(channels, channels // group, kernel, kernel), floats(channels), floats(2, channels, side, side)
        w *= (group / (channels * kernel * kernel)) ** 0.5
        scale = floats(channels, 1, 1)
        nodes = [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[kernel // 2] * 4, group=group),
            helper.make_node("Mul", ["c", "s"], ["m"]),
            helper.make_node("Add", ["m", "z"], ["a"]),
            helper.make_node("Clip", ["a", "low", "high"], ["y"]),
        ]
        bounds = {"low": np.float32(0), "high": np.float32(6)}
        proto = model(nodes, {"x": x, "z": z}, ["y"], {"w": w, "b": b, "s": scale, **bounds})
        (ours,) = run_native(proto, {"x": x, "z": z})
        wide = conv(np, *(a.astype(np.float64) for a in (x, w, b)), pads=[kernel // 2] * 4, group=group)
        want = np.clip(wide * scale + z, 0, 6)
        np.testing.assert_allclose(ours, want, rtol=1e-4, atol=5e-5)  # as much as Winograd's rounding may be


def test_results_with_gaps() -> None:
    """Convolutions that write their part of a row of a concatenation, and read one."""
    x = floats(1, 16, 6, 6)
    w, v = floats(16, 16, 1, 1), floats(16, 16, 3, 3)
    for axis in (1, 2, 3):
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["p"]),
            helper.make_node("Conv", ["x", "v"], ["q"], pads=[1] * 4),
            helper.make_node("Concat", ["p", "q"], ["c"], axis=axis),
            helper.make_node("Conv", ["c", "u"], ["y"], pads=[1] * 4),
        ]
        u = floats(8, 32 if axis == 1 else 16, 3, 3)
        (ours,) = run_native(model(nodes, {"x": x}, ["y"], {"w": w, "v": v, "u": u}), {"x": x})
        x64, w64, v64, u64 = (a.astype(np.float64) for a in (x, w, v, u))
        joined = np.concatenate([conv(np, x64, w64), conv(np, x64, v64, pads=[1] * 4)], axis)
        close(ours, conv(np, joined, u64, pads=[1] * 4))


@pytest.mark.parametrize("value", (0.0, 1.5))
@pytest.mark.parametrize("group", (1, 16))
def test_padding_before_a_convolution(value: float, group: int) -> None:
    x, w = floats(2, 16, 7, 5), floats(16, 16 // group, 3, 3)
    pads = np.array([0, 0, 1, 0, 0, 0, 2, 3])
    nodes = [
        helper.make_node("Pad", ["x", "pads", "value"], ["p"]),
        helper.make_node("Conv", ["p", "w"], ["y"], group=group, strides=[2, 1]),
    ]
    (ours,) = run_native(model(nodes, {"x": x}, ["y"], {"pads": pads, "value": np.float32(value), "w": w}), {"x": x})
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 2), (0, 3)], constant_values=value)
    close(ours, conv(np, padded, w.astype(np.float64), group=group, strides=[2, 1]))


@settings(max_examples=20)
@given(st.data())
def test_pad(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(0, 5)) for _ in range(data.draw(st.integers(1, 4))))
    amounts = [(data.draw(st.integers(-2, 3)), data.draw(st.integers(-2, 3))) for _ in shape]
    cut = [(max(0, -low), max(0, -high)) for low, high in amounts]
    assume(np.any(amounts) and all(n >= low + high for n, (low, high) in zip(shape, cut, strict=True)))
    x = floats(*shape)
    pads = np.array([low for low, _ in amounts] + [high for _, high in amounts])
    nodes = [helper.make_node("Pad", ["x", "pads"], ["p"]), helper.make_node("Exp", ["p"], ["y"])]
    (ours,) = run_native(model(nodes, {"x": x}, ["y"], {"pads": pads}), {"x": x})
    rest = x[tuple(slice(low, n - high) for n, (low, high) in zip(shape, cut, strict=True))]
    close(ours, np.exp(np.pad(rest.astype(np.float64), np.maximum(amounts, 0))))


@pytest.mark.parametrize(
    ("activation", "parameters", "want"),
    (
        ("Relu", [], lambda v: np.maximum(v, 0)),
        ("LeakyRelu", [0.2], lambda v: np.where(v < 0, 0.2 * v, v)),
        ("Clip", [-0.5, 0.5], lambda v: np.clip(v, -0.5, 0.5)),
        ("HardSigmoid", [0.3, 0.4], lambda v: np.clip(0.3 * v + 0.4, 0, 1)),
        ("HardSwish", [], lambda v: v * np.clip(v / 6 + 0.5, 0, 1)),
        ("Tanh", [], np.tanh),
    ),
)
@pytest.mark.parametrize("joined", (False, True))
def test_fused_conv(activation: str, parameters: list[float], want: Any, joined: bool) -> None:
    x, w, b, z = floats(1, 8, 6, 6), floats(8, 8, 3, 3), floats(8), floats(1, 8, 6, 6)
    names = ["x", "w", "b", *(["z"] if joined else [])]
    more = {"activation_params": parameters} if parameters else {}
    node = helper.make_node(
        "FusedConv", names, ["y"], domain="com.microsoft", activation=activation, pads=[1] * 4, **more
    )
    feeds = {"x": x, "z": z} if joined else {"x": x}
    (ours,) = run_native(model([node], feeds, ["y"], {"w": w, "b": b}), feeds)
    wide = conv(np, *(a.astype(np.float64) for a in (x, w, b)), pads=[1] * 4)
    np.testing.assert_allclose(ours, want(wide + z if joined else wide), rtol=1e-4, atol=1e-5)


def test_nothing_to_convolve() -> None:
    for shape in ((0, 4, 5, 5), (1, 4, 5, 5)):
        x, w = floats(*shape), floats(8, 4, 3, 3)
        (ours,) = run_native(
            model([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": w}, symbolic=True), {"x": x}
        )
        assert ours.shape == (shape[0], 8, 3, 3)
