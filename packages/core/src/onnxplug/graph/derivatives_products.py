"""Derivatives of matrix products, convolution, pooling and normalisation by given statistics."""

from __future__ import annotations

import math
from typing import Any

from onnxplug.graph.calculus import Adjoints, Underivable, Writer, given, operand, rule
from onnxplug.graph.ir import Node
from onnxplug.graph.value import Value


@rule("MatMul")
def matmul(t: Writer, node: Node, dy: Value) -> Adjoints:
    """dy B' and A' dy, summed over batches that were broadcast."""
    a, b = given(node), given(node, 1)
    left, right, g = a, b, dy
    if t.rank(b) == 1:
        right, g = t("Unsqueeze", b, t.ints(1)), t("Unsqueeze", g, t.ints(-1))
    if t.rank(a) == 1:
        left, g = t("Unsqueeze", a, t.ints(0)), t("Unsqueeze", g, t.ints(-2))
    da = t.collect(t("MatMul", g, t.transposed(right)), left)
    db = t.collect(t("MatMul", t.transposed(left), g), right)
    return t.reshape(da, a), t.reshape(db, b)


@rule("Gemm")
def gemm(t: Writer, node: Node, dy: Value) -> Adjoints:
    """As MatMul's, times alpha; C gets beta * dy."""
    a, b, c = given(node), given(node, 1), operand(node, 2)
    trans_a, trans_b = node.attributes.get("transA", 0), node.attributes.get("transB", 0)
    g = _scaled(t, dy, node.attributes.get("alpha", 1.0))
    da = t("Gemm", b, g, transA=trans_b, transB=1) if trans_a else t("Gemm", g, b, transB=1 - trans_b)
    db = t("Gemm", g, a, transA=1, transB=trans_a) if trans_b else t("Gemm", a, g, transA=1 - trans_a)
    return da, db, None if c is None else t.collect(_scaled(t, dy, node.attributes.get("beta", 1.0)), c)


def _scaled(t: Writer, value: Value, factor: float) -> Value:
    return value if factor == 1.0 else t("Mul", value, t.number(factor, value))


@rule("Conv")
def conv(t: Writer, node: Node, dy: Value) -> Adjoints:
    """By the image a ConvTranspose of dy with the weights, by the weights a Conv of the image with dy."""
    x, w, b = given(node), given(node, 1), operand(node, 2)
    group = node.attributes.get("group", 1)
    channels, *space = t.sizes(x, 1)
    filters, _, *kernel = t.sizes(w)
    rank = len(space)
    window = _window(node, space, kernel)
    dx = _slid_back(t, dy, w, space, kernel, window, group)
    # By the weights: x is the image, dy the kernel, batches are the channels; strides and dilations change places.
    image = t("Reshape", x, t.ints(0, group, channels // group, *space))
    image = t("Transpose", image, perm=[2, 1, 0, *range(3, 3 + rank)])
    image = t("Reshape", image, t.ints(channels // group, -1, *space))
    swapped = [1, 0, *range(2, 2 + rank)]
    strides, dilations = window["dilations"], window["strides"]
    product = t(
        "Conv",
        image,
        t("Transpose", dy, perm=swapped),
        group=group,
        strides=strides,
        dilations=dilations,
        pads=window["pads"],
    )
    product = t("Slice", product, t.ints(*[0] * rank), t.ints(*kernel), t.ints(*range(2, 2 + rank)))
    dw = t("Reshape", t("Transpose", product, perm=swapped), t.ints(filters, channels // group, *kernel))
    db = None if b is None else t("ReduceSum", dy, t.ints(0, *range(2, 2 + rank)), keepdims=0)
    return dx, dw, db


@rule("AveragePool")
def average_pool(t: Writer, node: Node, dy: Value) -> Adjoints:
    """A ConvTranspose with ones of dy over how many elements each window holds."""
    x = given(node)
    channels, *space = t.sizes(x, 1)
    kernel = list(node.attributes["kernel_shape"])
    window = _window(node, space, kernel)
    if node.attributes.get("ceil_mode", 0):
        raise Underivable("its output size is rounded up")
    if node.attributes.get("count_include_pad", 0):
        counts = t.number(math.prod(kernel), dy)
    else:
        counts = t("Conv", _ones(t, dy, 1, 1, *space), _ones(t, dy, 1, 1, *kernel), **window)
    ones = _ones(t, dy, channels, 1, *kernel)
    return [_slid_back(t, t("Div", dy, counts), ones, space, kernel, window, channels)]


@rule("MaxPool", many=True)
def max_pool(t: Writer, node: Node, outputs: list[Value | None]) -> Adjoints:
    """dy at the places of the largest elements."""
    x, dy = given(node), outputs[0]
    if node.attributes.get("storage_order", 0):
        raise Underivable("its storage_order is 1")
    assert dy is not None
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    attributes = {name: node.attributes.get(name) for name in names}
    places = t("Reshape", t.many("MaxPool", [x], 2, **attributes)[1], t.ints(-1))
    zeros = t("Expand", t.number(0, dy), t("Reshape", t("Size", x), t.ints(1)))
    update = t("Reshape", dy, t.ints(-1))
    return [t.reshape(t("ScatterElements", zeros, places, update, axis=0, reduction="add"), x)]


@rule("BatchNormalization", many=True)
def batch_normalization(t: Writer, node: Node, outputs: list[Value | None]) -> Adjoints:
    """dy * scale / sqrt(var + epsilon); by scale and bias sums over all other axes."""
    x, scale, mean, variance = (given(node, i) for i in (0, 1, 3, 4))
    dy = outputs[0]
    if dy is None or node.attributes.get("training_mode", 0) or node.since_version < 9 or {mean, variance} & t.active:
        raise Underivable("only by given, constant statistics it has a rule")
    rank = t.rank(x)

    def channels(value: Value) -> Value:
        return t("Unsqueeze", value, t.ints(*range(1, rank - 1)))

    epsilon = t.number(node.attributes.get("epsilon", 1e-5), variance)
    inverse = channels(t("Reciprocal", t("Sqrt", t("Add", variance, epsilon))))
    others = t.ints(0, *range(2, rank))
    normal = t("Mul", t("Sub", x, channels(mean)), inverse)
    by_scale = t("ReduceSum", t("Mul", dy, normal), others, keepdims=0)
    return t("Mul", dy, t("Mul", channels(scale), inverse)), by_scale, t("ReduceSum", dy, others, keepdims=0)


def _window(node: Node, space: list[int], kernel: list[int]) -> dict[str, Any]:
    """strides, dilations and pads, automatic padding worked out."""
    rank = len(space)
    strides, dilations = (list(node.attributes.get(name) or [1] * rank) for name in ("strides", "dilations"))
    auto = node.attributes.get("auto_pad", "NOTSET")
    pads = list(node.attributes.get("pads") or [0] * 2 * rank)
    if auto != "NOTSET":
        pads = [0] * 2 * rank
    if auto.startswith("SAME"):
        for i, (n, k, s, d) in enumerate(zip(space, kernel, strides, dilations, strict=True)):
            total = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
            pads[i] = total // 2 if auto == "SAME_UPPER" else total - total // 2
            pads[i + rank] = total - pads[i]
    return {"strides": strides, "dilations": dilations, "pads": pads}


def _slid_back(
    t: Writer, dy: Value, w: Value, space: list[int], kernel: list[int], window: dict[str, Any], group: int
) -> Value:
    """The adjoint of a convolution's image."""
    rest = [
        (n + window["pads"][i] + window["pads"][i + len(space)] - (k - 1) * d - 1) % s
        for i, (n, k, s, d) in enumerate(zip(space, kernel, window["strides"], window["dilations"], strict=True))
    ]
    return t("ConvTranspose", dy, w, **window, output_padding=rest, group=group)


def _ones(t: Writer, like: Value, *shape: int) -> Value:
    return t("Expand", t.number(1, like), t.ints(*shape))
