"""Integer Winograd filtering: exact whatever the values, its limits, and the forms it takes on other processors."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import onnxplug
from onnxplug_ep_cpu.codegen.compiler import Compiler
from onnxplug_ep_cpu.codegen.kernels import qwinograd
from onnxplug_ep_cpu.codegen.lower import qconv
from onnxplug_ep_cpu.codegen.lower.qwinograd import fits
from onnxplug_ep_cpu.codegen.target import Target, host_target
from onnxplug_kernels.catalogue import catalogue
from onnxplug_kernels.windows import windows

CONV_INTEGER = max((e for e in catalogue() if e.op_type == "ConvInteger"), key=lambda e: e.since).function
MOST = 3 * host_target().lanes + 5


@pytest.fixture(autouse=True, scope="module")
def _winograd_wherever_it_fits(single_nodes: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(qconv, "winograd_time", lambda *_: 0.0)
        yield


def session(op_type: str, x: np.ndarray, held: list[Any], config: dict[str, str], **attributes: Any) -> Any:
    """A session of one node whose other inputs are constants."""
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *(f"c{i}" for i in range(len(held)))], ["y"], name="n", **attributes)],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(a), f"c{i}") for i, a in enumerate(held)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxplug.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    return onnxplug.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(op_type: str, x: np.ndarray, held: list[Any], **attributes: Any) -> np.ndarray:
    """The node's result by integer Winograd filtering."""
    made = session(op_type, x, held, {}, **attributes)
    result = np.asarray(made.run(None, {"x": x})[0])
    (region,) = made.explain().regions
    assert region["facts"]["algorithms"] == {"n": qconv.WINOGRAD}
    return result


def extremes(rng: np.random.Generator, element: str, *shape: int) -> np.ndarray:
    """Whatever the type holds, its ends above all."""
    limits = np.iinfo(element)
    anything = rng.integers(limits.min, limits.max + 1, shape)
    return np.where(rng.random(shape) < 0.7, rng.choice([limits.min, limits.max], shape), anything).astype(element)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from(["uint8", "int8"]),
    st.sampled_from(["uint8", "int8"]),
    st.integers(2 * host_target().lanes, MOST),
    st.integers(host_target().lanes, MOST),
    st.tuples(st.integers(2, 9), st.integers(2, 9)),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.sampled_from([1, 2]),
)
def test_it_is_exact(
    seed: int, element: str, weights: str, channels: int, outputs: int, size: Any, pads: Any, images: int
) -> None:
    if size[0] + pads[0] + pads[2] < 4 or size[1] + pads[1] + pads[3] < 4:
        return
    rng = np.random.default_rng(seed)
    x, w = extremes(rng, element, images, channels, *size), extremes(rng, weights, outputs, channels, 3, 3)
    zeros = [np.asarray(extremes(rng, element, 1)[0]), extremes(rng, weights, outputs)]
    wanted = CONV_INTEGER(np, x, w, *zeros, pads=pads)
    np.testing.assert_array_equal(run("ConvInteger", x, [w, *zeros], pads=pads), wanted)


@pytest.mark.parametrize("element", ["uint8", "int8"])
def test_bias_and_end(element: str) -> None:
    rng = np.random.default_rng(5)
    x, w = extremes(rng, "uint8", 1, 40, 11, 14), rng.integers(-127, 128, (37, 40, 3, 3)).astype(np.int8)
    bias, scales = rng.integers(-(2**20), 2**20, 37).astype(np.int32), rng.random(37).astype(np.float32)
    zero, point = np.uint8(100), np.asarray(7, element)
    held = [np.float32(0.5), zero, w, scales, np.zeros(37, np.int8), np.float32(3000), point, bias]
    sums = CONV_INTEGER(np, x, w, zero, pads=[1, 1, 1, 1]) + bias[:, None, None]
    factor = (np.float32(0.5) * scales / np.float32(3000))[:, None, None]
    limits = np.iinfo(element)
    wanted = np.clip(np.rint(sums.astype(np.float32) * factor) + 7, limits.min, limits.max).astype(element)
    np.testing.assert_array_equal(run("QLinearConv", x, held, pads=[1, 1, 1, 1]), wanted)


def test_the_switch() -> None:
    rng = np.random.default_rng(1)
    x, w = extremes(rng, "uint8", 1, 32, 8, 8), extremes(rng, "int8", 32, 32, 3, 3)
    made = session("ConvInteger", x, [w], {"ep.cpu.winograd": "0"})
    np.testing.assert_array_equal(made.run(None, {"x": x})[0], CONV_INTEGER(np, x, w))
    assert made.explain().regions[0]["facts"]["winograd_surplus_bytes"] == 0


@pytest.mark.parametrize(("limit", "algorithm"), [("0", qconv.DIRECT), ("1", qconv.WINOGRAD)])
def test_the_memory_that_filters_may_take(limit: str, algorithm: str) -> None:
    rng = np.random.default_rng(2)
    x, w = extremes(rng, "uint8", 1, 32, 8, 8), extremes(rng, "int8", 32, 32, 3, 3)
    held = [np.float32(1), np.uint8(9), w, np.float32(1), np.int8(0), np.float32(100), np.uint8(128)]
    made = session("QLinearConv", x, held, {"ep.cpu.winograd_memory": limit})
    made.run(None, {"x": x})
    assert made.explain().regions[0]["facts"]["algorithms"].get("n", qconv.DIRECT) == algorithm


def test_four_times_the_result_has_to_fit() -> None:
    def fit(channels: int, bias: int) -> bool:
        moves = windows((8, 8), (3, 3))
        return fits(host_target(), (1, 64, 6, 6), (64, channels, 3, 3), moves, 1, np.array([bias], np.int32))

    most = 2**31 // (4 * 9 * 255 * 255)
    assert fit(most, 0)
    assert not fit(most + 1, 0)
    assert not fit(64, 2**29)
    assert not fit(64, -(2**31)), "whose magnitude int32 does not hold"


TARGETS = [("znver4", "avx512", 16, 32), ("skylake-avx512", "avx512", 16, 32), ("alderlake", "avx2", 8, 16)]


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="assembles code for x86")
@pytest.mark.parametrize(("cpu", "name", "lanes", "registers"), TARGETS)
def test_transforms_assemble(cpu: str, name: str, lanes: int, registers: int) -> None:
    """What such a processor would run; it is assembled here, not run."""
    target: Target = replace(host_target(), name=name, cpu=cpu, features="", lanes=lanes, registers=registers)
    register = "%zmm" if name == "avx512" else "%ymm"
    ends = qwinograd.QOutputTransform(2, (("leaf", 0),), (), "int32")
    for kernel in (qwinograd.QInputTransform("uint8"), ends):
        assert register in Compiler(target, None).assembly(kernel)
    assert Compiler(target, None).assembly(qwinograd.QFilterTransform("int8"))


@pytest.mark.parametrize("channels", (8, 15, 16))
def test_images_of_few_channels_on_narrow_targets(channels: int) -> None:
    """They are filtered with channels innermost, wherever the image lies."""
    rng = np.random.default_rng(channels)
    x = rng.integers(0, 256, (1, channels, 16, 16), np.uint8)
    held = [rng.integers(-128, 128, (8, channels, 3, 3), np.int64).astype(np.int8), np.uint8(3), np.int8(0)]
    results = [
        session("ConvInteger", x, held, config, pads=[1, 1, 1, 1]).run(None, {"x": x})[0]
        for config in ({"ep.cpu.codegen": "0"}, {"ep.cpu.target": "generic"})
    ]
    np.testing.assert_array_equal(*results)
