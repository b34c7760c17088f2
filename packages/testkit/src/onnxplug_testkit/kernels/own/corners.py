"""Structures at the corners of what operators' texts allow: places counted from the end, limits beyond any range, no elements, operands
of fewer dimensions, negative bases, and so many terms that where they are added shows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxplug_testkit.kernels.own.node import I8, B, F, H, N, OwnNode, bytes_of, ints, node, real, scalar, waves

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_MANY = 3000
"""Terms: more than eleven bits count, and more than a group of threads adds at once."""


def corner_nodes() -> Iterator[OwnNode]:
    """Structures of ai.onnx."""
    yield from _limits()
    yield from _places()
    yield from _nothing()
    yield from _many()
    yield from _far_from_zero()
    yield from _operands()


def _limits() -> Iterator[OwnNode]:
    """Ends that say "to the end" in 64 and in 32 bits, and starts behind the end."""
    body = real(3, 4, 5)
    for label, start, end, step in (
        ("greatest", 1, _GREATEST, 1), ("greatest_32", 1, 2**31 - 1, 2), ("least", -1, _LEAST, -1), ("least_32", -1, -(2**31), -2),
        ("from_behind", 9, -9, -2), ("from_the_greatest", _GREATEST, _LEAST, -1),
    ):  # fmt: skip
        limits = [(ints(number), N) for number in (start, end, -2, step)]
        yield node("Slice", 13, [body, *limits], [F], label=label)
    for upper in (0, 1):
        for far in (-7, 9):
            yield node("Trilu", 14, [body, (scalar(far, np.int64), N)], [F], label=f"far{far}_{upper}", upper=upper)
    for k in (-1, -2, 9):
        yield node("EyeLike", 9, [real(3, 4)], [F], label=f"k{k}", k=k)
    numbers = [(scalar(number), F) for number in (0.1, 300.2, 0.3)]
    yield node("Range", 11, numbers, [F], label="many")
    falling = [(scalar(number), F) for number in (2.0, -1.0, -0.7)]
    yield node("Range", 11, falling, [F], label="uneven")


def _places() -> Iterator[OwnNode]:
    """Indices that count from the end, several for one place, and none at all."""
    body = real(3, 4, 5)
    yield node("Gather", 13, [body, (ints(-1, 0, -4), N)], [F], label="from_the_end", axis=1)
    yield node("Gather", 13, [body, (scalar(-2, np.int64), N)], [F], label="one", axis=-2)
    yield node("GatherND", 13, [body, (np.array([[-1, 2], [0, -4]], np.int64), N)], [F], label="from_the_end")
    batches = (np.array([[-1], [0], [-3]], np.int64), N)
    yield node("GatherND", 13, [body, batches], [F], label="batches", batch_dims=1)
    rows = (np.array([[-1], [0]], np.int64), N)
    yield node("ScatterND", 18, [body, rows, real(2, 4, 5)], [F], label="from_the_end")
    again = (np.array([[1, 1, -3, 1]], np.int64), N)
    for kind in ("add", "mul", "max", "min"):
        yield node(
            "ScatterElements", 18, [real(4, 4), again, real(1, 4)], [F], label=f"again_{kind}", axis=1, reduction=kind
        )
        twice = (np.array([[1], [-2], [1]], np.int64), N)
        yield node("ScatterND", 18, [real(3, 4), twice, real(3, 4)], [F], label=f"again_{kind}", reduction=kind)
    items = [waves(2, 3), waves(2, 3, low=-1), waves(2, 3, high=1)]
    for place in (-1, -3):
        at = (scalar(place, np.int64), N)
        yield node("SequenceAt", 11, [(items, f"seq({F})"), at], [F], label=f"at{place}")
        yield node("SequenceInsert", 11, [(items, f"seq({F})"), real(2, 3), at], [f"seq({F})"], label=f"at{place}")
        yield node("SequenceErase", 11, [(items, f"seq({F})"), at], [f"seq({F})"], label=f"at{place}")


def _nothing() -> Iterator[OwnNode]:
    """Batches of none."""
    image, filters = real(0, 2, 5, 6), real(3, 2, 2, 3)
    yield node("Conv", 11, [image, filters, real(3)], [F], label="no_batch")
    for op_type in ("MaxPool", "AveragePool"):
        yield node(op_type, 11, [image], [F], label="no_batch", kernel_shape=[2, 2])
    channels = [real(2, low=0.5)] * 4
    yield node("BatchNormalization", 15, [image, *channels], [F], label="no_batch")
    yield node("LayerNormalization", 17, [real(0, 3, 4), real(4), real(4)], [F], label="no_batch")
    yield node("Softmax", 13, [real(0, 4)], [F], label="no_batch")
    yield node("ArgMax", 13, [real(0, 4)], [N], label="no_batch", axis=1)
    yield node("TopK", 11, [real(0, 4), (ints(2), N)], [F, N], label="no_batch")
    yield node("Gemm", 13, [real(0, 4), real(4, 3), real(0, 3)], [F], label="no_batch")
    yield node("Gather", 13, [real(4, 3), (np.zeros((0, 2), np.int64), N)], [F], label="no_places")


def _many() -> Iterator[OwnNode]:
    """Sums of many terms, of which the square roots of sums of squares are within a type whose largest number those sums are beyond. Of
    half precision: what is added up there stays behind, in single precision only the order shows."""
    rows = (waves(2, _MANY, low=0.5).astype(np.float16), H)
    for kind in ("Sum", "Mean", "L1"):
        version = 13 if kind == "Sum" else 18
        yield node(f"Reduce{kind}", version, [rows, (ints(1), N)], [H], label="many", elements="float16")
    large = (waves(2, _MANY, low=5.0, high=30.0).astype(np.float16), H)
    yield node("ReduceL2", 18, [large, (ints(-1), N)], [H], label="many", elements="float16")
    yield node("Softmax", 13, [rows], [H], label="many", elements="float16")
    image = (waves(1, 2, 60, 50, low=0.5).astype(np.float16), H)
    yield node("GlobalAveragePool", 1, [image], [H], label="many", elements="float16")
    whole = (bytes_of(np.int64, 2, _MANY, low=-9), N)
    yield node("CumSum", 14, [whole, (scalar(1, np.int64), N)], [N], label="many", elements="int32 int64")


def _far_from_zero() -> Iterator[OwnNode]:
    """What is normalized lies close together, far from zero: a mean of squares less the square of the mean has few digits left."""
    single = "float double"
    image, scale, bias = real(2, 4, 5, 6, low=99.0, high=101.0), real(4, low=0.5), real(4)
    yield node("InstanceNormalization", 6, [image, scale, bias], [F], label="far", elements=single)
    yield node("MeanVarianceNormalization", 13, [image], [F], label="far", elements=single)
    spread = [scale, bias, real(4, low=99.0, high=101.0), real(4, low=0.5)]
    yield node("BatchNormalization", 15, [image, *spread], [F, F, F], label="far", elements=single, training_mode=1)
    rows = real(3, 16, low=99.0, high=101.0)
    yield node("LayerNormalization", 17, [rows, real(16), real(16)], [F], label="far", elements=single)


def _operands() -> Iterator[OwnNode]:
    """Operands of fewer dimensions, bases below zero, and windows over padding in which no number is above zero."""
    yield node("Einsum", 12, [real(2, 3, 4), real(1, 4, 5)], [F], label="repeated", equation="...ij,...jk->...ik")
    yield node(
        "Where", 16, [(bytes_of(np.int8, 5, high=1).astype(bool), B), real(3, 4, 5), real(4, 1)], [F], label="fewer"
    )
    square = [real(3, 4), real(4, 5)]
    for label, third in (("scalar", scalar(1.5)), ("one", waves(1)), ("column", waves(3, 1)), ("ones", waves(1, 1))):
        yield node("Gemm", 13, [*square, (third, F)], [F], label=f"third_{label}", beta=0.25, alpha=2.0)
    for label, exponents in (("square", scalar(2.0)), ("whole", np.array([1, 2, 3, -2, 0], np.float32))):
        yield node("Pow", 13, [real(3, 5, low=-3.0, high=-0.5), (exponents, F)], [F], label=f"below_zero_{label}")
    below = (bytes_of(np.int8, 1, 2, 5, 5, low=-90, high=-3), I8)
    yield node("MaxPool", 12, [below], [I8], label="below_zero", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
