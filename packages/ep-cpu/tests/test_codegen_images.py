"""Images and sounds of any size: where a model leaves it open, the kernels of one size serve others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from codegen_models import session
from hypothesis import assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnxplug.contract import Fail
from onnxplug_ep_cpu.codegen.compiler import Compiler

RNG = np.random.default_rng(3)
FILTERS: dict[str, np.ndarray] = {
    "w": RNG.standard_normal((32, 32, 3, 3)).astype(np.float32) / 16,
    "small": RNG.standard_normal((48, 32, 1, 1)).astype(np.float32) / 6,
    "large": RNG.standard_normal((32, 32, 5, 5)).astype(np.float32) / 28,
    "grouped": RNG.standard_normal((32, 8, 3, 3)).astype(np.float32) / 8,
    "depthwise": RNG.standard_normal((32, 1, 3, 3)).astype(np.float32) / 3,
    "few": RNG.standard_normal((3, 32, 1, 1)).astype(np.float32) / 6,
    "bias": RNG.standard_normal(32).astype(np.float32),
    "scale": RNG.uniform(0.5, 2, 32).astype(np.float32),
    "twice": np.array([1, 1, 2, 2], np.float32),
    "axes": np.array([2, 3]),
}


def node(kind: str, *inputs: str, to: str = "y", **attributes: Any) -> Any:
    return helper.make_node(kind, list(inputs), [to], **attributes)


NETWORKS = {
    "conv": [node("Conv", "x", "w", "bias", pads=[1] * 4)],
    "without padding": [node("Conv", "x", "w", "bias")],
    "strides": [node("Conv", "x", "w", pads=[1] * 4, strides=[2, 2])],
    "one tap": [node("Conv", "x", "small")],
    "one tap, strides": [node("Conv", "x", "small", strides=[2, 2])],
    "five taps": [node("Conv", "x", "large", "bias", pads=[2] * 4)],
    "dilations": [node("Conv", "x", "w", pads=[2] * 4, dilations=[2, 2])],
    "groups": [node("Conv", "x", "grouped", "bias", pads=[1] * 4, group=4)],
    "depthwise": [node("Conv", "x", "depthwise", "bias", pads=[1] * 4, group=32)],
    "depthwise, strides": [node("Conv", "x", "depthwise", pads=[1] * 4, strides=[2, 2], group=32)],
    "few results": [node("Conv", "x", "few")],
    "transposed": [node("ConvTranspose", "x", "w", "bias", strides=[2, 2], pads=[1] * 4)],
    "transposed, two taps": [node("ConvTranspose", "x", "few2", strides=[2, 2])],
    "residual": [
        node("Conv", "x", "w", "bias", pads=[1] * 4, to="a"),
        node("Relu", "a", to="b"),
        node("Conv", "b", "w", "bias", pads=[1] * 4, to="c"),
        node("Add", "c", "x", to="d"),
        node("Relu", "d"),
    ],
    "branches": [
        node("Conv", "x", "small", to="a"),
        node("MaxPool", "x", kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1], to="b"),
        node("Concat", "a", "b", axis=1, to="c"),
        node("Sigmoid", "c", to="d"),
        node("Mul", "c", "d"),
    ],
    "pools": [
        node("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, to="a"),
        node("AveragePool", "a", kernel_shape=[2, 2], strides=[1, 1]),
    ],
    "everywhere": [node("GlobalAveragePool", "x", to="a"), node("Mul", "x", "a")],
    "mean": [node("ReduceMean", "x", "axes", keepdims=1)],
    "resized": [
        node("Resize", "x", "", "twice", mode="linear"),
        node("Resize", "x", "", "twice", to="z", mode="nearest"),
    ],
    "normalized": [node("InstanceNormalization", "x", "scale", "bias")],
    "shares": [node("Softmax", "x", axis=1)],
}
FILTERS["few2"] = RNG.standard_normal((32, 16, 2, 2)).astype(np.float32) / 11


def of_any_size(
    nodes: Sequence[Any], held: Mapping[str, np.ndarray], shape: Sequence[Any], opset: int = 18
) -> ModelProto:
    """A model of nodes that read "x", an image whose shape has letters where it may have any size."""
    made = [o for n in nodes for o in n.output if o in "yz"]
    graph = helper.make_graph(
        nodes, "images", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in made],
        [numpy_helper.from_array(array, key) for key, array in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def network(name: str) -> ModelProto:
    nodes = NETWORKS[name]
    read = {i for n in nodes for i in n.input}
    return of_any_size(nodes, {key: array for key, array in FILTERS.items() if key in read}, [1, 32, "h", "w"])


def image(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 1000 + width).standard_normal((1, 32, height, width)).astype(np.float32)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """The kernels that were asked for."""
    seen: set[Any] = set()
    addresses = Compiler.addresses

    def noting(self: Any, kernels: Any) -> Any:
        wanted = list(kernels)
        seen.update(wanted)
        return addresses(self, wanted)

    monkeypatch.setattr(Compiler, "addresses", noting)
    return seen


@pytest.mark.parametrize("name", NETWORKS)
def test_a_second_size_takes_no_new_kernels(name: str, used: set[Any]) -> None:
    made = session(network(name))
    assert made.explain().regions
    made.run(None, {"x": image(61, 83)})
    first = set(used)
    for size in ((66, 74), (75, 57), (69, 91)):  # for which no target takes another algorithm
        made.run(None, {"x": image(*size)})
        assert used == first, size


# ---- results


KERNELS = st.sampled_from([(1, 1), (3, 3), (5, 5), (1, 3), (2, 2)])
STRIDES = st.sampled_from([(1, 1), (2, 2), (2, 1)])
LAYERS = st.sampled_from(
    [(32, 32, 1), (48, 16, 1), (16, 3, 1), (3, 20, 1), (32, 32, 32), (32, 32, 4), (20, 20, 20), (36, 36, 2)]
)
"""(results, channels, groups)."""
SOUNDS = st.sampled_from([(16, 16, 1), (32, 1, 1), (24, 24, 24)])
SIZES = st.lists(st.tuples(st.integers(1, 33), st.integers(1, 33)), min_size=2, max_size=4, unique=True)


def agree(proto: ModelProto, inputs: Sequence[np.ndarray], target: str) -> None:
    """One session's results for all inputs are NumPy's, and to the bit those of a session that has seen no others."""
    with mock.patch.dict(os.environ, {"ONNXPLUG_CPU_TARGET": target} if target else {}):
        kept, plain = session(proto, threads=1), session(proto, threads=1, codegen=False)
        for x in inputs:
            (found,), (wanted,) = kept.run(None, {"x": x}), plain.run(None, {"x": x})
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(found, session(proto, threads=1).run(None, {"x": x})[0])


def filled(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) / max(1, shape[1])).astype(np.float32)


@pytest.mark.parametrize("target", ["", "avx2"])
@given(LAYERS, KERNELS, STRIDES, st.integers(1, 2), st.integers(0, 2), SIZES)
@examples(max_examples=30, deadline=None)
def test_convolutions_of_any_size_are_right(
    target: str, layer: tuple[int, int, int], kernel: tuple[int, int], strides: tuple[int, int], dilation: int, pad: int,
    sizes: list[tuple[int, int]],
) -> None:  # fmt: skip
    outputs, channels, groups = layer
    reach = [(k - 1) * dilation + 1 for k in kernel]
    assume(all(n + 2 * pad >= r for size in sizes for n, r in zip(size, reach, strict=True)))
    conv = node("Conv", "x", "w", "b", strides=strides, dilations=[dilation] * 2, pads=[pad] * 4, group=groups, to="a")
    held = {"w": filled(outputs, channels // groups, *kernel), "b": filled(outputs, 1).ravel()}
    proto = of_any_size([conv, node("Relu", "a")], held, ["n", channels, "h", "w"])
    agree(proto, [filled(1 + at % 2, channels, *size) for at, size in enumerate(sizes)], target)


@pytest.mark.parametrize("target", ["", "avx2"])
@given(st.sampled_from([(16, 32, 1), (20, 3, 1), (32, 1, 32), (12, 4, 2)]), KERNELS, STRIDES, SIZES)
@examples(max_examples=15, deadline=None)
def test_transposed_convolutions_of_any_size_are_right(
    target: str,
    layer: tuple[int, int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    sizes: list[tuple[int, int]],
) -> None:
    channels, outputs, groups = layer
    transposed = node("ConvTranspose", "x", "w", strides=strides, group=groups)
    proto = of_any_size([transposed], {"w": filled(channels, outputs, *kernel)}, [1, channels, "h", "w"])
    agree(proto, [filled(1, channels, *size) for size in sizes], target)


@given(
    SOUNDS,
    st.integers(1, 9),
    st.integers(1, 2),
    st.lists(st.integers(9, 400), min_size=2, max_size=4),
)
@examples(max_examples=15, deadline=None)
def test_sounds_of_any_length_are_convolved_right(
    layer: tuple[int, int, int], taps: int, stride: int, lengths: list[int]
) -> None:
    outputs, channels, groups = layer
    conv = node("Conv", "x", "w", strides=[stride], group=groups)
    proto = of_any_size([conv], {"w": filled(outputs, channels // groups, taps)}, [1, channels, "t"])
    agree(proto, [filled(1, channels, length) for length in lengths], "")


@pytest.mark.parametrize("name", ["residual", "branches", "pools", "everywhere", "mean", "normalized", "shares"])
@given(st.lists(st.tuples(st.integers(3, 40), st.integers(3, 40)), min_size=2, max_size=4))
@examples(max_examples=5, deadline=None)
def test_networks_of_images_of_any_size_are_right(name: str, sizes: list[tuple[int, int]]) -> None:
    agree(network(name), [image(*size) for size in sizes], "")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("empty", [(5, 0), (0, 7), (0, 0)])
def test_no_image_is_made_of_nothing(mode: str, empty: tuple[int, int]) -> None:
    """A width of 0 once gave zeros, which onnxruntime and the NumPy kernel refuse."""
    held = {"sizes": np.array([1, 3, 4, 5])}
    proto = of_any_size([node("Resize", "x", "", "", "sizes", mode=mode)], held, (1, 3, "h", "w"))
    made = session(proto)
    assert made.run(None, {"x": np.ones((1, 3, 6, 7), np.float32)})[0].shape == (1, 3, 4, 5)
    with pytest.raises(Fail, match="Input dim is zero"):
        made.run(None, {"x": np.ones((1, 3, *empty), np.float32)})
