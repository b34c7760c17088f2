"""Kernels of quantized operators, in their OpenCL dialect on PoCL, against the portable kernels: integers are equal, not close."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_models import NARROW, Node, draw, named
from nvrtc_compile import ARCHITECTURES, ptx, spills

from onnxplug_kernel_text.cuda import PRELUDE
from onnxplug_kernel_text.types import APART
from onnxplug_kernels.catalogue import find

RNG = np.random.default_rng
MS = "com.microsoft"
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # kernels are compiled
BYTES = pytest.mark.parametrize(("left", "right"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])


def equal(node: Node, rtol: float = 0.0, results: Sequence[np.ndarray | None] | None = None) -> None:
    """Results, by default those of OpenCL, against the portable kernel's in the same types; floats within ``rtol`` of the largest
    magnitude."""
    entry = find(node.domain, node.op_type, node.version)
    assert entry is not None
    right = entry.function(np, *node.inputs, **node.attributes)
    for got, wanted in zip(
        node.results() if results is None else results, right if isinstance(right, tuple) else [right], strict=True
    ):
        assert got is not None and (got.dtype, got.shape) == (wanted.dtype, np.shape(wanted))
        if rtol and got.dtype.kind not in "iu":
            exact = np.asarray(wanted).astype(np.float64)
            np.testing.assert_allclose(got.astype(np.float64), exact, rtol=0, atol=rtol * np.abs(exact).max())
        else:
            np.testing.assert_array_equal(got, wanted)


def bytes_of(rng: np.random.Generator, shape: Any, dtype: str) -> np.ndarray:
    """Any numbers of a type, its ends among them."""
    limits = np.iinfo(dtype)
    return np.asarray(rng.integers(limits.min, limits.max + 1, shape)).astype(dtype)


def scales(rng: np.random.Generator, shape: Any = ()) -> np.ndarray:
    return np.asarray(rng.random(shape) * 0.02 + 0.001).astype(np.float32)


def matmul(
    a: Any, b: Any, left: str, right: str, *, rows: bool = False, columns: bool = False, zeros: bool = True
) -> Node:
    rng = RNG(1)
    x, y = bytes_of(rng, a, left), bytes_of(rng, b, right)
    za, zb = bytes_of(rng, a[-2:-1] if rows else (), left), bytes_of(rng, b[-1:] if columns else (), right)
    return Node("MatMulInteger", 10, [x, y, *([za, zb] if zeros else [])])


@BYTES
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((70, 130), (130, 67)), ((1, 64), (64, 5)), ((2, 3, 20, 33), (33, 17)), ((4, 20, 33), (4, 33, 17)),
        ((20, 33), (3, 33, 5)), ((7,), (7,)), ((1, 1), (1, 1)),
    ],
)  # fmt: skip
def test_matmul_integer(a: Any, b: Any, left: str, right: str) -> None:
    equal(matmul(a, b, left, right))
    equal(matmul(a, b, left, right, zeros=False))


def test_zero_points_of_rows_and_columns() -> None:
    equal(matmul((20, 65), (65, 70), "uint8", "int8", rows=True, columns=True))
    found = matmul((3, 20, 65), (3, 65, 7), "uint8", "int8")
    several = bytes_of(RNG(0), (3, 20, 1), "uint8")
    assert Node("MatMulInteger", 10, [*found.inputs[:2], several]).job() is None
    assert matmul((2, 1, 4, 5), (3, 5, 6), "int8", "int8").job() is None  # batches broadcast axis by axis


def test_sums_beyond_int32_wrap() -> None:
    a, b = np.full((1, 140000), 255, np.uint8), np.full((140000, 1), 255, np.uint8)
    equal(Node("MatMulInteger", 10, [a, b]))


@BYTES
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("shape", [(5, 40, 30), (70, 200, 90)])
def test_qlinear_matmul(shape: tuple[int, int, int], each: bool, left: str, right: str) -> None:
    m, k, n = shape
    rng = RNG(2)
    a, b = bytes_of(rng, (m, k), left), bytes_of(rng, (k, n), right)
    parameters = [scales(rng, m if each else ()), bytes_of(rng, m if each else (), left)]
    others = [scales(rng, n if each else ()), bytes_of(rng, n if each else (), right)]
    ends = [scales(rng, m if each else ()) * 200, bytes_of(rng, m if each else (), left)]
    equal(Node("QLinearMatMul", 21, [a, *parameters, b, *others, *ends]))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_scaled_to_floats(dtype: str) -> None:
    rng = RNG(3)
    kind = NARROW[dtype]
    a, b = bytes_of(rng, (3, 5, 40), "uint8"), bytes_of(rng, (40, 70), "int8")
    one, each = (scales(rng, s).astype(kind) for s in ((), (70,)))
    zeros = [bytes_of(rng, (), "uint8"), bytes_of(rng, (70,), "int8")]
    rtol = 2.0**-10 if dtype == "float16" else 2.0**-22  # a rounding to the type; in float32 the order of two products
    equal(Node("MatMulIntegerToFloat", 1, [a, b, one, each, *zeros, draw(rng, (70,), kind)], domain=MS), rtol)
    equal(Node("MatMulIntegerToFloat", 1, [a, b, one, one], domain=MS), rtol)


def qlinear() -> list[Node]:
    """QGemm and the operators without products, a node for each text."""
    rng = RNG(9)
    a, b = (bytes_of(rng, (3, 6, 50), "uint8") for _ in range(2))
    first, second, ends = ((scales(rng), bytes_of(rng, (), "uint8")) for _ in range(3))
    x, w, columns = bytes_of(rng, (20, 50), "uint8"), bytes_of(rng, (70, 50), "int8"), scales(rng, (70,))
    factors = [x, *first, w, columns, bytes_of(rng, (70,), "int8")]
    bias = rng.integers(-5000, 5000, 70).astype(np.int32)
    cases: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("QGemm", [*factors, bias, ends[0] * 90, ends[1]], {"transB": 1, "alpha": 0.5}),
        ("QGemm", [np.ascontiguousarray(x.T), *factors[1:3], np.ascontiguousarray(w.T), *factors[4:]], {"transA": 1}),
        ("QLinearAdd", [a, *first, b[:, :1], *second, *ends], {}),
        ("QLinearMul", [a, *first, b[0], *second, ends[0]], {}),
        ("QLinearSigmoid", [a, *first, scales(rng), ends[1]], {}),
        ("QLinearLeakyRelu", [a, first[0], None, *ends], {"alpha": 0.3}),
        ("QLinearWhere", [a > 99, a, *first, b, *second, *ends], {}),
        ("QLinearConcat", [*ends, a, *first, b[:, :2], *second], {"axis": 1}),
        ("QLinearGlobalAveragePool", [a[..., None], *first, *ends], {}),
        ("QLinearGlobalAveragePool", [a[:, None], *first, *ends], {"channels_last": 1}),
    ]
    return [Node(op_type, 1, inputs, attributes, domain=MS) for op_type, inputs, attributes in cases]


def test_operators_of_quantized_tensors() -> None:
    """Means are added up in integers here and in float32 there: one that lies between two numbers may become the other."""
    for node in qlinear():
        if node.op_type != "QLinearGlobalAveragePool":
            equal(node, 2.0**-22)
            continue
        ((got,), (right,)) = node.results(), node.wanted()
        assert got is not None and right is not None and got.shape == right.shape
        assert np.abs(got.astype(int) - right.astype(int)).max() <= 1


def test_products_and_zero_points_are_rounded_one_by_one() -> None:
    """Of these scales four of all products become another number where the zero point is added without the product being rounded."""
    a = np.arange(-128, 128).astype(np.int8)
    scale = np.float32([0.012754943, 0.017521324, 0.016694378])
    operands = [a[:, None], scale[0], np.int8(0), a, scale[1], np.int8(0), scale[2], np.int8(-100)]
    node = Node("QLinearMul", 1, [np.asarray(x) for x in operands], domain=MS)
    equal(node)
    assert all(APART in launch.text for launch in node.job().launches)
    assert APART in matmul((4, 8), (8, 4), "uint8", "int8").job().launches[0].text


@pytest.mark.parametrize("size", [1, 7, 5000, 20000])
@pytest.mark.parametrize("sign", [0, 1, -1])
def test_the_range_decides_the_scale(size: int, sign: int) -> None:
    x = draw(RNG(4), (size,))
    equal(Node("DynamicQuantizeLinear", 11, [np.abs(x) * sign if sign else x], {}, (True,) * 3))
    equal(Node("DynamicQuantizeLinear", 11, [np.zeros(size, np.float32)], {}, (True,) * 3))


@pytest.mark.parametrize("places", [slice(None), [0], [7, 6000], slice(-1, None)])
def test_what_is_not_a_number_is_zero_and_not_of_the_range(places: Any) -> None:
    x = draw(RNG(4), (9000,))
    x[places] = np.nan
    equal(Node("DynamicQuantizeLinear", 11, [x], {}, (True,) * 3))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_what_is_not_a_number_is_the_least_whatever_the_devices_cast_makes_of_it(dtype: str) -> None:
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, 1.0], np.float32)
    scale, zero = np.float32([0.5]), np.array([3], dtype)
    equal(Node("QuantizeLinear", 21, [x, scale, zero]))
    equal(Node("QuantizeLinear", 21, [x, np.float32([np.nan]), zero]))


def test_products_of_what_is_quantized_first() -> None:
    rng = RNG(5)
    a, b = draw(rng, (2, 50, 130)), bytes_of(rng, (130, 33), "int8")
    inputs = [a, b, scales(rng, (33,)), bytes_of(rng, (33,), "int8"), draw(rng, (33,))]
    equal(Node("DynamicQuantizeMatMul", 1, inputs, domain=MS), 2.0**-22)
    equal(Node("DynamicQuantizeMatMul", 1, [a, b, scales(rng)], domain=MS), 2.0**-22)


@SLOW
@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    one = data.draw
    rank, groups = one(st.integers(1, 3)), one(st.sampled_from([1, 1, 2, 3]))
    own, each, batch = one(st.integers(1, 5)), one(st.integers(1, 20)), one(st.integers(1, 2))
    kernel, spatial = (one(st.lists(st.integers(1, n), min_size=rank, max_size=rank)) for n in (3, 9))
    pads = one(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))
    spatial = [max(n, 2 * k - 1) for n, k in zip(spatial, kernel, strict=True)]
    rng = RNG(one(st.integers(0, 99)))
    x_type, w_type = one(st.sampled_from([("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")]))
    x = bytes_of(rng, (batch, groups * own, *spatial), x_type)
    w = bytes_of(rng, (groups * each, own, *kernel), w_type)
    moves = {
        "pads": pads,
        "group": groups,
        "strides": [one(st.integers(1, 2))] * rank,
        "dilations": [one(st.integers(1, 2))] * rank,
    }
    entries = (groups * each,) if one(st.booleans()) else ()
    zx, zw = bytes_of(rng, (), x_type), bytes_of(rng, entries, w_type)
    if one(st.booleans()):
        equal(Node("ConvInteger", 10, [x, w, zx, zw], moves))
        return
    ends = [scales(rng) * 60, bytes_of(rng, (), x_type)]
    bias = rng.integers(-5000, 5000, groups * each).astype(np.int32) if one(st.booleans()) else None
    equal(Node("QLinearConv", 10, [x, scales(rng), zx, w, scales(rng, entries), zw, *ends, bias], moves))


@pytest.mark.parametrize(("shape", "axis"), [((6, 50), 0), ((3, 7, 20), 1), ((3, 4, 64), -1), ((50,), 1), ((), 1)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_quantization(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    rng = RNG(6)
    x = draw(rng, shape)
    forms: list[tuple[Any, dict[str, int]]] = [((), {})]
    if len(shape) > 1:
        forms += [
            (shape[axis], {}),
            (tuple(n // 2 if k == axis % len(shape) else n for k, n in enumerate(shape)), {"block_size": 2}),
        ]
    for parameters, given_ in forms:
        if given_ and shape[axis] % 2:
            continue
        scale, zero = scales(rng, parameters), bytes_of(rng, parameters, dtype)
        attributes = {"axis": axis, **given_}
        equal(Node("QuantizeLinear", 21, [x, scale, zero], attributes))
        numbers = bytes_of(rng, shape, dtype)
        equal(Node("DequantizeLinear", 21, [numbers, scale, zero], attributes))
        equal(Node("DequantizeLinear", 21, [numbers, scale], attributes))
    equal(Node("QuantizeLinear", 21, [x, scales(rng)]))
    equal(Node("DequantizeLinear", 21, [rng.integers(-1 << 30, 1 << 30, shape).astype(np.int32), scales(rng)]))


def test_quantization_that_is_left_to_cupy() -> None:
    x, scale = np.ones((4, 6), np.float16), np.ones((), np.float16)
    assert Node("QuantizeLinear", 23, [x, scale]).job() is None  # divided in float16
    uneven = np.ones((4, 2), np.float32)
    assert Node("DequantizeLinear", 21, [np.ones((4, 7), np.int8), uneven], {"axis": 1, "block_size": 4}).job() is None


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "block"), [(1, 256, 70, 32), (6, 100, 33, 16), (70, 300, 66, 128)]
)
def test_weights_of_a_few_bits(rows: int, depth: int, columns: int, block: int, zeros: str, bits: int) -> None:
    rng = RNG(7)
    blocks = -(-depth // block)
    for dtype in ("float32", "float16"):
        b = rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
        given_ = {
            "none": None,
            "packed": rng.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8),
            "float": (rng.random(columns * blocks) * 4).astype(NARROW[dtype]),
        }[zeros]
        a, bias = draw(rng, (rows, depth), NARROW[dtype]), draw(rng, (columns,), NARROW[dtype])
        inputs = [a, b, scales(rng, columns * blocks).astype(NARROW[dtype]), given_, None, bias]
        attributes = {"K": depth, "N": columns, "block_size": block, "bits": bits}
        # Sums of ``depth`` terms in another order, each of at most a few times the result's magnitude; and a rounding to the type.
        rtol = depth * 2.0**-23 + (2.0**-10 if dtype == "float16" else 0)
        equal(Node("MatMulNBits", 1, inputs, attributes, domain=MS), rtol)


def test_blocks_that_are_no_runs_of_rows_are_left_to_cupy() -> None:
    found = [np.ones((1, 32), np.float32), np.ones((4, 2, 8), np.uint8), np.ones(8, np.float32), None]
    attributes = {"K": 32, "N": 4, "block_size": 16}
    assert Node("MatMulNBits", 1, found, attributes, domain=MS).job() is not None
    assert Node("MatMulNBits", 1, [*found, np.zeros(32, np.int32)], attributes, domain=MS).job() is None


def every_quantized() -> list[Node]:
    """A node for each text, in the types that change it."""
    rng = RNG(8)
    x, one, zero = bytes_of(rng, (1, 8, 12, 12), "uint8"), scales(rng), bytes_of(rng, (), "uint8")
    w, signed = bytes_of(rng, (70, 8, 3, 3), "int8"), bytes_of(rng, (), "int8")
    a, b = bytes_of(rng, (70, 64), "uint8"), bytes_of(rng, (64, 70), "int8")
    nodes = [
        matmul((m, 64), (64, 70), left, right)
        for m in (4, 70)
        for left in ("int8", "uint8")
        for right in ("int8", "uint8")
    ]
    nodes += [
        Node("ConvInteger", 10, [x, w, zero, signed]),
        *(
            Node(
                "QLinearConv", version, [x, one, zero, w, one, signed, one, zero, np.zeros(70, np.int32)], domain=domain
            )
            for domain, version in (("", 10), (MS, 1))
        ),
        Node("QLinearMatMul", 21, [a, one, zero, b, one, signed, one, zero]),
        Node("MatMulIntegerToFloat", 1, [a, b, one, one, zero, signed, draw(rng, (70,))], domain=MS),
        Node("DynamicQuantizeLinear", 11, [draw(rng, (50,))], {}, (True,) * 3),
        Node("DynamicQuantizeMatMul", 1, [draw(rng, (70, 64)), b, one, signed], domain=MS),
        *(
            made
            for domain, version in (("", 21), (MS, 1))
            for made in (
                Node("QuantizeLinear", version, [draw(rng, (4, 6)), one, zero], domain=domain),
                Node("DequantizeLinear", version, [a, one, zero], domain=domain),
            )
        ),
        *qlinear(),
    ]
    for bits in (2, 4, 8):
        for rows, kind in ((1, np.float16), (70, np.float16), (70, np.float32)):
            inputs = [
                draw(rng, (rows, 64), kind),
                rng.integers(0, 256, (70, 2, 4 * bits)).astype(np.uint8),
                scales(rng, 140).astype(kind),
                rng.integers(0, 256, 70 * -(-2 * bits // 8)).astype(np.uint8),
            ]
            nodes.append(Node("MatMulNBits", 1, inputs, {"K": 64, "N": 70, "block_size": 32, "bits": bits}, domain=MS))
    return nodes


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_every_kind_without_spills(architecture: str, tmp_path: Path) -> None:
    jobs = [job for job in (node.job() for node in every_quantized()) if job is not None]
    code = ptx(PRELUDE + named(jobs), architecture)
    assert b"dp4a" in code
    found = spills(code, architecture, tmp_path)
    assert len(found) >= sum(len(job.launches) for job in jobs) > 20 and set(found) == {0}
