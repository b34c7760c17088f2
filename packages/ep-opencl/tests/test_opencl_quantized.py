"""Quantized operators through sessions, in both forms of products, against the CPU provider: integers are equal, not close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from opencl_models import PROVIDER, needs_device
from test_opencl_attention import MS, model

import onnxplug as ort
from onnxplug_ep_opencl.quantized_shapes import quantized_shape

pytestmark = needs_device
BOTH = pytest.mark.parametrize("form", ["register", "local"])
CPU = "CPUExecutionProvider"


def bytes_of(seed: int, shape: Sequence[int], dtype: Any = np.uint8) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def scales(seed: int, shape: Sequence[int] = ()) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).uniform(0.001, 0.02, shape)).astype(np.float32)


def same(
    op_type: str,
    operands: Sequence[Any],
    form: str,
    *,
    domain: str = "",
    version: int = 21,
    outputs: int = 1,
    constants: Sequence[int] = (),
    rtol: float = 0.0,
    **attributes: Any,
) -> None:
    """Results of a node on OpenCL alone are those of CPU: floats within ``rtol`` of the largest."""
    data = onnx.load_from_string(model(op_type, operands, outputs, domain, attributes, version))
    for n in constants:
        data.graph.initializer.append(numpy_helper.from_array(operands[n], f"x{n}"))
    kept = [i for i in data.graph.input if int(i.name[1:]) not in constants]
    del data.graph.input[:]
    data.graph.input.extend(kept)
    feeds = {f"x{n}": a for n, a in enumerate(operands) if a is not None and n not in constants}
    session = ort.InferenceSession(data.SerializeToString(), providers=[(PROVIDER, {"kernel_shape": form})])
    assert set(session.placement().values()) == {PROVIDER}
    wanted = ort.InferenceSession(data.SerializeToString(), providers=[CPU]).run(None, feeds)
    for got, right in zip(session.run(None, feeds), wanted, strict=True):
        assert got.dtype == right.dtype and got.shape == right.shape
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, right, rtol=0, atol=rtol * float(np.abs(right).max(initial=0)))
        else:
            np.testing.assert_array_equal(got, right)


@BOTH
@pytest.mark.parametrize("constants", [(), (1, 3)])
def test_matmul_integer(form: str, constants: Sequence[int]) -> None:
    zeros = bytes_of(3, ()), bytes_of(4, (37,), np.int8)
    same("MatMulInteger", [bytes_of(1, (19, 50)), bytes_of(2, (50, 37), np.int8), *zeros], form, constants=constants)
    several = [bytes_of(1, (2, 3, 50)), bytes_of(2, (2, 50, 7))]
    same("MatMulInteger", several, form)
    same("MatMulInteger", [bytes_of(1, (2, 0)), bytes_of(2, (0, 4))], form, constants=constants and (1,))
    same("ConvInteger", [bytes_of(1, (1, 0, 4, 4)), bytes_of(2, (3, 0, 3, 3))], form, constants=constants and (1,))


def test_sums_beyond_int32_wrap() -> None:
    """Also where the device would take tiles in registers."""
    a, b = np.full((1, 34000), 255, np.uint8), np.full((34000, 1), 255, np.uint8)
    same("MatMulInteger", [a, b], "register", constants=(1,))


@BOTH
def test_qlinear_matmul(form: str) -> None:
    rows = scales(5, (19,)), bytes_of(6, (19,))
    columns = scales(7, (37,)), bytes_of(8, (37,), np.int8)
    ends = scales(9, (19,)) * 200, bytes_of(10, (19,))
    operands = [bytes_of(1, (19, 50)), *rows, bytes_of(2, (50, 37), np.int8), *columns, *ends]
    same("QLinearMatMul", operands, form, constants=(3, 5))


@BOTH
@pytest.mark.parametrize(
    ("x", "w", "attributes", "own"),
    [
        ((2, 5, 9, 11), (7, 5, 3, 2), {"pads": [1, 1, 0, 2], "strides": [2, 1]}, True),
        ((1, 6, 8, 8), (9, 6, 1, 1), {}, True),
        ((1, 6, 3, 3), (9, 6, 1, 1), {"strides": [2, 2], "pads": [0, 0, 3, 3]}, False),  # as large as the image
        ((2, 6, 9, 9), (6, 1, 3, 3), {"pads": [1, 1, 1, 1], "group": 6}, False),
        ((1, 6, 9, 9), (8, 3, 3, 3), {"group": 2, "dilations": [1, 2], "auto_pad": "SAME_UPPER"}, True),
        ((1, 3, 20), (4, 3, 5), {"strides": [2]}, False),
        ((1, 2, 5, 6, 7), (3, 2, 2, 2, 2), {"pads": [1] * 6}, True),
    ],
)
def test_convolutions(x: Any, w: Any, attributes: dict[str, Any], own: bool, form: str) -> None:
    each = w[:1] if own else ()
    parameters = scales(3, each), bytes_of(4, each, np.int8)
    left = [bytes_of(1, x), scales(2), bytes_of(2, ()), bytes_of(2, w, np.int8), *parameters]
    bias = np.random.default_rng(5).integers(-5000, 5000, w[0]).astype(np.int32)
    for constants in ((3, 5), ()):
        same("QLinearConv", [*left, scales(6) * 60, bytes_of(7, ()), bias], form, constants=constants, **attributes)
    if not own:  # its kernels differ by the end only
        same("ConvInteger", [left[0], left[3], left[2], left[5]], form, **attributes)


@BOTH
def test_products_of_onnxruntime(form: str) -> None:
    a, b, one, each = bytes_of(1, (19, 50)), bytes_of(2, (50, 37), np.int8), scales(3), scales(4, (37,))
    zero, zeros, eps = bytes_of(5, ()), bytes_of(6, (37,), np.int8), 2.0**-22
    bias = np.random.default_rng(7).standard_normal(37).astype(np.float32)
    same("MatMulIntegerToFloat", [a, b, one, each, zero, zeros, bias], form, domain=MS, rtol=eps, constants=(1, 5))
    x = np.random.default_rng(8).standard_normal((3, 19, 50)).astype(np.float32)
    same("DynamicQuantizeMatMul", [x, b, each, zeros, bias], form, domain=MS, rtol=eps, constants=(1, 3))
    added, ends = np.arange(-18, 19, dtype=np.int32) * 50, (scales(9) * 90, bytes_of(10, ()))
    turned = [a, one, zero, np.ascontiguousarray(b.T), each, zeros, added]
    same("QGemm", [*turned, *ends], form, domain=MS, constants=(3, 5), transB=1, alpha=0.5)
    same("QGemm", [np.ascontiguousarray(a.T), one, zero, b, one, zeros], form, domain=MS, rtol=eps, transA=1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantization(dtype: Any) -> None:
    x = (np.random.default_rng(0).standard_normal((3, 8, 20)) * 9).astype(np.float32)
    x[0, 0, :6] = [0.5, 1.5, 2.5, -0.5, 3e9, -3e9]  # halves, and what is beyond every range
    one = np.float32(1).reshape(()), bytes_of(1, (), dtype)
    same("QuantizeLinear", [x, *one], "auto")
    same(
        "DequantizeLinear", [bytes_of(2, (3, 8, 20), dtype), scales(2, (8,)), bytes_of(3, (8,), dtype)], "auto", axis=1
    )
    blocks = scales(4, (3, 2, 20)), bytes_of(5, (3, 2, 20), dtype)
    same("QuantizeLinear", [x, *blocks], "auto", axis=1, block_size=4)


def test_a_range_decides_the_scale() -> None:
    x = np.random.default_rng(1).standard_normal((5, 4000)).astype(np.float32)
    same("DynamicQuantizeLinear", [x], "auto", outputs=3)
    same("DynamicQuantizeLinear", [np.zeros((0, 4), np.float32)], "auto", outputs=3)


def test_elements_of_quantized_tensors() -> None:
    a, b = (bytes_of(n, (2, 3, 5)) for n in (1, 2))
    first, second, ends = ((scales(n), bytes_of(n, ())) for n in (3, 4, 5))
    for op_type in ("QLinearAdd", "QLinearMul"):
        same(op_type, [a, *first, b[0, :, :1], *second, *ends], "auto", domain=MS)
    same("QLinearLeakyRelu", [a, *first, *ends], "auto", domain=MS, alpha=0.3)
    same("QLinearSigmoid", [a, *first, np.float32(1 / 256).reshape(()), np.uint8(0).reshape(())], "auto", domain=MS)
    same("QLinearWhere", [a > 99, a, *first, b, *second, *ends], "auto", domain=MS)
    same("QLinearConcat", [*ends, a, *first, b[:, :2], *second], "auto", domain=MS, axis=1)
    for last in (0, 1):
        same(
            "QLinearGlobalAveragePool",
            [bytes_of(6, (2, 4, 5, 6)), *first, *ends],
            "auto",
            domain=MS,
            channels_last=last,
        )


@BOTH
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_operators_on_floats_between_integers(dtype: Any, form: str) -> None:
    x, first, ends = bytes_of(1, (2, 3, 7, 40), dtype), (scales(3), bytes_of(4, (), dtype)), (scales(5), None)
    pool = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
    for attributes in (pool, {**pool, "count_include_pad": 1}, {**pool, "ceil_mode": 1}, {"kernel_shape": [7, 40]}):
        same("QLinearAveragePool", [x, *first, *ends], form, domain=MS, **attributes)
    halves = [np.float32(0.5), np.array(0, dtype), np.float32(1), np.array(3, dtype)]  # 3 is added before rounding
    same("QLinearAveragePool", [x, *halves], form, domain=MS, kernel_shape=[1, 1])
    for attributes in ({"axes": [1, 3], "keepdims": 1}, {"axes": [-1], "keepdims": 0}):
        same("QLinearReduceMean", [x, *first, *ends], form, domain=MS, **attributes)
    ends = (np.float32(1 / 256).reshape(()), np.array(0, dtype))
    for attributes in ({"opset": 13, "axis": 1}, {"opset": 13}, {"opset": 11, "axis": 2}):
        same("QLinearSoftmax", [x, *first, *ends], form, domain=MS, **attributes)


BODY = """<ir_version: 10, opset_import: ["" : 21]> g (uint8[N, 4, 9, 9] q) => (uint8[N, 8, 9, 9] y) {
  x = DequantizeLinear(q, s, z) w = DequantizeLinear<axis = 0>(k, e, o) b = DequantizeLinear<axis = 0>(i, t)
  c = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) m = QuantizeLinear(r, u, z)
  d = DequantizeLinear(m, u, z) n = Sigmoid(d) h = Mul(d, n) y = QuantizeLinear(h, u, z) }"""


@BOTH
def test_floats_between_integers_are_products_of_the_integers(form: str) -> None:
    data, step = onnx.parser.parse_model(BODY), scales(1, (8,))
    arrays = {
        "s": np.float32(0.02), "z": np.uint8(100), "k": bytes_of(2, (8, 4, 3, 3), np.int8), "e": step, "o": np.zeros(8, np.int8),
        "i": np.arange(8, dtype=np.int32) * 99, "t": np.float32(0.02) * step, "u": np.float32(0.05),
    }  # fmt: skip
    data.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items())
    session = ort.InferenceSession(data.SerializeToString(), providers=[(PROVIDER, {"kernel_shape": form})])
    regions = {node["op_type"]: str(node["region"]) for node in session.explain().nodes}
    assert regions["Conv"].startswith("quantized") and regions["Sigmoid"].startswith("opencl")
    for count in (1, 3):
        q = bytes_of(count, (count, 4, 9, 9))
        (got,) = session.run(None, {"q": q})
        (right,) = ort.InferenceSession(data.SerializeToString(), providers=[CPU]).run(None, {"q": q})
        # Both round the same numbers, computed in another order: one between two integers may become the other.
        apart = np.abs(got.astype(int) - right.astype(int))
        assert apart.max() <= 1 and np.count_nonzero(apart) <= got.size / 500 and np.ptp(got) > 100


def test_what_is_not_written_is_left_with_a_reason() -> None:
    some, one = np.zeros((2, 1, 3, 4), np.uint8), np.float32(1).reshape(())
    cases = [
        ("MatMulInteger", [some, np.zeros((5, 4, 3), np.uint8)], "", {}, "broadcast against each other"),
        ("MatMulInteger", [some, np.zeros((4, 3), np.uint8), np.zeros((2, 1, 3, 1), np.uint8)], "", {}, "neither one number nor a vector"),
        ("QuantizeLinear", [np.ones(3, np.float16), np.ones((), np.float16)], "", {}, "T1=tensor(float16) is not among tensor(float)"),
        ("DequantizeLinear", [np.zeros((4, 7), np.uint8), np.ones((4, 2), np.float32)], "", {"block_size": 4}, "not known to divide"),
        ("QLinearSigmoid", [some, np.ones(2, np.float32), None, one], MS, {}, "one number each"),
    ]  # fmt: skip
    for op_type, operands, domain, attributes, reason in cases:
        data = model(op_type, operands, 1, domain, attributes, 21)
        session = ort.InferenceSession(data, providers=[PROVIDER, CPU])
        (node,) = session.explain().nodes
        assert reason in node["reasons"][PROVIDER], (op_type, node["reasons"])


def test_shapes_that_a_run_finds() -> None:
    """Those of com.microsoft's operators, for sessions in which no plan knows them."""

    def spec(*shape: int) -> Any:
        return ort.contract.TensorSpec(np.dtype(np.uint8), shape)

    one = spec()
    assert quantized_shape("QLinearAdd", {}, [spec(2, 1), one, one, spec(3)]) == (2, 3)
    assert quantized_shape("QGemm", {"transA": 1, "transB": 1}, [spec(4, 2), one, one, spec(3, 4)]) == (2, 3)
    assert quantized_shape("DynamicQuantizeMatMul", {}, [spec(4), spec(5, 4, 3)]) == (5, 3)
    parts = [one, one, spec(2, 3), one, one, spec(2, 5)]
    assert quantized_shape("QLinearConcat", {"axis": -1}, parts) == (2, 8)
    assert quantized_shape("QLinearGlobalAveragePool", {"channels_last": 1}, [spec(2, 5, 6, 7)]) == (2, 1, 1, 7)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        quantized_shape("QGemm", {}, [spec(2, 3), one, one, spec(4, 5)])


@BOTH
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 9, 8, 3), (6, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ((1, 7, 5, 4), (4, 1, 3, 3), {"group": 4, "auto_pad": "SAME_UPPER"}),
        ((1, 11, 3), (5, 3, 4), {"dilations": [2]}),
        ((3, 4, 4, 8), (2, 8, 1, 1), {}),
    ],
)
def test_convolutions_with_channels_last(x: Any, w: Any, attributes: dict[str, Any], form: str) -> None:
    """As onnxruntime leaves them in models of 8 bits that it optimized."""
    channels = w[0]
    operands = [
        bytes_of(1, x), scales(2), bytes_of(3, ()), bytes_of(4, w, np.int8), scales(5, (channels,)), np.zeros(channels, np.int8),
        scales(6) * 20, bytes_of(7, ()), np.arange(channels, dtype=np.int32) * 50,
    ]  # fmt: skip
    for constants in ((), tuple(range(1, 9))):
        same("QLinearConv", operands, form, domain=MS, channels_last=1, constants=constants, **attributes)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("shape", [(2, 7, 6, 5), (1, 9, 3)])
def test_pools_with_channels_last(shape: tuple[int, ...], dtype: Any) -> None:
    rank = len(shape) - 2
    window = {"kernel_shape": [3] * rank, "strides": [2] * rank, "pads": [1] * (2 * rank)}
    x, zero = bytes_of(1, shape, dtype), bytes_of(2, (), dtype)
    same("NhwcMaxPool", [x], "auto", domain=MS, **window)
    same("NhwcMaxPool", [x], "auto", domain=MS, **window | {"ceil_mode": 1, "dilations": [2] * rank})
    same("QLinearAveragePool", [x, scales(3), zero, scales(4), zero], "auto", domain=MS, channels_last=1, **window)
