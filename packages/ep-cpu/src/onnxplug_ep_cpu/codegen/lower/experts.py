"""MoE and QMoE: rows go through the networks of the experts that their scores choose."""

from __future__ import annotations

import math

import numpy as np

from onnxplug.contract import NodeView, ValueView
from onnxplug.contract.records import record
from onnxplug.contract.sizes import least
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.kernels.experts import Chosen, Combined, Experts, Sorted, Taken
from onnxplug_ep_cpu.codegen.kernels.nbits import VECTORS, NBits
from onnxplug_ep_cpu.codegen.lower.activation import gelu_of
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.lines import source
from onnxplug_ep_cpu.codegen.lower.loops import write_map
from onnxplug_ep_cpu.codegen.lower.nbits import by_panel, words_of
from onnxplug_ep_cpu.codegen.lower.quantized import MS
from onnxplug_ep_cpu.codegen.lower.softmax import softmaxed
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, rank, ranked, require, typed
from onnxplug_ep_cpu.codegen.lower.tiles import most_rows
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor
from onnxplug_kernels.ops.contrib_matmul import unpacked

SHARED = 128
"""Weights of a column that have a scale in common at most, as kernels take them: a longer block is several."""
DEPTH = 256
"""Weights that are floats which a tile passes over at once."""
MOST = 21
"""Operands of a node."""
ACTIVATIONS = ("relu", "gelu", "silu", "identity", "swiglu")


@record(frozen=True, slots=True)
class Layer:
    """Operands of one layer; ``bits`` 32 for weights that are floats. ``block`` 0: a scale for each column."""

    weights: ValueView
    scales: ValueView | None
    zeros: ValueView | None
    bias: ValueView | None
    bits: int
    block: int


def _layers(node: NodeView) -> list[Layer | None]:
    """The three layers of a node."""
    given, layers = node.attributes, []
    operands = [*node.inputs, *[None] * MOST]
    for n in range(3):
        if node.op_type == "MoE":
            w, scales, zeros, bias, bits = operands[2 + 2 * n], None, None, operands[3 + 2 * n], 32
        else:
            (w, scales, bias), zeros = operands[2 + 3 * n : 5 + 3 * n], operands[11 + n]
            bits = given.get(f"fc{n + 1}_expert_weight_bits", 0) or given.get("expert_weight_bits", 4)
        block = given.get("block_size", 0) if scales is not None and rank(scales) == 3 else 0
        layers.append(None if w is None else Layer(w, scales, zeros, bias, bits, block))
    return layers


def _router_weights(node: NodeView) -> ValueView | None:
    """What the experts chosen count, where that is not what their scores say."""
    return [*node.inputs, *[None] * MOST][14] if node.op_type == "QMoE" else None


def _supports(node: NodeView) -> str | None:
    x, scores, given = node.inputs[0], node.inputs[1], node.attributes
    reason = (
        typed(x)
        or (None if rank(x) in (2, 3) else "its operand is not rows, nor batches of them")
        or ranked(scores, FLOATS, 2)
        or ranked(_router_weights(node), FLOATS, 2)
    )
    if reason is not None:
        return reason
    if given.get("use_sparse_mixer", 0) or given.get("activation_type", "relu") not in ACTIVATIONS:
        return "its router or its activation is not generated"
    if given.get("swiglu_limit_after_activation", 0):
        return "limits behind the activation are not generated"
    if given.get("quant_type", "int") != "int" or given.get("weights_prepacked", -1) > 0 or any(node.inputs[15:]):
        return "only packed integers in the portable layout are generated"
    for layer in _layers(node):
        reason = None if layer is None else _layer_reason(layer, node.op_type == "QMoE")
        if reason is not None:
            return reason
    return "it has no second layer" if _layers(node)[1] is None else None


def _layer_reason(layer: Layer, packed: bool) -> str | None:
    """Why no code is generated for a layer."""
    held = [v for v in (layer.weights, layer.scales, layer.zeros, layer.bias) if v is not None]
    if any(v.constant is None for v in held) or (packed and layer.scales is None):
        return "weights that are computed are not generated"
    if packed and (layer.bits not in (2, 4, 8) or any(v.dtype != np.uint8 for v in (layer.weights, layer.zeros) if v)):
        return "only weights of 2, 4 or 8 bits are generated"
    return next((why for v in (layer.scales, layer.bias) if (why := typed(v)) is not None), None)


@lowering("MoE", "QMoE", domain=MS, supports=_supports)
def experts(b: Lowering, node: NodeView) -> None:
    """The experts' shares of each row, summed."""
    x, scores, y = node.inputs[0], node.inputs[1], node.outputs[0]
    assert x is not None and scores is not None and y is not None
    given, shape, table = node.attributes, b.shape(x), b.shape(scores)
    width, count, k = shape[-1], table[1], int(given.get("k", 1))
    rows, (first, second, third) = math.prod(shape[:-1]), _layers(node)
    assert first is not None and second is not None
    if table[0] != rows or not 1 <= k <= count:
        raise Unsupported("scores do not suit the rows")
    to, pairs = b.output(y), rows * k
    if to.size == 0:
        return
    order, places, shares, starts = _routed(b, node, scores, (rows, count, k))
    taken = b.scratch((pairs, width))
    b.program.call(Taken(), [taken.ref, b.dense(x).ref, order.ref, k, width], pairs, pairs * width * 0.1, even=False)
    made = _product(b, first, taken, starts, count)
    gate = None if third is None else _product(b, third, taken, starts, count)
    result = _product(b, second, _activated(b, node, made, gate), starts, count)
    require(None if result.shape[1] == width else "the second layer's width is another one")
    args: list[int | Ref] = [to.ref, result.ref, places.ref, shares.ref, k, width, 4 * result.strides[0]]
    b.program.call(Combined(), args, rows, pairs * width * 0.1, even=False)


def _routed(
    b: Lowering, node: NodeView, scores: ValueView, sizes: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(pairs in the order of experts, the place of each, its share, where experts begin)."""
    rows, count, k = sizes
    own = _router_weights(node)
    if own is None:
        weights = b.write(softmaxed(b, b.shape(scores), range(1, 2), source(b, scores)))
        weights = weights if weights.is_dense else b.copied(weights, range(2))
    else:
        require(None if b.shape(own) == b.shape(scores) else "the router's weights do not suit its scores")
        weights = b.dense(own)
    normalized = bool(node.attributes.get("normalize_routing_weights", 0)) or (node.op_type == "QMoE" and own is None)
    flags, chosen = b.scratch((rows, count), element="int32"), b.scratch((rows, k), element="int32")
    shares = b.scratch((rows, k))
    args: list[int | Ref] = [*(t.ref for t in (b.dense(scores), weights, flags, chosen, shares)), count, k]
    b.program.call(Chosen(normalized), args, rows, rows * count * k * 1.0, even=False)
    starts, cursors = (b.scratch((count + 1,), element="int64") for _ in range(2))
    order, places = (b.scratch((rows * k,), element="int64") for _ in range(2))
    args = [*(t.ref for t in (chosen, starts, cursors, order, places)), rows * k, count]
    b.program.call(Sorted(), args, 1, rows * k * 4.0 + count * 2.0)
    return order, places, shares, starts


def _activated(b: Lowering, node: NodeView, x: Tensor, gate: Tensor | None) -> Tensor:
    """What goes into the second layer."""
    given, build = node.attributes, ex.Build()
    kind = given.get("activation_type", "relu")
    if kind == "swiglu" and gate is None:
        half = x.shape[1] // 2
        side = 2 if given.get("swiglu_fusion", 0) == 1 else 1
        gate = x.shift(1 if side == 2 else half).viewed((x.shape[0], half), (x.strides[0], side))
        x = x.viewed((x.shape[0], half), (x.strides[0], side))
    leaf, limit = build("leaf", 0), given.get("swiglu_limit", math.inf)
    if kind == "swiglu":
        other = build("leaf", 1)
        if math.isfinite(limit):
            high, low = build("const", float(limit)), build("const", -float(limit))
            other, leaf = build("max", build("min", other, high), low), build("min", leaf, high)
        alpha, beta = (build("const", float(given.get(f"activation_{n}", v))) for n, v in (("alpha", 1), ("beta", 0)))
        out = build("mul", build("mul", leaf, build("sigmoid", build("mul", leaf, alpha))), build("add", other, beta))
    else:
        out = leaf
        if kind == "relu":
            out = build("max", leaf, build("const", 0.0))
        elif kind == "gelu":
            out = gelu_of(build, leaf, "tanh")
        elif kind == "silu":
            out = build("mul", leaf, build("sigmoid", leaf))
        out = out if gate is None else build("mul", out, build("leaf", 1))
    made = b.scratch(x.shape)
    write_map(b.program, b.target, build.finish(out), [x, *([] if gate is None else [gate])], made)
    return made


def _product(b: Lowering, layer: Layer, x: Tensor, starts: Tensor, count: int) -> Tensor:
    """Each expert's rows times its weights, plus its bias."""
    (pairs, k), width = x.shape, VECTORS * b.target.lanes
    array = layer.weights.constant
    assert array is not None
    require(None if array.ndim == 3 and len(array) == count else "the weights do not suit the experts")
    if layer.bits == 32:
        turned = array.shape[2] != k
        n = array.shape[2 if turned else 1]
        require(None if array.shape[1 if turned else 2] == k else "the weights do not suit their operand")
        packed = b.prepared.packed(
            layer.weights, ("experts", width, turned), lambda w: _panels(w.mT if turned else w, width)
        )
        tables, blocks, block, zero = [packed, packed, packed], 0, 1, None
        depth = min(DEPTH, k)
    else:
        n = array.shape[1]
        packed, step, offset, block = _packed(b, layer, array, k, width)
        tables, blocks = [packed, step, offset], k // block
        zero = None if layer.zeros is not None else 2 ** (layer.bits - 1)
        depth = max(block, b.target.l1 // (8 * width) // block * block)
    panels = -(-n // width)
    bias = packed
    if layer.bias is not None:
        require(None if b.shape(layer.bias) == (count, n) else "the bias does not suit the weights")
        bias = b.prepared.packed(layer.bias, ("experts", width), lambda v: np.pad(v, ((0, 0), (0, -n % width))))
    result = b.scratch((pairs, panels * width))
    kernel = Experts(NBits(layer.bits, block, depth, most_rows(b.target, VECTORS), zero), layer.bias is not None)
    refs = [b.tensor_of(t).ref for t in (*tables, bias)]
    args: list[int | Ref] = [
        x.ref, *refs, result.ref, starts.ref, k, 4 * k, 4 * panels * width, packed.nbytes // (count * panels), blocks, panels,
    ]  # fmt: skip
    used = least(count, pairs)
    work = panels * width * k * ((0.5 if layer.bits == 32 else 2.5) * used + pairs) / (4.5 * b.target.lanes)
    b.program.call(kernel, args, count * panels, work, even=False)
    return result.viewed((pairs, n), result.strides)


def _packed(
    b: Lowering, layer: Layer, array: np.ndarray, k: int, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """(weights, scales and offsets in panels of each expert, the weights that have a scale in common)."""
    bits, scales, zeros = layer.bits, layer.scales, layer.zeros
    assert scales is not None and scales.constant is not None
    (count, n, held), own = array.shape, layer.block or k
    block = math.gcd(own, SHARED)
    if held * 8 != k * bits or k % own or block % (32 // bits) or scales.constant.size != count * n * (k // own):
        raise Unsupported("the blocks of weights do not suit their operand")
    packed = b.prepared.packed(
        layer.weights,
        ("experts", width, bits),
        lambda w: np.concatenate([words_of(part, n, width) for part in w]),
    )

    def spread(values: np.ndarray) -> np.ndarray:
        """[expert, n, k // own] as the kernel takes them."""
        repeated = values.reshape(count, n, k // own).repeat(own // block, 2)
        return np.concatenate([by_panel(part, width) for part in repeated])

    step = b.prepared.packed(scales, ("experts", width, block), spread)
    offset = step
    if zeros is not None:
        points = zeros.constant
        assert points is not None
        held = n * -(-(k // own) * bits // 8) if layer.block else -(-n * bits // 8)
        require(None if points.size == count * held else "the zero points do not suit the weights")
        offset = b.prepared.packed(
            scales,
            ("experts offsets", width, block, bits, zeros.name),
            lambda s: spread(-_points(points, (count, n, k // own), bits, layer.block) * s.reshape(count, n, k // own)),
        )
    return packed, step, offset, block


def _points(points: np.ndarray, shape: tuple[int, int, int], bits: int, block: int) -> np.ndarray:
    """The zero point of each block: packed along blocks, along columns where a column is one block."""
    count, n, blocks = shape
    fields = unpacked(np, points.reshape((count, n, -1) if block else (count, -1)), bits)
    return np.asarray(fields[..., : blocks if block else n], np.float32).reshape(shape)


def _panels(weights: np.ndarray, width: int) -> np.ndarray:
    """[expert, n, k] as [expert][panel][k][column]."""
    count, n, k = weights.shape
    padded = np.pad(weights, ((0, 0), (0, -n % width), (0, 0)))
    return np.ascontiguousarray(padded.reshape(count, -1, width, k).transpose(0, 1, 3, 2))
