"""Whether the shapes of a node's operands go together, where inferring the output's shape does not ask.

A compiling provider reads and writes memory by the shapes that the plan gives it. Where the model leaves a dimension open, only a run
shows that shapes do not go together. The plan then leaves the shapes of the node's outputs unknown, so that the node is run by its own
kernel, which refuses the operands. A kernel that knows nothing but the shapes of its operands asks ``fits`` itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from onnxplug.contract import attention_fits
from onnxplug.contract.shapes import Shape, broadcast, channels_second, operand, vectors, within

Fit = Callable[[Any, Sequence[Shape | None]], bool]
_FITS: dict[str, Fit] = {}


def fits(node: Any, shapes: Sequence[tuple[int, ...] | None]) -> bool:
    """Whether ``node`` can have operands of these shapes, one for each of its inputs; None for one that is left out or whose shape is not
    known. True for an operator that has no rule."""
    fit = _FITS.get(node.op_type)
    try:
        return fit is None or fit(node, shapes)
    except IndexError:  # of a rank that the operator does not have
        return False


def _for(*op_types: str) -> Callable[[Fit], Fit]:
    def enter(fit: Fit) -> Fit:
        _FITS.update(dict.fromkeys(op_types, fit))
        return fit

    return enter


@_for("Conv", "ConvInteger", "FusedConv", "ConvTranspose")
def _conv(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, w, group = shapes[0], shapes[1], node.attributes.get("group", 1)
    if x is None or w is None:
        return True
    if 0 in w[2:] or tuple(node.attributes.get("kernel_shape") or w[2:]) != w[2:]:
        return False
    if node.op_type == "ConvTranspose":
        return len(x) == len(w) and x[1] == w[0] and vectors(w[1] * group, operand(shapes, 2))
    bias = None if node.op_type == "ConvInteger" else operand(shapes, 2)
    return len(x) == len(w) and x[1] == w[1] * group and w[0] % group == 0 and vectors(w[0], bias)


@_for("DeformConv")
def _displaced_conv(node: Any, shapes: Sequence[Shape | None]) -> bool:
    return _conv(node, [*shapes[:2], operand(shapes, 3)])


@_for("QLinearConv")
def _quantized_conv(node: Any, shapes: Sequence[Shape | None]) -> bool:
    return _conv(node, [channels_second(node, shapes[0]), shapes[3], operand(shapes, 8)])


@_for("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def _pooled(node: Any, shapes: Sequence[Shape | None]) -> bool:
    """There is neither a mean nor a largest element of nothing."""
    x = shapes[0]
    return x is None or 0 not in x[2:] or 0 in x[:2]


@_for("BatchNormalization", "InstanceNormalization")
def _channels(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x = shapes[0]
    if x is None or node.attributes.get("spatial", 1) == 0:
        return True
    return vectors(x[1] if len(x) > 1 else 1, *shapes[1:])


@_for(
    "LayerNormalization", "PRelu", "RMSNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)  # fmt: skip
def _scaled(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x = shapes[0]
    if x is None or (node.op_type == "PRelu" and node.since_version < 7):  # whose slopes are one a channel
        return True
    return all(within(shape, x) for shape in shapes[1:])


@_for("Gemm", "FusedGemm")
def _gemm(node: Any, shapes: Sequence[Shape | None]) -> bool:
    a, b, c = shapes[0], shapes[1], operand(shapes, 2)
    if a is None or b is None:
        return True
    if not len(a) == len(b) == 2:
        return False
    rows, depth = a[::-1] if node.attributes.get("transA", 0) else a
    inner, columns = b[::-1] if node.attributes.get("transB", 0) else b
    return depth == inner and within(c, (rows, columns))


@_for("GroupNormalization")
def _grouped(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, groups = shapes[0], node.attributes["num_groups"]
    if x is None:
        return True
    return groups > 0 and x[1] % groups == 0 and vectors(x[1] if node.since_version > 18 else groups, *shapes[1:3])


@_for("LSTM", "GRU", "RNN")
def _recurrent(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, w, r, b = shapes[0], shapes[1], shapes[2], operand(shapes, 3)
    if x is None or w is None or r is None:
        return True
    gates = {"GRU": 3, "RNN": 1}.get(node.op_type, 4)
    directions, hidden = 2 if node.attributes.get("direction") == "bidirectional" else 1, r[2]
    batch = x[0] if node.attributes.get("layout", 0) else x[1]
    state = (batch, directions, hidden) if node.attributes.get("layout", 0) else (directions, batch, hidden)
    return (
        w == (directions, gates * hidden, x[2])
        and r == (directions, gates * hidden, node.attributes.get("hidden_size", hidden))
        and b in (None, (directions, 2 * gates * hidden))
        and operand(shapes, 4) in (None, (batch,))
        and all(operand(shapes, index) in (None, state) for index in (5, 6))
        and operand(shapes, 7) in (None, (directions, 3 * hidden))
    )


@_for("ScatterND")
def _scatter_nd(node: Any, shapes: Sequence[Shape | None]) -> bool:
    data, indices, updates = shapes
    if data is None or indices is None or updates is None:
        return True
    return 0 < indices[-1] <= len(data) and updates == (*indices[:-1], *data[indices[-1] :])


@_for("DepthToSpace", "SpaceToDepth")
def _blocked(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x = shapes[0]
    block: int = node.attributes["blocksize"]
    if x is None or block < 1:
        return x is None
    return x[1] % block**2 == 0 if node.op_type == "DepthToSpace" else not any(n % block for n in x[2:])


@_for("ArgMax", "ArgMin")
def _placed(node: Any, shapes: Sequence[Shape | None]) -> bool:
    """There is no place in nothing."""
    x = shapes[0]
    if not x:
        return True
    axis = node.attributes.get("axis", 0) % len(x)
    return x[axis] > 0 or 0 in (*x[:axis], *x[axis + 1 :])


@_for("GatherND")
def _gather_nd(node: Any, shapes: Sequence[Shape | None]) -> bool:
    data, indices = shapes[:2]
    batch = node.attributes.get("batch_dims", 0)
    if data is None or indices is None:
        return True
    return batch < len(indices) and data[:batch] == indices[:batch] and indices[-1] <= len(data) - batch


@_for("ScatterElements", "Scatter")
def _scatter(node: Any, shapes: Sequence[Shape | None]) -> bool:
    _, indices, updates = shapes
    return (indices == updates or None in (indices, updates)) and _gathered(node, shapes)


@_for("GatherElements")
def _gathered(node: Any, shapes: Sequence[Shape | None]) -> bool:
    data, indices = shapes[:2]
    if data is None or indices is None:
        return True
    axis = node.attributes.get("axis", 0) % max(len(data), 1)
    pairs = enumerate(zip(data, indices, strict=False))
    return len(data) == len(indices) and all(d == axis or m <= n for d, (n, m) in pairs)


@_for("Clip", "CumSum", "CumProd", "Trilu")
def _scalars(node: Any, shapes: Sequence[Shape | None]) -> bool:
    """All operands behind the first are single numbers, as onnxruntime takes them: of rank 0, or vectors of one."""
    return all(shape in (None, (), (1,)) for shape in shapes[1:])


@_for("Split")
def _split(node: Any, shapes: Sequence[Shape | None]) -> bool:
    """No part may have been counted that has no element, as in onnxruntime."""
    x, count = shapes[0], node.attributes.get("num_outputs")
    return x is None or count is None or count <= x[node.attributes.get("axis", 0)]


@_for("ReverseSequence")
def _reversed(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, lengths = shapes
    return x is None or vectors(x[node.attributes.get("batch_axis", 1)], lengths)


@_for("DFT", "STFT")
def _complex(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x = shapes[0]
    return x is None or (node.op_type == "STFT" and len(x) == 2) or x[-1] in (1, 2)


@_for("QuantizeLinear", "DequantizeLinear")
def _quantized(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, scale, zero = shapes[0], shapes[1], operand(shapes, 2)
    if x is None or scale is None:
        return True
    if zero is not None and math.prod(zero) != math.prod(scale):
        return False
    if len(scale) != 1 or scale == (1,) or node.attributes.get("block_size", 0):
        return True
    axis = node.attributes.get("axis", 1)
    return -len(x) <= axis < len(x) and scale == (x[axis],)


@_for("MatMulBnb4", "MatMulNBits")
def _packed(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, given = shapes[0], node.attributes
    if x is not None and x[-1] != given.get("K" if given.get("transB", 1) else "N", x[-1]):
        return False
    rows, depth, block = (given.get(name, 0) for name in ("N", "K", "block_size"))
    if node.op_type == "MatMulBnb4" or not (rows and depth and block):
        return True
    bits, blocks = given.get("bits", 4), -(-depth // block)
    sizes = (rows * blocks * (-(-block * bits // 8)), rows * blocks)
    return all(shape is None or math.prod(shape) == size for shape, size in zip(shapes[1:3], sizes, strict=False))


@_for("EmbedLayerNormalization")
def _embedded(node: Any, shapes: Sequence[Shape | None]) -> bool:
    ids, places = shapes[0], shapes[3]
    return ids is None or places is None or operand(shapes, 8) is not None or ids[1] <= places[0]


@_for("MatMul", "FusedMatMul", "TransposeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
def _product(node: Any, shapes: Sequence[Shape | None]) -> bool:
    a, b = shapes[0], shapes[1]
    further = any(node.attributes.get(name, 0) for name in ("transBatchA", "transBatchB"))
    if a is None or b is None or min(len(a), len(b)) < 2 or further:
        return True
    inner = a[-2] if node.attributes.get("transA", 0) else a[-1]
    depth = b[-1] if node.attributes.get("transB", 0) else b[-2]
    return inner == depth and broadcast([a[:-2], b[:-2]]) is not None


@_for("QLinearMatMul")
def _quantized_product(node: Any, shapes: Sequence[Shape | None]) -> bool:
    return _product(node, [shapes[0], shapes[3]])


@_for("BiasGelu", "FastGelu")
def _biased(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x = shapes[0]
    return x is None or within(operand(shapes, 1), x)


@_for("DynamicQuantizeLSTM")
def _quantized_recurrent(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, w, r, b = shapes[0], shapes[1], shapes[2], operand(shapes, 3)
    if x is None or w is None or r is None:
        return True
    turned = [x, (w[0], w[2], w[1]), (r[0], r[2], r[1]), b, *shapes[4:8]]
    return _recurrent(node, turned)


_for("Attention", "QAttention")(attention_fits.projected)
_for("MultiHeadAttention")(attention_fits.attended)
_for("GroupQueryAttention")(attention_fits.grouped)
