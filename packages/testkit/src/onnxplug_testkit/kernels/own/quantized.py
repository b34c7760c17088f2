"""The kit's own structures of com.microsoft's quantized operators; scales keep their results inside their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxplug_testkit.kernels.own.node import (
    GONE,
    I8,
    I32,
    U8,
    B,
    F,
    N,
    Operand,
    OwnNode,
    bytes_of,
    ms,
    numpy_like,
    real,
    scalar,
    scale,
)


def quantized_nodes() -> Iterator[OwnNode]:
    """All of them."""
    yield from _products()
    yield from _elementwise()
    yield from _windows()


def _products() -> Iterator[OwnNode]:
    pairs: list[tuple[Any, Any]] = [(np.int16, np.int16), (np.uint16, np.uint16)]
    for left, right in pairs:
        texts = [f"tensor({np.dtype(t).name})" for t in (left, right)]
        given = [(bytes_of(left, 3, 4, high=30), texts[0]), (bytes_of(right, 4, 2, high=30), texts[1])]
        yield ms("MatMulInteger16", given, [I32], np.dtype(left).name)
    pairs = [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)]
    for left, right in pairs:
        a, b = f"tensor({np.dtype(left).name})", f"tensor({np.dtype(right).name})"
        label = f"{np.dtype(left).name}_{np.dtype(right).name}"
        matrix, weights = (bytes_of(left, 3, 8, high=100), a), (bytes_of(right, 8, 5, high=60), b)
        zeros = [(scalar(3, left), a), (bytes_of(right, 5, high=4), b)]
        columns = real(5, low=0.01, high=0.1)
        yield ms("MatMulIntegerToFloat", [matrix, weights, scale(0.02), columns, *zeros, real(5)], [F], label)
        if left == np.uint8:
            yield ms("DynamicQuantizeMatMul", [real(2, 3, 8), weights, columns, zeros[1], real(5)], [F], label)
        quantized = [matrix, scale(0.02), zeros[0], weights, scale(0.03), (scalar(5, right), b)]
        c = (bytes_of(np.int32, 3, 5, low=-500, high=500), I32)
        yield ms("QGemm", quantized, [F], label, alpha=0.75)
        yield ms("QGemm", [*quantized, c, scale(0.2), (scalar(7, left), a)], [a], f"{label}_quantized", alpha=0.75)
    for depth, block in ((32, 16), (40, 16)):
        blocks = -(-depth // block)
        sizes = {"K": depth, "N": 6, "block_size": block, "bits": 4}
        packed = (bytes_of(np.uint8, 6, blocks, block // 2, high=255), U8)
        given = [real(2, depth), packed, real(6, blocks, low=0.01, high=0.1)]
        yield ms("MatMulNBits", given, [F], f"{depth}", **sizes)
        yield ms(
            "MatMulNBits",
            [*given, (bytes_of(np.uint8, 6, -(-blocks // 2), high=255), U8)],
            [F],
            f"{depth}_zeros",
            tied=True,
            **sizes,
        )
        yield ms(
            "MatMulNBits", [*given, real(6, blocks, low=0, high=8)], [F], f"{depth}_float_zeros", tied=True, **sizes
        )
        groups = (np.repeat(np.arange(blocks)[::-1], block)[:depth].astype(np.int32), I32)
        if depth % block == 0:
            yield ms("MatMulNBits", [*given, GONE, groups], [F], f"{depth}_groups", **sizes)
    for kind, name in enumerate(("fp4", "nf4")):
        sizes = {"K": 24, "N": 6, "block_size": 16, "quant_type": kind}
        packed = (bytes_of(np.uint8, 72, high=255), U8)
        yield ms("MatMulBnb4", [real(2, 3, 24), packed, real(9, low=0.1, high=1)], [F], name, **sizes)
    whole = "int4 uint4 float4e2m1 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz"  # bytes hold several numbers
    wanted = (bytes_of(np.int64, 2, 3, high=19), N)
    scales = real(20, 2, low=0.1, high=0.2)
    for name in ("int4", "uint4"):
        table, zeros_of = ((numpy_like(name, 20, width), f"tensor({name})") for width in (32, 2))
        gathered = {"block_size": 16, "elements": whole}
        yield ms("GatherBlockQuantized", [table, wanted, scales], [F], name, **gathered)
        yield ms("GatherBlockQuantized", [table, wanted, scales, zeros_of], [F], f"{name}_zeros", **gathered)
    table, zeros_of = (bytes_of(np.uint8, 20, 32, high=255), U8), (bytes_of(np.uint8, 20, 2, high=255), U8)
    gathered = {"block_size": 16, "bits": 8, "elements": "uint8"}
    yield ms("GatherBlockQuantized", [table, wanted, scales], [F], "uint8", **gathered)
    yield ms("GatherBlockQuantized", [table, wanted, scales, zeros_of], [F], "uint8_zeros", **gathered)


def _elementwise() -> Iterator[OwnNode]:
    for dtype, text in ((np.uint8, U8), (np.int8, I8)):
        name, lowest, low = np.dtype(dtype).name, np.iinfo(dtype).min, -100 if text == I8 else 0

        def zero(value: int, dtype: Any = dtype, text: str = text) -> Operand:
            return scalar(value, dtype), text

        a, b = (bytes_of(dtype, 2, 3, 8, low=low, high=120), text), (bytes_of(dtype, 3, 8, low=low, high=100), text)
        one, other, result = [scale(0.02), zero(3)], [scale(0.03), zero(5)], [scale(0.05), zero(7)]
        for op_type in ("QLinearAdd", "QLinearMul"):
            yield ms(op_type, [a, *one, b, *other, *result], [text], name)
        yield ms("QLinearSigmoid", [a, *one, scale(1 / 100), zero(3)], [text], name)
        yield ms("QLinearLeakyRelu", [a, *one, *other], [text], name, alpha=0.5)
        shared = [a, scale(0.05), zero(3), scale(1 / 256), zero(lowest)]
        yield ms("QLinearSoftmax", shared, [text], name, opset=13, axis=-1)
        yield ms("QLinearSoftmax", shared, [text], f"{name}_flat", opset=12, axis=1)
        condition = (bytes_of(np.int8, 2, 3, 8, high=1).astype(bool), B)
        yield ms("QLinearWhere", [condition, a, *one, b, *other, *result], [text], name)
        yield ms("QLinearConcat", [*result, a, *one, a, *other], [text], name, axis=1)
        yield ms("QLinearReduceMean", [a, *one, *other], [text], name, axes=[1], keepdims=1)
    for element in ("uint8", "int8", "uint16", "int16", "uint4", "int4"):
        text, held = f"tensor({element})", numpy_like(element, 2, 3, 4)
        scales, zeros = real(3, low=0.1, high=0.5), (numpy_like(element, 3), text)
        yield ms("QuantizeLinear", [real(2, 3, 4, low=0, high=1), scales, zeros], [text], element, axis=1)
        yield ms("DequantizeLinear", [(held, text), scales, zeros], [F], element, axis=1)
    last = [real(4, low=0.1, high=0.5), (bytes_of(np.uint8, 4), U8)]
    yield ms("QuantizeLinear", [real(2, 3, 4, low=0, high=1), *last], [U8], "last", axis=2)
    yield ms("DequantizeLinear", [(bytes_of(np.uint8, 2, 3, 4), U8), *last], [F], "last", axis=2)
    wide = (bytes_of(np.int32, 2, 3, low=-90, high=90), I32)
    yield ms("DequantizeLinear", [wide, real(3, low=0.1, high=0.5), (np.zeros(3, np.int32), I32)], [F], "int32", axis=1)


def _windows() -> Iterator[OwnNode]:
    for dtype, text in ((np.uint8, U8), (np.int8, I8)):
        name, kernel = np.dtype(dtype).name, {"kernel_shape": [3, 3], "strides": [2, 2]}
        image, zeros = (bytes_of(dtype, 1, 4, 7, 7, high=120), text), [(scalar(v, dtype), text) for v in (3, 5)]
        one, other = [scale(0.02), zeros[0]], [scale(0.03), zeros[1]]
        for count in (0, 1):
            padded = {"pads": [1, 0, 1, 1], "count_include_pad": count, **kernel}
            yield ms("QLinearAveragePool", [image, *one, *other], [text], f"{name}_{count}", **padded)
        images = (bytes_of(dtype, 2, 4, 5, 7, high=120), text)
        yield ms("QLinearGlobalAveragePool", [images, *one, scale(0.01), zeros[1]], [text], name)
        yield ms("NhwcMaxPool", [image], [text], name, pads=[1] * 4, **kernel)
        for held, weight in ((np.int8, I8), (np.uint8, U8)):
            w, w_zero = (bytes_of(held, 6, 4, 3, 3, high=60), weight), (scalar(0, held), weight)
            given = [image, *one, w, scale(0.01), w_zero, scale(0.6), zeros[1], (bytes_of(np.int32, 6), I32)]
            yield ms("QLinearConv", given, [text], f"{name}_{np.dtype(held).name}", pads=[1] * 4)
        x, (w, r) = real(5, 3, 6), ((bytes_of(dtype, 1, n, 16, high=60), text) for n in (6, 4))
        scales = [(np.array([0.01], np.float32), F), (np.array([20], dtype), text)] * 2
        lengths = (np.array([5, 2, 3], np.int32), I32)
        given = [x, w, r, real(1, 32), lengths, GONE, GONE, GONE, *scales]
        yield ms("DynamicQuantizeLSTM", given, [F, F, F], name, hidden_size=4)
