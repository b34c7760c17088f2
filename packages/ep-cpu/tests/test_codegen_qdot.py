"""Integer products of bytes, exact in int32 whatever the values, and the forms they take on other processors."""

from __future__ import annotations

import itertools
import platform
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import onnxplug
from onnxplug_ep_cpu.codegen.compiler import Compiler, compiler
from onnxplug_ep_cpu.codegen.kernels.bytedots import quad_form
from onnxplug_ep_cpu.codegen.kernels.qdot import CLASSES, LARGEST_PAIR, PAIRINGS, QDot
from onnxplug_ep_cpu.codegen.kernels.quads import MATCHINGS, PackQuads
from onnxplug_ep_cpu.codegen.lower.quads import quads_of
from onnxplug_ep_cpu.codegen.pool import pool
from onnxplug_ep_cpu.codegen.program import Buffer, Program, Ref
from onnxplug_ep_cpu.codegen.target import host_target
from onnxplug_kernels.catalogue import catalogue

WIDTH = 16
VALUES = {
    "ends": (-128, -127, 127),
    "one sign": (60, 70, 127),
    "limit": (-65, -64, 0, 64, 65),
    "all": tuple(range(-128, 128)),
    "few large": (*range(-20, 21), 127, -128),
    "small": tuple(range(-40, 41)),
}


pytestmark = pytest.mark.usefixtures("single_nodes")


def run(op_type: str, x: np.ndarray, held: list[Any], **attributes: Any) -> np.ndarray:
    """The result of one node of generated code whose other inputs are constants."""
    names = ["x", *(f"c{i}" if a is not None else "" for i, a in enumerate(held))]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], name="n", **attributes)],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(a), f"c{i}") for i, a in enumerate(held) if a is not None],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxplug.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.explain().regions, "the node is generated code"
    return np.asarray(session.run(None, {"x": x})[0])


def activations(rng: np.random.Generator, element: str, *shape: int) -> np.ndarray:
    """Whatever the type holds, its ends above all."""
    limits = np.iinfo(element)
    anything = rng.integers(limits.min, limits.max + 1, shape)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.7, ends, anything).astype(element)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from(["uint8", "int8"]),
    st.sampled_from(sorted(VALUES)),
    st.sampled_from([1, 3, 5, 12, 23]),
    st.sampled_from([1, 4, 7, 8, 16, 50, 129]),
    st.sampled_from([1, 5, 8, 16, 33, 40, 48, 83]),
)
def test_products_are_exact(seed: int, element: str, values: str, m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = activations(rng, element, m, k), rng.choice(VALUES[values], (k, n)).astype(np.int8)
    zero = np.asarray(activations(rng, element, 1)[0])
    wanted = (x.astype(np.int32) - zero.astype(np.int32)) @ w.astype(np.int32)
    np.testing.assert_array_equal(run("MatMulInteger", x, [w, zero]), wanted)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from(["uint8", "int8"]),
    st.sampled_from(["uint8", "int8"]),
    st.sampled_from([1, 9, 14]),
    st.sampled_from([8, 70, 72]),
    st.sampled_from([5, 16, 20, 64, 70]),
    st.booleans(),
)
def test_weights_with_any_zero_point(
    seed: int, element: str, weights: str, m: int, k: int, n: int, columns: bool
) -> None:
    """Also where the weights less their zero points are no int8."""
    rng = np.random.default_rng(seed)
    x, w = activations(rng, element, m, k), activations(rng, weights, k, n)
    zero, points = np.asarray(activations(rng, element, 1)[0]), activations(rng, weights, *([n] if columns else []))
    wanted = (x.astype(np.int32) - zero.astype(np.int32)) @ (w.astype(np.int32) - points.astype(np.int32))
    np.testing.assert_array_equal(run("MatMulInteger", x, [w, zero, points]), wanted)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.sampled_from([8, 16, 24]), st.sampled_from([1, 3]), st.sampled_from([0, 100, 255]))
def test_filters_with_any_zero_point(seed: int, channels: int, size: int, point: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = activations(rng, "uint8", 1, channels, 9, 10), activations(rng, "uint8", 19, channels, size, size)
    function = max((e for e in catalogue() if e.op_type == "ConvInteger"), key=lambda e: e.since).function
    held = [w, np.uint8(7), np.uint8(point)]
    pads = {"pads": [1] * 4}
    np.testing.assert_array_equal(run("ConvInteger", x, held, **pads), function(np, x, *held, **pads))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from(["uint8", "int8"]),
    st.sampled_from([1, 3, 8, 16, 20, 40]),
    st.sampled_from([(1, 1), (3, 3), (2, 5)]),
    st.sampled_from([(1, 1), (2, 2), (2, 1)]),
    st.sampled_from([(1, 1), (2, 1), (1, 2)]),
    st.sampled_from([0, 1, 2]),
    st.sampled_from([1, 2]),
)
def test_convolutions_are_exact(
    seed: int, element: str, channels: int, kernel: Any, strides: Any, dilations: Any, pad: int, images: int
) -> None:
    rng = np.random.default_rng(seed)
    x = activations(rng, element, images, channels, 9, 10)
    w = rng.choice(VALUES["few large"], (19, channels, *kernel)).astype(np.int8)
    zero = np.asarray(activations(rng, element, 1)[0])
    given_ = {"strides": strides, "dilations": dilations, "pads": [pad, 0, 1, pad]}
    function = max((e for e in catalogue() if e.op_type == "ConvInteger"), key=lambda e: e.since).function
    np.testing.assert_array_equal(run("ConvInteger", x, [w, zero], **given_), function(np, x, w, zero, **given_))


@pytest.mark.parametrize("element", ["uint8", "int8"])
@pytest.mark.parametrize("scale", [1e-6, 0.01, 1e4, 1e30])
@pytest.mark.parametrize("columns", [7, 16, 21, 37, 48, 64, 75])
def test_results_saturate(element: str, scale: float, columns: int) -> None:
    """Whatever lies beyond the type, and beyond int32, becomes the type's end; rows of any width."""
    rng = np.random.default_rng(3)
    x, w = activations(rng, "uint8", 11, 40), rng.choice(VALUES["all"], (40, columns)).astype(np.int8)
    zero = np.asarray(100, element)
    held = [np.float32(scale), np.uint8(120), w, np.float32(1), np.int8(0), np.float32(1), zero]
    sums = (x.astype(np.int32) - 120) @ w.astype(np.int32)
    limits = np.iinfo(element)
    scaled = np.rint(sums.astype(np.float32) * np.float32(scale)).astype(np.float64)
    wanted = np.clip(scaled + 100, limits.min, limits.max).astype(element)
    np.testing.assert_array_equal(run("QLinearMatMul", x, held), wanted)


def packed(w: np.ndarray, zeros: np.ndarray, column_step: int) -> list[np.ndarray]:
    """Words, order, ends and sums of [k, column] bytes as generated code packs them; ``column_step`` 1: row-major."""
    k, n = w.shape
    target = host_target()
    vectors, quads = WIDTH // target.lanes, quads_of(k)
    panels = -(-n // WIDTH)
    sizes = panels * quads * WIDTH, panels * quads, panels * CLASSES, max(n, WIDTH)
    words, order, ends, sums = (np.zeros(size, np.int32) for size in sizes)
    lies = w if column_step == 1 else np.ascontiguousarray(w.T)
    arrays = [
        words, order, ends, sums, lies, zeros, np.zeros_like(words), np.zeros_like(order), MATCHINGS,
        np.array(PAIRINGS, np.int8),
    ]  # fmt: skip
    args: list[int | Ref] = [Ref(Buffer("constant", a.nbytes, array=a)) for a in arrays]
    args += [k, n, quads, k, 0, n if column_step == 1 else 1, column_step]
    program = Program()
    program.call(PackQuads(vectors, True, column_step == 1, n < WIDTH), args, panels, 1.0)
    image = program.finish(compiler(target), 0, 0, 1)
    workspace = np.zeros(image.workspace + 64, np.uint8)
    for record in image.records:
        pool(1, False).run(record, image.bases(id(workspace)), False)
    return [words, order, ends, sums[:n]]


@pytest.mark.skipif(
    quad_form(host_target()) is None or WIDTH % host_target().lanes != 0, reason="bytes are not packed here"
)
@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 999),
    st.sampled_from(sorted(VALUES)),
    st.sampled_from([3, 8, 20, 64]),
    st.sampled_from([4, 16, 21, 40]),
    st.booleans(),
    st.sampled_from([0, 3]),
)
def test_no_pair_of_sorted_quads_saturates(seed: int, values: str, k: int, n: int, row_major: bool, point: int) -> None:
    rng = np.random.default_rng(seed)
    w = rng.choice(VALUES[values], (k, n)).astype(np.int8)
    zeros = rng.integers(-point, point + 1, n).astype(np.int8)
    raw = w + zeros  # modulo 256, as the kernel takes it off again
    words, order, ends, sums = packed(raw, zeros, 1 if row_major else k)
    panels, quads = -(-n // WIDTH), quads_of(k)
    np.testing.assert_array_equal(sums, w.sum(axis=0, dtype=np.int32))
    whole = np.zeros((4 * quads, max(n, WIDTH)), np.int8)
    whole[:k, :n] = w
    for panel in range(panels):
        first = min(panel * WIDTH, max(0, n - WIDTH))
        bytes_ = words.reshape(panels, quads, WIDTH)[panel].view(np.int8).reshape(quads, WIDTH, 4)
        read = []
        for quad in range(quads):
            at = int(order.reshape(panels, quads)[panel, quad])
            folded, natural, paired, _ = ends.reshape(panels, CLASSES)[panel]
            if quad < natural or quad >= paired:
                places = at + np.arange(4)
            else:
                places = (at >> 8) + np.array(PAIRINGS[at & 255])
            np.testing.assert_array_equal(bytes_[quad].T, whole[places, first : first + WIDTH])
            read += places.tolist()
            if quad < paired:
                pairs = bytes_[quad].astype(np.int32).reshape(WIDTH, 2, 2).sum(axis=2)
                assert np.abs(pairs).max() <= LARGEST_PAIR
        octets = words.reshape(panels, quads, WIDTH)[panel, :folded].view(np.int8).reshape(-1, 2, WIDTH, 2, 2)
        for limited in (np.maximum(octets, 0), np.minimum(octets, 0)):
            assert np.abs(limited.sum(axis=(1, 4), dtype=np.int32)).max(initial=0) <= LARGEST_PAIR
        assert sorted(read) == list(range(4 * quads)), "every k is multiplied once"


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="assembles code for x86")
@pytest.mark.parametrize(
    ("cpu", "name", "features"),
    [
        ("znver4", "avx512", "+avx512vnni"),
        ("sapphirerapids", "avx512", "+avx512vnni"),
        ("alderlake", "avx2", "+avxvnni"),
    ],
)
@pytest.mark.parametrize("element", ["uint8", "int8"])
def test_vnni_takes_one_instruction(cpu: str, name: str, features: str, element: str) -> None:
    """What such a processor would run; it is assembled here, not run."""
    lanes, registers = (16, 32) if name == "avx512" else (8, 16)
    target = replace(host_target(), name=name, cpu=cpu, features=features, lanes=lanes, registers=registers)
    assert quad_form(target) == "vnni"
    text = Compiler(target, None).assembly(QDot(4, 2, element))
    assert text.count("vpdpbusd") == 2 * 8, "two quads a turn"
    assert "vpmaddubsw" not in text and "vpmaddwd" not in text


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="assembles code for x86")
def test_avx512_without_vnni_multiplies_pairs() -> None:
    target = replace(host_target(), name="avx512", cpu="skylake-avx512", features="", lanes=16, registers=32)
    assert quad_form(target) == "pairs"
    text = Compiler(target, None).assembly(QDot(4, 2, "uint8"))
    assert "vpmaddubsw" in text and "vpdpbusd" not in text
    for even, narrow in itertools.product((False, True), repeat=2):
        assert Compiler(target, None).assembly(PackQuads(4, True, even, narrow))


def test_neon_takes_one_instruction() -> None:
    """Signed bytes by signed bytes; assembled for another machine than this."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        arm = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM writes no code for ARM")
    target = replace(host_target(), name="neon", cpu="", features="+dotprod", lanes=4, registers=32)
    assert quad_form(target) == "dot"
    text = Compiler(target, None).text(QDot(4, 2, "uint8"))
    machine = arm.create_target_machine(cpu="neoverse-n1", opt=3)
    assert machine.emit_assembly(llvm.parse_assembly(text)).count("sdot") == 2 * 8
