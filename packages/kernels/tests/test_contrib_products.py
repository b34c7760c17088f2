"""Products of ``com.microsoft``, of packed and of quantized weights: against onnxruntime, and written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from contrib_cases import RNG, F, case, integers, normal, run, uniform
from one_node import Case, assert_equal, assert_portable, by_kernel, by_onnxruntime, is_portable


def products() -> Iterator[Case]:
    for bits in (2, 4, 8):
        for depth, block in ((64, 32), (70, 16)):
            columns, blocks = 24, -(-depth // block)
            packed = integers(np.uint8, columns, blocks, block * bits // 8)
            scales = uniform(0.01, 0.1, columns, blocks)
            zeros = integers(np.uint8, columns, -(-blocks * bits // 8))
            sizes = {"K": depth, "N": columns, "block_size": block, "bits": bits}
            a, label = normal(2, 3, depth), f"{bits}-{depth}"
            yield case("MatMulNBits", [a, packed, scales], 1, label, 2e-3, **sizes)
            yield case("MatMulNBits", [a, packed, scales, zeros], 1, f"{label}-zeros", 2e-3, **sizes)
            with_bias = [a, packed, scales.ravel(), zeros.ravel(), None, normal(columns)]
            yield case("MatMulNBits", with_bias, 1, f"{label}-bias", 2e-3, **sizes)
            if bits == 4:
                floats = [a, packed, scales, uniform(0, 8, columns, blocks)]
                yield case("MatMulNBits", floats, 1, f"{label}-float zeros", 2e-3, **sizes)
                groups = np.repeat(np.arange(blocks)[::-1], block).astype(np.int32)
                yield case("MatMulNBits", [a, packed, scales, None, groups], 1, f"{label}-groups", 2e-3, **sizes)
    for kind, name in enumerate(("fp4", "nf4")):
        for depth, block in ((64, 32), (70, 16)):
            count = depth * 24
            a, packed = normal(2, 3, depth), integers(np.uint8, (count + 1) // 2)
            sizes = {"K": depth, "N": 24, "block_size": block, "quant_type": kind}
            yield case(
                "MatMulBnb4", [a, packed, uniform(0.1, 1, -(-count // block))], 1, f"{name}-{depth}", 1e-4, **sizes
            )
    for left, right in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)):
        label = f"{np.dtype(left).name}-{np.dtype(right).name}"
        # Without VNNI onnxruntime adds pairs of products of uint8 and int8 in 16 bits, which full-range int8 overflows.
        small = {"low": -60, "high": 60} if right == np.int8 else {}
        a, b = integers(left, 2, 3, 8), integers(right, 8, 5, **small)
        a_scale, b_scale, b_scales = np.array(0.02, F), np.array(0.03, F), uniform(0.01, 0.1, 5)
        a_zero, b_zeros = np.array(3, left), integers(right, 5, low=0, high=5)
        yield case("MatMulIntegerToFloat", [a, b, a_scale, b_scale], label=label)
        columns = [a, b, a_scale, b_scales, a_zero, b_zeros, normal(5)]
        yield case("MatMulIntegerToFloat", columns, label=f"{label}-columns")
        if left == np.uint8:
            yield case("DynamicQuantizeMatMul", [normal(2, 3, 8), b, b_scale], label=label)
            more = [normal(2, 3, 8), b, b_scales, b_zeros, normal(5)]
            yield case("DynamicQuantizeMatMul", more, label=f"{label}-columns")
        matrix, c = integers(left, 3, 8), integers(np.int32, 3, 5, low=-500, high=500)
        gemm = [matrix.T.copy(), a_scale, a_zero, b.T.copy(), b_scale, np.array(5, right)]
        turned = {"transA": 1, "transB": 1, "alpha": 0.7}
        yield case("QGemm", gemm, label=label, **turned)
        yield case("QGemm", [*gemm, c, np.array(0.2, F), np.array(7, left)], label=f"{label}-quantized", **turned)
        yield case("QGemm", [matrix, a_scale, a_zero, b, b_scales, b_zeros, c[0]], label=f"{label}-columns")
    for metric in ("euclidean", "sqeuclidean"):
        yield case("CDist", [normal(4, 5), normal(6, 5)], label=metric, metric=metric)
    short = {"low": -30, "high": 30}
    yield case("MatMulInteger16", [integers(np.int16, 3, 4, **short), integers(np.int16, 4, 2, **short)])
    for bits in (4, 8):
        table, zeros = integers(np.uint8, 20, 64 * bits // 8), integers(np.uint8, 20, 4 * bits // 8)
        inputs = [table, RNG.integers(-20, 20, size=(2, 3)), uniform(0.1, 0.2, 20, 4)]
        sizes = {"bits": bits, "block_size": 16}
        yield case("GatherBlockQuantized", inputs, label=f"{bits}", **sizes)
        yield case("GatherBlockQuantized", [*inputs, zeros], label=f"{bits}-zeros", **sizes)


def experts() -> Iterator[Case]:
    x, scores, hidden, inner = normal(2, 5, 16), normal(10, 4), 16, 24
    first, second = 0.3 * normal(4, inner, hidden), 0.3 * normal(4, hidden, inner)
    biases = normal(4, inner), normal(4, hidden)
    for name in ("relu", "gelu", "silu", "identity"):
        for count, normalize in ((1, 0), (2, 0), (3, 1)):
            more = {"k": count, "normalize_routing_weights": normalize, "activation_type": name}
            yield case("MoE", [x, scores, first, biases[0], second, biases[1]], 1, f"{name}-{count}", **more)
    yield case("MoE", [x[0], scores[:5], first, None, second], label="rows", k=2)
    tied = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [2, 1, 1, 1]], F)
    yield case("MoE", [normal(3, 16), tied, first, None, second], label="ties", k=2)
    wide, gate = 0.3 * normal(4, 2 * inner, hidden), {"activation_type": "swiglu", "swiglu_fusion": 1, "k": 2}
    yield case("MoE", [x, scores, wide, normal(4, 2 * inner), second, biases[1]], label="swiglu", **gate)
    scaled = {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.7, **gate}
    yield case("MoE", [x, scores, wide, normal(4, 2 * inner), second, biases[1]], label="swiglu-limit", **scaled)
    x, hidden, inner = normal(6, 32), 32, 32
    for bits in (4, 8):
        packed = [integers(np.uint8, 4, n, 32 * bits // 8) for n in (2 * inner, inner, hidden)]
        scales = [uniform(0.01, 0.02, 4, n) for n in (2 * inner, inner, hidden)]
        blocks = [uniform(0.01, 0.02, 4, n, 2) for n in (2 * inner, inner, hidden)]
        zeros = [integers(np.uint8, 4, n, 2 * bits // 8) for n in (2 * inner, inner, hidden)]
        more = {"expert_weight_bits": bits, "k": 2, "normalize_routing_weights": 1}
        plain = {"activation_type": "silu", **more}
        yield case(
            "QMoE", [x, scores[:6], packed[1], scales[1], None, packed[2], scales[2]], 1, f"{bits}-plain", 1e-3, **plain
        )
        whole = [x, scores[:6], packed[1], scales[1], None, packed[2], scales[2]]
        yield case("QMoE", whole, 1, f"{bits}-blocks of one scale", 1e-3, **plain, block_size=16)
        halved = [x, scores[:6], packed[0], scales[0], normal(4, 2 * inner), packed[2], scales[2], normal(4, hidden)]
        yield case("QMoE", halved, 1, f"{bits}-swiglu", 1e-3, **gate | more)
        shares = [*halved, None, None, None, None, None, None, uniform(0.1, 1, 6, 4)]
        for normalize in (0, 1):
            label = f"{bits}-weights-{normalize}"
            yield case("QMoE", shares, 1, label, 1e-3, **gate | more | {"normalize_routing_weights": normalize})
        nothing = [*shares[:-1], np.zeros((6, 4), F)]
        yield case("QMoE", nothing, 1, f"{bits}-weights of 0", 1e-3, **gate | more | {"normalize_routing_weights": 1})
        yield case("QMoE", halved, 1, f"{bits}-not normalized", 1e-3, **gate | more | {"normalize_routing_weights": 0})
        in_blocks = [x, scores[:6], packed[0], blocks[0], None, packed[2], blocks[2]]
        yield case("QMoE", in_blocks, 1, f"{bits}-blocks", 1e-3, **gate | more, block_size=16)
        with_zeros = [*in_blocks, None, None, None, None, zeros[0], zeros[2]]
        yield case("QMoE", with_zeros, 1, f"{bits}-zeros", 1e-3, **gate | more, block_size=16)


def quantized() -> Iterator[Case]:
    def scale(value: float) -> np.ndarray:
        return np.array(value, F)

    for dtype in (np.uint8, np.int8):

        def zero(value: int, dtype: Any = dtype) -> np.ndarray:
            return np.array(value, dtype)

        name = np.dtype(dtype).name
        a, b = integers(dtype, 2, 3, 40), integers(dtype, 3, 40)
        one, other, result = [scale(0.02), zero(3)], [scale(0.03), zero(5)], [scale(0.05), zero(7)]
        for op_type in ("QLinearAdd", "QLinearMul"):
            yield case(op_type, [a, *one, b, *other, *result], label=name, atol=1)
        yield case("QLinearSigmoid", [a, *one, scale(1 / 256), zero(0)], label=name)
        yield case("QLinearLeakyRelu", [a, *one, *other], label=name, alpha=0.1)
        lowest = zero(np.iinfo(dtype).min)
        for opset, axis in ((13, -1), (13, 1), (12, 1)):
            inputs = [a, scale(0.05), zero(3), scale(1 / 256), lowest]
            yield case("QLinearSoftmax", inputs, 1, f"{name}-{opset}-{axis}", 1, opset=opset, axis=axis)
        condition = RNG.uniform(size=(2, 3, 40)) < 0.5
        yield case("QLinearWhere", [condition, a, *one, b, *other, *result], label=name)
        yield case("QLinearConcat", [*result, a, *one, a, *other], label=name, axis=1)
        x, kernel = integers(dtype, 2, 4, 7, 7), {"kernel_shape": [3, 3], "strides": [2, 2]}
        w, w_scales = integers(np.int8, 6, 4, 3, 3, low=-60, high=60), uniform(0.01, 0.02, 6)
        for last in (0, 1):
            label = f"{name}-{'NHWC' if last else 'NCHW'}"
            image = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
            for more in ({}, {"count_include_pad": 1}, {"ceil_mode": 1}):
                attributes = {"channels_last": last, "pads": [1, 0, 1, 1], **kernel, **more}
                yield case("QLinearAveragePool", [image, *one, *other], 1, f"{label}-{[*more]}", 1, **attributes)
            inputs = [image, *one, scale(0.003), zero(5)]
            yield case("QLinearGlobalAveragePool", inputs, 1, label, 1, channels_last=last)
            weights = [w, w_scales, np.zeros(6, np.int8), scale(0.6), zero(5), integers(np.int32, 6, low=-9, high=9)]
            yield case("QLinearConv", [image, *one, *weights], 1, label, 1, channels_last=last, pads=[1] * 4)
        yield case("NhwcMaxPool", [np.ascontiguousarray(np.moveaxis(x, 1, -1))], label=name, pads=[1] * 4, **kernel)
        yield case("QuantizeLinear", [normal(2, 3, 4), *one], label=name)
        axis = [uniform(0.01, 0.02, 3), integers(dtype, 3)]
        yield case("QuantizeLinear", [normal(2, 3, 4), *axis], label=f"{name}-axis", axis=1)
        yield case("DequantizeLinear", [integers(dtype, 2, 3), *axis], label=f"{name}-axis", axis=1)


def recurrent() -> Iterator[Case]:
    for directions, direction in ((1, "forward"), (1, "reverse"), (2, "bidirectional")):
        for dtype, limits in ((np.uint8, {}), (np.int8, {"low": -60, "high": 60})):
            x = normal(5, 3, 6)
            w, r = (integers(dtype, directions, n, 16, **limits) for n in (6, 4))
            zero = np.full(directions, 100 if dtype == np.uint8 else 0, dtype)
            scales = [uniform(0.005, 0.01, directions), zero, uniform(0.005, 0.01, directions), zero]
            common = {"hidden_size": 4, "direction": direction}
            label = f"{direction}-{np.dtype(dtype).name}"
            bare = [x, w, r, normal(directions, 32), None, None, None, None, *scales]
            yield case("DynamicQuantizeLSTM", bare, 3, label, **common)
            lengths, state = np.array([5, 2, 3], np.int32), (directions, 3, 4)
            full = [x, w, r, bare[3], lengths, normal(*state), normal(*state), normal(directions, 12), *scales]
            yield case("DynamicQuantizeLSTM", full, 3, f"{label}-all inputs", **common)
            yield case("DynamicQuantizeLSTM", bare, 3, f"{label}-coupled", input_forget=1, clip=0.5, **common)


CASES = [*products(), *experts(), *quantized(), *recurrent()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_onnxruntime(case: Case) -> None:
    assert_equal(case, by_kernel(case), by_onnxruntime(case))


@pytest.mark.parametrize("case", [c for c in CASES if is_portable(c)], ids=str)
def test_with_the_standard_alone(case: Case) -> None:
    assert_portable(case)


@pytest.mark.parametrize(("scales", "zeros"), [((1, 4), None), ((25, 4), None), ((20, 2), None), ((20, 4), (20, 4))])
def test_scales_and_zero_points_of_other_blocks(scales: tuple[int, ...], zeros: tuple[int, ...] | None) -> None:
    operands = [np.zeros((20, 32), np.uint8), np.arange(3), np.ones(scales, F)]
    operands += [] if zeros is None else [np.zeros(zeros, np.uint8)]
    with pytest.raises(ValueError, match=r"(does|do) not match"):
        run("GatherBlockQuantized", operands, block_size=16)


def test_nothing_is_taken_from_blocks_of_numbers() -> None:
    operands = [np.zeros((20, 16), np.uint8), np.zeros((2, 0), np.int64), np.ones((20, 2), F)]
    assert run("GatherBlockQuantized", operands, block_size=16)[0].shape == (2, 0, 32)


def test_weights_of_four_bits() -> None:
    """Column 0 holds 0..15 from the low half of each byte on, with zero point 8."""
    packed = np.array([[[0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]]], np.uint8)
    (y,) = run("MatMulNBits", [np.eye(16, dtype=F), packed, np.array([[0.5]], F)], K=16, N=1, block_size=16)
    assert y[:, 0].tolist() == [(i - 8) / 2 for i in range(16)]


def test_groups_have_zero_points_too() -> None:
    """onnxruntime's CPU kernel leaves packed zero points out where there is a g_idx."""
    packed = np.zeros((1, 2, 8), np.uint8)
    inputs = [np.eye(32, dtype=F), packed, np.ones((1, 2), F), np.array([[0x31]], np.uint8)]
    (y,) = run("MatMulNBits", [*inputs, np.arange(32, dtype=np.int32) % 2], K=32, N=1, block_size=16)
    assert y[:4, 0].tolist() == [-1, -3, -1, -3]


def test_exact_product_of_full_range() -> None:
    """255 * 127 * 2 passes 16 bits, in which onnxruntime adds pairs of products without VNNI."""
    one = np.array(1, F)
    (y,) = run("MatMulIntegerToFloat", [np.full((1, 2), 255, np.uint8), np.full((2, 1), 127, np.int8), one, one])
    assert y.item() == 255 * 127 * 2


def test_product_and_gelu() -> None:
    """onnxruntime has it on GPUs alone."""
    x, w, bias = normal(3, 4), normal(4, 5), normal(5)
    (want,) = run("FastGelu", [x @ w, bias])
    np.testing.assert_allclose(run("GemmFastGelu", [x, w, bias])[0], want, rtol=1e-5, atol=1e-6)


def test_an_expert_without_rows_and_rows_without_number() -> None:
    first, second = normal(4, 6, 8), normal(4, 8, 6)
    (y,) = run("MoE", [np.zeros((0, 8), F), np.zeros((0, 4), F), first, None, second], k=2)
    assert y.shape == (0, 8)
    x, scores = normal(3, 8), np.tile(np.array([0, 9, -9, -9], F), (3, 1))
    (y,) = run("MoE", [x, scores, first, None, second], normalize_routing_weights=1)
    np.testing.assert_allclose(y, np.maximum(x @ first[1].T, 0) @ second[1].T, rtol=1e-4, atol=1e-5)
    (turned,) = run("MoE", [x, scores, first.swapaxes(1, 2), None, second.swapaxes(1, 2)], normalize_routing_weights=1)
    np.testing.assert_allclose(turned, y, rtol=1e-5)


def test_a_limit_of_what_the_gate_lets_through() -> None:
    """onnxruntime has it on GPUs alone: the activated gate is limited, not what goes into it."""
    x, scores, first, second = normal(3, 8), np.zeros((3, 1), F), 2 * normal(1, 12, 8), normal(1, 8, 6)
    told = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.7, "activation_beta": 1.0}
    limits = {"swiglu_limit": 0.7, "swiglu_limit_after_activation": 1}
    (y,) = run("MoE", [x, scores, first, None, second], **told, **limits)
    hidden = x @ first[0].T
    gate, up = hidden[:, ::2], np.clip(hidden[:, 1::2], -0.7, 0.7)
    gate = np.minimum(gate / (1 + np.exp(-1.7 * gate)), 0.7)
    np.testing.assert_allclose(y, (gate * (up + 1)) @ second[0].T, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="swiglu_limit_after_activation is 1 for activation_type 'silu'"):
        run("MoE", [x, scores, first, None, normal(1, 8, 12)], activation_type="silu", swiglu_limit_after_activation=1)


def test_the_sparse_mixer_counts_experts_near_the_best_alone() -> None:
    x, first, second = normal(1, 8), normal(4, 6, 8), normal(4, 8, 6)
    scores = np.array([[3.0, 2.99, 1.0, 0.99]], F)  # pairs near each other, far from the other pair
    (y,) = run("MoE", [x, scores, first, None, second], k=2, use_sparse_mixer=1)

    def by(expert: int) -> np.ndarray:
        return np.maximum(x @ first[expert].T, 0) @ second[expert].T

    one = 1 / (1 + np.exp(-0.01))
    np.testing.assert_allclose(y, one * by(0) + 1.0 * by(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attributes", [{"quant_type": "fp4"}, {"weights_prepacked": 1}])
def test_layouts_of_one_device_are_refused(attributes: dict[str, Any]) -> None:
    packed, scales = integers(np.uint8, 2, 8, 4), uniform(0.1, 0.2, 2, 8)
    with pytest.raises(ValueError, match="only packed integers are portable"):
        run("QMoE", [normal(3, 8), normal(3, 2), packed, scales, None, packed, scales], **attributes)


def test_the_sparse_mixer_chooses_two() -> None:
    with pytest.raises(ValueError, match="k is 1; the sparse mixer chooses two experts"):
        run("MoE", [normal(3, 8), normal(3, 2), normal(2, 8, 8), None, normal(2, 8, 8)], k=1, use_sparse_mixer=1)


def test_weights_of_four_bit_floats_the_other_way_round() -> None:
    """onnxruntime's CPU kernel multiplies by something else."""
    a, packed, absmax = normal(2, 3), integers(np.uint8, 24), uniform(0.1, 1, 3)
    sizes = {"K": 16, "N": 3, "block_size": 16, "quant_type": 1}
    (y,) = run("MatMulBnb4", [a, packed, absmax], transB=0, **sizes)
    (weights,) = run("MatMulBnb4", [np.eye(16, dtype=F), packed, absmax], **sizes)
    np.testing.assert_allclose(y, a @ weights.T, rtol=1e-5, atol=1e-6)
