"""Whether the shapes of a node's operands go together, where inferring the output's shape does not ask.

A provider that compiles reads and writes by the shapes that the plan tells it. Where a declared dimension is unknown, shapes that
do not go together are only seen when a run brings them; such a node's outputs are not known to the plan, so that it is run by its
kernel, which refuses them: one that goes by its operands' shapes alone asks here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Shape = tuple[int, ...]
Fit = Callable[[Any, Sequence[Shape | None]], bool]
_FITS: dict[str, Fit] = {}


def declares_last(node: Any) -> bool:
    """Whether the channels of a node's image and result are declared last, as onnxruntime's optimizer has those of quantized ones."""
    return node.op_type.startswith("Nhwc") or bool(node.attributes.get("channels_last", 0))


def channels_second(node: Any, x: Shape | None) -> Shape | None:
    """The shape of a node's image with its channels second."""
    return (x[0], x[-1], *x[1:-1]) if x and declares_last(node) else x


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """Numpy's broadcast shape, or None where there is none."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        wanted = {n for n in sizes if n != 1}
        if len(wanted) > 1:
            return None
        result.append(wanted.pop() if wanted else 1)
    return tuple(result)


def fits(node: Any, shapes: Sequence[Shape | None]) -> bool:
    """False where the operands of ``node``, which have these shapes (None: left out or not known), cannot be of one node."""
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


def _get(shapes: Sequence[Shape | None], index: int) -> Shape | None:
    return shapes[index] if index < len(shapes) else None


def _within(part: Shape | None, whole: Shape) -> bool:
    """Whether ``part`` is left out or broadcasts to ``whole`` as it is."""
    return part is None or broadcast([part, whole]) == whole


def _vectors(size: int, *shapes: Shape | None) -> bool:
    return all(shape is None or shape == (size,) for shape in shapes)


@_for("Conv", "ConvInteger", "FusedConv", "ConvTranspose")
def _conv(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, w, group = shapes[0], shapes[1], node.attributes.get("group", 1)
    if x is None or w is None:
        return True
    if tuple(node.attributes.get("kernel_shape") or w[2:]) != w[2:]:
        return False
    if node.op_type == "ConvTranspose":
        return len(x) == len(w) and x[1] == w[0] and _vectors(w[1] * group, _get(shapes, 2))
    bias = None if node.op_type == "ConvInteger" else _get(shapes, 2)
    return len(x) == len(w) and x[1] == w[1] * group and _vectors(w[0], bias)


@_for("QLinearConv")
def _quantized_conv(node: Any, shapes: Sequence[Shape | None]) -> bool:
    return _conv(node, [channels_second(node, shapes[0]), shapes[3], _get(shapes, 8)])


@_for("BatchNormalization", "InstanceNormalization")
def _channels(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x = shapes[0]
    if x is None or node.attributes.get("spatial", 1) == 0:
        return True
    return _vectors(x[1] if len(x) > 1 else 1, *shapes[1:])


@_for(
    "LayerNormalization", "PRelu", "RMSNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
)  # fmt: skip
def _scaled(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x = shapes[0]
    if x is None or (node.op_type == "PRelu" and node.since_version < 7):  # whose slopes are one a channel
        return True
    return all(_within(shape, x) for shape in shapes[1:])


@_for("Gemm", "FusedGemm")
def _gemm(node: Any, shapes: Sequence[Shape | None]) -> bool:
    a, b, c = shapes[0], shapes[1], _get(shapes, 2)
    if a is None or b is None:
        return True
    if not len(a) == len(b) == 2:
        return False
    rows, depth = a[::-1] if node.attributes.get("transA", 0) else a
    inner, columns = b[::-1] if node.attributes.get("transB", 0) else b
    return depth == inner and _within(c, (rows, columns))


@_for("GroupNormalization")
def _grouped(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, groups = shapes[0], node.attributes["num_groups"]
    if x is None:
        return True
    return groups > 0 and x[1] % groups == 0 and _vectors(x[1] if node.since_version > 18 else groups, *shapes[1:3])


@_for("LSTM", "GRU", "RNN")
def _recurrent(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, w, r, b = shapes[0], shapes[1], shapes[2], _get(shapes, 3)
    if x is None or w is None or r is None:
        return True
    gates = {"GRU": 3, "RNN": 1}.get(node.op_type, 4)
    directions, hidden = r[0], r[2]
    batch = x[0] if node.attributes.get("layout", 0) else x[1]
    state = (batch, directions, hidden) if node.attributes.get("layout", 0) else (directions, batch, hidden)
    return (
        w == (directions, gates * hidden, x[2])
        and r == (directions, gates * hidden, node.attributes.get("hidden_size", hidden))
        and b in (None, (directions, 2 * gates * hidden))
        and _get(shapes, 4) in (None, (batch,))
        and all(_get(shapes, index) in (None, state) for index in (5, 6))
        and _get(shapes, 7) in (None, (directions, 3 * hidden))
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
    """All operands behind the first are single numbers."""
    return all(shape is None or math.prod(shape) == 1 for shape in shapes[1:])


@_for("ReverseSequence")
def _reversed(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, lengths = shapes
    return x is None or _vectors(x[node.attributes.get("batch_axis", 1)], lengths)


@_for("DFT", "STFT")
def _complex(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x = shapes[0]
    return x is None or (node.op_type == "STFT" and len(x) == 2) or x[-1] in (1, 2)


@_for("QuantizeLinear", "DequantizeLinear")
def _quantized(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, scale, zero = shapes[0], shapes[1], _get(shapes, 2)
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
    return ids is None or places is None or _get(shapes, 8) is not None or ids[1] <= places[0]


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
    return x is None or _within(_get(shapes, 1), x)


@_for("Attention", "QAttention")
def _projected(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, w = shapes[0], shapes[1]
    if not node.domain:
        lengths = _get(shapes, 6)
        return _attended(node, shapes[:3]) and _remembered(shapes) and (x is None or _vectors(x[0], lengths))
    if node.domain != "com.microsoft" or x is None or w is None:
        return True
    bias = _get(shapes, 2)
    if not (len(x) == 3 and len(w) == 2 and x[2] == w[0] and bias in (None, (w[1],))):
        return False
    past = _get(shapes, 4)
    return node.op_type == "QAttention" or _masked(_get(shapes, 3), x[0], x[1], x[1] + (0 if past is None else past[3]))


@_for("MultiHeadAttention")
def _attended(node: Any, shapes: Sequence[Shape | None]) -> bool:
    """As many values as keys, of as many batches as there are queries, which are as wide; caches, masks and biases of theirs."""
    q, k, v, _, mask, bias, *pasts = (_get(shapes, index) for index in range(8))
    if q is None or k is None or v is None or len(k) != len(v) or not 3 <= len(k) <= 4:
        return True
    if not (q[0] == k[0] == v[0] and k[len(k) - 2] == v[len(v) - 2]):
        return False
    total, heads = k[len(k) - 2], node.attributes.get("num_heads", 0)
    sizes = _size(q, node.attributes.get("q_num_heads", heads)), _size(k, node.attributes.get("kv_num_heads", heads))
    if None not in sizes and sizes[0] != sizes[1]:
        return False
    for past, new in zip(pasts, (k, v), strict=True):
        if past is not None and not _cached(past, q[0], heads, new[3] if len(new) == 4 else new[2] // max(heads, 1)):
            return False
    if pasts[0] is not None and len(k) == 3:
        total += pasts[0][2]
    rows = q[1] if len(q) == 3 else q[2]
    return _masked(mask, q[0], rows, total) and _within(bias, (q[0], heads, rows, total))


def _size(shape: Shape, heads: int) -> int | None:
    """Numbers of a head, None where that is not known."""
    return shape[3] if len(shape) == 4 else shape[2] // heads if heads > 0 else None


def _remembered(shapes: Sequence[Shape | None]) -> bool:
    """Whether a mask of ONNX's attention has no more keys than there are, those of earlier calls among them."""
    k, mask, past = shapes[1], _get(shapes, 3), _get(shapes, 4)
    if k is None or not mask or (past is None and len(shapes) > 4):  # which may be one of a shape that is not known
        return True
    return mask[-1] <= k[len(k) - 2] + (0 if past is None else past[2])


@_for("GroupQueryAttention")
def _grouped_attention(node: Any, shapes: Sequence[Shape | None]) -> bool:
    q, key = shapes[0], _get(shapes, 1)
    heads, shared = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    if q is None or heads < 1 or shared < 1:
        return q is None
    size = q[2] // (heads if key is not None else heads + 2 * shared)
    lengths = _get(shapes, 5)
    return (lengths is None or math.prod(lengths) == q[0]) and all(
        past is None or node.attributes.get("kv_cache_bit_width", 0) or _cached(past, q[0], shared, size)
        for past in shapes[3:5]
    )


def _cached(past: Shape, batch: int, heads: int, size: int) -> bool:
    """Whether keys or values of earlier calls are those of so many sequences and heads."""
    return len(past) == 4 and (past[0], past[1], past[3]) == (batch, heads, size)


def _masked(mask: Shape | None, batch: int, rows: int, total: int) -> bool:
    """Whether a mask is one of the kinds that com.microsoft's attention takes."""
    known: dict[int, list[Shape]] = {
        1: [(batch,), (2 * batch,), (3 * batch + 2,)],
        2: [(batch, total)],
        3: [(batch, rows, total)],
    }
    return mask is None or mask in known.get(len(mask), [mask])


@_for("DynamicQuantizeLSTM")
def _quantized_recurrent(node: Any, shapes: Sequence[Shape | None]) -> bool:
    x, w, r, b = shapes[0], shapes[1], shapes[2], _get(shapes, 3)
    if x is None or w is None or r is None:
        return True
    turned = [x, (w[0], w[2], w[1]), (r[0], r[2], r[1]), b, *shapes[4:8]]
    return _recurrent(node, turned)
