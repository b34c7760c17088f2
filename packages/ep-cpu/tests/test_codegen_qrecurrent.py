"""Generated DynamicQuantizeLSTM against the NumPy kernel: bit for bit where multiply-adds are fused, as the kernel has them."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from codegen_models import model, run_native, run_numpy, session
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from onnxplug.contract.errors import InvalidArgument
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.compiler import Compiler
from onnxplug_ep_cpu.codegen.kernels.qdot import Arg, QDot
from onnxplug_ep_cpu.codegen.kernels.qrecurrent import QuantizedRecurrence
from onnxplug_ep_cpu.codegen.kernels.quantize import Range
from onnxplug_ep_cpu.codegen.lower import qrecurrent
from onnxplug_ep_cpu.codegen.target import host_target

NAMES = ("x", "w", "r", "b", "sequence_lens", "initial_h", "initial_c", "p", "ws", "wz", "rs", "rz")
FED = ("x", "sequence_lens", "initial_h", "initial_c")
OUTPUTS = ["y", "y_h", "y_c"]
FUSED = (os.environ.get("ONNXPLUG_CPU_TARGET") or host_target().name) != "generic"
"""Elsewhere sigmoid and tanh differ in their last bits, and one state of some thousands becomes another level."""
exact = pytest.mark.skipif(not FUSED, reason="multiply-adds are not fused")


def made(
    sizes: tuple[int, int, int, int], directions: int, kept: set[str], element: str = "int8", seed: int = 0
) -> dict[str, Any]:
    """Inputs by name; weights of the whole range, scales that leave gates between their ends."""
    rng = np.random.default_rng(seed)
    steps, batch, inputs, hidden = sizes
    limits = np.iinfo(element)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    def weights(k: int) -> np.ndarray:
        return rng.integers(limits.min, limits.max + 1, (directions, k, 4 * hidden)).astype(element)

    zero = np.full(directions, 0 if element == "int8" else 120, element)
    arrays = {
        "x": normal(steps, batch, inputs), "w": weights(inputs), "r": weights(hidden),
        "b": 0.3 * normal(directions, 8 * hidden), "sequence_lens": rng.integers(0, steps + 1, batch).astype(np.int32),
        "initial_h": 0.5 * normal(directions, batch, hidden), "initial_c": 0.5 * normal(directions, batch, hidden),
        "p": 0.3 * normal(directions, 3 * hidden), "ws": np.full(directions, 0.003, np.float32), "wz": zero,
        "rs": np.full(directions, 0.02 / np.sqrt(hidden), np.float32), "rz": zero,
    }  # fmt: skip
    optional = {"b", "sequence_lens", "initial_h", "initial_c", "p"}
    return {name: array for name, array in arrays.items() if name in kept or name not in optional}


def proto_of(
    arrays: dict[str, Any], attributes: dict[str, Any], fed: tuple[str, ...] = FED
) -> tuple[Any, dict[str, Any]]:
    """(model, feeds) of one node whose weights are constants."""
    names = [name if name in arrays else "" for name in NAMES]
    node = helper.make_node("DynamicQuantizeLSTM", names, OUTPUTS, domain="com.microsoft", name="n", **attributes)
    feeds = {name: array for name, array in arrays.items() if name in fed}
    return model([node], feeds, OUTPUTS, {n: a for n, a in arrays.items() if n not in feeds}), feeds


def check(arrays: dict[str, Any], attributes: dict[str, Any], threads: int = 1) -> None:
    """The kernel's results, however many threads."""
    attributes = {"hidden_size": arrays["r"].shape[1], **attributes}
    proto, feeds = proto_of(arrays, attributes)
    for ours, theirs in zip(run_native(proto, feeds, threads=threads), run_numpy(proto, feeds), strict=True):
        if FUSED:
            np.testing.assert_array_equal(ours, theirs)
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-6)


@exact
@settings(max_examples=30)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 4), st.sampled_from([1, 4, 9]), st.sampled_from([1, 3, 8, 13, 20])),
    st.sampled_from(["forward", "reverse", "bidirectional"]),
    st.sets(st.sampled_from(["b", "sequence_lens", "initial_h", "initial_c", "p"])),
    st.sampled_from(["int8", "uint8"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_every_form_is_the_kernels(
    sizes: Any, direction: str, kept: set[str], element: str, special: bool, seed: int
) -> None:
    attributes: dict[str, Any] = {"direction": direction}
    if special:
        attributes |= {"clip": 0.7, "input_forget": 1}
    check(made(sizes, 2 if direction == "bidirectional" else 1, kept, element, seed), attributes)


@exact
def test_many_steps_leave_no_bit_different() -> None:
    """More than a difference in the last bit would survive: a state between two levels becomes one or the other."""
    check(made((40, 2, 24, 48), 2, {"b", "initial_h"}), {"direction": "bidirectional"})


@pytest.mark.parametrize("element", ["int8", "uint8"])
def test_steps_shared_among_threads(element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qrecurrent, "SHARED_STEP", 0.0)
    check(made((4, 3, 24, 100), 1, {"b", "sequence_lens"}, element), {}, threads=2)


def test_scales_and_zero_points_of_columns() -> None:
    arrays = made((4, 2, 10, 12), 2, {"b"}, "uint8")
    rng = np.random.default_rng(1)
    for name in ("w", "r"):
        scale, zero = arrays[name + "s"], arrays[name + "z"]
        arrays[name + "s"] = (scale[:, None] * rng.uniform(0.5, 1.5, (2, 48))).astype(np.float32)
        arrays[name + "z"] = (zero[:, None] + rng.integers(-9, 9, (2, 48))).astype(np.uint8)
    check(arrays, {"direction": "bidirectional"})


def test_lengths_beyond_the_sequence_are_refused() -> None:
    arrays = made((3, 2, 4, 8), 1, {"sequence_lens"})
    proto, feeds = proto_of(arrays, {"hidden_size": 8, "direction": "reverse"})
    for run in (run_native, run_numpy):
        with pytest.raises(InvalidArgument, match=r"Invalid value/s in sequence_lens\..*seq_length=3"):
            run(proto, {**feeds, "sequence_lens": np.array([9, 3], np.int32)})


def test_an_empty_sequence_leaves_the_initial_state() -> None:
    arrays = made((0, 2, 3, 5), 2, {"b", "initial_h", "initial_c"})
    check(arrays, {"direction": "bidirectional"})


def test_computed_weights_are_left_to_numpy() -> None:
    arrays = made((2, 1, 3, 4), 1, set())
    proto, _ = proto_of(arrays, {"hidden_size": 4}, fed=("x", "r"))
    (node,) = session(proto).explain().nodes
    assert not str(node["region"]).startswith("native")


def test_on_a_generic_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fused multiply-adds sigmoid and tanh differ in their last bits."""
    monkeypatch.setenv("ONNXPLUG_CPU_TARGET", "generic")
    for element in ("int8", "uint8"):
        arrays = made((4, 2, 9, 13), 2, {"b", "p"}, element)
        proto, feeds = proto_of(arrays, {"hidden_size": 13, "direction": "bidirectional"})
        for ours, theirs in zip(run_native(proto, feeds), run_numpy(proto, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-6)


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="assembles code for x86")
def test_it_assembles_for_avx512() -> None:
    """What such a processor would run; the kernels called in each step are functions of the same object."""
    target = replace(host_target(), name="avx512", cpu="znver4", features="+avx512vnni", lanes=16, registers=32)
    kernel = QuantizedRecurrence(
        (ex.IDENTITY,) * 3, True, True, before=((Range(), 5), (QDot(1, 4, "uint8"), Arg.OPERANDS))
    )
    text = Compiler(target, None).assembly(kernel)
    assert "%zmm" in text and "vpdpbusd" in text
    assert text.count("callq") == 2
